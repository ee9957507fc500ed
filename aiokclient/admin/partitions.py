"""The admin call that adds partitions to topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiokclient.admin.arguments import TOPIC, as_mapping, as_name, require_integer
from aiokclient.admin.requests import AdminRequests, Answers, failure
from aiokclient.admin.results import Results
from aiokclient.cluster.targets import Controller
from aiokclient.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

__all__ = ["NewPartitions", "PartitionCalls"]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The total number of partitions that a topic will have.

    `assignments` lists the replicas (broker ids) of each new partition, in order of partitions.
    """

    total: int
    assignments: Sequence[Sequence[int]] | None = None


class PartitionCalls:
    """The admin calls about partitions."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[str, None]:
        """See `Admin.create_partitions`."""
        given = as_mapping(totals, "names of topics")
        wanted = {name: _topic(name, total) for name, total in given.items()}

        async def ask(
            items: dict[str, CreatePartitionsTopic], remaining: float
        ) -> Answers[str, None]:
            request = CreatePartitionsRequest(
                topics=list(items.values()),
                timeout_ms=self._requests.broker_timeout_ms(remaining),
                validate_only=validate_only,
            )
            response = await self._requests.send(request, Controller(), remaining)
            return {
                result.name: failure(
                    result.error_code,
                    result.error_message,
                    "CreatePartitions",
                    f"topic {result.name}",
                )
                for result in response.results
            }

        return await self._requests.each(wanted, ask, timeout)


def _topic(name: str, total: int | NewPartitions) -> CreatePartitionsTopic:
    new = total if isinstance(total, NewPartitions) else NewPartitions(total)
    as_name(name, TOPIC)
    require_integer(new.total, "a number of partitions")
    assignments = None
    if new.assignments is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in new.assignments]
    return CreatePartitionsTopic(name=name, count=new.total, assignments=assignments)
