"""The calls of this Admin about topics, replicas, and the cluster, under the names of Java's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from admin_parity.forms import as_uuid, error_form, form, items, node, upper, uuid_text
from aiokclient import Admin, TopicPartition
from aiokclient.admin import (
    Append,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    CreatedTopic,
    ElectionType,
    FeatureUpdate,
    HangingTransaction,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    QuorumReplica,
    RaftVoterEndpoint,
    ReplicaLogDirs,
    Subtract,
    TopicDescription,
    TopicPartitionReplica,
    TransactionDescription,
    UpgradeType,
)

Given: TypeAlias = Mapping[str, Any]
Call: TypeAlias = Callable[[Admin, Given], Awaitable[Any]]
CALLS: dict[str, Call] = {}
"""The calls by the names of Java's methods."""
NONE = -1
"""The number that Java's client returns where there is none."""
SOURCES = {
    ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
    ConfigSource.DYNAMIC_BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
    ConfigSource.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    ConfigSource.GROUP: "DYNAMIC_GROUP_CONFIG",
}
LISTED = {"APPEND": Append, "SUBTRACT": Subtract}


def call_as(name: str) -> Callable[[Call], Call]:
    """Return a decorator that adds a call under the name of Java's method."""

    def add(call: Call) -> Call:
        CALLS[name] = call
        return call

    return add


def partitions(given: Any) -> list[TopicPartition] | None:
    return None if given is None else [TopicPartition(*each) for each in given]


def topics_of(given: Given) -> list[Any]:
    return [as_uuid(each) for each in given["ids"]] if "ids" in given else list(given["names"])


@call_as("createTopics")
async def create_topics(admin: Admin, given: Given) -> Any:
    def made(topic: CreatedTopic) -> Any:
        return {
            "topicId": uuid_text(topic.topic_id),
            "numPartitions": topic.partitions,
            "replicationFactor": topic.replication_factor,
            "config": dict(topic.configs),
        }

    topics = [
        NewTopic(
            each["name"],
            each.get("partitions"),
            each.get("factor"),
            each.get("configs", {}),
            {int(index): ids for index, ids in each.get("assignments", {}).items()},
        )
        for each in given["topics"]
    ]
    results = await admin.create_topics(
        topics,
        validate_only=given.get("validateOnly", False),
        retry_on_quota_violation=not given.get("once"),
    )
    return items(results, made)


@call_as("deleteTopics")
async def delete_topics(admin: Admin, given: Given) -> Any:
    return items(
        await admin.delete_topics(topics_of(given), retry_on_quota_violation=not given.get("once"))
    )


@call_as("describeTopics")
async def describe_topics(admin: Admin, given: Given) -> Any:
    def described(topic: TopicDescription) -> Any:
        return {
            "name": topic.name,
            "topicId": uuid_text(topic.topic_id),
            "isInternal": topic.internal,
            "authorizedOperations": form(topic.authorized_operations),
            "partitions": [
                {
                    "partition": each.index,
                    "leader": each.leader,
                    "replicas": list(each.replicas),
                    "isr": list(each.isr),
                    "elr": form(each.eligible_leader_replicas),
                    "lastKnownElr": form(each.last_known_elr),
                }
                for each in topic.partitions
            ],
        }

    results = await admin.describe_topics(
        topics_of(given),
        include_authorized_operations=given.get("operations", False),
        # Java's client always reads names in pages.
        partitions_per_response=given.get("limit", 2000),
    )
    return items(results, described)


@call_as("listTopics")
async def list_topics(admin: Admin, given: Given) -> Any:
    return {
        name: {
            "name": name,
            "topicId": uuid_text(topic.topic_id),
            "isInternal": topic.internal,
        }
        for name, topic in (await admin.list_topics(internal=given.get("internal", False))).items()
    }


@call_as("createPartitions")
async def create_partitions(admin: Admin, given: Given) -> Any:
    totals = {
        name: NewPartitions(each["total"], each.get("assignments"))
        for name, each in given["totals"].items()
    }
    return items(
        await admin.create_partitions(
            totals,
            validate_only=given.get("validateOnly", False),
            retry_on_quota_violation=not given.get("once"),
        )
    )


