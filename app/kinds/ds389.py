"""A replica of 389 Directory Server; Lethe only reads it."""

from app.kinds.ds389_health import HEALTH
from app.kinds.rules import KindRules

RULES = KindRules(
    fields=frozenset({"url", "password", "bind_dn", "suffix"}),
    needs=("url", "suffix", "bind_dn"),
    dialects=frozenset({"ldap"}),
    lies_on="a replica of 389 Directory Server is reached by ldaps:// or ldap://",
    example={
        "id": "ldap1",
        "kind": "DS389",
        "url": "ldaps://ldap1.example:636?ca=/etc/lethe/ldap-ca.pem",
        "bind_dn": "cn=lethe,cn=config",
        "password": "secret:ldap",
        "suffix": "dc=example,dc=com",
    },
    parameters=HEALTH,
)
