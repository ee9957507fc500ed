"""PLAIN and OAUTHBEARER: the bytes that they send, and what they accept."""

from __future__ import annotations

import pytest

from aiokclient import OAuthToken, SaslPlain
from aiokclient.network.sasl import ChallengeError, Login
from aiokclient.network.sasl.oauthbearer import OAuthBearer
from aiokclient.network.sasl.plain import Plain


def test_plain_sends_user_and_password_once() -> None:
    client = Plain(Login(SaslPlain("alice", "secret, ünicode")))
    assert client.answer_challenge(b"") == "\0alice\0secret, ünicode".encode()
    assert client.answer_challenge(b"") is None


def test_oauthbearer_sends_token_and_extensions() -> None:
    token = OAuthToken("a.b.c", 1, extensions={"cluster": "lkc-1", "pool": "p"})
    client = OAuthBearer(Login(None, "host", token))
    assert (
        client.answer_challenge(b"")
        == b"n,,\x01auth=Bearer a.b.c\x01cluster=lkc-1\x01pool=p\x01\x01"
    )
    assert client.answer_challenge(b"") is None


def test_oauthbearer_acknowledges_an_error_once() -> None:
    client = OAuthBearer(Login(None, "host", OAuthToken("a.b.c", 1)))
    client.answer_challenge(b"")
    assert client.answer_challenge(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(ChallengeError, match="did not end"):
        client.answer_challenge(b"")
