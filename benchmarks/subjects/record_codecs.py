"""Encoding and decoding record batches without a client."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from measuring.spec import Spec
from measuring.subject import Meter, PythonSubject

from aiokclient.config.codecs import Compression

CODECS = {codec.title: codec.value for codec in Compression}
NOW = 1_700_000_000_000


class Codec(PythonSubject):
    """The codec of one library. `mode` is `encode`, `encode list` or `decode`."""

    def work(self, spec: Spec, meter: Meter) -> None:
        values = spec.values()
        if spec.mode == "decode":
            batches = _reference(values, spec)
            with meter:
                size = self.decode(batches)
            assert size == sum(map(len, values))
        else:
            many = spec.mode == "encode list"
            with meter:
                (self.encode_list if many else self.encode)(values, spec)
        meter.counts.messages = len(values)

    @abstractmethod
    def encode(self, values: list[bytes], spec: Spec) -> list[Any]:
        """Return batches of the values, which are appended one by one."""

    def encode_list(self, values: list[bytes], spec: Spec) -> list[Any]:
        return self.encode(values, spec)

    @abstractmethod
    def decode(self, batches: list[bytes]) -> int:
        """Decode batches into records, with the CRC checked. Return the bytes of all values."""


def _reference(values: list[bytes], spec: Spec) -> list[bytes]:
    return [bytes(batch) for batch in Own().encode_list(values, spec)]


class Own(Codec):
    name = "aiokclient"
    family = "aiokclient"
    requires = "aiokclient"

    def encode(self, values: list[bytes], spec: Spec) -> list[Any]:
        from aiokclient.record.batch import Compression, RecordBatchBuilder

        codec, limit, batches = Compression(CODECS[spec.compression]), spec.batch_bytes, []
        builder = RecordBatchBuilder(compression=codec, limit=limit)
        append = builder.append
        for value in values:
            if append(NOW, None, value) < 0:
                builder.close()
                batches.append(builder.seal(1, 0, 0))
                builder = RecordBatchBuilder(compression=codec, limit=limit)
                append = builder.append
                append(NOW, None, value)
        builder.close()
        return [*batches, builder.seal(1, 0, 0)]

    def encode_list(self, values: list[bytes], spec: Spec) -> list[Any]:
        from aiokclient.record.batch import Compression, RecordBatchBuilder

        codec, start, batches = Compression(CODECS[spec.compression]), 0, []
        while start < len(values):
            builder = RecordBatchBuilder(compression=codec, limit=spec.batch_bytes)
            start += builder.append_values(NOW, values, start)
            builder.close()
            batches.append(builder.seal(1, 0, 0))
        return batches

    def decode(self, batches: list[bytes]) -> int:
        from aiokclient.record.batch import walk

        size = 0
        for data in batches:
            for batch in walk(data):
                for record in batch.records("topic", 0):
                    size += len(record.value)
        return size


class OwnPure(Own):
    name = "aiokclient pure Python"
    family = "aiokclient pure"
    share = 0.25
    environment: ClassVar = {"AIOKCLIENT_PURE": "1"}


class Aiokafka(Codec):
    name = "aiokafka"
    family = "aiokafka"
    requires = "aiokafka"

    def encode(self, values: list[bytes], spec: Spec) -> list[Any]:
        from aiokafka.record.default_records import DefaultRecordBatchBuilder

        codec, limit, batches = CODECS[spec.compression], spec.batch_bytes, []
        builder, at = DefaultRecordBatchBuilder(2, codec, 0, 1, 0, 0, limit), 0
        for value in values:
            if builder.append(at, NOW, None, value, []) is None:
                batches.append(builder.build())
                builder, at = DefaultRecordBatchBuilder(2, codec, 0, 1, 0, 0, limit), 0
                builder.append(at, NOW, None, value, [])
            at += 1
        return [*batches, builder.build()]

    def decode(self, batches: list[bytes]) -> int:
        from aiokafka.record.memory_records import MemoryRecords
        from aiokafka.structs import ConsumerRecord

        size = 0
        for data in batches:
            records = MemoryRecords(data)
            while records.has_next():
                batch = records.next_batch()
                assert batch.validate_crc()
                for each in batch:
                    value = each.value
                    record = ConsumerRecord(
                        *("topic", 0, each.offset, each.timestamp, each.timestamp_type, each.key),
                        *(value, each.checksum, -1, len(value), tuple(each.headers)),
                    )
                    size += len(record.value)
        return size


class AiokafkaPure(Aiokafka):
    name = "aiokafka without extensions"
    family = "aiokafka without extensions"
    share = 0.04
    environment: ClassVar = {"AIOKAFKA_NO_EXTENSIONS": "1"}


class KafkaPython(Codec):
    name = "kafka-python"
    family = "kafka-python"
    requires = "kafka"
    share = 0.25

    def encode(self, values: list[bytes], spec: Spec) -> list[Any]:
        from kafka.record.memory_records import MemoryRecordsBuilder

        codec, limit, batches = CODECS[spec.compression], spec.batch_bytes, []
        builder = MemoryRecordsBuilder(2, codec, limit)
        for value in values:
            if builder.append(NOW, None, value) is None:
                builder.close()
                batches.append(builder.buffer())
                builder = MemoryRecordsBuilder(2, codec, limit)
                builder.append(NOW, None, value)
        builder.close()
        return [*batches, builder.buffer()]

    def decode(self, batches: list[bytes]) -> int:
        from kafka.consumer.fetcher import ConsumerRecord
        from kafka.record.memory_records import MemoryRecords

        size = 0
        for data in batches:
            records = MemoryRecords(data)
            while records.has_next():
                batch = records.next_batch()
                assert batch.validate_crc()
                for each in batch:
                    value = each.value
                    record = ConsumerRecord(
                        *("topic", 0, -1, each.offset, each.timestamp, each.timestamp_type),
                        *(each.key, value, each.headers, each.checksum, -1, len(value), -1),
                    )
                    size += len(record.value)
        return size


RECORD_CODECS = (Own(), OwnPure(), Aiokafka(), AiokafkaPure(), KafkaPython())