@call_as("deleteRecords")
async def delete_records(admin: Admin, given: Given) -> Any:
    offsets = {TopicPartition(*each[:2]): each[2] for each in given["offsets"]}
    return items(await admin.delete_records(offsets), lambda low: {"lowWatermark": low})


@call_as("listOffsets")
async def list_offsets(admin: Admin, given: Given) -> Any:
    def found(each: Any) -> Any:
        offset, timestamp, epoch = each or (NONE, NONE, None)
        return {
            "offset": offset,
            "timestamp": NONE if timestamp is None else timestamp,
            "leaderEpoch": epoch,
        }

    specs = {
        TopicPartition(*each[:2]): OffsetSpec[each[2]] if isinstance(each[2], str) else each[2]
        for each in given["specs"]
    }
    level: Any = given.get("isolation", "READ_UNCOMMITTED").lower()
    return items(await admin.list_offsets(specs, isolation_level=level, check=False), found)


@call_as("electLeaders")
async def elect_leaders(admin: Admin, given: Given) -> Any:
    kind = ElectionType[given.get("type", "PREFERRED")]
    return items(await admin.elect_leaders(kind, partitions(given.get("partitions"))))


@call_as("alterPartitionReassignments")
async def alter_partition_reassignments(admin: Admin, given: Given) -> Any:
    return items(
        await admin.alter_partition_reassignments(
            {TopicPartition(*each[:2]): each[2] for each in given["replicas"]},
            allow_replication_factor_change=not given.get("sameFactor"),
        )
    )


@call_as("listPartitionReassignments")
async def list_partition_reassignments(admin: Admin, given: Given) -> Any:
    listed = await admin.list_partition_reassignments(partitions(given.get("partitions")))
    return {
        form(tp): {
            "replicas": list(each.replicas),
            "addingReplicas": list(each.adding),
            "removingReplicas": list(each.removing),
        }
        for tp, each in listed.items()
    }


@call_as("alterReplicaLogDirs")
async def alter_replica_log_dirs(admin: Admin, given: Given) -> Any:
    paths = {TopicPartitionReplica(*each[:3]): each[3] for each in given["paths"]}
    return items(await admin.alter_replica_log_dirs(paths, check=False))


@call_as("describeLogDirs")
async def describe_log_dirs(admin: Admin, given: Given) -> Any:
    def described(directories: tuple[LogDirDescription, ...]) -> Any:
        return {
            each.path: {
                "error": None if each.error is None else error_form(each.error),
                "replicaInfos": {
                    form(tp): {
                        "size": log.size,
                        "offsetLag": log.offset_lag,
                        "isFuture": log.is_future,
                    }
                    for tp, log in each.replicas.items()
                },
                "totalBytes": each.total_bytes,
                "usableBytes": each.usable_bytes,
                "isCordoned": each.is_cordoned,
            }
            for each in directories
        }

    return items(await admin.describe_log_dirs(given["brokers"]), described)


@call_as("describeReplicaLogDirs")
async def describe_replica_log_dirs(admin: Admin, given: Given) -> Any:
    def described(each: ReplicaLogDirs) -> Any:
        return {
            "getCurrentReplicaLogDir": each.path,
            "getCurrentReplicaOffsetLag": NONE if each.offset_lag is None else each.offset_lag,
            "getFutureReplicaLogDir": each.future_path,
            "getFutureReplicaOffsetLag": NONE
            if each.future_offset_lag is None
            else each.future_offset_lag,
        }

    replicas = [TopicPartitionReplica(*each) for each in given["replicas"]]
    return items(await admin.describe_replica_log_dirs(replicas), described)


@call_as("describeCluster")
async def describe_cluster(admin: Admin, given: Given) -> Any:
    cluster = await admin.describe_cluster(
        include_authorized_operations=given.get("operations", False),
        include_fenced_brokers=given.get("fenced", False),
    )
    known = cluster.controller_id in {each.node_id for each in cluster.brokers}
    return {
        "clusterId": cluster.cluster_id,
        "nodes": [node(each) for each in cluster.brokers],
        "controller": "one of nodes" if known else "none",
        "authorizedOperations": form(cluster.authorized_operations),
    }


def resource(given: Any) -> ConfigResource:
    return ConfigResource(given[0], given[1])


