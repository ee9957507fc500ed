"""The properties of the client that sent a request, for client metrics."""

from __future__ import annotations

from ipaddress import IPv6Address
from uuid import UUID

from aiokclient.testing.broker.call import Call
from aiokclient.testing.broker.telemetry.instances import ClientInstance
from aiokclient.testing.broker.telemetry.receiver import ClientTelemetryContext, format_uuid


def find_instance(call: Call, instance_id: UUID) -> ClientInstance:
    """Return the client instance of a request, which is created if it does not exist."""

    def find_properties() -> dict[str, str | None]:
        context = make_context(call, instance_id)
        port = call.owner.client_port
        return {
            "client_instance_id": format_uuid(instance_id),
            "client_id": context.client_id,
            "client_software_name": context.software_name,
            "client_software_version": context.software_version,
            "client_source_address": _format_as_java(context.client_address),
            "client_source_port": None if port is None else str(port),
        }

    subscriptions = call.cluster.metrics_subscriptions
    return call.broker.client_instances.use_instance(
        instance_id, call.owner, subscriptions, find_properties
    )


def make_context(call: Call, instance_id: UUID) -> ClientTelemetryContext:
    """Return the client of a request and its connection, as receivers see them."""
    name, version = call.owner.client_software
    return ClientTelemetryContext(
        client_id=call.client_id or "",
        client_instance_id=instance_id,
        client_address=call.owner.client_host.removeprefix("/"),
        software_name=name,
        software_version=version,
        principal=str(call.principal),
        listener=call.owner.listener,
    )


def _format_as_java(host: str) -> str:
    """Return an address as Java writes it. Java does not shorten IPv6 addresses."""
    if ":" not in host:
        return host
    groups = IPv6Address(host).exploded.partition("%")[0].split(":")
    return ":".join(f"{int(each, 16):x}" for each in groups)
