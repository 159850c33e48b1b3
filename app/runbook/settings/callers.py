"""Tokens of an identity provider."""

from typing import Final

from app.runbook.settings.entry import Setting

ENTRIES: Final = (
    Setting(
        "LETHE_OIDC__ISSUER",
        "none",
        ("The OpenID Connect provider whose tokens are taken, as its tokens name it: `https://...`."),
        (
            "Without LETHE_OIDC__AUDIENCE and LETHE_OIDC__ROLES the start ends with exit 78. A wrong "
            "one: its tokens get 401."
        ),
    ),
    Setting(
        "LETHE_OIDC__AUDIENCE",
        "none",
        "Names that a token must be for (`aud`), by commas.",
        ("A wrong name: its tokens get 401. One too many: tokens made for another service are taken."),
    ),
    Setting(
        "LETHE_OIDC__JWKS_URL",
        "none",
        "Where the provider's keys are. None: where its discovery says.",
        "A wrong address: IDENTITY_PROVIDER_UNAVAILABLE for its tokens.",
    ),
    Setting(
        "LETHE_OIDC__ALGORITHMS",
        "RS256, PS256, ES256, Ed25519, EdDSA",
        "Algorithms that its tokens may be signed by, by commas.",
        ("One that is missing: its tokens get 401. Shared secrets and `none` cannot be named: exit 78."),
    ),
    Setting(
        "LETHE_OIDC__ROLE_CLAIM",
        "roles",
        "The claim that names roles; `a.b` looks for b inside of a.",
        "A wrong claim: NO_ROLE for all of its tokens.",
    ),
    Setting(
        "LETHE_OIDC__ROLES",
        "none",
        "JSON from a name in that claim to a role of Lethe.",
        "A name that is missing: NO_ROLE. A wrong role: somebody may do more or less than meant.",
    ),
    Setting(
        "LETHE_OIDC__STORES_CLAIM",
        "none",
        ("The claim that names the stores a token is limited to; `*` is all. None: no token is limited."),
        (
            "Not set although tenants share a service: each of its tokens reaches all stores. A wrong "
            "claim: NO_STORES."
        ),
    ),
    Setting(
        "LETHE_OIDC__NAME_CLAIM",
        "preferred_username",
        "The claim by which the audit and jobs name the caller.",
        "A wrong claim: callers are named by `sub`.",
    ),
    Setting(
        "LETHE_OIDC__HOSTS",
        "none",
        "Hosts, addresses and networks that the provider may be at. None: any.",
        "Too narrow: IDENTITY_PROVIDER_UNAVAILABLE.",
    ),
    Setting(
        "LETHE_OIDC__CA_FILE",
        "none",
        "PEM file with the authority of its certificate. None: those that this machine trusts.",
        "A wrong authority: IDENTITY_PROVIDER_UNAVAILABLE.",
    ),
    Setting(
        "LETHE_OIDC__LEEWAY_S",
        "30",
        "Seconds that the provider's clock may differ from this machine's.",
        "Too small: 401 for fresh tokens. Too large: expired tokens are taken for longer.",
    ),
    Setting(
        "LETHE_OIDC__KEYS_FRESH_S",
        "300.0",
        "Seconds after which its keys are asked for again.",
        ("Too large: a key that was withdrawn is believed for longer. Too small: load on the provider."),
    ),
)
