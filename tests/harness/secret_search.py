"""A search for known secrets, in every form in which they may have reached an output.

A `SecretSearch` knows the secrets. A `Collected` has what was shown, by channel: logs, reprs, local
variables of tracebacks, and so on. `leaks` compares the two.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

__all__ = ["Collected", "Leak", "SecretSearch", "forms"]

PIECE = 12
"""The length of the pieces of a secret that are searched for, because texts may be shortened."""
SHOWN = 60

Leak = tuple[str, str, str]
"""The name of a secret, its form, and the text around it."""


class SecretSearch:
    """The secrets to search for, by name."""

    def __init__(self) -> None:
        self._forms: dict[bytes, tuple[str, str]] = {}

    def add(self, name: str, secret: str | bytes) -> None:
        """Search for the beginning and the end of a secret, in all their forms.

        Most forms of the whole secret contain a form of its beginning or its end. But quotation
        marks and line ends can change how the whole secret is escaped, including its beginning and
        end. So if a text has such characters, the whole secret is searched for, too.
        """
        assert len(secret) >= PIECE, f"{name} is so short that it may occur by chance"
        pieces = {secret[:PIECE], secret[-PIECE:]}
        if isinstance(secret, str) and not secret.isalnum():
            pieces.add(secret)
        for piece in pieces:
            for form, encoded in forms(piece.encode() if isinstance(piece, str) else piece):
                self._forms.setdefault(encoded, (name, form))

    def leaks(self, data: bytes) -> Iterator[Leak]:
        """Yield each secret that occurs in the data."""
        # Most lines and words, of reprs above all, recur many times, and there are thousands of
        # forms.
        lines = b"\n".join(dict.fromkeys(data.split(b"\n")))
        words = b" ".join(dict.fromkeys(lines.replace(b"\n", b" ").split(b" ")))
        for encoded, (name, form) in self._forms.items():
            searched = data if b"\n" in encoded else lines if b" " in encoded else words
            if encoded in searched:
                at = data.find(encoded)
                around = data[max(0, at - SHOWN) : at + len(encoded) + SHOWN]
                yield name, form, around.decode("utf-8", "replace")

    @property
    def names(self) -> set[str]:
        """The names of the secrets."""
        return {name for name, _ in self._forms.values()}


class Collected:
    """The texts and bytes that were shown, by channel. Thread-safe, because `set.add` is."""

    def __init__(self) -> None:
        self.channels: defaultdict[str, set[bytes]] = defaultdict(set)

    def add(self, channel: str, shown: str | bytes) -> None:
        """Add what a channel has shown."""
        data = shown.encode("utf-8", "surrogatepass") if isinstance(shown, str) else shown
        self.channels[channel].add(data)

    def leaks(self, channel: str, search: SecretSearch) -> list[Leak]:
        """Return the secrets that a channel has shown."""
        return sorted(set(search.leaks(b"\n\0\n".join(sorted(self.channels[channel])))))


def forms(secret: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the forms of a secret with their names."""
    yield "plain", secret
    yield from _base64(secret)
    yield "hex", secret.hex().encode()
    yield "hex", secret.hex().upper().encode()
    yield "hex", secret.hex(":").encode()
    yield "escaped hex", "".join(f"\\x{byte:02x}" for byte in secret).encode()
    yield "numbers", ", ".join(map(str, secret)).encode()
    yield "repr", repr(secret)[2:-1].encode()
    yield "repr", repr(repr(secret))[3:-2].encode()
    yield "URL", quote(secret, safe="").encode()
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        return
    for encoded in {quote(text), quote_plus(text), quote(text, safe="")}:
        yield "URL", encoded.encode()
        yield "URL", re.sub("%..", lambda match: match[0].lower(), encoded).encode()
    yield "UTF-16", text.encode("utf-16-le")
    yield "UTF-16", text.encode("utf-16-be")
    yield "Latin-1", text.encode("latin-1", "replace")
    quoted = text.replace("\\", "\\\\")
    for escaped in (
        repr(text)[1:-1],
        ascii(text)[1:-1],
        repr(repr(text))[2:-2],
        quoted.replace('"', '\\"'),
        quoted.replace("'", "\\'"),
    ):
        yield "escaped", escaped.encode()
    yield "JSON", json.dumps(text)[1:-1].encode()
    yield "JSON", json.dumps(text, ensure_ascii=False)[1:-1].encode()
    yield "HTML", html.escape(text).encode()
    yield "HTML", html.escape(repr(text)[1:-1]).encode()


def _base64(secret: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the base64 of the secret inside longer data, for each position modulo 3.

    The characters at its edges are omitted, because they also depend on the bytes before and after
    the secret.
    """
    for shift, start in enumerate((0, 2, 3)):
        whole = b64encode(bytes(shift) + secret)
        plain = whole[start : (shift + len(secret)) * 8 // 6]
        yield "base64", plain
        yield "base64", plain.translate(bytes.maketrans(b"+/", b"-_"))
