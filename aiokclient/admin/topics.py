"""The admin calls about topics, the number of their partitions, and their oldest records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from aiokclient.admin.arguments import (
    TOPIC,
    as_list,
    as_mapping,
    as_name,
    as_partition,
    as_text,
    format_config_value,
    require_integer,
)
from aiokclient.admin.cluster import AclOperation, read_operations
from aiokclient.admin.requests import AdminRequests, Answers, by_partition, by_topic, read_failure
from aiokclient.admin.results import Results
from aiokclient.cluster.metadata.listing import by_name, listed
from aiokclient.cluster.targets import AnyBroker, Controller, Leader
from aiokclient.errors import (
    IllegalStateError,
    ProtocolError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.errors.local import ArgumentValueError
from aiokclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokclient.types import TopicPartition, public_in
from aiokclient.types.frozen import fresh, frozen

# The messages of other calls than `list_topics` are imported by the first of these calls.
if TYPE_CHECKING:
    from aiokclient.protocol.messages.create_partitions import (
        CreatePartitionsTopic,
    )
    from aiokclient.protocol.messages.create_topics import (
        CreatableTopic,
        CreatableTopicResult,
    )
    from aiokclient.protocol.messages.delete_topics import (
        DeletableTopicResult,
        DeleteTopicState,
    )
    from aiokclient.protocol.messages.describe_topic_partitions import (
        Cursor,
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )

Topic: TypeAlias = str | UUID
NO_ID = UUID(int=0)
DELETE_RECORDS = "DeleteRecords"
PAGES = "DescribeTopicPartitions"
LARGEST_LIMIT = (1 << 31) - 1


@public_in("aiokclient.admin")
@frozen
class NewTopic:
    """A topic to create. The cluster's defaults apply to everything that is not given.

    `assignments` maps each partition to the brokers of its replicas, the preferred leader first.
    It replaces `partitions` and `replication_factor`. Values of `configs` may be numbers or bools.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, object] = fresh(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = fresh(default_factory=dict)


@public_in("aiokclient.admin")
@frozen
class CreatedTopic:
    """A topic that was created.

    `partitions` and `replication_factor` are None if the broker is older than 2.4, and `topic_id`
    is None if it is older than 2.8. `configs` has the effective values of all options that the
    user is permitted to read.
    """

    name: str
    topic_id: UUID | None
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, str | None]


@public_in("aiokclient.admin")
@frozen
class NewPartitions:
    """The total number of partitions that a topic will have.

    `assignments` lists the replicas (broker ids) of each new partition, in order of partitions.
    """

    total: int
    assignments: Sequence[Sequence[int]] | None = None


@public_in("aiokclient.admin")
@frozen
class PartitionDescription:
    """A partition and the ids of its brokers. `leader` is None if there is no leader.

    `eligible_leader_replicas` are not in sync but have all committed records, and
    `last_known_elr` were the last of these (KIP-966). Both are None unless the call reads pages.
    """

    index: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None

    def __setstate__(self, state: Sequence[object]) -> None:
        # Pickles of an earlier version lack the last fields.
        missing = [None] * (len(self.__match_args__) - len(state))
        for name, value in zip(self.__match_args__, [*state, *missing], strict=True):
            object.__setattr__(self, name, value)


@public_in("aiokclient.admin")
@frozen
class TopicDescription:
    """A topic with its partitions.

    `authorized_operations` is None unless the call requested it.
    """

    name: str
    topic_id: UUID | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


@public_in("aiokclient.admin")
@frozen
class TopicListing:
    """A topic as `list_topics` returns it, without its partitions."""

    name: str
    topic_id: UUID | None
    internal: bool


async def create_topics(
    requests: AdminRequests,
    topics: Iterable[NewTopic],
    validate_only: bool,
    retry_on_quota_violation: bool,
    timeout: float | None,
) -> Results[str, CreatedTopic]:
    """See `Admin.create_topics`."""
    from aiokclient.protocol.messages.create_topics import CreateTopicsRequest

    wanted = _require_once(
        (topic.name, _make_creatable(topic)) for topic in as_list(topics, "NewTopic", NewTopic)
    )

    async def ask(items: dict[str, CreatableTopic], remaining: float) -> Answers[str, CreatedTopic]:
        request = CreateTopicsRequest(
            topics=list(items.values()),
            timeout_ms=requests.compute_broker_timeout_ms(remaining),
            validate_only=validate_only,
        )
        response = await requests.send_request(request, Controller(), remaining)
        return {
            result.name: read_failure(result, "CreateTopics", f"topic {result.name}")
            or _read_created(result)
            for result in response.topics
        }

    return await requests.ask_items(
        wanted, ask, timeout, retry_on_quota_violation=retry_on_quota_violation
    )


