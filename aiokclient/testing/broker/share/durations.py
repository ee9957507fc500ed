"""Durations as ISO 8601 writes them, in the form that Java reads: days, hours, minutes, seconds."""

from __future__ import annotations

import re

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


def read_duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration, or None if the text is not one or is negative."""
    found = _DURATION.fullmatch(text)
    if found is None or text[-1] in "PpTt":
        return None
    sign, days, _, hours, minutes, seconds = found.groups()
    total = (
        int(days or 0) * 86_400
        + int(hours or 0) * 3_600
        + int(minutes or 0) * 60
        + float((seconds or "0").replace(",", "."))
    )
    ms = int(total * 1000)
    return None if ms < 0 or (sign == "-" and ms) else ms
