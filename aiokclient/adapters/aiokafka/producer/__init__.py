"""The producer with aiokafka's interface."""

from __future__ import annotations

from aiokclient.adapters.aiokafka.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
