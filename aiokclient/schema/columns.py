"""Arrow types for Avro schemas and Protobuf messages, and the conversion of values to them.

A column is a type, and a function that converts values which pyarrow does not take as they are, or
None. Enums and UUIDs become strings, and unions of null and one other type that type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokclient.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow
    from google.protobuf.descriptor import Descriptor, FieldDescriptor


class Column(NamedTuple):
    """The type of a column, and the function that its values need."""

    type: Any
    convert: Callable[[Any], Any] | None = None

    def build(self, values: Sequence[Any]) -> pyarrow.Array:
        """Return the array of values, of which None is null."""
        import pyarrow

        convert = self.convert
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pyarrow.array(values, self.type)


def _list_column(item: Column) -> Column:
    import pyarrow

    convert = item.convert
    if convert is None:
        return Column(pyarrow.list_(item.type))
    return Column(
        pyarrow.list_(item.type),
        lambda values: [None if each is None else convert(each) for each in values],
    )


def _map_column(key: Any, item: Column) -> Column:
    import pyarrow

    convert = item.convert or (lambda value: value)
    return Column(
        pyarrow.map_(key, item.type),
        lambda values: [
            (name, None if each is None else convert(each)) for name, each in values.items()
        ],
    )


# Avro

_AVRO: Final = {
    "null": "null",
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL: Final = {
    "date": "date32[day]",
    "time-millis": "time32[ms]",
    "time-micros": "time64[us]",
}
_TIMESTAMPS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}


def avro_column(parsed: Any) -> Column:
    """Return the column for a schema as fastavro has parsed it. Raises ConfigError if none fits."""
    named: dict[str, Any] = {}
    return _avro_column(parsed, named, ())


def _avro_column(schema: Any, named: dict[str, Any], scope: tuple[str, ...]) -> Column:
    import pyarrow

    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise ConfigError(
                f"The Avro schema has a union of {len(others)} types, for which Arrow has no "
                "column. Read the values by another iteration."
            )
        return _avro_column(others[0], named, scope)
    if isinstance(schema, str):
        if schema in _AVRO:
            return Column(pyarrow.type_for_alias(_AVRO[schema]))
        schema = named[schema]
    kind = schema["type"]
    if "logicalType" in schema:
        column = _logical_column(kind, schema)
        if column is not None:
            return column
    if kind == "record":
        return _record_column(schema, named, scope)
    named[schema.get("name", "")] = schema
    if kind == "enum":
        return Column(pyarrow.string())
    if kind == "fixed":
        return Column(pyarrow.binary(schema["size"]))
    if kind == "array":
        return _list_column(_avro_column(schema["items"], named, scope))
    if kind == "map":
        return _map_column(pyarrow.string(), _avro_column(schema["values"], named, scope))
    return _avro_column(kind, named, scope)


def _record_column(
    schema: Mapping[str, Any], named: dict[str, Any], scope: tuple[str, ...]
) -> Column:
    import pyarrow

    name = schema["name"]
    _refuse_recursion(name, scope)
    named[name] = schema
    columns = {
        field["name"]: _avro_column(field["type"], named, (*scope, name))
        for field in schema["fields"]
    }
    kind = pyarrow.struct([(field, column.type) for field, column in columns.items()])
    converted = {field: each.convert for field, each in columns.items() if each.convert is not None}
    if not converted:
        return Column(kind)

    def convert(value: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(value)
        for field, function in converted.items():
            if found.get(field) is not None:
                found[field] = function(found[field])
        return found

    return Column(kind, convert)


def _logical_column(kind: Any, schema: Mapping[str, Any]) -> Column | None:
    """Return the column of a logical type, or None if fastavro leaves its values as they are."""
    import pyarrow

    logical = str(schema["logicalType"])
    if logical in _LOGICAL:
        return Column(pyarrow.type_for_alias(_LOGICAL[logical]))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        make = pyarrow.decimal128 if schema["precision"] <= 38 else pyarrow.decimal256
        return Column(make(schema["precision"], schema.get("scale", 0)))
    if logical == "uuid":
        return Column(pyarrow.string(), str)
    start, _, unit = logical.rpartition("-")
    if start in ("timestamp", "local-timestamp") and unit in _TIMESTAMPS:
        zone = "UTC" if start == "timestamp" else None
        return Column(pyarrow.timestamp(_TIMESTAMPS[unit], tz=zone))
    return None


def _refuse_recursion(name: str, scope: tuple[str, ...]) -> None:
    if name in scope:
        raise ConfigError(
            f"{name} contains itself, for which Arrow has no column. Read the values by another "
            "iteration."
        )


# Protobuf

_PROTOBUF: Final = {
    1: "float64",
    2: "float32",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "uint64",
    7: "uint32",
    8: "bool",
    9: "string",
    12: "binary",
    13: "uint32",
    15: "int32",
    16: "int64",
    17: "int32",
    18: "int64",
}
"""Arrow's types by the numbers of FieldDescriptorProto.Type."""
_ENUM: Final = 14
_JSON: Final = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")


def protobuf_column(descriptor: Descriptor) -> Column:
    """Return the column for a message. Raises ConfigError if it contains itself."""
    return _message_column(descriptor, ())


def _message_column(descriptor: Descriptor, scope: tuple[str, ...]) -> Column:
    import pyarrow

    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return Column(pyarrow.timestamp("ns", tz="UTC"), lambda value: value.ToNanoseconds())
    if name == "google.protobuf.Duration":
        return Column(pyarrow.duration("ns"), lambda value: value.ToNanoseconds())
    if name in _JSON:
        return Column(pyarrow.string(), _to_json)
    if descriptor.file.name == "google/protobuf/wrappers.proto":
        return Column(_scalar_type(descriptor.fields_by_name["value"]), lambda value: value.value)
    _refuse_recursion(name, scope)
    columns = [
        (field.name, field.has_presence, _field_column(field, (*scope, name)))
        for field in descriptor.fields
    ]

    def convert(message: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field, has_presence, column in columns:
            if has_presence and not message.HasField(field):
                found[field] = None
            else:
                value = getattr(message, field)
                found[field] = value if column.convert is None else column.convert(value)
        return found

    return Column(pyarrow.struct([(field, each.type) for field, _, each in columns]), convert)


def _field_column(field: FieldDescriptor, scope: tuple[str, ...]) -> Column:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = message.fields_by_name["key"], message.fields_by_name["value"]
        return _map_column(_scalar_type(key), _single_column(value, scope))
    column = _single_column(field, scope)
    # The property is new in Protobuf 6, and the older one is gone in 7.
    repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == 3
    if not repeated:
        return column
    listed = _list_column(column)
    # pyarrow takes no repeated fields of Protobuf.
    return listed if listed.convert is not None else Column(listed.type, list)


def _single_column(field: FieldDescriptor, scope: tuple[str, ...]) -> Column:
    if field.message_type is not None:
        return _message_column(field.message_type, scope)
    if field.type == _ENUM:
        names = {each.number: each.name for each in field.enum_type.values}
        return Column(_scalar_type(field), lambda number: names.get(number, str(number)))
    return Column(_scalar_type(field))


def _scalar_type(field: FieldDescriptor) -> Any:
    import pyarrow

    return pyarrow.type_for_alias(_PROTOBUF.get(field.type, "string"))


def _to_json(message: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(message, indent=None))
