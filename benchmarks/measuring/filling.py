"""Filling a topic for the consumer benchmarks."""

from typing import Any

from measuring import read_back
from measuring.runner import RunFailedError
from measuring.spec import Spec


def fill(spec: Spec) -> None:
    """Send the messages of `spec`, evenly over the partitions, with the spec's batch settings."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": spec.bootstrap, "log_level": 3, "linger.ms": 50}
    settings |= {"compression.type": spec.compression, "batch.size": spec.batch_bytes}
    producer = Producer({**settings, "enable.idempotence": True, "message.max.bytes": 1_048_588})
    good = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal good
        good += error is None

    for at, (key, value) in enumerate(zip(spec.keys(), spec.values(), strict=True)):
        partition = at % spec.partitions
        while True:
            try:
                producer.produce(spec.topic, value, key, partition, delivered)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    there = read_back.count(spec.bootstrap, spec.topic, spec.partitions)
    if not good == there == spec.count:
        raise RunFailedError(
            f"{spec.count} messages were sent, {good} acknowledged, and {there} are in the topic."
        )
