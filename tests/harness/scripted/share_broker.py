"""A broker of share groups that keeps its protocol to the letter, except for one scripted fault.

It listens in a virtual network, has one topic, and is the leader of its partitions and the
coordinator of all groups. It has locks and sessions as Kafka has them: a session belongs to its
connection, a request with another epoch than the next is refused, and the acknowledgements of a
partition succeed or fail together. Locks do not end by themselves.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from aiokclient.protocol import ApiKey
from aiokclient.protocol.framing import ServerFraming
from aiokclient.protocol.messages import find_coordinator, share_acknowledge, share_fetch
from aiokclient.protocol.messages import share_group_heartbeat as heartbeat
from aiokclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from aiokclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.testing.simulation.network import VirtualNetwork

TOPIC = "t"
TOPIC_ID = UUID(int=7)
HOST = "127.0.0.1"
VERSIONS = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.METADATA: (0, 12),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
}
AVAILABLE, LOCKED, FINISHED = range(3)
FINAL_EPOCH = -1
RELEASE, RENEW = 2, 4
UNCOUNTED = (42, 122, 123)
"""The errors of requests that do not use up their epoch."""
Writer: TypeAlias = asyncio.StreamWriter


class Seen(NamedTuple):
    """A share request that the broker has received."""

    at: float
    node: int
    connection: int
    request: Any

    @property
    def epoch(self) -> int:
        return int(self.request.share_session_epoch)

    def list_acknowledged(self) -> Iterator[tuple[int, Any]]:
        """Yield the partitions and the batches of acknowledgements in the request."""
        for topic in self.request.topics:
            for partition in topic.partitions:
                for batch in partition.acknowledgement_batches:
                    yield partition.partition_index, batch

    @property
    def kind(self) -> str:
        """The kind of the request in the table of faults, or "" if it settles nothing."""
        if not any(self.list_acknowledged()):
            return ""
        if isinstance(self.request, share_fetch.ShareFetchRequest):
            return "fetch"
        return "renewal" if self.request.is_renew_ack else "acknowledge"


class ShareFault:
    """A fault of the requests of one kind. `seen` has those that it was applied to."""

    def __init__(self, kind: str, level: str, name: str, *, repeated: bool = False) -> None:
        self.kind, self.level, self.name, self.repeated = kind, level, name, repeated
        self.seen: list[Seen] = []
        self.answered_at = 0.0
        self.answered = asyncio.Event()

    @property
    def code(self) -> int:
        """The code of the error, of a fault that is one."""
        return int(self.name.split()[0])

    def applies_to(self, seen: Seen) -> bool:
        if self.seen and not self.repeated:
            return False
        # All faults but those of connections concern partition 0.
        return seen.kind == self.kind and any(not index for index, _ in seen.list_acknowledged())


class SharePart:
    """A partition: its offsets, and who leads it."""

    def __init__(self) -> None:
        self.states: list[int] = []
        self.counts: list[int] = []
        self.leader = 1
        self.epoch = 5


class ShareBrokers:
    """Two brokers of one topic, which share their state. All partitions begin at the first."""

    def __init__(self, network: VirtualNetwork, partitions: int, *, lock_ms: int) -> None:
        self.parts = [SharePart() for _ in range(partitions)]
        self.lock_ms = lock_ms
        self.requests: list[Seen] = []
        self.fault = ShareFault("none", "", "")
        self.ports: dict[int, int] = {}
        self._framing = ServerFraming()
        self._network = network
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: dict[int, Writer] = {}
        self._epochs: dict[int, int] = {}
        """The next epoch of the session of each connection."""
        self._held: dict[int, set[tuple[int, int]]] = {}
        """The partitions and offsets that are locked by the session of each connection."""
        self._opened = 0
        self._servers = [self._listen(node) for node in (1, 2)]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ports[1]}"

    def _listen(self, node: int) -> Any:
        loop = asyncio.get_running_loop()

        def accept(reader: asyncio.StreamReader, writer: Writer) -> None:
            self._opened += 1
            self._writers[self._opened] = writer
            self._tasks.append(loop.create_task(self._serve(node, self._opened, reader, writer)))

        def make() -> asyncio.BaseProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(), accept)

        server = self._network.listen(HOST, 0, make)
        self.ports[node] = server.port
        return server

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def produce(self, partition: int, count: int) -> None:
        """Append records, whose values are their offsets."""
        part = self.parts[partition]
        part.states += [AVAILABLE] * count
        part.counts += [0] * count
        self._changed.set()

    def end_lock(self, partition: int, offset: int) -> None:
        """Make a lock end before its time, so that another member may finish the record."""
        self.parts[partition].states[offset] = FINISHED

    def cut(self) -> None:
        """Reset all connections."""
        for writer in self._writers.values():
            writer.transport.abort()

    # -- connections

    async def _serve(
        self, node: int, number: int, reader: asyncio.StreamReader, writer: Writer
    ) -> None:
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                received = self._framing.decode_request(await reader.readexactly(length))
                api = ApiKey(received.header.request_api_key)
                answer = await self._answer(node, number, api, received.request)
                if answer is None:
                    return
                if not isinstance(answer, bytes):
                    segments = self._framing.encode_response(received, answer)
                    answer = b"".join(bytes(segment) for segment in segments)
                writer.write(answer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._end_session(number)
            writer.transport.abort()

    def _end_session(self, number: int) -> None:
        self._epochs.pop(number, None)
        for partition, offset in self._held.pop(number, set()):
            if self.parts[partition].states[offset] == LOCKED:
                self.parts[partition].states[offset] = AVAILABLE

    async def _answer(self, node: int, number: int, api: ApiKey, request: Any) -> Any:
        if api is ApiKey.API_VERSIONS:
            return self._answer_versions()
        if api is ApiKey.METADATA:
            return self._answer_metadata(request)
        if api is ApiKey.FIND_COORDINATOR:
            return find_coordinator.FindCoordinatorResponse(
                coordinators=[
                    find_coordinator.Coordinator(key=key, node_id=1, host=HOST, port=self.ports[1])
                    for key in request.coordinator_keys
                ]
            )
        if api is ApiKey.SHARE_GROUP_HEARTBEAT:
            return self._answer_heartbeat(request)
        seen = Seen(asyncio.get_running_loop().time(), node, number, request)
        self.requests.append(seen)
        fault = self.fault
        if fault.applies_to(seen):
            fault.seen.append(seen)
            answer = await self._answer_with_fault(fault, seen)
            fault.answered_at = asyncio.get_running_loop().time()
            fault.answered.set()
            return answer
        return await self._answer_share(seen)

    def _answer_versions(self) -> ApiVersionsResponse:
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in VERSIONS.items()
        ]
        level = FinalizedFeatureKey(name="share.version", max_version_level=1, min_version_level=1)
        return ApiVersionsResponse(
            api_keys=keys, finalized_features_epoch=1, finalized_features=[level]
        )

    def _answer_metadata(self, request: Any) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=part.leader, leader_epoch=part.epoch
            )
            for index, part in enumerate(self.parts)
        ]
        topic = MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=partitions)
        return MetadataResponse(
            cluster_id="scripted",
            controller_id=1,
            brokers=[
                MetadataResponseBroker(node_id=node, host=HOST, port=port)
                for node, port in self.ports.items()
            ],
            topics=[topic] if request.topics is None or request.topics else [],
        )

    def _answer_heartbeat(self, request: Any) -> heartbeat.ShareGroupHeartbeatResponse:
        assignment = None
        if request.subscribed_topic_names is not None and request.member_epoch >= 0:
            numbers = list(range(len(self.parts)))
            given = [heartbeat.TopicPartitions(topic_id=TOPIC_ID, partitions=numbers)]
            assignment = heartbeat.Assignment(topic_partitions=given)
        return heartbeat.ShareGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=max(request.member_epoch, 1) if request.member_epoch >= 0 else -1,
            heartbeat_interval_ms=5000,
            assignment=assignment,
        )

    # -- share requests

    async def _answer_share(
        self, seen: Seen, *, replaced: Callable[[int], int | None] = lambda _: None
    ) -> Any:
        """Execute a request. `replaced(partition)` is a code for its acknowledgements instead."""
        is_fetch = isinstance(seen.request, share_fetch.ShareFetchRequest)
        refusal = self._accept_epoch(seen, is_fetch)
        if refusal:
            return self._refuse(seen, refusal)
        codes = {
            index: self._acknowledge(seen, index, replaced(index))
            for index in dict.fromkeys(index for index, _ in seen.list_acknowledged())
        }
        if seen.epoch == FINAL_EPOCH:
            self._end_session(seen.connection)
        if not is_fetch:
            return self._make_acknowledged(codes)
        await self._wait_for_records(seen)
        if self._epochs.get(seen.connection) is None and seen.epoch != FINAL_EPOCH:
            return self._refuse(seen, 122)
        return self._make_fetched(seen, codes)

    def _accept_epoch(self, seen: Seen, is_fetch: bool) -> int:
        expected = self._epochs.get(seen.connection)
        if seen.epoch == 0 and is_fetch:
            if any(seen.list_acknowledged()):
                return 42
            self._held.setdefault(seen.connection, set())
        elif expected is None:
            return 122
        elif seen.epoch not in (expected, FINAL_EPOCH):
            return 123
        self._epochs[seen.connection] = seen.epoch + 1
        return 0

    def _acknowledge(self, seen: Seen, index: int, replaced: int | None) -> int:
        if replaced is not None:
            return replaced
        held = self._held[seen.connection]
        found: list[tuple[int, int]] = []
        for partition, batch in seen.list_acknowledged():
            if partition == index:
                offsets = range(batch.first_offset, batch.last_offset + 1)
                kinds = batch.acknowledge_types
                each = kinds if len(kinds) > 1 else kinds * len(offsets)
                found += zip(offsets, each, strict=True)
        if found != sorted(found):
            return 42
        states = self.parts[index].states
        if self.parts[index].leader != seen.node:
            return 3
        if any(states[offset] != LOCKED or (index, offset) not in held for offset, _ in found):
            return 121
        for offset, kind in found:
            if kind != RENEW:
                states[offset] = AVAILABLE if kind == RELEASE else FINISHED
                held.discard((index, offset))
        self._changed.set()
        return 0

    async def _wait_for_records(self, seen: Seen) -> None:
        request, until = seen.request, seen.at + seen.request.max_wait_ms / 1000
        wanted = bool(request.max_records) and request.share_session_epoch != FINAL_EPOCH
        while wanted and not any(AVAILABLE in self.parts[i].states for i in self._led(seen)):
            self._changed.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _led(self, seen: Seen) -> list[int]:
        return [index for index, part in enumerate(self.parts) if part.leader == seen.node]

    def _make_fetched(self, seen: Seen, codes: dict[int, int]) -> Any:
        left, made = seen.request.max_records, []
        for index in range(len(self.parts)):
            acquired: list[Any] = []
            for offset, state in enumerate(self.parts[index].states if left else []):
                if index in self._led(seen) and state == AVAILABLE and left:
                    left -= 1
                    self._lock(seen, index, offset)
                    count = self.parts[index].counts[offset]
                    acquired.append((offset, offset, count))
            if acquired or index in codes or seen.epoch == 0:
                made.append(
                    share_fetch.PartitionData(
                        partition_index=index,
                        acknowledge_error_code=codes.get(index, 0),
                        records=self._encode(index) if acquired else b"",
                        acquired_records=[
                            share_fetch.AcquiredRecords(
                                first_offset=first, last_offset=last, delivery_count=count
                            )
                            for first, last, count in acquired
                        ],
                    )
                )
        topic = share_fetch.ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=made)
        return share_fetch.ShareFetchResponse(
            acquisition_lock_timeout_ms=self.lock_ms, responses=[topic]
        )

    def _lock(self, seen: Seen, index: int, offset: int) -> None:
        self.parts[index].states[offset] = LOCKED
        self.parts[index].counts[offset] += 1
        self._held[seen.connection].add((index, offset))

    def _encode(self, index: int) -> bytes:
        builder = RecordBatchBuilder(limit=1 << 20)
        for offset in range(len(self.parts[index].states)):
            builder.append(1, None, b"%d" % offset)
        builder.close()
        return bytes(builder.seal())

    def _make_acknowledged(self, codes: dict[int, int]) -> Any:
        made = [
            share_acknowledge.PartitionData(partition_index=index, error_code=code)
            for index, code in codes.items()
        ]
        topic = share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=made)
        return share_acknowledge.ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.lock_ms, responses=[topic] if made else []
        )

    def _refuse(self, seen: Seen, code: int) -> Any:
        return seen.request.response_class(error_code=code)

    # -- faults

    async def _answer_with_fault(self, fault: ShareFault, seen: Seen) -> Any:
        if fault.level == "top":
            if fault.name.endswith("applied"):
                await self._answer_share(seen)
            return self._answer_with_code(fault, seen)
        if fault.level == "acknowledgement":
            return await self._answer_for_partition(fault, seen)
        if fault.level == "records":
            answer = await self._answer_share(seen)
            part = next(p for p in answer.responses[0].partitions if p.partition_index == 0)
            part.error_code = fault.code
            self._name_leader(fault, part, answer)
            return answer
        return await self._answer_with_loss(fault, seen)

    def _answer_with_code(self, fault: ShareFault, seen: Seen) -> Any:
        if fault.code == 122:
            self._end_session(seen.connection)
        elif fault.code not in UNCOUNTED:
            self._epochs[seen.connection] = seen.epoch + 1
        return self._refuse(seen, fault.code)

    async def _answer_for_partition(self, fault: ShareFault, seen: Seen) -> Any:
        name = fault.name
        if name == "121 of one":
            self.end_lock(0, 1)
            return await self._answer_share(seen)
        if name == "omitted":
            answer = await self._answer_share(seen)
            parts = answer.responses[0].partitions
            parts[:] = [part for part in parts if part.partition_index != 0]
            return answer
        if name in ("twice, error first", "twice, error last"):
            answer = await self._answer_share(seen, replaced=lambda i: None if i else 121)
            self._double(answer, is_first=name.endswith("first"))
            return answer
        code = fault.code
        is_applied = name.endswith("applied")
        answer = await self._answer_share(
            seen, replaced=lambda index: None if index or is_applied else code
        )
        part = next(p for p in answer.responses[0].partitions if p.partition_index == 0)
        if is_applied:
            column = "acknowledge_error_code" if hasattr(part, "records") else "error_code"
            setattr(part, column, code)
        self._name_leader(fault, part, answer)
        return answer

    def _double(self, answer: Any, *, is_first: bool) -> None:
        """Name partition 0 twice, once with an error of its acknowledgements, as kfake does."""
        parts = answer.responses[0].partitions
        index = next(i for i, part in enumerate(parts) if part.partition_index == 0)
        other = type(parts[index])(partition_index=0)
        if hasattr(other, "records"):
            other.records = b""
        parts.insert(index + is_first, other)

    def _name_leader(self, fault: ShareFault, part: Any, answer: Any) -> None:
        if fault.name.endswith("moved"):
            self.parts[0].leader, self.parts[0].epoch = 2, 6
            part.current_leader.leader_id, part.current_leader.leader_epoch = 2, 6
            endpoint = share_fetch if hasattr(part, "records") else share_acknowledge
            answer.node_endpoints = [
                endpoint.NodeEndpoint(node_id=2, host=HOST, port=self.ports[2])
            ]
        elif fault.name.endswith("fenced"):
            part.current_leader.leader_id, part.current_leader.leader_epoch = 1, 5

    async def _answer_with_loss(self, fault: ShareFault, seen: Seen) -> Any:
        if fault.name == "lost before":
            return None
        if fault.name == "no answer before":
            await asyncio.get_running_loop().create_future()
        answer = await self._answer_share(seen)
        if fault.name == "lost after":
            return None
        if fault.name == "no answer after":
            await asyncio.get_running_loop().create_future()
        if fault.name == "late":
            await asyncio.sleep(self.lock_ms / 1000)
        if fault.name.startswith("throttle"):
            answer.throttle_time_ms = 400
        if fault.name == "garbage":
            return b"\0\0\0\x04\xff\xff\xff\xff"
        return answer
