"""What do the serializers and deserializers of schemas cost beyond the libraries of their formats?

The libraries alone (fastavro, json with jsonschema-rs, protobuf, and pydantic) write and read the
same values as the serializers, whose schemas are known. "An event" has a union with records,
logical types, and a map of a named record; "evolution" reads orders with a schema other than that
of the writer. Beside them is confluent-kafka, which has a registry in memory. Times are the least
of several runs; their ratio is to the library alone. Instructions are those for one more record
beyond the library's own, by callgrind, on which the load of the machine has no effect. They need
valgrind (`.ci/need-valgrind`).

    python benchmarks/schemas.py [--rows ROW ...] [--no-instructions] [--count N]
"""

import argparse
import asyncio
import gc
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PREFIX_SIZE = 5
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "price", "type": "double"},
    ],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
    ],
}
PAIR = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": ["null", "int"]}],
}
EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "what", "type": ["null", PAIR, {**LINE, "name": "Bought"}]},
        {"name": "more", "type": {"type": "map", "values": ["null", "Pair"]}},
    ],
}
EVENT_VALUE = {
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "price": Decimal(12),
    "what": {"item": "tea", "count": 2, "price": 3.5},
    "more": {"first": {"a": "x", "b": 1}, "second": None},
}
NEWER_ORDER = {
    **ORDER,
    "fields": [*ORDER["fields"][1:], {"name": "state", "type": "string", "default": "new"}],
}
ORDER_VALUE = {
    "id": 12345,
    "customer": "customer-1234",
    "paid": True,
    "note": None,
    "lines": [
        {"item": "tea", "count": 2, "price": 3.5},
        {"item": "a cup for it", "count": 1, "price": 5.25},
    ],
}
JSON_ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": "string"},
        "paid": {"type": "boolean"},
        "lines": {"type": "array", "items": {"type": "object", "required": ["item"]}},
    },
    "required": ["id", "customer"],
}
PROTO = """
syntax = "proto3";
message Order {
  message Line { string item = 1; int32 count = 2; double price = 3; }
  int64 id = 1;
  string customer = 2;
  bool paid = 3;
  repeated Line lines = 4;
}
"""

Call = Callable[[], Any]


class Registry:
    """A registry with one schema, which answers at once."""

    urls = ("memory",)

    def __init__(self) -> None:
        self._registered: Any = None

    async def register(self, subject: str, schema: Any, normalize: bool = False) -> Any:
        from aiokclient.schema import RegisteredSchema

        self._registered = RegisteredSchema(1, None, subject, 1, schema)
        return self._registered

    async def by_id(self, id: int, subject: str | None = None) -> Any:
        return self._registered

    async def resolve(self, schema: Any, subject: str | None = None) -> dict[str, Any]:
        return {}


def ours(serializer: Any, deserializer: Any, value: Any) -> tuple[Call, Call]:
    """Return functions that write the value and read its bytes, after both are prepared."""
    asyncio.run(serializer.prepare("orders"))
    data = serializer.serialize("orders", value, ())
    asyncio.run(deserializer.prepare("orders", [(data, ())]))
    return (
        lambda: serializer.serialize("orders", value, ()),
        lambda: deserializer.deserialize("orders", data, ()),
    )


def theirs(serializer: Any, deserializer: Any, value: Any) -> tuple[Call, Call]:
    """Return what `ours` does for confluent-kafka."""
    from confluent_kafka.serialization import MessageField, SerializationContext

    context = SerializationContext("orders", MessageField.VALUE)
    data = serializer(value, context)
    deserializer(data, context)
    return lambda: serializer(value, context), lambda: deserializer(data, context)


def confluent() -> tuple[Any, dict[str, Any]]:
    from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy

    client = SchemaRegistryClient.new_client({"url": "mock://benchmark"})
    return client, {"subject.name.strategy": topic_subject_name_strategy}


def avro(
    who: str, schema: dict[str, Any], value: Any, wanted: dict[str, Any] | None = None
) -> tuple[Call, Call]:
    """Return functions that write with a schema, and read with it or with a reader's schema."""
    text = json.dumps(schema)
    if who == "alone":
        from fastavro import parse_schema, schemaless_reader, schemaless_writer

        parsed = parse_schema(schema)
        readers = None if wanted is None else parse_schema(wanted)

        def write() -> bytes:
            output = BytesIO()
            schemaless_writer(output, parsed, value, strict_allow_default=True)
            return output.getvalue()

        data = write()
        return write, lambda: schemaless_reader(BytesIO(data), parsed, readers)
    if who == "confluent-kafka":
        from confluent_kafka.schema_registry import avro as their

        client, options = confluent()
        strict = {**options, "validate.strict.allow.default": True}
        return theirs(
            their.AvroSerializer(client, text, conf=strict),
            their.AvroDeserializer(
                client, None if wanted is None else json.dumps(wanted), conf=options
            ),
            value,
        )
    from aiokclient.schema import AvroDeserializer, AvroSerializer

    registry: Any = Registry()
    return ours(AvroSerializer(registry, text), AvroDeserializer(registry, wanted), value)


def json_schema(who: str) -> tuple[Call, Call]:
    text = json.dumps(JSON_ORDER)
    if who == "alone":
        import jsonschema_rs

        validate = jsonschema_rs.validator_for(JSON_ORDER).validate
        encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
        decode = json.JSONDecoder().decode

        def write() -> bytes:
            validate(ORDER_VALUE)
            return encode(ORDER_VALUE).encode()

        data = write()

        def read() -> Any:
            found = decode(data.decode())
            validate(found)
            return found

        return write, read
    if who == "confluent-kafka":
        from confluent_kafka.schema_registry import json_schema as their

        client, options = confluent()
        return theirs(
            their.JSONSerializer(text, client, conf=options),
            their.JSONDeserializer(None, schema_registry_client=client, conf=options),
            ORDER_VALUE,
        )
    from aiokclient.schema import JsonSchemaDeserializer, JsonSchemaSerializer

    registry: Any = Registry()
    return ours(JsonSchemaSerializer(registry, text), JsonSchemaDeserializer(registry), ORDER_VALUE)


