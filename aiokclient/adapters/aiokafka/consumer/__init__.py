"""The consumer with aiokafka's interface."""

from __future__ import annotations

from aiokclient.adapters.aiokafka.consumer.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
