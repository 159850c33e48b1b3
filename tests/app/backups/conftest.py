"""The environments and stores of the tests of protection."""

from tests.app.protection.conftest import directory, environment, make_store, store

__all__ = ["directory", "environment", "make_store", "store"]
