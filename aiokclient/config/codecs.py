"""The codecs of record batches: a table with one row for each codec.

To add a codec, add its row here and, in `record/codecs`, a module of the row's name in lower case
(see `record.compression.CodecModule`). Options, limits and messages follow from the row.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Self

from aiokclient.types.named_tuple import NamedTuple

KIB, MIB = 1024, 1024 * 1024

SLOW_BYTES = 64 * KIB
"""Records of fewer bytes than this are never compressed in a thread."""


class CodecTraits(NamedTuple):
    """The properties of a codec. Processing as many bytes as a limit permits takes about 2 ms."""

    encode_inline: int = SLOW_BYTES
    """Size up to which records are compressed in the event loop, not in a thread.

    This limit applies to the default level and to faster levels.
    """
    decode_inline: int = 256 * KIB
    """Size up to which compressed records are decompressed in the event loop, not in a thread."""
    levels: range | None = None
    """The levels that Kafka accepts (KIP-390)."""
    default_level: int = 0
    """Kafka's default level, except for lz4, whose default level in Kafka is 9."""
    densest: int | None = None
    """The most bytes of content that one compressed byte can hold; None for any number."""


PLAIN = CodecTraits(decode_inline=4 * MIB, densest=1)


@unique
class Compression(IntEnum):
    """The codecs, by their numbers in the attributes of a batch. The numbers have no gaps."""

    traits: CodecTraits

    def __new__(cls, number: int, traits: CodecTraits = PLAIN) -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        member.traits = traits
        return member

    NONE = 0, PLAIN
    GZIP = 1, CodecTraits(levels=range(1, 10), default_level=6, densest=1032)
    SNAPPY = 2, CodecTraits(256 * KIB, MIB, densest=64)
    LZ4 = 3, CodecTraits(512 * KIB, MIB, range(1, 18), default_level=0, densest=255)
    ZSTD = 4, CodecTraits(256 * KIB, 512 * KIB, range(-131072, 23), default_level=3)

    @property
    def title(self) -> str:
        """The name of the codec in options and error messages."""
        return self.name.lower()

    def is_slow(self, level: int | None) -> bool:
        """Return whether compressing at this level takes longer than at the default one."""
        return level is not None and level > self.traits.default_level


CODEC_NAMES = tuple(codec.name.lower() for codec in Compression)
"""The names of all codecs, in the order of their numbers."""
