"""A source for which the version of pyspark is always 4.1.1, in the driver and in workers."""

from __future__ import annotations

from collections.abc import MutableMapping

import pyspark

from aiokclient.spark import KafkaDataSource

__all__ = ["VERSION", "OldSparkSource"]

VERSION = "4.1.1"


class OldSparkSource(KafkaDataSource):
    @classmethod
    def name(cls) -> str:
        return "aiokclient_on_old_spark"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # Restore the version, because other sources may use this process later.
        present, pyspark.__version__ = pyspark.__version__, VERSION
        try:
            super().__init__(options)
        finally:
            pyspark.__version__ = present
