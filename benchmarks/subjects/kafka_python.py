"""kafka-python."""

from __future__ import annotations

from typing import Any

from measuring.spec import FIRST, Spec
from measuring.subject import Meter, PythonSubject

WAIT_S = 60


def producer_options(spec: Spec) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap_servers": spec.bootstrap}
    options["compression_type"] = None if spec.compression == "none" else spec.compression
    if spec.tuned:
        options |= {"enable_idempotence": True, "linger_ms": spec.linger_ms}
        options |= {"batch_size": spec.batch_bytes}
        options |= {"max_in_flight_requests_per_connection": spec.in_flight}
    return options


class KafkaPython(PythonSubject):
    family = "kafka-python"
    requires = "kafka"


class Send(KafkaPython):
    name = "kafka-python send, get each"
    share = 0.1

    def work(self, spec: Spec, meter: Meter) -> None:
        from kafka import KafkaProducer

        items, topic = list(zip(spec.values(), spec.keys(), strict=True)), spec.topic
        producer = KafkaProducer(**producer_options(spec))
        producer.send(topic, FIRST).get(WAIT_S)
        with meter:
            waiting: list[Any] = []
            for chunk in spec.chunks(items):
                sent = [producer.send(topic, value, key) for value, key in chunk]
                meter.counts.messages += self.settle(waiting)
                waiting = sent
            producer.flush()
            meter.counts.messages += self.settle(waiting)
        producer.close()

    def settle(self, futures: list[Any]) -> int:
        for future in futures:
            future.get(WAIT_S)
        return len(futures)


class Poll(KafkaPython):
    name = "kafka-python poll"
    share = 0.2

    def work(self, spec: Spec, meter: Meter) -> None:
        from kafka import KafkaConsumer, TopicPartition

        places = [TopicPartition(spec.topic, partition) for partition in range(spec.partitions)]
        options = {"max_poll_records": 5_000} if spec.tuned else {}
        seen = size = 0
        with meter:
            consumer = KafkaConsumer(
                bootstrap_servers=spec.bootstrap, enable_auto_commit=False, **options
            )
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            while seen < spec.count:
                fetched = consumer.poll(1000)
                if not seen:
                    meter.arrived(sum(map(len, fetched.values())))
                for records in fetched.values():
                    for record in records:
                        size += len(record.value)
                    seen += len(records)
            meter.complete(seen, size)
            consumer.close()


PRODUCERS = (Send(),)
CONSUMERS = (Poll(),)