async def delete_topics(
    requests: AdminRequests,
    topics: Iterable[Topic],
    retry_on_quota_violation: bool,
    timeout: float | None,
) -> Results[Topic, None]:
    """See `Admin.delete_topics`."""
    from aiokclient.protocol.messages.delete_topics import DeleteTopicsRequest

    wanted = _as_topics(topics)

    async def ask(items: dict[Topic, Topic], remaining: float) -> Answers[Topic, None]:
        names = [topic for topic in items if isinstance(topic, str)]
        request = DeleteTopicsRequest(
            topics=[_make_state(topic) for topic in items],
            timeout_ms=requests.compute_broker_timeout_ms(remaining),
        )
        try:
            response = await requests.send_request(request, Controller(), remaining)
        except UnsupportedVersionError:
            # An older version has no topic ids: it cannot delete topics by id.
            if len(names) < len(items):
                raise
            request = DeleteTopicsRequest(topic_names=names, timeout_ms=request.timeout_ms)
            response = await requests.send_request(request, Controller(), remaining)
        return {
            key: read_failure(result, "DeleteTopics", f"topic {key}")
            for result in response.responses
            if (key := _asked(result, items)) is not None
        }

    return await requests.ask_items(
        wanted, ask, timeout, retry_on_quota_violation=retry_on_quota_violation
    )


async def describe_topics(
    requests: AdminRequests,
    topics: Iterable[Topic],
    include_authorized_operations: bool,
    partitions_per_response: int | None,
    timeout: float | None,
) -> Results[Topic, TopicDescription]:
    """See `Admin.describe_topics`."""
    wanted = _as_topics(topics)
    limit = partitions_per_response
    if limit is not None:
        require_integer(limit, "a number of partitions")
        if limit <= 0:
            raise ArgumentValueError(f"partitions_per_response must be above 0, not {limit}.")

    async def ask(items: dict[Topic, Topic], remaining: float) -> Answers[Topic, TopicDescription]:
        deadline = requests.compute_deadline(remaining)
        answers: dict[Topic, Any] = {}
        # One empty name would make brokers refuse the description of all topics.
        names = sorted(topic for topic in items if isinstance(topic, str) and topic)
        if limit is not None and names:
            try:
                answers = await _read_pages(
                    requests, names, limit, include_authorized_operations, deadline
                )
            except UnsupportedVersionError:
                pass  # Brokers before 3.8 have no pages.
        left = {topic: topic for topic in items if topic not in answers}
        if left:
            answers.update(
                await _ask_metadata(requests, left, include_authorized_operations, deadline)
            )
        return answers

    return await requests.ask_items(wanted, ask, timeout)


async def _ask_metadata(
    requests: AdminRequests, items: Mapping[Topic, Topic], authorized: bool, deadline: float
) -> Answers[Topic, TopicDescription]:
    request = MetadataRequest(
        topics=[_make_metadata_topic(topic) for topic in items],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=authorized,
    )
    response = await requests.send_request(
        request, AnyBroker(), requests.compute_remaining_s(deadline)
    )

    def described(topic: MetadataResponseTopic) -> tuple[Topic, Any] | None:
        key = _asked(topic, items)
        if key is None:
            return None
        error = error_for(topic.error_code, api="Metadata", resource=f"topic {key}")
        return key, error or _read_topic(topic, authorized)

    return await listed(response.topics, described)


