"""SASLprep (RFC 4013): one form for texts that look the same, for user names and passwords."""

from __future__ import annotations

import stringprep
from unicodedata import ucd_3_2_0 as unicode

__all__ = ["saslprep"]

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """Return the text as SASLprep prepares a query, in which unassigned characters are allowed.

    Raises ValueError, without the text, for prohibited characters and for a mixture of writing
    directions that is not allowed.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = unicode.normalize("NFKC", mapped)
    if any(prohibited(character) for character in prepared for prohibited in _PROHIBITED):
        raise ValueError("A character is prohibited.")
    if any(map(stringprep.in_table_d1, prepared)):
        ends = (prepared[0], prepared[-1])
        if any(map(stringprep.in_table_d2, prepared)) or not all(map(stringprep.in_table_d1, ends)):
            raise ValueError("Writing directions are mixed.")
    return prepared
