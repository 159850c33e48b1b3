"""An example of a certificate, for the OpenAPI document."""

from typing import Any, Final

CERTIFICATE_EXAMPLE: Final[dict[str, Any]] = {"certificate": {"format": "lethe-erasure-certificate/1"}}
