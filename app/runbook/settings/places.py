"""What stores may name."""

from typing import Final

from app.runbook.settings.entry import Setting

ENTRIES: Final = (
    Setting(
        "LETHE_ALLOWED_ROOTS",
        "none",
        (
            "Folders that SQLite targets, JE environments, certificates of authorities and restored "
            "files may lie in, by commas. None: any."
        ),
        (
            "A folder that is missing: stores there are refused (PATH_NOT_ALLOWED). None at all: "
            "whoever may write stores may name any file of the service's account."
        ),
    ),
    Setting(
        "LETHE_ALLOWED_HOSTS",
        "none",
        (
            "Hosts, addresses, networks and socket directories that stores and agreements may name, "
            "by commas. None: any."
        ),
        (
            "A host that is missing is refused (HOST_NOT_ALLOWED). An entry that is none ends the "
            "start with exit 78."
        ),
    ),
    Setting(
        "LETHE_SECRETS_DIR",
        "none",
        "Folder of files that secrets `file:PATH` may name. None: only `env:LETHE_SECRET_*`.",
        ("In the data directory it ends the start with exit 78. A missing file is SECRET_UNAVAILABLE."),
    ),
    Setting(
        "LETHE_EXEC_SECRETS",
        "none",
        ("Commands that print a secret, as JSON from the NAME of `exec:NAME` to program and arguments."),
        ("No JSON, a relative path, or a program that others may write ends the start with exit 78."),
    ),
    Setting(
        "LETHE_EXEC_SECRET_TIMEOUT_S",
        "10.0",
        "Seconds that such a command may take.",
        (
            "Too small: SECRET_UNAVAILABLE although the command works. Too large: connections wait "
            "for a command that hangs."
        ),
    ),
    Setting(
        "LETHE_SECRETS_FRESH_S",
        "5.0",
        "Seconds for which what a command or Vault said is used without asking again.",
        "Too large: a rotated password is taken late. 0: each connection asks.",
    ),
    Setting(
        "LETHE_VAULT__URL",
        "none",
        "Address of HashiCorp Vault for secrets `vault:MOUNT/PATH#FIELD`.",
        (
            "Plain http:// to another machine, or no way to log in, ends the start with exit 78. Vault "
            "being away is SECRET_UNAVAILABLE."
        ),
    ),
    Setting(
        "LETHE_VAULT__TOKEN_FILE",
        "none",
        "File with a Vault token, read at each use.",
        (
            "A missing or expired token is SECRET_UNAVAILABLE. Together with an AppRole it ends the "
            "start with exit 78."
        ),
    ),
    Setting(
        "LETHE_VAULT__ROLE_ID",
        "none",
        "Role id of an AppRole, instead of a token.",
        (
            "Without LETHE_VAULT__SECRET_ID_FILE it ends the start with exit 78. A wrong one is "
            "SECRET_UNAVAILABLE."
        ),
    ),
    Setting(
        "LETHE_VAULT__SECRET_ID_FILE",
        "none",
        "File with the secret id of the AppRole.",
        ("Without LETHE_VAULT__ROLE_ID it ends the start with exit 78. A wrong one is SECRET_UNAVAILABLE."),
    ),
    Setting(
        "LETHE_VAULT__APPROLE_MOUNT",
        "approle",
        "Where the AppRole method is mounted in Vault.",
        "A wrong mount: logins are refused, SECRET_UNAVAILABLE.",
    ),
    Setting(
        "LETHE_VAULT__NAMESPACE",
        "none",
        "Namespace of Vault Enterprise.",
        "A wrong namespace: Vault finds neither login nor secret, SECRET_UNAVAILABLE.",
    ),
    Setting(
        "LETHE_VAULT__HOSTS",
        "none",
        "Hosts, addresses and networks that Vault may be at. None: any.",
        ("Too narrow: SECRET_UNAVAILABLE. None: whoever changes its name's address is asked with our login."),
    ),
    Setting(
        "LETHE_VAULT__CA_FILE",
        "none",
        ("PEM file with the authority of Vault's certificate. None: those that this machine trusts."),
        "A wrong authority: the certificate is not believed, SECRET_UNAVAILABLE.",
    ),
    Setting(
        "LETHE_VAULT__TIMEOUT_S",
        "5.0",
        "Seconds for one look at Vault, a login included.",
        "Too small: SECRET_UNAVAILABLE while Vault is slow. Too large: connections wait for it.",
    ),
)
