"""Responses with the names of aiokafka's fields, made from those of aiokclient."""

from __future__ import annotations

from typing import Any, ClassVar

from aiokclient.errors import GroupIdNotFoundError
from aiokclient.protocol import messages

Schema = tuple[Any, ...]
"""The names of fields. A field of rows is a pair of its name and the names in a row."""


class Response:
    """A response of a broker. Rows are tuples; `to_object` gives dictionaries with their names."""

    SCHEMA: ClassVar[Schema] = ()

    def __init__(self, *values: Any) -> None:
        for name, value in zip(self.SCHEMA, values, strict=True):
            setattr(self, name if isinstance(name, str) else name[0], value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no field {name}.")

    def to_object(self) -> dict[str, Any]:
        """Return the fields by name, and each row as a dictionary."""
        names = [name if isinstance(name, str) else name[0] for name in self.SCHEMA]
        return _name_fields(self.SCHEMA, [getattr(self, name) for name in names])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_object()!r})"


def _name_fields(schema: Schema, values: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for field, value in zip(schema, values, strict=True):
        if isinstance(field, str):
            named[field] = value
        else:
            name, rows = field
            named[name] = [_name_fields(rows, row) for row in value]
    return named


class CreateTopicsResponse(Response):
    """The outcome of each topic."""

    SCHEMA = ("throttle_time_ms", ("topic_errors", ("topic", "error_code", "error_message")))

    @classmethod
    def of(cls, response: messages.CreateTopicsResponse) -> CreateTopicsResponse:
        """Return the response of a broker in this form."""
        rows = [(each.name, each.error_code, each.error_message) for each in response.topics]
        return cls(response.throttle_time_ms, rows)


class DeleteTopicsResponse(Response):
    """The outcome of each topic."""

    SCHEMA = ("throttle_time_ms", ("topic_error_codes", ("topic", "error_code")))

    @classmethod
    def of(cls, response: messages.DeleteTopicsResponse) -> DeleteTopicsResponse:
        """Return the response of a broker in this form."""
        rows = [(each.name, each.error_code) for each in response.responses]
        return cls(response.throttle_time_ms, rows)


class CreatePartitionsResponse(Response):
    """The outcome of each topic."""

    SCHEMA = ("throttle_time_ms", ("topic_errors", ("topic", "error_code", "error_message")))

    @classmethod
    def of(cls, response: messages.CreatePartitionsResponse) -> CreatePartitionsResponse:
        """Return the response of a broker in this form."""
        rows = [(each.name, each.error_code, each.error_message) for each in response.results]
        return cls(response.throttle_time_ms, rows)


class AlterConfigsResponse(Response):
    """The outcome of each resource."""

    SCHEMA = (
        "throttle_time_ms",
        ("resources", ("error_code", "error_message", "resource_type", "resource_name")),
    )

    @classmethod
    def of(cls, response: messages.AlterConfigsResponse) -> AlterConfigsResponse:
        """Return the response of a broker in this form."""
        rows = [
            (each.error_code, each.error_message, each.resource_type, each.resource_name)
            for each in response.responses
        ]
        return cls(response.throttle_time_ms, rows)


class DescribeConfigsResponse(Response):
    """The configs of each resource."""

    SCHEMA = (
        "throttle_time_ms",
        (
            "resources",
            (
                *("error_code", "error_message", "resource_type", "resource_name"),
                (
                    "config_entries",
                    (
                        *("config_names", "config_value", "read_only", "config_source"),
                        "is_sensitive",
                        ("config_synonyms", ("config_name", "config_value", "config_source")),
                    ),
                ),
            ),
        ),
    )

    @classmethod
    def of(cls, response: messages.DescribeConfigsResponse) -> DescribeConfigsResponse:
        """Return the response of a broker in this form."""
        resources = []
        for result in response.results:
            entries = [
                (
                    *(each.name, each.value, each.read_only, each.config_source),
                    each.is_sensitive,
                    [(other.name, other.value, other.source) for other in each.synonyms],
                )
                for each in result.configs
            ]
            outcome = result.error_code, result.error_message
            resources.append((*outcome, result.resource_type, result.resource_name, entries))
        return cls(response.throttle_time_ms, resources)


class DescribeGroupsResponse(Response):
    """The state and the members of each group."""

    SCHEMA = (
        "throttle_time_ms",
        (
            "groups",
            (
                *("error_code", "group", "state", "protocol_type", "protocol"),
                (
                    "members",
                    (
                        *("member_id", "client_id", "client_host"),
                        *("member_metadata", "member_assignment"),
                    ),
                ),
                "authorized_operations",
            ),
        ),
    )

    @classmethod
    def of(cls, response: messages.DescribeGroupsResponse) -> DescribeGroupsResponse:
        """Return the response of a broker in this form."""
        groups = []
        for group in response.groups:
            members = [
                (
                    *(each.member_id, each.client_id, each.client_host),
                    *(bytes(each.member_metadata), bytes(each.member_assignment)),
                )
                for each in group.members
            ]
            state = group.group_state, group.protocol_type, group.protocol_data
            operations = group.authorized_operations
            # The versions of aiokafka have no code for a group that does not exist.
            code = 0 if group.error_code == GroupIdNotFoundError.code else group.error_code
            groups.append((code, group.group_id, *state, members, operations))
        return cls(response.throttle_time_ms, groups)


class MetadataResponse(Response):
    """The brokers, and the partitions of topics."""

    SCHEMA = (
        "throttle_time_ms",
        ("brokers", ("node_id", "host", "port", "rack")),
        *("cluster_id", "controller_id"),
        (
            "topics",
            (
                *("error_code", "topic", "is_internal"),
                (
                    "partitions",
                    (
                        *("error_code", "partition", "leader", "replicas", "isr"),
                        "offline_replicas",
                    ),
                ),
            ),
        ),
    )

    @classmethod
    def of(cls, response: messages.MetadataResponse) -> MetadataResponse:
        """Return the response of a broker in this form."""
        brokers = [(each.node_id, each.host, each.port, each.rack) for each in response.brokers]
        topics = []
        for topic in response.topics:
            partitions = [
                (
                    *(each.error_code, each.partition_index, each.leader_id),
                    *(each.replica_nodes, each.isr_nodes, each.offline_replicas),
                )
                for each in topic.partitions
            ]
            topics.append((topic.error_code, topic.name, topic.is_internal, partitions))
        cluster = response.cluster_id, response.controller_id
        return cls(response.throttle_time_ms, brokers, *cluster, topics)
