"""The versions of Spark with which the source and the sink work."""

from __future__ import annotations

import re

from aiokclient.errors import ConfigError

OLDEST = (4, 2, 1)


def require_spark(version: str) -> None:
    """Raise ConfigError for a Spark that is too old."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    if numbers < OLDEST:
        raise ConfigError(
            f"Spark {version} is too old for the format aiokclient. Sources in Python can limit "
            "the size of their batches since Spark 4.2, and 4.2.1 is the oldest supported version. "
            "Install pyspark 4.2.1 or later."
        )
