"""An asyncio-native client for Apache Kafka: producer, consumer, admin, embedded cluster.

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        await producer.send("orders", b"hello")

    async with Consumer("orders", bootstrap_servers="localhost:9092") as consumer:
        async for record in consumer:
            print(record.value)

Names are imported when they are first used, so that importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient import errors, protocol
    from aiokclient.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AclResourceType,
        Admin,
        ClientQuotaEntity,
        ClientQuotaFilter,
        ClientQuotaName,
        ConfigResource,
        NewPartitions,
        NewTopic,
        PatternType,
        ResourcePattern,
        ResourcePatternFilter,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from aiokclient.client import Client
    from aiokclient.cluster.targets import AnyBroker, Broker, Controller, Coordinator, Leader
    from aiokclient.config.security import (
        OAuthToken,
        Plaintext,
        SaslGssapi,
        SaslOAuthBearer,
        SaslPlain,
        SaslScram,
        Tls,
    )
    from aiokclient.config.security.oidc import OidcClientCredentials, OidcJwtBearer
    from aiokclient.consumer import Consumer, Records
    from aiokclient.consumer.assignors.assignor import (
        AssignmentCluster,
        Assignor,
        MemberAssignment,
        MemberSubscription,
    )
    from aiokclient.consumer.assignors.co_partitioned import CoPartitioned
    from aiokclient.consumer.assignors.redundant import Redundant
    from aiokclient.errors import KafkaError
    from aiokclient.group.generation import GroupProtocol
    from aiokclient.group.member import GroupMember
    from aiokclient.patterns import single_writer, transform, work_pool
    from aiokclient.producer import Delivery, Producer
    from aiokclient.producer.transaction.detached import DetachedTransaction
    from aiokclient.producer.transaction.status import TransactionOutcome
    from aiokclient.producer.transaction.transaction import Transaction
    from aiokclient.record.murmur2 import murmur2
    from aiokclient.share.delivery.record import ShareRecord
    from aiokclient.share.share_consumer import ShareConsumer
    from aiokclient.types import (
        REJECT,
        RELEASE,
        SKIP,
        ConsumerRecord,
        GroupMetadata,
        Headers,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        ProducerRecord,
        RecordMetadata,
        Serialized,
        State,
        TimestampType,
        TopicPartition,
    )

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AclResourceType",
    "Admin",
    "AnyBroker",
    "AssignmentCluster",
    "Assignor",
    "Broker",
    "Client",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClientQuotaName",
    "CoPartitioned",
    "ConfigResource",
    "Consumer",
    "ConsumerRecord",
    "Controller",
    "Coordinator",
    "Delivery",
    "DetachedTransaction",
    "GroupMember",
    "GroupMetadata",
    "GroupProtocol",
    "Headers",
    "KafkaError",
    "Leader",
    "MemberAssignment",
    "MemberSubscription",
    "NewPartitions",
    "NewTopic",
    "OAuthToken",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OidcClientCredentials",
    "OidcJwtBearer",
    "PatternType",
    "Plaintext",
    "Producer",
    "ProducerRecord",
    "REJECT",
    "RELEASE",
    "RecordMetadata",
    "Records",
    "Redundant",
    "ResourcePattern",
    "ResourcePatternFilter",
    "SKIP",
    "SaslGssapi",
    "SaslOAuthBearer",
    "SaslPlain",
    "SaslScram",
    "ScramMechanism",
    "Serialized",
    "ShareConsumer",
    "ShareRecord",
    "State",
    "TimestampType",
    "Tls",
    "TopicPartition",
    "Transaction",
    "TransactionOutcome",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "errors",
    "murmur2",
    "native",
    "protocol",
    "single_writer",
    "transform",
    "work_pool",
]

__version__ = "0.1.0"

native: bool
"""Whether the native modules are in use. Without them everything works, but slower."""

_MODULES = {
    "AclBinding": "admin",
    "AclBindingFilter": "admin",
    "AclOperation": "admin",
    "AclPermissionType": "admin",
    "AclResourceType": "admin",
    "Admin": "admin",
    "AnyBroker": "cluster.targets",
    "AssignmentCluster": "consumer.assignors.assignor",
    "Assignor": "consumer.assignors.assignor",
    "Broker": "cluster.targets",
    "Client": "client",
    "ClientQuotaEntity": "admin",
    "ClientQuotaFilter": "admin",
    "ClientQuotaName": "admin",
    "CoPartitioned": "consumer.assignors.co_partitioned",
    "ConfigResource": "admin",
    "Consumer": "consumer",
    "ConsumerRecord": "types",
    "Controller": "cluster.targets",
    "Coordinator": "cluster.targets",
    "Delivery": "producer",
    "DetachedTransaction": "producer.transaction.detached",
    "GroupMember": "group.member",
    "GroupMetadata": "types",
    "GroupProtocol": "group.generation",
    "Headers": "types",
    "KafkaError": "errors",
    "Leader": "cluster.targets",
    "MemberAssignment": "consumer.assignors.assignor",
    "MemberSubscription": "consumer.assignors.assignor",
    "NewPartitions": "admin",
    "NewTopic": "admin",
    "OAuthToken": "config.security",
    "OffsetAndMetadata": "types",
    "OffsetAndTimestamp": "types",
    "OidcClientCredentials": "config.security.oidc",
    "OidcJwtBearer": "config.security.oidc",
    "PatternType": "admin",
    "Plaintext": "config.security",
    "Producer": "producer",
    "ProducerRecord": "types",
    "REJECT": "types",
    "RELEASE": "types",
    "RecordMetadata": "types",
    "Records": "consumer",
    "Redundant": "consumer.assignors.redundant",
    "ResourcePattern": "admin",
    "ResourcePatternFilter": "admin",
    "SKIP": "types",
    "SaslGssapi": "config.security",
    "SaslOAuthBearer": "config.security",
    "SaslPlain": "config.security",
    "SaslScram": "config.security",
    "ScramMechanism": "admin",
    "Serialized": "types",
    "ShareConsumer": "share.share_consumer",
    "ShareRecord": "share.delivery.record",
    "State": "types",
    "TimestampType": "types",
    "Tls": "config.security",
    "TopicPartition": "types",
    "Transaction": "producer.transaction.transaction",
    "TransactionOutcome": "producer.transaction.status",
    "UserScramCredentialDeletion": "admin",
    "UserScramCredentialUpsertion": "admin",
    "errors": "",
    "murmur2": "record.murmur2",
    "protocol": "",
    "single_writer": "patterns",
    "transform": "patterns",
    "work_pool": "patterns",
}
"""The module of each public name. `.ci/write-names` writes it from the imports above.

It is empty for a name that is itself a module.
"""


if not TYPE_CHECKING:  # With it, type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            if name.islower():  # The name of a module, which gets no hint.
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
            hints = import_module(f"{__name__}.log.hints")
            errors = import_module(f"{__name__}.errors")
            hint = hints.import_hint(name) or hints.error_hint(name, errors.__all__)
            hints.refuse_name(__name__, name, hint)
        if name == "native":
            globals()[name] = in_use = import_module(f"{__name__}._native").in_use()
            return in_use
        if not _MODULES[name]:
            return import_module(f"{__name__}.{name}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
