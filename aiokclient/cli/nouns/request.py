"""The command that sends any request of the protocol."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import OUTPUT, Argument, Command, Option, WrongUseError
from aiokclient.cli.output import Result, as_kafka_id, as_text_or_base64, write_result

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import AnyBroker, Broker, Client, Controller, Coordinator, Leader

    Target = AnyBroker | Broker | Controller | Coordinator | Leader

READING = (
    "apiversions",
    "describe",
    "fetch",
    "find",
    "gettelemetry",
    "list",
    "metadata",
    "offsetfetch",
    "offsetfor",
)
"""The beginnings of the names of APIs that change nothing."""
DESTROYING = ("delete", "offsetdelete", "remove", "unregister", "expire")
"""The beginnings of the names of APIs that ask before they are sent."""
BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
KINDS = ("group", "transaction", "share")


class SendRequest(Command):
    """Send any request of the protocol, and print the response as JSON.

    API is a name of Kafka's protocol, such as DescribeConfigs, or the number of its key. FIELDS
    is a JSON object with the fields of the request by the names in aiokclient.protocol.messages;
    what is left out has its default, and - reads it from standard input. The version is the latest
    that the broker knows.
    A request of an API that needs the controller goes there; any other one goes to any broker,
    unless an option names one. Errors of single items are in the response, with exit code 0.
    """

    prints_result = False
    changes = True
    arguments = (
        Argument("API", "The name or the key of the API.", completes="apis"),
        Argument("FIELDS", "The fields of the request as JSON.", "?"),
    )
    options = (
        Option(
            ("--broker",),
            "Send it to the broker with this id.",
            "ID",
            type=int,
            completes="brokers",
        ),
        Option(("--controller",), "Send it to the controller."),
        Option(
            ("--leader",), "Send it to the leader of a partition.", "TOPIC:P", completes="topics"
        ),
        Option(
            ("--coordinator",),
            "Send it to the coordinator of a group, a transactional id, or a share partition.",
            "KIND:KEY",
            completes="group: transaction: share:",
        ),
        *(each for each in OUTPUT if each.names[-1] in ("--json", "--jsonl", "--yaml")),
    )

    def run(self, given: Namespace) -> int:
        """Send the request, and print the response."""
        import asyncio

        given.columns, given.quiet = None, False
        if not (given.jsonl or given.yaml):
            given.json = True
        message = make_request(given.api, read_json(given.fields))
        name = type(message).__name__.removesuffix("Request")
        target = find_target(given, message)
        if name.lower().startswith(DESTROYING):
            confirm(given, f"Send {name} to the cluster?")
        if given.dry_run:
            data = {"api": name, "to": str(target), "request": as_fields(message)}
            return write_result(Result(data, []), given)
        command: Command = self
        if name.lower().startswith(READING):
            # It changes nothing: a protected profile does not ask for its name, and the outcome of
            # a request without a response is not unknown.
            command, given.dry_run = Command(), True
        return write_result(asyncio.run(send_request(command, given, message, target)), given)


async def send_request(command: Command, given: Namespace, message: Any, target: Target) -> Result:
    """Send a request, and return the response as a result."""
    from aiokclient import Client
    from aiokclient.cli.connection import Notice, make_client

    client = make_client(Client, command, given)
    notice = Notice(client, given)
    try:
        async with client:
            notice.cancel()
            if given.broker is not None:
                await require_broker(client, given.broker)
            return Result(as_fields(await client.request(message, to=target)), [])
    finally:
        notice.cancel()


async def require_broker(client: Client, broker_id: int) -> None:
    """Raise NotFoundError for a broker that does not run. A request would wait for its start."""
    from aiokclient import AnyBroker
    from aiokclient.protocol.messages import MetadataRequest

    cluster = await client.request(MetadataRequest(topics=[]), to=AnyBroker())
    running = sorted(each.node_id for each in cluster.brokers)
    if broker_id not in running:
        text = f"No broker {broker_id} is running. There are {', '.join(map(str, running))}."
        raise NotFoundError(text)


def read_json(text: str | None) -> Any:
    """Return a document, an empty one without a text. Raises WrongUseError."""
    if text == "-":
        text = sys.stdin.read()
    try:
        return json.loads(text) if text else {}
    except ValueError as error:
        raise WrongUseError(f"The fields of the request are not valid JSON: {error}.") from None


def make_request(api: str, fields: Any) -> Any:
    """Return a request of an API. Raises WrongUseError."""
    from aiokclient.protocol import ApiKey, messages

    word = api.replace("-", "").replace("_", "").lower()
    for key in ApiKey:
        if word in (key.api_name.lower(), str(int(key))):
            request_class = getattr(messages, f"{key.api_name}Request")
            return make_struct(request_class, fields, key.api_name)
    names = ", ".join(key.api_name for key in ApiKey)
    raise WrongUseError(f"There is no API {api}. There are {names}.")


def make_struct(struct_class: Any, fields: Any, path: str) -> Any:
    """Return a struct of the protocol. `path` names it in errors. Raises WrongUseError."""
    known = {field.name: field for field in struct_class._fields}
    if not isinstance(fields, dict):
        raise WrongUseError(f"{path} must be an object with the fields {', '.join(known)}.")
    for name in fields:
        if name not in known:
            there = ", ".join(known) or "no fields"
            raise WrongUseError(f"{path} has no field {name}. There are {there}.")
    values = {
        name: make_value(known[name].kind, known[name], value, f"{path}.{name}")
        for name, value in fields.items()
    }
    return struct_class(**values)


def make_value(kind: str, field: Any, value: Any, path: str) -> Any:
    """Return the value of a field, or of an item of an array. Raises WrongUseError."""
    if value is None:
        if kind == "records" or field.null is not None:
            return None
        raise WrongUseError(f"{path} cannot be null.")
    if kind == "struct":
        return make_struct(field.element, value, path)
    if kind == "array":
        if not isinstance(value, list):
            raise WrongUseError(f"{path} must be an array.")
        # The elements are structs, or scalars, whose kind is a text.
        inner = getattr(field.element, "kind", "struct")
        return [
            make_value(inner, field, item, f"{path}[{index}]") for index, item in enumerate(value)
        ]
    if kind in BITS:
        return make_integer(kind, value, path)
    if kind == "float64" and type(value) in (int, float):
        return float(value)
    if (kind == "boolean" and isinstance(value, bool)) or (
        kind == "string" and isinstance(value, str)
    ):
        return value
    if kind in ("bytes", "records"):
        return make_bytes(value, path)
    if kind == "uuid":
        return make_uuid(value, path)
    raise WrongUseError(f"{path} must be of type {kind}, not {json.dumps(value)}.")


def make_integer(kind: str, value: Any, path: str) -> int:
    """Return an integer of a number of bits. Raises WrongUseError."""
    bits = BITS[kind]
    low, high = (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if type(value) is not int or not low <= value <= high:
        raise WrongUseError(f"{path} must be an integer from {low} to {high}.")
    return value


def make_bytes(value: Any, path: str) -> bytes:
    """Return the bytes of a text, or of an object with base64. Raises WrongUseError."""
    from base64 import b64decode

    if isinstance(value, str):
        return value.encode()
    try:
        return b64decode(value["base64"], validate=True)
    except (TypeError, KeyError, ValueError):
        raise WrongUseError(f'{path} must be a text, or {{"base64": "..."}}.') from None


def make_uuid(value: Any, path: str) -> Any:
    """Return an id in Kafka's notation, or in that of UUIDs. Raises WrongUseError."""
    from argparse import ArgumentTypeError

    from aiokclient.cli.values import KafkaId

    try:
        return KafkaId(value).uuid
    except (TypeError, AttributeError, ArgumentTypeError):
        raise WrongUseError(f"{path} must be an id, such as oJkSPd1sRAy1mPz0gP1xtg.") from None