@cache
def message_class() -> Any:
    from google.protobuf import descriptor_pool, message_factory

    from aiokclient.schema.proto.files import parse_proto

    pool: Any = descriptor_pool.Default()
    pool.Add(parse_proto(PROTO, "order.proto"))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))


def protobuf(who: str) -> tuple[Call, Call]:
    from google.protobuf import json_format

    message_type = message_class()
    value = {name: each for name, each in ORDER_VALUE.items() if name != "note"}
    message = json_format.ParseDict(value, message_type())
    if who == "alone":
        data = message.SerializeToString(deterministic=True)
        return (
            lambda: message.SerializeToString(deterministic=True),
            lambda: message_type.FromString(data),
        )
    if who == "confluent-kafka":
        from confluent_kafka.schema_registry import protobuf as their

        client, options = confluent()
        return theirs(
            their.ProtobufSerializer(message_type, client, conf=options),
            their.ProtobufDeserializer(message_type, options, client),
            message,
        )
    from aiokclient.schema import ProtobufDeserializer, ProtobufSerializer

    registry: Any = Registry()
    return ours(
        ProtobufSerializer(registry, message_type),
        ProtobufDeserializer(registry, message_type),
        message,
    )


def pydantic(who: str) -> tuple[Call, Call]:
    from pydantic import create_model

    line = create_model("Line", item=(str, ...), count=(int, ...), price=(float, ...))
    order: Any = create_model(
        "Order",
        id=(int, ...),
        customer=(str, ...),
        paid=(bool, ...),
        note=(str | None, None),
        lines=(list[line], ...),  # type: ignore[valid-type]
    )
    value = order.model_validate(ORDER_VALUE)
    if who == "alone":
        data = value.model_dump_json(by_alias=True)
        return (
            lambda: value.model_dump_json(by_alias=True, warnings="error").encode(),
            lambda: order.model_validate_json(data),
        )
    from aiokclient.schema import PydanticDeserializer, PydanticSerializer

    registry: Any = Registry()
    return ours(PydanticSerializer(registry, order), PydanticDeserializer(registry, order), value)


ROWS: dict[str, Callable[[str], tuple[Call, Call]]] = {
    "avro, two fields": lambda who: avro(who, PAIR, {"a": "x", "b": 1}),
    "avro, an order": lambda who: avro(who, ORDER, ORDER_VALUE),
    "avro, an event": lambda who: avro(who, EVENT, EVENT_VALUE),
    "avro, evolution": lambda who: avro(who, ORDER, ORDER_VALUE, NEWER_ORDER),
    "json schema": json_schema,
    "protobuf": protobuf,
    "pydantic": pydantic,
}
WAYS = ("write", "read")


def repeat(call: Call, count: int) -> None:
    for _ in range(count):
        call()


def measure_time(calls: dict[str, Call], count: int) -> dict[str, float]:
    """Return the microseconds of each call: the least of several runs, which take turns."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(10):
        for who, call in calls.items():
            start = time.process_time()
            repeat(call, count)
            least[who] = min(least[who], (time.process_time() - start) / count * 1e6)
    return least


def count_instructions(row: str, way: str, who: str) -> float:
    """Return the instructions of one more call."""
    counts = []
    sizes = (500, 1500)
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    for size in sizes:
        child = [sys.executable, str(Path(__file__)), "--child", row, way, who, str(size)]
        # The first run compiles modules that have changed.
        subprocess.run(child, cwd=ROOT, env=environment, check=True)
        done = subprocess.run(
            [*valgrind, *child], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        found = re.search(r"Collected : (\d+)", done.stderr)
        if done.returncode or found is None:
            sys.exit(done.stderr[-3000:])
        counts.append(int(found[1]))
    return (counts[1] - counts[0]) / (sizes[1] - sizes[0])


def measure(row: str, count: int, *, instructions: bool) -> Iterator[str]:
    subjects = ["alone", "aiokclient", *(["confluent-kafka"] if row != "pydantic" else [])]
    calls = {who: ROWS[row](who) for who in subjects}
    for index, way in enumerate(WAYS):
        times = measure_time({who: each[index] for who, each in calls.items()}, count)
        cells = [f"{time_us:8.2f} {time_us / times['alone']:6.2f}" for time_us in times.values()]
        more = "-"
        if instructions:
            alone = count_instructions(row, way, "alone")
            more = f"{count_instructions(row, way, 'aiokclient') - alone:,.0f}"
        cells += ["       -      -"] * (3 - len(cells))
        yield f"{row:18} {way:6} {'  '.join(cells)} {more:>13}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--count", type=int, default=5000, help="records of a run")
    parser.add_argument("--no-instructions", action="store_true")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        row, way, who, size = given.child
        gc.disable()  # A collection is far more than a record, and may be in one run only.
        repeat(ROWS[row](who)[WAYS.index(way)], int(size))
        return
    instructions = not given.no_instructions and shutil.which("valgrind") is not None
    print(f"{'':25} {'alone':>15}  {'aiokclient':>15}  {'confluent-kafka':>15}  instructions")
    pair = f"{'µs':>8} {'ratio':>6}"
    print(f"{'':25} {pair}  {pair}  {pair}  beyond alone")
    for row in given.rows:
        for line in measure(row, given.count, instructions=instructions):
            print(line, flush=True)


if __name__ == "__main__":
    main()
