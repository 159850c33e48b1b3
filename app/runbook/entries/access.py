"""Tokens and what they may do: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "TOKEN_MISSING",
        (Seen.HTTP,),
        "The request has no token.",
        "Send `Authorization: Bearer TOKEN`; for the command set LETHE_TOKEN.",
        Passes.NO,
    ),
    Entry(
        "CONSOLE_SIGN_IN_NEEDED",
        (Seen.HTTP,),
        "Nobody has signed in to the console with this browser, or the session has ended.",
        "Sign in again at /console/login. A session lasts 8 hours, and ends with its token.",
        Passes.NO,
    ),
    Entry(
        "CONSOLE_TOKEN_OF_PROVIDER",
        (Seen.HTTP,),
        "A token of an identity provider was given to the console, which cannot follow its rights.",
        "Sign in with a token that Lethe has made: `lethe token create NAME --role ROLE`.",
        Passes.NO,
    ),
    Entry(
        "CONSOLE_FORM_FOREIGN",
        (Seen.HTTP,),
        "A form did not come from a page of this console and session; nothing was changed.",
        (
            "Open the page again and repeat. Behind a proxy: it must hand on the header Host as the browser"
            " sent it."
        ),
        Passes.NO,
    ),
    Entry(
        "CONSOLE_FORM_INVALID",
        (Seen.HTTP,),
        "A form of the console cannot be read; nothing was changed.",
        "Open the page again and repeat.",
        Passes.NO,
    ),
    Entry(
        "CONSOLE_NAME_DIFFERS",
        (Seen.HTTP,),
        "What was typed is not the store's name; nothing was done.",
        "See that it is the store that you mean, type its name as it is shown, and run.",
        Passes.NO,
    ),
    Entry(
        "CONSOLE_PLAN_FIRST",
        (Seen.HTTP,),
        "The console runs this act only by a plan whose request it knows; nothing was done.",
        "Open the act's form, plan, look at the plan, and run it.",
        Passes.NO,
    ),
    Entry(
        "CONSOLE_REQUEST_TOO_LONG",
        (Seen.HTTP,),
        "The request is too long for the address of a plan's page; nothing was done.",
        "Send it to the API with `validate_only=true`, or by the command.",
        Passes.NO,
    ),
    Entry(
        "CONSOLE_READ_ONLY",
        (Seen.HTTP,),
        "The console only shows: LETHE_CONSOLE is READ_ONLY.",
        "Use the command or the API, or have the setting changed.",
        Passes.NO,
    ),
    Entry(
        "TOKEN_UNKNOWN",
        (Seen.HTTP,),
        "The token is not one of this service: it is another service's, or it was not copied whole.",
        (
            "Log in with one that is: `lethe login URL`; a LETHE_TOKEN that is set goes before it. The "
            "first one is in `admin.token` in the data directory (`lethe login --token-file "
            "lethe-data/admin.token`), and makes others: `lethe token create NAME --role ROLE`. `lethe "
            "whoami` shows who you are, and where."
        ),
        Passes.NO,
    ),
    Entry(
        "TOKEN_REVOKED",
        (Seen.HTTP,),
        "The token was revoked. For a schedule: the token that wrote it was.",
        (
            "Have an admin make a new one by `lethe token create NAME --role ROLE`; write a schedule "
            "of the old one again "
            "with the new one."
        ),
        Passes.NO,
    ),
    Entry(
        "TOKEN_EXPIRED",
        (Seen.HTTP,),
        "The token's time is over. For a schedule: that of the token that wrote it.",
        (
            "Get a new token from an admin (`lethe token create NAME --role ROLE`) or your identity "
            "provider; write a "
            "schedule of the old one again with the new one."
        ),
        Passes.NO,
    ),
    Entry(
        "TOKEN_REFUSED",
        (Seen.HTTP,),
        (
            "The identity provider's token does not pass; `detail` says why: its signature, audience, "
            "issuer or time."
        ),
        (
            "Get a new token. If that one is refused too, have an admin compare LETHE_OIDC__ISSUER, "
            "LETHE_OIDC__AUDIENCE and the clocks."
        ),
        Passes.NO,
    ),
    Entry(
        "TOKEN_NOT_FOUND",
        (Seen.HTTP,),
        "There is no token of this id.",
        "`lethe token list` shows those that exist.",
        Passes.NO,
    ),
    Entry(
        "TOKEN_LIMITED_TO_STORES",
        (Seen.HTTP,),
        "This concerns all stores, and the token is limited to some.",
        "Use a token that is not limited to stores; ask an admin.",
        Passes.NO,
    ),
    Entry(
        "TOKEN_OF_PROVIDER",
        (Seen.HTTP,),
        (
            "A schedule acts with a token that Lethe keeps; the one used here comes from the identity "
            "provider."
        ),
        "Make one by `lethe token create NAME --role ROLE`, and write the schedule with it.",
        Passes.NO,
    ),
    Entry(
        "SCOPE_MISSING",
        (Seen.HTTP,),
        "The token lacks the scope that `detail` names.",
        "`lethe whoami` shows what the token may do; ask an admin for one that has the scope.",
        Passes.NO,
    ),
    Entry(
        "SCOPES_EXCEED_CALLER",
        (Seen.HTTP,),
        "A token can only give away scopes that it has.",
        "Leave out the other scopes, or have an admin make the token.",
        Passes.NO,
    ),
    Entry(
        "STORE_FORBIDDEN",
        (Seen.HTTP,),
        "The token is limited to other stores.",
        "`lethe whoami` shows its stores; ask an admin for one of this store.",
        Passes.NO,
    ),
    Entry(
        "NO_ROLE",
        (Seen.HTTP,),
        "The identity provider's token names no role that is known here.",
        "Have an admin map its roles in LETHE_OIDC__ROLES, or give the caller a role that is mapped.",
        Passes.NO,
    ),
    Entry(
        "NO_STORES",
        (Seen.HTTP,),
        "The claim of the identity provider's token that names stores is empty or missing.",
        "Have the provider name the caller's stores there, or `*` for all.",
        Passes.NO,
    ),
    Entry(
        "IDENTITY_PROVIDER_UNAVAILABLE",
        (Seen.HTTP,),
        "The identity provider's keys are not known, and it does not answer.",
        (
            "Try again; if it lasts, check from the service's machine that LETHE_OIDC__ISSUER can be "
            "reached. Tokens that Lethe has made work meanwhile."
        ),
        Passes.YES,
    ),
    Entry(
        "NAME_RESERVED",
        (Seen.HTTP,),
        "Names of this form belong to callers of the identity provider.",
        "Choose another name.",
        Passes.NO,
    ),
    Entry(
        "EXPIRY_IN_THE_PAST",
        (Seen.HTTP,),
        "The token would be expired already.",
        "Name a time in the future, and check the clock of your machine.",
        Passes.NO,
    ),
)
