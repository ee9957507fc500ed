"""Tests of `TlsContexts`: replaced certificate files, and the name for SNI."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import ssl
import threading
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

import aiokclient.network.tls as module
from aiokclient.config.security import SaslPlain, Tls
from aiokclient.errors import ConfigError
from aiokclient.log.client_log import ClientLog
from aiokclient.network.tls import TlsContexts, server_name


class Files(NamedTuple):
    """The certificate files of a client."""

    authority: Path
    certificate: Path
    key: Path

    def issue(self, authority: trustme.CA, name: str = "alice") -> None:
        """Replace the files by those of a new certificate, as most tools do: by renaming."""
        leaf = authority.issue_cert(name)
        replace(self.authority, authority.cert_pem.bytes())
        replace(self.certificate, leaf.cert_chain_pems[0].bytes())
        replace(self.key, leaf.private_key_pem.bytes())


def replace(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Files:
    made = Files(*(tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem")))
    made.issue(authority)
    return made


@pytest.fixture
def tls(files: Files) -> Tls:
    return Tls(cafile=str(files.authority), certfile=str(files.certificate), keyfile=str(files.key))


@pytest.fixture
def contexts(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> TlsContexts:
    """The contexts of these files, with an interval and a timeout that do not end in a test."""
    monkeypatch.setattr(module, "CHECK_S", 3600.0)
    monkeypatch.setattr(module, "WAIT_S", 3600.0)
    made = TlsContexts(tls, ClientLog("aiokclient", "app"))
    made.load_files()
    return made


async def checked(contexts: TlsContexts) -> ssl.SSLContext:
    """Return the context of a new connection, after the interval between checks has ended."""
    contexts._checked_at = -math.inf
    return await contexts.current_context()


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["event"] for record in caplog.records]


async def test_unchanged_files_keep_the_context(contexts: TlsContexts) -> None:
    first = await checked(contexts)
    assert await checked(contexts) is first


async def test_replaced_files_give_a_new_context(
    contexts: TlsContexts, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokclient")
    first = await checked(contexts)
    other = trustme.CA()
    files.issue(other)
    second = await checked(contexts)
    assert second is not first
    (trusted,) = second.get_ca_certs(binary_form=True)
    assert ssl.DER_cert_to_PEM_cert(trusted) == other.cert_pem.bytes().decode()
    assert events(caplog) == ["tls_files_replaced"]
    assert await checked(contexts) is second


async def test_paths_may_be_objects_of_pathlib(
    files: Files, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "aiokclient")
    monkeypatch.setattr(module, "CHECK_S", 0.0)
    paths = {"cafile": files.authority, "certfile": files.certificate, "keyfile": files.key}
    tls = Tls(**paths)
    assert tls == Tls(**{name: str(path) for name, path in paths.items()})
    contexts = TlsContexts(tls, ClientLog("aiokclient", "app"))
    contexts.load_files()
    first = contexts._context
    files.issue(trustme.CA())
    assert await contexts.current_context() is not first
    assert events(caplog) == ["tls_files_replaced"]
    assert str(files.certificate) in caplog.text


@pytest.mark.parametrize("change", ["rewritten in place", "removed", "other key", "no permission"])
async def test_files_that_cannot_be_used_keep_the_context_and_warn_once(
    contexts: TlsContexts,
    files: Files,
    authority: trustme.CA,
    change: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = await checked(contexts)
    if change == "rewritten in place":
        files.key.write_text("-----BEGIN PRIVATE KEY-----\nopen-sesame")
    elif change == "removed":
        files.authority.unlink()
    elif change == "other key":
        replace(files.key, authority.issue_cert("bob").private_key_pem.bytes())
    else:
        if os.geteuid() == 0:
            # root can read every file, so a folder takes the place of the file.
            files.key.unlink()
            files.key.mkdir()
        else:
            files.key.chmod(0)
    for _ in range(3):
        assert await checked(contexts) is first
    assert events(caplog) == ["tls_files_refused"]
    assert str(files.authority.parent) in caplog.text
    assert "open-sesame" not in caplog.text
    if change == "no permission" and files.key.is_dir():
        files.key.rmdir()
    files.issue(authority)
    assert await checked(contexts) is not first


async def test_each_unusable_replacement_is_warned_of(
    contexts: TlsContexts, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    for broken in (b"one", b"number two"):
        replace(files.certificate, broken)
        await checked(contexts)
    assert events(caplog) == ["tls_files_refused"] * 2


async def test_files_are_checked_at_most_once_per_interval(
    contexts: TlsContexts, files: Files
) -> None:
    first = await contexts.current_context()
    files.issue(trustme.CA())
    assert await contexts.current_context() is first


async def test_connections_that_are_opened_together_share_one_check(
    contexts: TlsContexts, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.issue(trustme.CA())
    looks: list[int] = []
    look = contexts._read_files
    monkeypatch.setattr(
        contexts, "_read_files", lambda: (looks.append(threading.get_ident()), look())[1]
    )
    cancelled = asyncio.ensure_future(contexts.current_context())
    others = [asyncio.ensure_future(contexts.current_context()) for _ in range(5)]
    await asyncio.sleep(0)
    cancelled.cancel()
    found = set(await asyncio.gather(*others))
    assert len(found) == 1
    assert found == {contexts._context}
    assert len(looks) == 1
    assert looks[0] != threading.get_ident()
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_a_check_that_hangs_delays_no_later_connection(
    tls: Tls, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_S", 0.0)
    monkeypatch.setattr(module, "WAIT_S", 0.05)
    contexts = TlsContexts(tls, ClientLog("aiokclient", "app"))
    contexts.load_files()
    first = contexts._context
    files.issue(trustme.CA())
    released = threading.Event()
    look = contexts._read_files
    monkeypatch.setattr(contexts, "_read_files", lambda: (released.wait(60), look())[1])
    assert await contexts.current_context() is first
    checking = contexts._checking
    assert await contexts.current_context() is first
    assert contexts._checking is checking
    assert checking is not None
    released.set()
    await asyncio.wait([checking])
    assert contexts._context is not first


async def test_contexts_without_files_are_never_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected() -> None:
        raise AssertionError("There are no files.")

    context = ssl.create_default_context()
    for security in (Tls(), Tls(context=context), SaslPlain("u", "p", tls=context)):
        contexts = TlsContexts.of(security, ClientLog("aiokclient", "app"))
        assert contexts is not None
        contexts.load_files()
        monkeypatch.setattr(contexts, "_read_files", unexpected)
        assert await contexts.current_context() is await contexts.current_context()
    assert TlsContexts.of(SaslPlain("u", "p"), ClientLog("aiokclient", "app")) is None


def test_the_first_load_raises_what_is_wrong(tls: Tls, files: Files) -> None:
    files.authority.unlink()
    with pytest.raises(ConfigError, match=r"ca\.pem cannot be loaded"):
        TlsContexts(tls, ClientLog("aiokclient", "app")).load_files()


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("broker.example", "broker.example"),
        ("broker.example.", "broker.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_the_name_for_the_certificate_has_no_dot_and_no_zone(host: str, name: str) -> None:
    assert server_name(host) == name
