"""A real Kafka with a listener for every kind of login, which starts once in a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from secured_kafka import SecuredKafka, secured_kafka


@pytest.fixture(scope="session")
def secured_session(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as kafka:
        yield kafka


@pytest.fixture
def secured(secured_session: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> SecuredKafka:
    """A node with a listener for each kind of login, and the environment of its Kerberos realm."""
    if secured_session.kdc is not None:
        for name, value in secured_session.kdc.environment.items():
            monkeypatch.setenv(name, value)
    return secured_session
