"""The service that a source asks, as options name it; picklable, and without its token."""

import ssl
from typing import Final

from lethe_client import Lethe
from lethe_client.environment import from_environment
from lethe_client.errors import ConfigurationInvalid

from lethe_spark.options import Options
from lethe_spark.target import first_line

SERVICE_OPTIONS: Final = ("url", "token_file", "ca_file")


class ReadService:
    """A service of Lethe. Each process reads the token for itself, so that no plan of Spark shows it.

    Without `url` it is that of LETHE_URL, with the token of LETHE_TOKEN or LETHE_TOKEN_FILE of each process.
    """

    def __init__(self, options: Options) -> None:
        self._url = options.text("url")
        token = options.text("token_file")
        ca = options.text("ca_file")
        if (self._url is None) != (token is None):
            raise options.refuse("give both 'url' and 'token_file', or neither: then LETHE_URL says where")
        self._token_file = None if token is None else options.path("token_file", "")
        self._ca_file = None if ca is None else options.path("ca_file", "")
        self._options = options

    def connect(self) -> Lethe:
        """A client; close it. Raises: OptionInvalid."""
        verify = True if self._ca_file is None else ssl.create_default_context(cafile=self._ca_file)
        if self._url is not None and self._token_file is not None:
            return Lethe(self._url, first_line(self._token_file, what="token"), verify=verify)
        try:
            url, secret = from_environment()
        except ConfigurationInvalid as error:
            raise self._options.refuse(f"{error}; or give the options 'url' and 'token_file'") from error
        return Lethe(url, secret, verify=verify)
