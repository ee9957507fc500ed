"""ElectLeaders 0 to 2: make the preferred replica the leader, or elect one that is not in sync.

* A preferred election is for the first replica. If it is the leader, the result is
  ELECTION_NOT_NEEDED. If it does not run or is not in sync, it is PREFERRED_LEADER_NOT_AVAILABLE.
* An unclean election (version 1 on) is for a partition without a leader, otherwise the result is
  ELECTION_NOT_NEEDED. The first running replica becomes the leader, preferably one that is in sync.
  If none runs, the result is ELIGIBLE_LEADERS_NOT_AVAILABLE.
* If the request has no list of partitions (null), the response names all topics, but only their
  partitions with an election or an error other than ELECTION_NOT_NEEDED.
* Another kind of election is INVALID_REQUEST, of the response and of each partition.
"""

from __future__ import annotations

from aiokclient.protocol.messages import ElectLeadersRequest, ElectLeadersResponse
from aiokclient.protocol.messages.elect_leaders import PartitionResult, ReplicaElectionResult
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.state import Refused
from aiokclient.testing.broker.topics.topics import NO_LEADER, Partition

_PREFERRED, _UNCLEAN = 0, 1


async def handle(call: Call) -> Answer:
    request: ElectLeadersRequest = call.request
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return ElectLeadersResponse(error_code=code)
    results: dict[str, list[PartitionResult]] = {}
    if request.topic_partitions is None:
        async for name in call.iterate_items(list(call.cluster.topics)):
            count = len(call.cluster.topics[name].partitions)
            elected = [_elect_leader(call, name, index) for index in range(count)]
            results[name] = [
                each for each in elected if each.error_code != Code.ELECTION_NOT_NEEDED
            ]
    async for wanted in call.iterate_items(request.topic_partitions or ()):
        results.setdefault(wanted.topic, []).extend(
            [_elect_leader(call, wanted.topic, index) for index in wanted.partitions]
        )
    known = request.election_type in (_PREFERRED, _UNCLEAN)
    call.cluster.notify_tests()
    return ElectLeadersResponse(
        error_code=Code.NONE if known or call.version == 0 else Code.INVALID_REQUEST,
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=elected)
            for name, elected in results.items()
        ],
    )


def _elect_leader(call: Call, topic: str, index: int) -> PartitionResult:
    result = PartitionResult(partition_id=index)
    kind = call.request.election_type if call.version else _PREFERRED
    try:
        if code := call.find_refusal(topic, index):
            raise Refused(Code(code), "")
        if kind not in (_PREFERRED, _UNCLEAN):
            raise Refused(Code.INVALID_REQUEST, f"Unknown election type {kind}")
        if topic not in call.cluster.topics:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
        partition = call.cluster.find_partition(topic, index)
        if partition is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
        find_leader = _find_preferred if kind == _PREFERRED else _find_eligible
        partition.change_leader(find_leader(call, partition))
        call.cluster.settle_partition(partition)
    except Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message
    return result


def _find_preferred(call: Call, partition: Partition) -> int:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise _make_needless()
    if preferred not in call.cluster.alive or preferred not in partition.isr:
        raise Refused(
            Code.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
        )
    return preferred


def _find_eligible(call: Call, partition: Partition) -> int:
    if partition.leader != NO_LEADER:
        raise _make_needless()
    running = [each for each in partition.replicas if each in call.cluster.alive]
    if not running:
        raise Refused(
            Code.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    return next((each for each in running if each in partition.isr), running[0])


def _make_needless() -> Refused:
    return Refused(Code.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