async def _read_pages(
    requests: AdminRequests, names: Sequence[str], limit: int, authorized: bool, deadline: float
) -> dict[Topic, Any]:
    """Return the results for topics, from responses with a limited number of partitions."""
    from aiokclient.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        TopicRequest,
    )

    topics = [TopicRequest(name=name) for name in names]
    found: dict[str, DescribeTopicPartitionsResponseTopic] = {}
    partitions: dict[str, list[PartitionDescription]] = {name: [] for name in names}
    cursor: Cursor | None = None
    while True:
        # The topics before the cursor are skipped, but its topic must be among the topics.
        request = DescribeTopicPartitionsRequest(
            topics=topics, response_partition_limit=min(limit, LARGEST_LIMIT), cursor=cursor
        )
        response = await requests.send_request(
            request, AnyBroker(), requests.compute_remaining_s(deadline)
        )
        for topic in response.topics:
            name = topic.name or ""
            # The last page counts: the topic may have been deleted since the page before.
            found[name] = topic
            partitions.setdefault(name, []).extend(map(_read_partition, topic.partitions))
        before, cursor = cursor, response.next_cursor
        if cursor is None:
            break
        if before is not None and _find_position(cursor) <= _find_position(before):
            raise ProtocolError(f"The broker repeats its description of topic {cursor.topic_name}.")
    return {
        name: error_for(topic.error_code, api=PAGES, resource=f"topic {name}")
        or TopicDescription(
            name,
            _read_id(topic.topic_id),
            topic.is_internal,
            tuple(partitions[name]),
            read_operations(topic.topic_authorized_operations) if authorized else None,
        )
        for name, topic in found.items()
    }


