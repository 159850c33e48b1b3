"""Whom the client trusts: over plain HTTP nobody, for no certificate comes."""

import ssl

import pytest
from lethe_client.transport import trusted

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


def test_plain_http_reads_no_authorities_and_would_refuse_every_certificate() -> None:
    context = trusted(True, scheme="http")
    assert context.cert_store_stats() == {"x509": 0, "crl": 0, "x509_ca": 0}
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_https_trusts_the_authorities_of_the_machine() -> None:
    assert trusted(True, scheme="https") is True


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_is_given_is_taken(scheme: str) -> None:
    given = ssl.create_default_context()
    assert trusted(given, scheme=scheme) is given
    assert trusted(False, scheme=scheme) is False


def test_a_proxy_may_have_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "https://proxy.example:3128")
    assert trusted(True, scheme="http") is True
