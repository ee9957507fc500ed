"""PLAIN and OAUTHBEARER: the bytes that they send, and what they accept."""

from __future__ import annotations

import pytest

from aiokclient import OAuthToken, SaslPlain
from aiokclient.network.sasl import ChallengeError, Login
from aiokclient.network.sasl.oauthbearer import OAuthBearer
from aiokclient.network.sasl.plain import Plain


def test_plain_sends_user_and_password_once() -> None:
    client = Plain(Login(SaslPlain("alice", "secret, ünicode")))
    assert client.step(b"") == "\0alice\0secret, ünicode".encode()
    assert client.step(b"") is None


def test_oauthbearer_sends_token_and_extensions() -> None:
    token = OAuthToken("a.b.c", 1, extensions={"cluster": "lkc-1", "pool": "p"})
    client = OAuthBearer(Login(None, "host", token))
    assert client.step(b"") == b"n,,\x01auth=Bearer a.b.c\x01cluster=lkc-1\x01pool=p\x01\x01"
    assert client.step(b"") is None


def test_oauthbearer_acknowledges_an_error_once() -> None:
    client = OAuthBearer(Login(None, "host", OAuthToken("a.b.c", 1)))
    client.step(b"")
    assert client.step(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(ChallengeError, match="did not end"):
        client.step(b"")
