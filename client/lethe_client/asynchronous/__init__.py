"""The client on httpx.AsyncClient. Made by `make client` from lethe_client/*.py: change that, not this."""
