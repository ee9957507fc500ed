"""SCRAM: the examples of the standards, every check of the broker's messages, and random bytes."""

from __future__ import annotations

import copy
import hashlib
import hmac
import pickle
from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import SaslScram
from aiokclient.errors import SaslAuthenticationError
from aiokclient.network.sasl import MECHANISMS, ChallengeError, Login, Thread
from aiokclient.network.sasl import scram as module
from aiokclient.network.sasl.scram import Scram

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
FIRST = f"r={SERVER_NONCE},s={SALT},i=4096".encode()
NOT_ASCII = [
    "\u00bd",
    "\ufb01n",
    "e\u0301",
    "a\u00a0b",
    "I\u00adX",
    "\u00aa\u2168",
    "\u0627\u0031",
    "\u65e5\u672c\U0001f600",
    "a\u0007b",
]
"""Passwords that SASLprep would change or prohibit, and others."""
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(security: Any = None, nonce: str = NONCE) -> Scram:
    return Scram(Login(security or SaslScram("user", "pencil", "SCRAM-SHA-256")), nonce)


def test_the_example_of_rfc_7677_is_reproduced() -> None:
    client = scram()
    assert client.answer_challenge(b"") == f"n,,n=user,r={NONCE}".encode()
    proof = client.answer_challenge(FIRST).decode()
    assert proof == f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.answer_challenge(FINAL) is None


def test_the_example_of_rfc_5802_is_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.HASHES, "SCRAM-SHA-256", "sha1")
    nonce = "fyko+d2lbbFgONRv9qkxdawL"
    both = f"{nonce}3rfcNHYJY1ZVvWVs7j"
    client = scram(nonce=nonce)
    assert client.answer_challenge(b"") == f"n,,n=user,r={nonce}".encode()
    answer = client.answer_challenge(f"r={both},s=QSXCR+Q6sek8bf92,i=4096".encode()).decode()
    assert answer == f"c=biws,r={both},p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    assert client.answer_challenge(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=") is None


class Server:
    """The broker's side, written from RFC 5802 alone."""

    def __init__(self, password: str, hash_name: str, iterations: int = 4096) -> None:
        self.salt, self.hash, self.iterations = b"salt of a user", hash_name, iterations
        raw = password.encode()
        self.salted = hashlib.pbkdf2_hmac(hash_name, raw, self.salt, iterations)
        self.bare = self.first = ""

    def challenge(self, message: bytes) -> bytes:
        self.bare = message.decode().removeprefix("n,,")
        nonce = self.bare.partition(",r=")[2].partition(",")[0]
        salt = b64encode(self.salt).decode()
        self.first = f"r={nonce}and-more,s={salt},i={self.iterations}"
        return self.first.encode()

    def mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.hash)

    def verify(self, message: bytes) -> bytes:
        without, _, proof = message.decode().rpartition(",p=")
        texts = f"{self.bare},{self.first},{without}".encode()
        stored = hashlib.new(self.hash, self.mac(self.salted, b"Client Key")).digest()
        signature = self.mac(stored, texts)
        key = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
        assert hashlib.new(self.hash, key).digest() == stored, "wrong password"
        server = self.mac(self.mac(self.salted, b"Server Key"), texts)
        return b"v=" + b64encode(server)


TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=40)


@given(user=TEXTS, password=TEXTS, name=st.sampled_from(sorted(module.HASHES)))
def test_any_user_and_password_agree_with_the_other_side(
    user: str, password: str, name: str
) -> None:
    client = Scram(Login(SaslScram(user, password, name)))
    server = Server(password, module.HASHES[name])
    first = client.answer_challenge(b"")
    assert isinstance(first, bytes)
    named = server.challenge(first)
    assert server.bare.split(",")[0][2:].replace("=2C", ",").replace("=3D", "=") == user
    assert client.answer_challenge(server.verify(client.answer_challenge(named))) is None


def test_a_comma_and_an_equals_sign_in_the_user_are_escaped() -> None:
    client = scram(SaslScram("a=b,c", "p", "SCRAM-SHA-256"))
    assert client.answer_challenge(b"") == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


def test_a_delegation_token_is_marked_by_an_extension() -> None:
    client = scram(SaslScram("id", "hmac", "SCRAM-SHA-256", token_auth=True))
    assert client.answer_challenge(b"") == f"n,,n=id,r={NONCE},tokenauth=true".encode()


def test_the_keys_are_computed_once_for_a_salt_and_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    security = SaslScram("user", "pencil", "SCRAM-SHA-256")
    derive, derived = module.derive_keys, []

    def counted(*args: Any) -> Any:
        derived.append(args)
        return derive(*args)

    monkeypatch.setattr(module, "derive_keys", counted)
    for count in (1, 1):
        client = scram(security)
        assert client.thread is None
        client.answer_challenge(b"")
        assert client.thread is Thread.COMPUTING
        client.answer_challenge(FIRST)
        assert len(derived) == count
        assert client.thread is None
        assert client.answer_challenge(FINAL) is None
    client = scram(security)
    client.answer_challenge(b"")
    client.answer_challenge(FIRST.replace(b"4096", b"4097"))
    assert len(derived) == 2


