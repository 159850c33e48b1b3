"""A list that is empty because the store that was asked for is not there."""

from collections.abc import Iterable

from lethe_client import LetheError, NotFound

from app.cli.shell.hints import command
from app.cli.shell.session import Session


def note_unknown_stores(session: Session, stores: Iterable[str]) -> None:
    """Say which of the stores of `--store` there are not; for a list that came out empty."""
    for store in stores:
        try:
            session.client.stores.get(store)
        except NotFound as error:
            if error.code == "STORE_NOT_FOUND":
                session.out.note(f"There is no store {store}. Which there are: {command('store', 'list')}")
        except LetheError:
            return  # the list itself has come; whether the store is there cannot be seen
