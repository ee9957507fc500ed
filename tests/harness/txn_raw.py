"""A transactional producer that sends raw requests, with one method for each request."""

import itertools
import time
import uuid

from parity import named

from aiokclient.protocol import messages
from aiokclient.protocol.messages import (
    add_partitions_to_txn,
    describe_producers,
    offset_fetch,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData

_numbers = itertools.count()
PATIENCE_S = 60.0
NO_ID = uuid.UUID(int=0)


def fresh(prefix):
    """Return a name that no other test uses."""
    return f"{prefix}-{next(_numbers)}-{uuid.uuid4().hex[:6]}"


class Txn:
    """One transactional producer.

    Producer ids differ from run to run, so the results contain their indexes in `ids` instead.
    `ids` has the producer ids in the order in which they appeared. The requests have the versions
    that a client sends if the level of transaction.version is `level`.
    """

    def __init__(self, broker, level, transactional_id=None):
        self.broker, self.level = broker, level
        self.id = fresh("txn") if transactional_id is None else transactional_id
        self.connection = broker.again()
        self.pid, self.epoch = -1, -1
        self.ids = []
        self.sequences = {}

    def twin(self):
        """Return another producer with the same transactional id, but without a producer id."""
        other = Txn(self.broker, self.level, self.id)
        other.ids = self.ids
        return other

    def copy(self):
        """Return another producer with the same transactional id, producer id, and epoch."""
        other = self.twin()
        other.pid, other.epoch, other.sequences = self.pid, self.epoch, dict(self.sequences)
        return other

    def number(self, pid):
        """Return the index of a producer id in the order of first use, or -1 for no id."""
        if pid < 0:
            return pid
        if pid not in self.ids:
            self.ids.append(pid)
        return self.ids.index(pid)

    def request(self, request, version=None):
        return self.connection.request(request, version)

    # -- requests --------------------------------------------------------------------------

    def send_init(self, timeout_ms=60_000, *, known=None, version=5, id=None):
        pid, epoch = (-1, -1) if known is None else known
        answer = self.request(
            messages.InitProducerIdRequest(
                transactional_id=self.id if id is None else id,
                transaction_timeout_ms=timeout_ms,
                producer_id=pid,
                producer_epoch=epoch,
            ),
            version,
        )
        return answer

    def init(self, timeout_ms=60_000, *, known=None, version=5, id=None, wait=True):
        """Send InitProducerId, and repeat it until the previous transaction has ended.

        Keep the producer id and epoch of the response.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.send_init(timeout_ms, known=known, version=version, id=id)
            busy = named(answer.error_code) in ("CONCURRENT_TRANSACTIONS", *LOADING)
            if not (busy and wait):
                break
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if not answer.error_code:
            self.pid, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return named(answer.error_code), self.number(answer.producer_id), answer.producer_epoch

    def add(self, *partitions, version=3, wait=True, **fields):
        """Send AddPartitionsToTxn, and repeat it until the previous transaction has ended."""
        topics = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        parts = [
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
        request = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=fields.get("id", self.id),
            v3_and_below_producer_id=fields.get("pid", self.pid),
            v3_and_below_producer_epoch=fields.get("epoch", self.epoch),
            v3_and_below_topics=parts,
        )
        if version > 3:
            transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id=fields.get("id", self.id),
                producer_id=fields.get("pid", self.pid),
                producer_epoch=fields.get("epoch", self.epoch),
                verify_only=fields.get("verify_only", False),
                topics=parts,
            )
            request = messages.AddPartitionsToTxnRequest(transactions=[transaction])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.request(request, version)
            found = answer.results_by_topic_v3_and_below
            if version > 3 and answer.error_code:
                return [named(answer.error_code)]
            if version > 3:
                found = answer.results_by_transaction[0].topic_results
            results = sorted(
                (topic.name, each.partition_index, named(each.partition_error_code))
                for topic in found
                for each in topic.results_by_partition
            )
            codes = [code for _, _, code in results]
            if not (wait and "CONCURRENT_TRANSACTIONS" in codes):
                return codes
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def add_group(self, group, *, version=4, wait=True, **fields):
        """Send AddOffsetsToTxn, and repeat it until the previous transaction has ended."""
        request = messages.AddOffsetsToTxnRequest(
            transactional_id=fields.get("id", self.id),
            producer_id=fields.get("pid", self.pid),
            producer_epoch=fields.get("epoch", self.epoch),
            group_id=group,
        )
        return self._until_idle(request, version, wait)

    def end(self, commit=True, *, version=None, wait=True, **fields):
        """Send EndTxn, and keep the producer id and epoch of the response."""
        if version is None:
            version = 5 if self.level == 2 else 4
        request = messages.EndTxnRequest(
            transactional_id=fields.get("id", self.id),
            producer_id=fields.get("pid", self.pid),
            producer_epoch=fields.get("epoch", self.epoch),
            committed=commit,
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.request(request, version)
            if not (wait and named(answer.error_code) == "CONCURRENT_TRANSACTIONS"):
                break
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if not answer.error_code and answer.producer_id >= 0 and fields.get("keep", True):
            if (answer.producer_id, answer.producer_epoch) != (self.pid, self.epoch):
                self.sequences.clear()
            self.pid, self.epoch = answer.producer_id, answer.producer_epoch
        return named(answer.error_code), self.number(answer.producer_id), answer.producer_epoch

    def commit(self, **options):
        return self.end(True, **options)

    def abort(self, **options):
        return self.end(False, **options)

    def _until_idle(self, request, version, wait):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            code = named(self.request(request, version).error_code)
            if not (wait and code == "CONCURRENT_TRANSACTIONS"):
                return code
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def produce(self, topic, *values, index=0, version=None, wait=True, **fields):
        """Produce a transactional batch with the next sequence, and return its code and offset."""
        if version is None:
            version = 12 if self.level == 2 else 11
        values = values or (b"v",)
        sequence = fields.get("sequence", self.sequences.get((topic, index), 0))
        pid, epoch = fields.get("pid", self.pid), fields.get("epoch", self.epoch)
        batch = self.broker.wire.batch(
            *values,
            producer=(pid, epoch, sequence),
            transactional=fields.get("transactional", True),
            # Kafka begins a new segment after a record that is older than segment.ms.
            timestamp=int(time.time() * 1000),
        )
        data = TopicProduceData(
            partition_data=[PartitionProduceData(index=index, records=batch)], name=topic
        )
        request = messages.ProduceRequest(
            transactional_id=fields.get("id", self.id), acks=-1, timeout_ms=5_000, topic_data=[data]
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.request(request, version).responses[0].partition_responses[0]
            busy = named(answer.error_code) in ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS")
            if not (wait and busy):
                break
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if not answer.error_code:
            self.sequences[topic, index] = sequence + len(values)
        return named(answer.error_code), answer.base_offset

    def offsets(self, group, topic, *offsets, version=None, wait=True, **fields):
        """Send TxnOffsetCommit with offsets of partitions 0, 1, and so on. Return the codes."""
        if version is None:
            version = 5 if self.level == 2 else 4
        parts = [
            txn_offset_commit.TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_metadata=fields.get("metadata", "m"),
            )
            for index, offset in enumerate(offsets)
        ]
        member = fields.get("member", ("", -1, None))
        if version < 3:
            member = ("", -1, None)
        request = messages.TxnOffsetCommitRequest(
            transactional_id=fields.get("id", self.id),
            group_id=group,
            producer_id=fields.get("pid", self.pid),
            producer_epoch=fields.get("epoch", self.epoch),
            member_id=member[0],
            generation_id_or_member_epoch=member[1],
            group_instance_id=member[2],
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=topic if isinstance(topic, str) else "",
                    topic_id=topic if not isinstance(topic, str) else NO_ID,
                    partitions=parts,
                )
            ],
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.request(request, version).topics
            codes = [named(each.error_code) for topic in found for each in topic.partitions]
            if not (wait and "CONCURRENT_TRANSACTIONS" in codes):
                return codes
            assert time.monotonic() < deadline
            time.sleep(0.01)

    # -- looking ---------------------------------------------------------------------------

    def committed(self, group, topic, count=1, *, stable=True, settled=True):
        """Return the code and the offset of each partition, once no transaction is open there."""
        asked = offset_fetch.OffsetFetchRequestTopics(
            name=topic, partition_indexes=list(range(count))
        )
        request = messages.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[asked])],
            require_stable=stable,
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.request(request, 9).groups[0]
            found = [
                (named(each.error_code), each.committed_offset, each.metadata)
                for topic in answer.topics
                for each in topic.partitions
            ]
            codes = [code for code, _, _ in found]
            if "UNSTABLE_OFFSET_COMMIT" not in codes or not (settled and stable):
                return named(answer.error_code), found
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def describe(self, *, settled=True):
        """Return the state of the transactional id, once no transaction is ending."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            request = messages.DescribeTransactionsRequest(transactional_ids=[self.id])
            (found,) = self.request(request).transaction_states
            if not (settled and found.transaction_state.startswith("Prepare")):
                break
            assert time.monotonic() < deadline
            time.sleep(0.01)
        topics = sorted((each.topic, sorted(each.partitions)) for each in found.topics)
        return (
            named(found.error_code),
            found.transaction_state,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms > 0,
            self.number(found.producer_id),
            found.producer_epoch,
            [(name[:5], indexes if name[:2] != "__" else len(indexes)) for name, indexes in topics],
        )

    def settle(self):
        """Wait until the last transaction has ended, and return the state."""
        return self.describe()[1]

    def log(self, topic, index=0):
        """Fetch with read_committed: return error, offsets, aborted transactions, and values."""
        answer = self.connection.fetch(topic, partitions=(index,), committed=True)
        aborted = [
            (self.number(each.producer_id), each.first_offset)
            for each in answer.aborted_transactions or ()
        ]
        return (
            named(answer.error_code),
            answer.high_watermark,
            answer.last_stable_offset,
            aborted,
            self.broker.wire.values(answer),
        )

    def producers(self, topic, *indexes):
        """Return the code and the producers of each partition."""
        asked = describe_producers.TopicRequest(name=topic, partition_indexes=list(indexes or (0,)))
        answer = self.request(messages.DescribeProducersRequest(topics=[asked])).topics[0]
        return [
            (
                named(part.error_code),
                sorted(
                    (
                        self.number(each.producer_id),
                        each.producer_epoch,
                        each.last_sequence,
                        each.last_timestamp > 0,
                        each.coordinator_epoch >= 0,
                        each.current_txn_start_offset,
                    )
                    for each in part.active_producers
                ),
            )
            for part in answer.partitions
        ]

    def mark(self, topic, *indexes, commit=False, version=2, **fields):
        """Send WriteTxnMarkers, and return the codes."""
        asked = write_txn_markers.WritableTxnMarkerTopic(
            name=topic, partition_indexes=list(indexes or (0,))
        )
        marker = write_txn_markers.WritableTxnMarker(
            producer_id=fields.get("pid", self.pid),
            producer_epoch=fields.get("epoch", self.epoch),
            transaction_result=commit,
            coordinator_epoch=fields.get("coordinator_epoch", 0),
            transaction_version=fields.get("level", 0),
            topics=[asked],
        )
        answer = self.request(messages.WriteTxnMarkersRequest(markers=[marker]), version)
        return sorted(
            (self.number(each.producer_id), part.partition_index, named(part.error_code))
            for each in answer.markers
            for topic in each.topics
            for part in topic.partitions
        )


LOADING = ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")


def set_level(request, level):
    """Change the level of transaction.version by UpdateFeatures, and wait until it is in force."""
    upgrade, unsafe_downgrade = 1, 3
    asked = messages.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        features = {
            each.name: each.max_version_level for each in request(asked, 4).finalized_features
        }
        now = features.get("transaction.version", 0)
        if now == level:
            return
        assert time.monotonic() < deadline
        change = update_features.FeatureUpdateKey(
            feature="transaction.version",
            max_version_level=level,
            upgrade_type=upgrade if level > now else unsafe_downgrade,
        )
        update = messages.UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[change])
        request(update)
        time.sleep(0.05)
