"""Kafka as a source and a sink of Spark, without a connector for the Java virtual machine.

`spark.read`, `spark.readStream`, `df.write`, and `df.writeStream` accept the format `aiokclient`,
which has the options of Spark's Kafka connector. Spark finds the format when the package is
installed. If it does not, register the format with `spark.dataSource.register(KafkaDataSource)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.spark.data_source import KafkaDataSource

__all__ = ["KafkaDataSource"]


if not TYPE_CHECKING:  # If type checkers saw the function, they would accept any name.

    def __getattr__(name: str) -> Any:
        if name != "KafkaDataSource":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from aiokclient.spark.data_source import KafkaDataSource

        return KafkaDataSource