@call_as("describeConfigs")
async def describe_configs(admin: Admin, given: Given) -> Any:
    def described(entries: Mapping[str, ConfigEntry]) -> Any:
        return {
            "entries": [
                {
                    "name": each.name,
                    "value": each.value,
                    "source": SOURCES.get(each.source, "UNKNOWN"),
                    "isDefault": each.is_default,
                    "isSensitive": each.sensitive,
                    "isReadOnly": each.read_only,
                    "type": each.type.name,
                    "documentation": each.documentation,
                    "synonyms": [
                        {"name": s.name, "value": s.value, "source": SOURCES[s.source]}
                        for s in each.synonyms
                    ],
                }
                for each in entries.values()
            ]
        }

    results = await admin.describe_configs(
        [resource(each) for each in given["resources"]],
        include_synonyms=given.get("synonyms", False),
        include_documentation=given.get("documentation", False),
    )
    return items(results, described)


@call_as("incrementalAlterConfigs")
async def alter_configs(admin: Admin, given: Given) -> Any:
    changes: dict[ConfigResource, dict[str, Any]] = {
        resource(each): {
            name: LISTED[kind](value) if kind in LISTED else None if kind == "DELETE" else value
            for kind, name, value in each[2]
        }
        for each in given["changes"]
    }
    validate_only = given.get("validateOnly", False)
    return items(await admin.alter_configs(changes, validate_only=validate_only, check=False))


@call_as("listConfigResources")
async def list_config_resources(admin: Admin, given: Given) -> Any:
    return form(await admin.list_config_resources(given.get("types")))


@call_as("listClientMetricsResources")
async def list_client_metrics(admin: Admin, given: Given) -> Any:
    return [{"name": name} for name in await admin.list_client_metrics()]


@call_as("describeFeatures")
async def describe_features(admin: Admin, given: Given) -> Any:
    found = await admin.describe_features(node_id=given.get("node"))
    return {
        "supportedFeatures": {
            name: {"minVersion": levels.lowest, "maxVersion": levels.highest}
            for name, levels in found.supported.items()
        },
        # A cluster has one level of a feature. The protocol has two fields for it.
        "finalizedFeatures": {
            name: {"minVersionLevel": level, "maxVersionLevel": level}
            for name, level in found.finalized.items()
        },
        "finalizedFeaturesEpoch": found.epoch,
    }


@call_as("updateFeatures")
async def update_features(admin: Admin, given: Given) -> Any:
    updates = {
        name: FeatureUpdate(level, UpgradeType[kind])
        for name, (level, kind) in given["levels"].items()
    }
    validate_only = given.get("validateOnly", False)
    return items(await admin.update_features(updates, validate_only=validate_only, check=False))


@call_as("describeMetadataQuorum")
async def describe_metadata_quorum(admin: Admin, given: Given) -> Any:
    def replica(each: QuorumReplica) -> Any:
        return {
            "replicaId": each.replica_id,
            "replicaDirectoryId": uuid_text(each.directory_id),
            "logEndOffset": each.log_end_offset,
            "lastFetchTimestamp": each.last_fetch_timestamp,
            "lastCaughtUpTimestamp": each.last_caught_up_timestamp,
        }

    quorum = await admin.describe_metadata_quorum()
    return {
        "leaderId": quorum.leader_id,
        "leaderEpoch": quorum.leader_epoch,
        "highWatermark": quorum.high_watermark,
        "voters": [replica(each) for each in quorum.voters],
        "observers": [replica(each) for each in quorum.observers],
        "nodes": {
            str(node_id): {
                "nodeId": node_id,
                "endpoints": [
                    {"listener": each.listener, "host": each.host, "port": each.port}
                    for each in endpoints
                ],
            }
            for node_id, endpoints in quorum.endpoints.items()
        },
    }


@call_as("addRaftVoter")
async def add_raft_voter(admin: Admin, given: Given) -> Any:
    endpoints = [RaftVoterEndpoint(*each) for each in given["endpoints"]]
    directory = as_uuid(given["directory"])
    return await admin.add_raft_voter(
        given["voter"], directory, endpoints, cluster_id=given.get("cluster")
    )


@call_as("removeRaftVoter")
async def remove_raft_voter(admin: Admin, given: Given) -> Any:
    directory = as_uuid(given["directory"])
    return await admin.remove_raft_voter(given["voter"], directory, cluster_id=given.get("cluster"))


