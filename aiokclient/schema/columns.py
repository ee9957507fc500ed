"""Arrow types for Avro schemas and Protobuf messages, and the conversion of values to them.

A column has a type, and converts values which pyarrow does not take as they are. Enums and UUIDs
become strings, and unions of null and one other type that type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokclient.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message


class Column:
    """A column of values that pyarrow takes as they are."""

    is_plain = True
    """Whether pyarrow takes the values as they are. Then `convert_value` need not be called."""

    def __init__(self, type: Any) -> None:
        self.type = type

    def build(self, values: Sequence[Any]) -> pyarrow.Array:
        """Return the array of values, of which None is null."""
        import pyarrow

        return pyarrow.array(self.convert_all(values), self.type)

    def convert_value(self, value: Any) -> Any:
        """Return a value, which is not None, as pyarrow takes it."""
        return value

    def convert_all(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return values, of which some may be None, as pyarrow takes them."""
        if self.is_plain:
            return values
        convert = self.convert_value
        return [None if value is None else convert(value) for value in values]


class _TextColumn(Column):
    """A column of values that become their texts."""

    is_plain = False

    def convert_value(self, value: Any) -> str:
        return str(value)


class _ListColumn(Column):
    """A column of lists."""

    def __init__(self, item: Column) -> None:
        import pyarrow

        super().__init__(pyarrow.list_(item.type))
        self._item = item
        self.is_plain = item.is_plain

    def convert_value(self, value: Sequence[Any]) -> Sequence[Any]:
        return self._item.convert_all(value)


class _MapColumn(Column):
    """A column of maps."""

    is_plain = False

    def __init__(self, key: Any, item: Column) -> None:
        import pyarrow

        super().__init__(pyarrow.map_(key, item.type))
        self._item = item

    def convert_value(self, value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
        convert = self._item.convert_value
        return [(name, None if each is None else convert(each)) for name, each in value.items()]


# Avro


class _RecordColumn(Column):
    """A column of dicts, of which some fields are converted."""

    is_plain = False

    def __init__(self, type: Any, converted: Mapping[str, Column]) -> None:
        super().__init__(type)
        self._converted = converted

    def convert_value(self, value: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(value)
        for field, column in self._converted.items():
            if found.get(field) is not None:
                found[field] = column.convert_value(found[field])
        return found


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
        return _ListColumn(_avro_column(schema["items"], named, scope))
    if kind == "map":
        return _MapColumn(pyarrow.string(), _avro_column(schema["values"], named, scope))
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
    converted = {field: column for field, column in columns.items() if not column.is_plain}
    return _RecordColumn(kind, converted) if converted else Column(kind)


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
        return _TextColumn(pyarrow.string())
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


class _MessageColumn(Column):
    """A column of messages."""

    is_plain = False

    def __init__(self, fields: Sequence[tuple[str, bool, Column]]) -> None:
        """`fields` are their names, whether they have presence, and their columns."""
        import pyarrow

        super().__init__(pyarrow.struct([(field, column.type) for field, _, column in fields]))
        self._fields = fields

    def convert_value(self, value: Message) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field, has_presence, column in self._fields:
            if has_presence and not value.HasField(field):
                found[field] = None
            else:
                found[field] = column.convert_value(getattr(value, field))
        return found


class _RepeatedColumn(_ListColumn):
    """A column of repeated fields, of which pyarrow takes none as it is."""

    def __init__(self, item: Column) -> None:
        super().__init__(item)
        self.is_plain = False

    def convert_value(self, value: Sequence[Any]) -> list[Any]:
        return list(super().convert_value(value))


class _EnumColumn(Column):
    """A column of enums, which become their names. A number without a name becomes a text."""

    is_plain = False

    def __init__(self, type: Any, names: Mapping[int, str]) -> None:
        super().__init__(type)
        self._names = names

    def convert_value(self, value: int) -> str:
        return self._names.get(value, str(value))


class _NanosecondColumn(Column):
    """A column of messages for times and durations."""

    is_plain = False

    def convert_value(self, value: Any) -> Any:
        return value.ToNanoseconds()


class _WrappedColumn(Column):
    """A column of messages with one field, `value`."""

    is_plain = False

    def convert_value(self, value: Any) -> Any:
        return value.value


class _JsonColumn(Column):
    """A column of messages for values of JSON, which become texts."""

    is_plain = False

    def convert_value(self, value: Message) -> str:
        from google.protobuf.json_format import MessageToJson

        return str(MessageToJson(value, indent=None))


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
        return _NanosecondColumn(pyarrow.timestamp("ns", tz="UTC"))
    if name == "google.protobuf.Duration":
        return _NanosecondColumn(pyarrow.duration("ns"))
    if name in _JSON:
        return _JsonColumn(pyarrow.string())
    if descriptor.file.name == "google/protobuf/wrappers.proto":
        return _WrappedColumn(_scalar_type(descriptor.fields_by_name["value"]))
    _refuse_recursion(name, scope)
    return _MessageColumn(
        [
            (field.name, field.has_presence, _field_column(field, (*scope, name)))
            for field in descriptor.fields
        ]
    )


def _field_column(field: FieldDescriptor, scope: tuple[str, ...]) -> Column:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = message.fields_by_name["key"], message.fields_by_name["value"]
        return _MapColumn(_scalar_type(key), _single_column(value, scope))
    column = _single_column(field, scope)
    # The property is new in Protobuf 6, and the older one is gone in 7.
    repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == 3
    return _RepeatedColumn(column) if repeated else column


def _single_column(field: FieldDescriptor, scope: tuple[str, ...]) -> Column:
    if field.message_type is not None:
        return _message_column(field.message_type, scope)
    if field.type == _ENUM:
        names = {each.number: each.name for each in field.enum_type.values}
        return _EnumColumn(_scalar_type(field), names)
    return Column(_scalar_type(field))


def _scalar_type(field: FieldDescriptor) -> Any:
    import pyarrow

    return pyarrow.type_for_alias(_PROTOBUF.get(field.type, "string"))
