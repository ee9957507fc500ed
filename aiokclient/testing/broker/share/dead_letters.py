"""The dead letters of share groups (KIP-1191): records that were rejected or delivered too often.

The leader of a share partition writes them to the topic that the group names in
`errors.deadletterqueue.topic.name`, if share.version is 2, the name begins with the prefix of the
brokers, and the topic allows it by `errors.deadletterqueue.group.enable`. With
`errors.deadletterqueue.auto.create.topics.enable`, brokers create a topic that does not exist. If
any of this is missing, the records are archived all the same.

A dead letter has no key and no value, unless the group has
`errors.deadletterqueue.copy.record.enable`. Its headers say which record it is, and why.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokclient.record.batch import RecordBatch, RecordBatchBuilder
from aiokclient.testing.broker.codes import Refused
from aiokclient.testing.broker.share.records import DeadRecord

if TYPE_CHECKING:
    from aiokclient.testing.broker.state import ClusterState
    from aiokclient.testing.broker.topics.topics import BrokerTopic, Partition

_log = logging.getLogger(__name__)

_TOPIC = "errors.deadletterqueue.topic.name"
_ENABLED = "errors.deadletterqueue.group.enable"
_COPY = "errors.deadletterqueue.copy.record.enable"
_PREFIX = "errors.deadletterqueue.topic.name.prefix"
_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
_REJECTED = b"Offset rejected by client."
_EXHAUSTED = b"Offset delivery count exceeded the threshold."
_LEVEL = 2
"""The level of share.version from which on there are dead letters."""
_NO_LIMIT = 1 << 31


def write_dead_letters(
    cluster: ClusterState, group_id: str, source: Partition, dead: Sequence[DeadRecord]
) -> None:
    """Write dead letters for records of a partition, if the group has a topic for them."""
    configs = cluster.groups.find_configs(group_id, keep=False)
    topic = _find_topic(cluster, configs[_TOPIC])
    if not dead or topic is None:
        return
    copies = configs[_COPY] == "true"
    now = cluster.clock.time_ms()
    target = topic.partitions[source.index % len(topic.partitions)]
    builder = RecordBatchBuilder(limit=_NO_LIMIT)
    for each in dead:
        key, value = _read_record(source, each.offset) if copies else (None, None)
        headers = {
            "topic": source.topic.name.encode(),
            "partition": b"%d" % source.index,
            "offset": b"%d" % each.offset,
            "group": group_id.encode(),
            "delivery.count": b"%d" % each.deliveries,
            "message": _REJECTED if each.is_rejected else _EXHAUSTED,
        }
        builder.append(
            now, key, value, [(f"__dlq.errors.{name}", text) for name, text in headers.items()]
        )
    builder.close()
    target.append_batch(RecordBatch(bytes(builder.seal())), now)


def _find_topic(cluster: ClusterState, name: str) -> BrokerTopic | None:
    """Return the topic with this name if dead letters may be written to it."""
    if not name or cluster.share_level < _LEVEL:
        return None
    if not name.startswith(cluster.configs[_PREFIX]):
        _log.error("The topic %r does not begin with the prefix of dead letter topics.", name)
        return None
    topic = cluster.topics.get(name)
    if topic is None and cluster.configs[_CREATE] == "true":
        try:
            topic = cluster.create_topic(name, cluster.assign_replicas(-1, -1), {_ENABLED: "true"})
        except Refused as refused:
            _log.error("The dead letter topic %r cannot be created: %s", name, refused)
            return None
    if topic is None or topic.configs[_ENABLED] != "true":
        _log.error("The topic %r does not exist, or is not enabled for dead letters.", name)
        return None
    return topic


def _read_record(source: Partition, offset: int) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record; None if it is not in the log any more."""
    for batch in source.log.read_batches(offset):
        if batch.base_offset > offset:
            break
        for record in batch.records(source.topic.name, source.index):
            if record.offset == offset:
                return record.key, record.value
        break
    return None, None
