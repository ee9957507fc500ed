"""Tests that the texts of a private key and of its password are shown nowhere."""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from hidden import assert_hidden

import aiokclient.network.tls as network_tls
from aiokclient import Client, Tls
from aiokclient.config.security.tls_limits import TlsLimits
from aiokclient.errors import ConfigError, KafkaError
from aiokclient.log.client_log import ClientLog
from aiokclient.network.tls import TlsContexts

PASSWORD = "open-sesame"
SECRET_LINE = "MIGHAgEAMBMGByqGSM49AgEG"


def locked_key() -> tuple[str, str]:
    """Return a certificate, and its key, which is encrypted."""
    leaf = trustme.CA().issue_cert("alice")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )
    return leaf.cert_chain_pems[0].bytes().decode(), text.decode()


def line_of(pem: str) -> str:
    """Return a line of a key that no other text contains."""
    return pem.split("\n")[2]


def test_no_copy_or_pickle_of_the_options_shows_the_key() -> None:
    certificate, key = locked_key()
    tls = Tls(certdata=certificate, keydata=key, password=PASSWORD)
    for made in (tls, copy.copy(tls), copy.deepcopy(tls), tls.with_limits(TlsLimits())):
        assert made.keydata == tls.keydata
        assert line_of(key) not in f"{made!r} {made}"
        assert PASSWORD not in f"{made!r} {made}"
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(made)


@pytest.mark.parametrize("wrong", ["password", "key", "authority", "certificate"])
def test_no_error_of_loading_has_a_secret_in_its_text_or_in_a_variable(wrong: str) -> None:
    certificate, key = locked_key()
    broken = f"-----BEGIN PRIVATE KEY-----\n{SECRET_LINE}\n-----END PRIVATE KEY-----"
    tls = Tls(
        # It is a mistake to give a key as the authority.
        cadata=broken if wrong == "authority" else None,
        certdata=broken if wrong == "certificate" else certificate,
        keydata=broken if wrong == "key" else key,
        password=f"not-{PASSWORD}" if wrong == "password" else PASSWORD,
    )
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        tls.ssl_context()
    for secret in (PASSWORD, SECRET_LINE, line_of(key)):
        assert_hidden(caught.value, secret)


async def test_no_log_or_error_of_a_client_shows_the_key(
    caplog: pytest.LogCaptureFixture, unused_tcp_port: int
) -> None:
    caplog.set_level(logging.DEBUG)
    certificate, key = locked_key()
    client = Client(
        bootstrap_servers=f"127.0.0.1:{unused_tcp_port}",
        security_protocol="SSL",
        ssl_keystore_certificate_chain=certificate,
        ssl_keystore_key=key,
        ssl_key_password=PASSWORD,
        default_api_timeout_ms=200,
    )
    with pytest.raises(KafkaError) as caught:
        await client.start()
    for secret in (PASSWORD, line_of(key)):
        assert_hidden(caught.value, secret)
        assert secret not in f"{caplog.text}{client!r}{vars(client)!r}{client.health()}"


async def test_the_warning_of_an_unusable_replacement_shows_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_tls, "WAIT_S", 3600.0)
    caplog.set_level(logging.DEBUG)
    certificate, key = locked_key()
    own = tmp_path / "own.pem"
    own.write_text(key + certificate)
    contexts = TlsContexts(
        Tls(certfile=str(own), password=PASSWORD), ClientLog("aiokclient", "app")
    )
    contexts.load_files()
    own.write_text(f"-----BEGIN PRIVATE KEY-----\n{SECRET_LINE}\n-----END PRIVATE KEY-----")
    await contexts.current_context()
    (line,) = (r for r in caplog.records if r.__dict__.get("event") == "tls_files_refused")
    assert str(own) in line.getMessage()
    shown = f"{caplog.text}{[vars(record) for record in caplog.records]}"
    for secret in (PASSWORD, SECRET_LINE, line_of(key)):
        assert secret not in shown
