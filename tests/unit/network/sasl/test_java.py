"""The messages of PLAIN and SCRAM are those of Kafka's Java clients."""

from __future__ import annotations

import random
import subprocess
from base64 import b64encode
from pathlib import Path

from aiokclient import SaslPlain, SaslScram
from aiokclient.network.sasl import Login
from aiokclient.network.sasl.plain import Plain
from aiokclient.network.sasl.scram import Scram

SOURCE = Path(__file__).parents[3] / "java" / "SaslOracle.java"
COUNT = 200
ASCII = [chr(code) for code in range(0x20, 0x7F)]
ANY = [*ASCII, *"äßñ€\u00aa\u00a0\u00ad\u00bd\u0301\u2168\ufb01日本\U0001f600"]


def asked(java: str, jars: list[Path], questions: list[list[str]]) -> list[list[bytes]]:
    """Return Java's answers, each of which is a list of messages."""
    command = [java, "-cp", ":".join(map(str, jars)), str(SOURCE)]
    lines = "".join(",".join(question) + "\n" for question in questions)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [[bytes.fromhex(part) for part in line.split(",")] for line in done.stdout.splitlines()]


def hexed(text: str) -> str:
    return text.encode().hex()


def some(rng: random.Random, letters: list[str]) -> str:
    return "".join(rng.choices(letters, k=rng.randint(1, 40)))


def test_messages_of_plain_equal_those_of_java(java: str, kafka_jars: list[Path]) -> None:
    rng = random.Random(5)
    pairs = [(some(rng, ANY), some(rng, ANY)) for _ in range(COUNT)]
    questions = [["PLAIN", hexed(user), hexed(password)] for user, password in pairs]
    answers = asked(java, kafka_jars, questions)
    for (user, password), (message,) in zip(pairs, answers, strict=True):
        assert Plain(Login(SaslPlain(user, password))).answer_challenge(b"") == message


def test_messages_of_scram_equal_those_of_java(java: str, kafka_jars: list[Path]) -> None:
    rng = random.Random(7)
    cases: list[tuple[SaslScram, str, bytes]] = []
    questions = []
    for _ in range(COUNT):
        user, password = some(rng, ANY), some(rng, ANY)
        mechanism = rng.choice(["SCRAM-SHA-256", "SCRAM-SHA-512"])
        token = rng.random() < 0.3
        nonce = some(rng, [letter for letter in ASCII if letter not in " ,"])
        salt = b64encode(rng.randbytes(rng.randint(1, 40))).decode()
        challenge = f"r={nonce}{rng.getrandbits(64):x},s={salt},i={rng.randint(4096, 5000)}"
        security = SaslScram(user, password, mechanism, token)
        cases.append((security, nonce, challenge.encode()))
        texts = map(hexed, (user, password, nonce, challenge))
        questions.append([mechanism, *texts, str(token).lower()])
    answers = asked(java, kafka_jars, questions)
    for (security, nonce, challenge), (first, last, signature) in zip(cases, answers, strict=True):
        client = Scram(Login(security), nonce)
        assert client.answer_challenge(b"") == first
        assert client.answer_challenge(challenge) == last
        assert client.answer_challenge(b"v=" + b64encode(signature)) is None
