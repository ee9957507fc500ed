"""Documentation of the options of topics and brokers, as DescribeConfigs returns it."""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient.testing.broker.configs import GROUP_LIMITS

NO_EFFECT = "The embedded cluster stores this option. It has no effect."
OWN = "The embedded cluster has started this broker with this value."

_COMPRESSION_LEVEL = "The level at which brokers compress with this codec."
_TOPIC_TEXTS: Mapping[str, str] = {
    "cleanup.policy": 'With "delete", retention.bytes limits the log. With "compact", records need '
    "a key, and EmbeddedCluster.compact keeps the last record of each.",
    "compression.gzip.level": _COMPRESSION_LEVEL,
    "compression.lz4.level": _COMPRESSION_LEVEL,
    "compression.type": 'The codec of stored batches, or "producer" for the one in which they '
    "were sent.",
    "compression.zstd.level": _COMPRESSION_LEVEL,
    "delete.retention.ms": "Milliseconds for which compaction keeps tombstones and the markers of "
    "transactions without records.",
    "errors.deadletterqueue.group.enable": "Whether share groups may write dead letters to the "
    "topic.",
    "max.message.bytes": "The maximum size of a batch in bytes.",
    "message.timestamp.after.max.ms": "Milliseconds by which a record may be later than the "
    "broker's clock.",
    "message.timestamp.before.max.ms": "Milliseconds by which a record may be earlier than the "
    "broker's clock.",
    "message.timestamp.type": "Whether records have the time at which they were created, or at "
    "which the broker appended them.",
    "min.insync.replicas": "The number of replicas that must be in sync for a produce request "
    "with acks=all.",
    "retention.bytes": "The size in bytes above which a partition removes its oldest segments. -1 "
    "is no limit.",
    "segment.bytes": "The size in bytes at which a log begins a new segment.",
    "unclean.leader.election.enable": "Whether a replica that is not in sync may become the "
    "leader.",
}
_BROKER_TEXTS: Mapping[str, str] = {
    "authorizer.class.name": "The authorizer of requests. ACLs apply with the StandardAuthorizer.",
    "auto.create.topics.enable": "Whether a topic is created when a client first uses its name.",
    "delegation.token.expiry.time.ms": "Milliseconds after which a token expires unless it is "
    "renewed.",
    "delegation.token.max.lifetime.ms": "The maximum lifetime of a token in milliseconds.",
    "delegation.token.secret.key": "The secret that enables delegation tokens.",
    "default.replication.factor": "The number of replicas of a topic that is created without it.",
    "group.consumer.assignment.interval.ms": "Milliseconds between two computations of a group's "
    "assignment.",
    "group.consumer.assignors": "The assignors of the consumer protocol. The first one is used by "
    "default.",
    "group.consumer.heartbeat.interval.ms": "Milliseconds between two heartbeats of a member of "
    "the consumer protocol.",
    "group.consumer.max.size": "The maximum number of members of a group of the consumer protocol.",
    "group.consumer.migration.policy": "Which conversions between the classic and the consumer "
    "protocol are allowed.",
    "group.consumer.session.timeout.ms": "Milliseconds without a heartbeat after which a member "
    "of the consumer protocol is removed.",
    "errors.deadletterqueue.auto.create.topics.enable": "Whether a topic for dead letters is "
    "created when it is first used.",
    "errors.deadletterqueue.topic.name.prefix": "The prefix of the topics for dead letters.",
    "group.share.assignment.interval.ms": "Milliseconds between two computations of a share "
    "group's assignment.",
    "group.share.delivery.count.limit": "The number of deliveries after which a record is "
    "archived.",
    "group.share.heartbeat.interval.ms": "Milliseconds between two heartbeats of a member of a "
    "share group.",
    "group.share.max.share.sessions": "The maximum number of share sessions of a broker.",
    "group.share.max.size": "The maximum number of members of a share group.",
    "group.share.partition.max.record.locks": "The number of offsets after the start offset of a "
    "share partition that can be in flight.",
    "group.share.record.lock.duration.ms": "Milliseconds after which the lock of a record ends.",
    "group.share.session.timeout.ms": "Milliseconds without a heartbeat after which a member of a "
    "share group is removed.",
    "group.initial.rebalance.delay.ms": "Milliseconds for which the first rebalance of a classic "
    "group waits for more members.",
    "group.max.session.timeout.ms": "The longest session timeout of classic members.",
    "group.max.size": "The maximum number of members of a classic group.",
    "group.min.session.timeout.ms": "The shortest session timeout of classic members.",
    "max.incremental.fetch.session.cache.slots": "The maximum number of fetch sessions.",
    "num.partitions": "The number of partitions of a topic that is created without it.",
    "offset.metadata.max.bytes": "The maximum length of the metadata of a committed offset.",
    **{
        limit: f"The {which} value that a group may have for {name}."
        for name, limits in GROUP_LIMITS.items()
        for which, limit in zip(("lowest", "highest"), limits, strict=True)
    },
    "offsets.topic.num.partitions": "The number of partitions of __consumer_offsets.",
    "share.coordinator.snapshot.update.records.per.snapshot": "The number of updates of a share "
    "partition between two snapshots.",
    "share.coordinator.state.topic.num.partitions": "The number of partitions of "
    "__share_group_state.",
    "telemetry.max.bytes": "The maximum size of metrics that a client pushes.",
    "transaction.max.timeout.ms": "The longest timeout of a transaction.",
    "transaction.state.log.num.partitions": "The number of partitions of __transaction_state.",
    "transactional.id.expiration.ms": "Milliseconds after which an unused transactional id is "
    "forgotten.",
}
_GROUP_TEXTS: Mapping[str, str] = {
    "errors.deadletterqueue.copy.record.enable": "Whether dead letters have the key and the value "
    "of the record.",
    "errors.deadletterqueue.topic.name": "The topic for records that were rejected or delivered "
    "too often.",
    "share.auto.offset.reset": 'Where a share group begins: "earliest", "latest", or '
    '"by_duration:" with a duration such as PT1H.',
    "share.isolation.level": "Whether a share group gets the records of transactions that were "
    "aborted.",
    "share.renew.acknowledge.enable": "Whether members may renew the locks of records.",
}


def find_text(name: str, topic_name: str | None = None) -> str:
    """Return the text for an option. `topic_name` is the name of the same option of topics."""
    text = _BROKER_TEXTS.get(name) or _TOPIC_TEXTS.get(topic_name or name)
    text = text or _GROUP_TEXTS.get(name)
    return text or NO_EFFECT
