"""Compiling the encoder and the decoder of a message for one version.

A message is declared once. This module turns its fields into the source of a
Python function, which is compiled when a version of the message is first used.
The function is fully unrolled: it has no loop over fields and no call per
struct, and consecutive fields of fixed size, with the length or count that
follows them, are read or written by one ``struct.Struct``.

A decoder is ``decode(buf, pos) -> (message, pos)``. ``buf`` is bytes, or a
memoryview if the message has records, and ends where the frame ends. An encoder
is ``encode(message, out, segments) -> out``. It appends to the bytearray
``out``. At a field of records, it appends ``out`` and the records to
``segments`` and continues with a new bytearray.
"""

from __future__ import annotations

from typing import Any

from aiokclient.protocol._decode import Decoder, DecoderSource, Sieve, holds_records
from aiokclient.protocol._encode import Encoder, EncoderSource

__all__ = [
    "Decoder",
    "Encoder",
    "Sieve",
    "compile_decoder",
    "compile_encoder",
    "compile_sieve",
    "holds_records",
]


def compile_decoder(cls: Any, version: int) -> Decoder:
    """Return the function that decodes a message class in a version."""
    decoder: Decoder = DecoderSource(cls, version).compile()
    return decoder


def compile_sieve(cls: Any, version: int, field: str) -> Sieve:
    """Return a decoder of a message class that keeps only some of the structs in an array.

    It is ``decode(buf, pos, keep) -> (message, pos)``. It keeps the elements for which
    ``keep(element)`` is true.
    """
    (sifted,) = [each for each in cls._fields if each.name == field]
    sieve: Sieve = DecoderSource(cls, version).compile(sifted)
    return sieve


def compile_encoder(cls: Any, version: int) -> Encoder:
    """Return the function that encodes a message class in a version."""
    return EncoderSource(cls, version).compile()