def _find_position(cursor: Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


async def list_topics(
    requests: AdminRequests, internal: bool, timeout: float | None
) -> dict[str, TopicListing]:
    """See `Admin.list_topics`."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response = await requests.send_request(request, AnyBroker(), timeout)
    return await by_name(
        response.topics,
        lambda topic: _listing(topic) if internal or not topic.is_internal else None,
    )


def _listing(topic: MetadataResponseTopic) -> TopicListing:
    return TopicListing(topic.name or "", _read_id(topic.topic_id), topic.is_internal)


def _as_topics(topics: Iterable[Topic]) -> dict[Topic, Topic]:
    """Return the names and ids of a collection. Raises IllegalStateError for repeated ones."""
    given = as_list(topics, "str or UUID", str, UUID)
    for topic in given:
        if isinstance(topic, str):
            as_name(topic, TOPIC)
    return _require_once((topic, topic) for topic in given)


def _require_once(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    items: dict[Any, Any] = {}
    for key, item in pairs:
        if key in items:
            raise IllegalStateError(f"{key} occurs twice in one call. Name each topic once.")
        items[key] = item
    return items


def as_new_topics(topics: Iterable[NewTopic]) -> dict[str, NewTopic]:
    """Return the topics of a collection by name.

    Raises IllegalStateError for repeated names, and the errors of `create_topics` for topics that
    no request could contain.
    """
    given = as_list(topics, "NewTopic", NewTopic)
    for topic in given:
        _make_creatable(topic)
    return _require_once((topic.name, topic) for topic in given)


def _make_creatable(topic: NewTopic) -> CreatableTopic:
    from aiokclient.protocol.messages.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
    )

    placed = bool(topic.assignments)
    as_name(topic.name, TOPIC)
    for number in (topic.partitions, topic.replication_factor):
        if number is not None:
            require_integer(number, "a number of partitions or replicas")
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if placed or topic.partitions is None else topic.partitions,
        replication_factor=-1
        if placed or topic.replication_factor is None
        else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(
                name=as_name(name, "option"), value=as_text(format_config_value(value), "a value")
            )
            for name, value in topic.configs.items()
        ],
    )


def _read_created(result: CreatableTopicResult) -> CreatedTopic:
    return CreatedTopic(
        result.name,
        _read_id(result.topic_id),
        None if result.num_partitions < 0 else result.num_partitions,
        None if result.replication_factor < 0 else result.replication_factor,
        {config.name: config.value for config in result.configs or ()},
    )


def _make_state(topic: Topic) -> DeleteTopicState:
    from aiokclient.protocol.messages.delete_topics import DeleteTopicState

    if isinstance(topic, UUID):
        return DeleteTopicState(topic_id=topic)
    return DeleteTopicState(name=topic)


def _make_metadata_topic(topic: Topic) -> MetadataRequestTopic:
    if isinstance(topic, UUID):
        return MetadataRequestTopic(topic_id=topic, name=None)
    return MetadataRequestTopic(name=topic)


def _asked(
    answer: DeletableTopicResult | MetadataResponseTopic, items: Mapping[Topic, object]
) -> Topic | None:
    """Return the requested name or id that a result belongs to, or None if there is none.

    A result can contain both the name and the id of its topic.
    """
    if answer.topic_id in items:
        return answer.topic_id
    return answer.name if answer.name in items else None


def _read_topic(topic: MetadataResponseTopic, authorized: bool) -> TopicDescription:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicDescription(
        topic.name or "",
        _read_id(topic.topic_id),
        topic.is_internal,
        tuple(map(_read_partition, partitions)),
        read_operations(topic.topic_authorized_operations) if authorized else None,
    )


def _read_partition(
    partition: MetadataResponsePartition | DescribeTopicPartitionsResponsePartition,
) -> PartitionDescription:
    eligible, last_known = (
        None if (ids := getattr(partition, name, None)) is None else tuple(ids)
        for name in ("eligible_leader_replicas", "last_known_elr")
    )
    return PartitionDescription(
        partition.partition_index,
        None if partition.leader_id < 0 else partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
        eligible,
        last_known,
    )


def _read_id(topic_id: UUID) -> UUID | None:
    return None if topic_id == NO_ID else topic_id


async def create_partitions(
    requests: AdminRequests,
    totals: Mapping[str, int | NewPartitions],
    validate_only: bool,
    retry_on_quota_violation: bool,
    timeout: float | None,
) -> Results[str, None]:
    """See `Admin.create_partitions`."""
    from aiokclient.protocol.messages.create_partitions import CreatePartitionsRequest

    given = as_mapping(totals, "names of topics")
    wanted = {name: _make_partitions_topic(name, total) for name, total in given.items()}

    async def ask(items: dict[str, CreatePartitionsTopic], remaining: float) -> Answers[str, None]:
        request = CreatePartitionsRequest(
            topics=list(items.values()),
            timeout_ms=requests.compute_broker_timeout_ms(remaining),
            validate_only=validate_only,
        )
        response = await requests.send_request(request, Controller(), remaining)
        return {
            result.name: read_failure(result, "CreatePartitions", f"topic {result.name}")
            for result in response.results
        }

    return await requests.ask_items(
        wanted, ask, timeout, retry_on_quota_violation=retry_on_quota_violation
    )


def _make_partitions_topic(name: str, total: int | NewPartitions) -> CreatePartitionsTopic:
    from aiokclient.protocol.messages.create_partitions import (
        CreatePartitionsAssignment,
        CreatePartitionsTopic,
    )

    new = total if isinstance(total, NewPartitions) else NewPartitions(total)
    as_name(name, TOPIC)
    require_integer(new.total, "a number of partitions")
    assignments = None
    if new.assignments is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in new.assignments]
    return CreatePartitionsTopic(name=name, count=new.total, assignments=assignments)


async def delete_records(
    requests: AdminRequests, offsets: Mapping[TopicPartition, int], timeout: float | None
) -> Results[TopicPartition, int]:
    """See `Admin.delete_records`."""
    from aiokclient.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    given = as_mapping(offsets, "partitions")
    for offset in given.values():
        require_integer(offset, "an offset")
    wanted = {as_partition(partition): offset for partition, offset in given.items()}

    async def ask(
        group: dict[TopicPartition, int], to: Leader, remaining: float
    ) -> Answers[TopicPartition, int]:
        """Send one request to the broker that leads all of these partitions."""
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=tp.partition, offset=group[tp])
                    for tp in tps
                ],
            )
            for name, tps in by_topic(group).items()
        ]
        request = DeleteRecordsRequest(
            topics=topics, timeout_ms=requests.compute_broker_timeout_ms(remaining)
        )
        response = await requests.send_request(request, to, remaining)
        return {
            tp: error_for(result.error_code, api=DELETE_RECORDS, resource=f"partition {tp}")
            or result.low_watermark
            for tp, result in by_partition(response.topics)
        }

    return await requests.ask_leaders(wanted, ask, DELETE_RECORDS, timeout)
