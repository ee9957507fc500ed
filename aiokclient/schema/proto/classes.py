"""Classes of messages, made of the files that a registry has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokclient.errors import SerializationError
from aiokclient.schema.proto.files import list_messages, parse_file
from aiokclient.schema.serializer import describe_error

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

    from aiokclient.schema.schema import Schema


def build_classes(
    file: FileDescriptorProto, references: Mapping[str, Schema], where: str
) -> dict[tuple[int, ...], type[Message]]:
    """Return classes for all messages of a file by their indexes.

    Raises SerializationError if something that the file imports is missing or not valid.
    """
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    try:
        added: set[str] = set()
        for name in file.dependency:
            _add_file(pool, name, references, added)
        pool.Add(file)
        return {
            way: GetMessageClass(pool.FindMessageTypeByName(name))
            for way, name in list_messages(file).items()
        }
    except (TypeError, KeyError, LookupError, ValueError) as error:
        raise SerializationError(
            f"{where.capitalize()} cannot be used: {describe_error(error)} Give message_type."
        ) from error


def _add_file(
    pool: DescriptorPool, name: str, references: Mapping[str, Schema], added: set[str]
) -> None:
    """Add an imported file to a pool, after those that it imports itself."""
    if name in added:
        return
    added.add(name)
    if name in references:
        file = parse_file(references[name], f"reference {name}", name)
    else:
        file = _built_in_file(name)
    for imported in file.dependency:
        _add_file(pool, imported, references, added)
    pool.Add(file)


def _built_in_file(name: str) -> FileDescriptorProto:
    from importlib import import_module

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if not name.startswith("google/protobuf/"):
        raise LookupError(f"it imports {name}, which is not among its references")
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError as error:
        raise LookupError(f"it imports {name}, which protobuf does not have") from error
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file
