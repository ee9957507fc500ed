"""The versions of Spark with which the source and the sink work."""

from __future__ import annotations

import re

from aiokclient.errors import ConfigError

__all__ = ["require_spark"]

OLDEST = (4, 2, 1)


def require_spark(version: str) -> None:
    """Raise ConfigError for a Spark that is too old."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    if numbers < OLDEST:
        raise ConfigError(
            f"Spark {version} is too old for the format aiokclient. A source in Python can limit "
            "the size of its batches since Spark 4.2, of which 4.2.1 is the oldest version that is "
            "supported. Install pyspark 4.2.1 or later."
        )
