"""Compiling the encoder and the decoder of a message for one version.

A message is declared once; here its fields become the source of a Python
function, which is compiled when that version is first used. The function has
everything written out: no loop over fields, no call per struct, and neighbours
of fixed size read or written by one ``struct.Struct``, the length or count that
follows them included.

A decoder is ``decode(buf, pos) -> (message, pos)``; ``buf`` is bytes, or a
memoryview where the message holds records, and ends where the frame ends. An
encoder is ``encode(message, out, segments) -> out``: it appends to the
bytearray ``out``, and where records come it puts ``out`` and the records into
``segments`` and goes on with a new one.
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
    """Make the function that decodes a message class in a version."""
    return DecoderSource(cls, version).compile()


def compile_sieve(cls: Any, version: int, field: str) -> Sieve:
    """Make a decoder of a message class that keeps only some of the structs in one of its arrays.

    It is ``decode(buf, pos, keep) -> (message, pos)``; ``keep(element)`` says which.
    """
    (sifted,) = [each for each in cls._fields if each.name == field]
    return DecoderSource(cls, version).compile_sieve(sifted)


def compile_encoder(cls: Any, version: int) -> Encoder:
    """Make the function that encodes a message class in a version."""
    return EncoderSource(cls, version).compile()
