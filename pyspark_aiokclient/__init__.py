"""The module by which Spark finds the format `aiokclient`. Spark imports it in every session."""

from aiokclient.spark.data_source import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
