"""Kafka as a source and a sink of Spark, without a connector for the Java virtual machine.

`spark.read`, `spark.readStream`, `df.write`, and `df.writeStream` accept the format `aiokclient`,
which has the options of Spark's Kafka connector. Spark finds the format when the package is
installed. If it does not, register the format with `spark.dataSource.register(KafkaDataSource)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.spark.data_source import KafkaDataSource

__all__ = [
    "KafkaDataSource",
]


_MODULES = {
    "KafkaDataSource": "data_source",
}
"""The module of each public name. `.ci/write-names` writes it from the imports above."""


if not TYPE_CHECKING:  # If type checkers saw the function, they would accept any name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
