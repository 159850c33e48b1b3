"""The schema of a job in the OpenAPI document: a union of the kinds, and an example that fits its own."""

from typing import Any

from app.jobs.examples import JOB
from app.verbs.described import JOB as JOB_SCHEMA
from app.verbs.described import describe_jobs, models_of_kinds, name_of
from app.verbs.table import CARRIERS, VERBS
from tests.typed_jobs import check_job

GENERIC: dict[str, Any] = {
    "type": "object",
    "title": JOB_SCHEMA,
    "required": ["kind", "params", "result", "id"],
    "properties": {"kind": {}, "params": {}, "result": {}, "id": {"type": "string"}},
}


def test_every_kind_is_in_the_union_with_all_its_acts() -> None:
    schemas: dict[str, Any] = {JOB_SCHEMA: dict(GENERIC, properties=dict(GENERIC["properties"]))}
    describe_jobs(schemas)
    kinds = {verb.kind for verb in VERBS} | set(CARRIERS)
    assert set(schemas[JOB_SCHEMA]["discriminator"]["mapping"]) == kinds
    assert schemas["JobFields"]["required"] == ["id"]
    own = schemas[name_of("PURGE")]["allOf"][1]["properties"]
    shown = [each["$ref"].rpartition("/")[2] for each in own["result"]["anyOf"] if "$ref" in each]
    assert shown == ["PurgeResult", "ChangelogPurgeResult", "TombstonePurgeResult", "RowsPurgeResult"]
    assert len(models_of_kinds()["PLAN"][1]) == 7


def test_the_example_of_a_job_fits_its_kind() -> None:
    check_job(JOB)
