"""Tests of the decision whether a command needs TLS, before it has read its options."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

import aiokclient.cli as cli
from aiokclient.cli.event_loop import import_asyncio


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> argparse.Namespace:
    """The options of a command in a process of its own, which has imported neither module."""
    monkeypatch.setattr(cli, "owns_process", True)
    monkeypatch.setenv("AIOKCLIENT_PROFILES", str(tmp_path / "profiles.toml"))
    monkeypatch.delitem(sys.modules, "ssl", raising=False)
    monkeypatch.delitem(sys.modules, "asyncio", raising=False)
    return argparse.Namespace(X=[], config=[])


def omits_tls(given: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether the import of asyncio would not find the module ssl."""
    found = []

    class Finder:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "asyncio":
                found.append("ssl" in sys.modules and sys.modules["ssl"] is None)
                raise ImportError(name)

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    try:
        import_asyncio(given)
    except ImportError:
        pass
    assert "ssl" not in sys.modules
    return found == [True]


def test_asyncio_is_imported_without_tls_if_nothing_names_it(
    given: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    given.X = ["client.id=orders"]
    assert omits_tls(given, monkeypatch)


def test_another_program_is_left_alone(
    given: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "owns_process", False)
    assert not omits_tls(given, monkeypatch)


@pytest.mark.parametrize("source", ["argument", "file", "environment", "profile"])
def test_tls_is_found_wherever_it_is_configured(
    source: str, given: argparse.Namespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if source == "argument":
        given.X = ["security.protocol=${env:PROTOCOL}"]
    elif source == "file":
        (tmp_path / "client.properties").write_text("# comment\nsecurity.protocol : SASL_SSL\n")
        given.config = [str(tmp_path / "client.properties")]
    elif source == "environment":
        monkeypatch.setenv("AIOKCLIENT_SECURITY_PROTOCOL", "SSL")
    else:
        (tmp_path / "profiles.toml").write_text('[profiles.a]\nsecurity_protocol = "SSL"\n')
    assert not omits_tls(given, monkeypatch)
