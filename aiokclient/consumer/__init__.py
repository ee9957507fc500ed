"""The consumer: reading topics and partitions."""

from aiokclient.consumer.consumer import Consumer
from aiokclient.consumer.records import Records

__all__ = ["Consumer", "Records"]