def as_fields(value: Any) -> Any:
    """Return a struct of the protocol as JSON has it. The result can be read by `make_struct`."""
    from uuid import UUID

    if isinstance(value, bytes | bytearray | memoryview):
        return as_text_or_base64(bytes(value))
    if isinstance(value, UUID):
        return as_kafka_id(value)
    if isinstance(value, list):
        return [as_fields(each) for each in value]
    if hasattr(value, "_fields"):
        return {field.name: as_fields(getattr(value, field.name)) for field in value._fields}
    return value


def find_target(given: Namespace, message: Any) -> Target:
    """Return the target that the options name, or the one of the API. Raises WrongUseError."""
    from aiokclient import AnyBroker, Broker, Controller, Coordinator, Leader

    chosen = [given.broker is not None, given.controller, given.leader, given.coordinator]
    if sum(map(bool, chosen)) > 1:
        raise WrongUseError("Give only one of --broker, --controller, --leader, and --coordinator.")
    if given.broker is not None:
        return Broker(given.broker)
    if given.leader:
        topic, _, partition = given.leader.rpartition(":")
        if not topic or not partition.isdecimal():
            raise WrongUseError(f"--leader {given.leader}: give TOPIC:PARTITION, such as orders:0.")
        return Leader(topic, int(partition))
    if given.coordinator:
        kind, _, key = given.coordinator.partition(":")
        if kind not in KINDS or not key:
            raise WrongUseError(
                f"--coordinator {given.coordinator}: give group:ID, transaction:ID, or share:KEY."
            )
        return Coordinator(kind, key)
    return Controller() if given.controller or message.route.name == "CONTROLLER" else AnyBroker()


COMMANDS: Sequence[type[Command]] = (SendRequest,)
