"""CreatePartitions 0 to 3: add partitions to topics.

The requested number is the new total. It is INVALID_PARTITIONS unless it is larger than the current
one. New partitions have as many replicas as the topic's first partition, spread over the brokers,
or the replicas that the request assigns. A topic that is named twice is INVALID_REQUEST. With a
`timeout_ms` of 0 or less, no partitions are added. The result of each topic is then
REQUEST_TIMED_OUT, or INVALID_REQUEST if all topics are named twice.
"""

from __future__ import annotations

from aiokclient.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse
from aiokclient.protocol.messages.create_partitions import (
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.state import ClusterState, Refused
from aiokclient.testing.broker.topics.topics import BrokerTopic

_STRICT_QUOTAS = 3


async def handle(call: Call) -> Answer:
    request: CreatePartitionsRequest = call.request
    times = await call.count_parts(each.name for each in request.topics)
    if request.timeout_ms <= 0 and 1 in times.values():
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=each.name,
                    error_code=call.find_refusal(each.name) or Code.REQUEST_TIMED_OUT,
                )
                async for each in call.iterate_items(request.topics)
            ]
        )
    wanted: dict[str, CreatePartitionsTopic] = {}
    async for part in call.iterate_slices(request.topics):
        wanted.update((each.name, each) for each in part)
    return CreatePartitionsResponse(
        results=[
            _create_partitions(call, each) if times[name] == 1 else _refuse_duplicate(name)
            async for name, each in call.iterate_items(wanted.items())
        ]
    )


def _refuse_duplicate(name: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=Code.INVALID_REQUEST, error_message="Duplicate topic name."
    )


def _create_partitions(call: Call, wanted: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
    result = CreatePartitionsTopicResult(
        name=wanted.name, error_code=call.find_refusal(wanted.name)
    )
    topic = call.cluster.topics.get(wanted.name)
    if not result.error_code and topic is None:
        result.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
    if result.error_code or topic is None:
        return result
    try:
        assignment = _choose_replicas(call.cluster, topic, wanted)
        if code := call.charge_mutations(len(assignment), strict_since=_STRICT_QUOTAS):
            raise Refused(Code(code), "The throttling quota has been exceeded.")
    except Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message
        return result
    if not call.request.validate_only:
        call.cluster.add_partitions(topic, assignment)
    return result


def _choose_replicas(
    cluster: ClusterState, topic: BrokerTopic, wanted: CreatePartitionsTopic
) -> list[list[int]]:
    have = len(topic.partitions)
    if wanted.count == have:
        raise Refused(Code.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if wanted.count < have:
        raise Refused(
            Code.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {have} partition(s); "
            f"{wanted.count} would not be an increase.",
        )
    new = wanted.count - have
    if wanted.assignments is None:
        return cluster.assign_replicas(new, len(topic.partitions[0].replicas), have)
    assignment = [list(each.broker_ids) for each in wanted.assignments]
    if len(assignment) != new:
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"There are {new} new partitions, but {len(assignment)} assignments.",
        )
    cluster.check_replicas(assignment)
    return assignment
