"""`/v1/stores/{s}/erasure-cycles/{c}/certificate`, its `:verify`, and `/v1/signing-keys`."""

from typing import Annotated, Any

from fastapi import Depends, Path, Request
from sqlmodel import Session, col, select
from starlette.responses import Response

from app.auth.access import (
    ClockDep,
    DatabaseDep,
    SettingsDep,
    clock_of,
    database_of,
    instance_id_of,
    requires,
    requires_unlimited,
    settings_of,
    tell_changed,
)
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, find_replay, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.erase.certificates.certificate import document_of, issue_certificate
from app.erase.certificates.example import CERTIFICATE_EXAMPLE
from app.erase.certificates.models import VerifyRequest
from app.erase.certificates.rows import ErasureCertificate, SigningKey, SigningKeyRead
from app.erase.certificates.signing import register, retire, rotate
from app.erase.certificates.verify_service import submit_verify
from app.erase.errors import CycleNotFound, SigningKeyNotFound
from app.erase.queries import get_cycle
from app.jobs.api import accepted
from app.jobs.engines.choice import check_engine, check_je
from app.jobs.models import JobRead
from app.kit.conditional import IfNoneMatch, is_current
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken, read_page
from app.kit.problems import problems
from app.stores.api import StoreId, read_row
from app.stores.rows import StoreKind
from app.stores.service import get_store, require_kind

router = new_router(tags=["certificates"])
CycleId = Annotated[str, Path(pattern=r"^(cyc_[0-9a-z]{26}|current)$")]
KeyId = Annotated[str, Path(pattern=r"^ed25519:[0-9a-f]{64}$", description="A key's fingerprint.")]
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Verifier = Annotated[Caller, Depends(requires(Scope.EVIDENCE_VERIFY))]
Admin = Annotated[Caller, Depends(requires_unlimited(Scope.ADMIN))]
HEADER = "Strong: the SHA-256 of the document."
CERTIFICATE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The signed document; the same bytes for ever",
        "headers": {"ETag": {"description": HEADER, "schema": {"type": "string"}}},
        "content": {"application/json": {"schema": {"type": "object"}, "example": CERTIFICATE_EXAMPLE}},
    },
    304: {"description": "Still the document of If-None-Match"},
}


@router.get(
    "/v1/stores/{store_id}/erasure-cycles/{cycle_id}/certificate",
    summary="Get the certificate of a cycle",
    operation_id="get_erasure_certificate",
    responses=problems(404, 409, 503) | CERTIFICATE,
    response_class=Response,
)
def get_certificate(
    store_id: StoreId,
    cycle_id: CycleId,
    request: Request,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
    clock: ClockDep,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Made and signed once, after the cycle's end. `lethe certificate verify` checks it."""
    caller.require_store(store_id)
    with database.reading() as db:
        known = db.get(ErasureCertificate, cycle_id)
        if known is None:
            cycle_id = get_cycle(db, store_id, cycle_id).id
        elif known.store != store_id:
            raise CycleNotFound("there is no such cycle of this store")
    row = known or issue_certificate(
        database, settings, cycle_id, instance_id=instance_id_of(request), now=clock.now()
    )
    tag = f'"{row.sha256}"'
    headers = {"ETag": tag}
    if is_current(if_none_match, row.sha256):
        return Response(status_code=304, headers=headers)
    name = f"{row.store}-{row.cycle_id}.certificate.json"
    headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return Response(document_of(row), media_type="application/json", headers=headers)


@router.post(
    "/v1/stores/{store_id}/erasure-cycles/{cycle_id}:verify",
    status_code=202,
    response_model=JobRead,
    summary="Read an environment again after a cycle",
    operation_id="verify_erasure_cycle",
    responses=problems(404, 409, 429),
)
def post_verify(
    store_id: StoreId,
    cycle_id: CycleId,
    request: Request,
    caller: Verifier,
    body: VerifyRequest | None = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """A job that fails on a live slot that leads to an erased entry, and on bytes that are not as proved."""
    asked = body or VerifyRequest()
    settings = settings_of(request)
    store = read_row(database_of(request), store_id, caller)
    require_kind(store, StoreKind.JE)
    check_engine(asked.engine, settings)
    check_je(store.runs_on, settings)

    def effect(db: Session) -> Answer:
        now = clock_of(request).now()
        current = get_store(db, store_id)
        job = submit_verify(db, current, cycle_id, asked, caller=caller, settings=settings, now=now)
        return accepted(job)

    response = mutate(
        request,
        caller,
        effect,
        action=Action.ERASURE_CYCLE_VERIFY,
        subject=("erasure-cycle", cycle_id),
        store=store_id,
        body=asked,
    )
    tell_changed(request, store_id)
    return response


@router.get(
    "/v1/signing-keys",
    response_model=Page[SigningKeyRead],
    summary="List the public keys of certificates",
    operation_id="list_signing_keys",
    responses=problems(),
)
def get_keys(
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[SigningKeyRead]:
    """All there ever were: what a retired key has signed holds for ever."""
    with database.reading() as db:
        return read_page(
            db,
            select(SigningKey),
            col(SigningKey.id),
            ascending=True,
            filters={"list": "signing-keys"},
            page_size=page_size,
            page_token=page_token,
            item=_shown,
        )


@router.get(
    "/v1/signing-keys/{key_id}",
    response_model=SigningKeyRead,
    summary="Get a public key",
    operation_id="get_signing_key",
    responses=problems(404),
)
def get_key(key_id: KeyId, caller: Reader, database: DatabaseDep) -> SigningKeyRead:
    """By its fingerprint, as a certificate names it."""
    with database.reading() as db:
        row = db.get(SigningKey, key_id)
        if row is None:
            raise SigningKeyNotFound("no key of this fingerprint has signed here")
        return _shown(row)


@router.post(
    "/v1/signing-keys:rotate",
    response_model=SigningKeyRead,
    summary="Sign with a new key from now on",
    operation_id="rotate_signing_key",
    responses=problems(409, 503),
)
def post_rotate(
    request: Request,
    caller: Admin,
    settings: SettingsDep,
    clock: ClockDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Of this instance. The former private key is gone then; its public part stays known."""
    replay = find_replay(request, caller)
    if replay is not None:
        return replay

    def effect(db: Session) -> Answer:
        now = clock.now()
        instance = instance_id_of(request)
        former, new = rotate(settings.data_dir)
        register(db, former, instance_id=instance, now=now)
        retire(db, former, now=now)
        register(db, new, instance_id=instance, now=now)
        shown = _shown(db.get_one(SigningKey, new.key_id))
        return Answer(body=shown, subject_id=new.key_id, audit={"former": former.key_id})

    return mutate(request, caller, effect, action=Action.SIGNING_KEY_ROTATE, subject=("signing_key", ""))


def _shown(row: SigningKey) -> SigningKeyRead:
    return SigningKeyRead.model_validate(row.model_dump())