@call_as("unregisterBroker")
async def unregister_broker(admin: Admin, given: Given) -> Any:
    return await admin.unregister_broker(given["id"], check=False)


@call_as("unregisterController")
async def unregister_controller(admin: Admin, given: Given) -> Any:
    return await admin.unregister_controller(given["id"], check=False)


@call_as("listTransactions")
async def list_transactions(admin: Admin, given: Given) -> Any:
    listed = await admin.list_transactions(
        states=given.get("states", ()),
        producer_ids=given.get("producerIds", ()),
        older_than_ms=given.get("olderThanMs"),
        pattern=given.get("pattern"),
    )
    return [
        {
            "transactionalId": each.transactional_id,
            "producerId": each.producer_id,
            "state": upper(each.state),
        }
        for each in listed.values()
    ]


@call_as("describeTransactions")
async def describe_transactions(admin: Admin, given: Given) -> Any:
    def described(each: TransactionDescription) -> Any:
        return {
            "coordinatorId": each.coordinator.node_id,
            "state": upper(each.state),
            "producerId": each.producer_id,
            "producerEpoch": each.producer_epoch,
            "transactionTimeoutMs": each.timeout_ms,
            "transactionStartTimeMs": each.start_time_ms,
            "topicPartitions": form(each.partitions),
        }

    return items(await admin.describe_transactions(given["ids"]), described)


@call_as("describeProducers")
async def describe_producers(admin: Admin, given: Given) -> Any:
    results = await admin.describe_producers(
        partitions(given["partitions"]) or [], broker_id=given.get("broker")
    )
    return items(
        results,
        lambda found: [
            {
                "producerId": each.producer_id,
                "producerEpoch": each.producer_epoch,
                "lastSequence": each.last_sequence,
                "lastTimestamp": each.last_timestamp,
                "coordinatorEpoch": each.coordinator_epoch,
                "currentTransactionStartOffset": each.transaction_start_offset,
            }
            for each in found
        ],
    )


@call_as("abortTransaction")
async def abort_transaction(admin: Admin, given: Given) -> Any:
    transaction = HangingTransaction(
        TopicPartition(*given["partition"]),
        given["producerId"],
        given["epoch"],
        given["coordinatorEpoch"],
    )
    return await admin.abort_transaction(transaction)


@call_as("fenceProducers")
async def fence_producers(admin: Admin, given: Given) -> Any:
    return items(
        await admin.fence_producers(given["ids"]),
        lambda fenced: {"producerId": fenced.producer_id, "epochId": fenced.producer_epoch},
    )


@call_as("forceTerminateTransaction")
async def force_terminate_transaction(admin: Admin, given: Given) -> Any:
    return await admin.force_terminate_transaction(given["id"])


@call_as("create")
async def create(admin: Admin, given: Given) -> Any:
    async with Admin.from_properties(given["options"]) as other:
        return (await other.describe_cluster()).cluster_id


@call_as("close")
async def close(admin: Admin, given: Given) -> Any:
    async with Admin.from_properties(given["options"]) as other:
        await other.close(given["timeoutMs"] / 1000)
        if given.get("twice"):
            return await other.close()
        return (await other.describe_cluster()).cluster_id


@call_as("metrics")
async def metrics(admin: Admin, given: Given) -> Any:
    """Return whether the client counts its connections."""
    asked = admin
    if "options" in given:
        asked = Admin.from_properties(given["options"])
        async with asked:
            await asked.describe_cluster()
    await admin.describe_cluster()
    return any(each.name == "client.connections" for each in asked.metric_values())


@call_as("registerMetricForSubscription")
async def register_metric(admin: Admin, given: Given) -> Any:
    name: Any = given["name"]
    admin.register_metric(name, lambda: 1.0)
    admin.register_metric(name, lambda: 1.0)


@call_as("unregisterMetricFromSubscription")
async def unregister_metric(admin: Admin, given: Given) -> Any:
    admin.unregister_metric(given["name"])


@call_as("clientInstanceId")
async def client_instance_id(admin: Admin, given: Given) -> Any:
    return "an id" if await admin.client_instance_id(given["timeoutMs"] / 1000) else "none"