def test_kept_keys_are_bounded_and_hidden() -> None:
    security = SaslScram("user", "pencil", "SCRAM-SHA-256")
    for number in range(40):
        security.keys.keep_keys(("sha256", bytes([number]), 4096), module.ScramKeys("sha256", b"s"))
    assert security.keys.get_keys(("sha256", b"\0", 4096)) is None
    keys = security.keys.get_keys(("sha256", bytes([39]), 4096))
    assert keys is not None
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(keys)
    with pytest.raises(TypeError, match="cannot be pickled"):
        keys.__getstate__()
    assert copy.deepcopy(security) == security


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (FIRST.replace(b"i=4096", b"i=4095"), "from 4096 to 1000000"),
        (FIRST.replace(b"i=4096", b"i=1000001"), "from 4096 to 1000000"),
        (FIRST.replace(b"i=4096", b"i=99999999999999999999"), "malformed"),
        (FIRST.replace(b"i=4096", b"i=-1"), "malformed"),
        (FIRST.replace(b"r=r", b"r=x"), "nonce"),
        (f"r={NONCE},s={SALT},i=4096".encode(), "nonce"),
        (f"r={SERVER_NONCE},s=====,i=4096".encode(), "base64"),
        (f"r={SERVER_NONCE},s=a,i=4096".encode(), "base64"),
        (b"m=ext," + FIRST, "malformed"),
        (b"", "malformed"),
        (b"\xff\xfe", "UTF-8"),
        (b"e=unknown-user", "unknown-user"),
    ],
)
def test_a_bad_first_message_of_the_broker_is_refused(challenge: bytes, text: str) -> None:
    client = scram()
    client.answer_challenge(b"")
    with pytest.raises(ChallengeError, match=text):
        client.answer_challenge(challenge)
    with pytest.raises(ChallengeError, match="does not expect"):
        client.answer_challenge(FIRST)


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (b"v=" + b64encode(b"\0" * 32), "does not know the password"),
        (b"v=" + b64encode(b"short"), "does not know the password"),
        (b"v=%%%", "malformed"),
        (b"v=a", "base64"),
        (b"", "malformed"),
        (b"e=invalid-proof", "invalid-proof"),
    ],
)
def test_a_bad_last_message_of_the_broker_is_refused(challenge: bytes, text: str) -> None:
    client = scram()
    client.answer_challenge(b"")
    client.answer_challenge(FIRST)
    with pytest.raises(ChallengeError, match=text):
        client.answer_challenge(challenge)


def test_the_signature_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return True

    client = scram()
    client.answer_challenge(b"")
    client.answer_challenge(FIRST)
    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    assert client.answer_challenge(b"v=" + b64encode(bytes(32))) is None
    assert compared == [(bytes(32), b64decode(FINAL.removeprefix(b"v=")))]


def test_a_broker_that_skips_its_signature_is_refused() -> None:
    client = scram()
    client.answer_challenge(b"")
    client.answer_challenge(FIRST)
    assert client.answer_challenge(FINAL) is None
    with pytest.raises(ChallengeError, match="does not expect"):
        client.answer_challenge(b"")


CHALLENGES = st.lists(
    st.binary(max_size=200)
    | st.sampled_from([b"", FIRST, FINAL])
    | st.text(alphabet="rsievm=,0123456789+/abc", max_size=80).map(str.encode),
    max_size=5,
)


SANS_PACKAGE = sorted(MECHANISMS.keys() - {"GSSAPI"})
"""The mechanisms that need no package. `test_gssapi.py` has the same test for GSSAPI."""


@pytest.mark.fuzz
@given(challenges=CHALLENGES, name=st.sampled_from(SANS_PACKAGE))
def test_any_bytes_give_a_message_or_a_typed_error(challenges: list[bytes], name: str) -> None:
    from aiokclient import OAuthToken

    token = OAuthToken("a.b.c", 1)
    credentials = SaslScram("user", "pencil", "SCRAM-SHA-256")
    mechanism = MECHANISMS[name](Login(credentials, "host", token))
    step: Any = b""
    refused = None
    for challenge in [b"", *challenges]:
        try:
            step = mechanism.answer_challenge(challenge)
        except SaslAuthenticationError as error:
            refused = error
            break
        if step is None:
            return
        assert isinstance(step, bytes)
    assert refused is None or len(str(refused)) < 2000


# -- passwords that are not ASCII ----------------------------------------------------------------


@pytest.mark.parametrize("password", NOT_ASCII)
def test_a_password_is_hashed_as_it_is(password: str) -> None:
    client = Scram(Login(SaslScram(password, password)))
    server = Server(password, "sha512")
    first = client.answer_challenge(b"")
    assert first is not None
    assert f"n={password},".encode() in first
    assert (
        client.answer_challenge(server.verify(client.answer_challenge(server.challenge(first))))
        is None
    )
