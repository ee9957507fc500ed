"""The commands that elect the leaders of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import (
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
    value_error,
)
from aiokclient.cli.nouns.topics import count_of, dry_run_notes
from aiokclient.cli.output import Result, Row, rows_result
from aiokclient.cli.values import JsonFile, Numbers, TopicPartitions

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin, TopicPartition
    from aiokclient.admin import ElectionType, PartitionDescription
    from aiokclient.errors import KafkaError

TOPICS = Argument(
    "TOPIC",
    "Topics, or partitions as TOPIC:P[,...]; - reads them from standard input.",
    "*",
    type=TopicPartitions,
    completes="topics",
)
LEADER_WAIT_S = 10.0
"""Seconds in which the brokers know the new leaders. Otherwise, the leaders before are shown."""
LEADER_POLL_S = 0.1


class PartitionFile(JsonFile):
    """A file of kafka-leader-election: {"partitions": [{"topic": "a", "partition": 0}]}."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        try:
            typed = [(each["topic"], each["partition"]) for each in self.data["partitions"]]
        except (KeyError, TypeError):
            raise value_error(
                f'{self.name} is not {{"partitions": [{{"topic": "a", "partition": 0}}]}}'
            ) from None
        self.partitions = [TopicPartitions(f"{topic}:{number}") for topic, number in typed]


OPTIONS = (
    Option(("--all",), "All partitions that need an election."),
    Option(
        ("--from-file",),
        "A JSON file with the partitions, as for kafka-leader-election.",
        "FILE",
        type=PartitionFile,
        completes="files",
    ),
    Option(
        ("-p", "--partition"),
        "The partitions of the topics that are named without any.",
        "P[,...]",
        type=Numbers,
    ),
)


class ElectPreferred(AdminCommand):
    """Make the first replica of each partition its leader again, if it is in sync."""

    verb = "preferred"
    changes = True
    arguments = (TOPICS,)
    options = OPTIONS

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each partition, with its leader before and after."""
        from aiokclient.admin import ElectionType

        tps = await chosen_partitions(admin, given)
        return await elect(admin, given, ElectionType.PREFERRED, *tps)


class ElectUnclean(AdminCommand):
    """Make a running replica the leader of partitions that have none. Records may be lost.

    The records that the new leader lacks are lost. Partitions with a leader are left alone.
    """

    verb = "unclean"
    changes = True
    destroys = True
    arguments = (TOPICS,)
    options = OPTIONS

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each partition, with its leader before and after."""
        from aiokclient.admin import ElectionType

        tps, failures = await chosen_partitions(admin, given)
        names = [f"{tp.topic}:{tp.partition}" for tp, each in tps.items() if each.leader is None]
        if names:
            confirm(
                given, f"Elect any replica of {count_of(names, 'partition')}, and lose records?"
            )
        return await elect(admin, given, ElectionType.UNCLEAN, tps, failures)


async def chosen_partitions(
    admin: Admin, given: Namespace
) -> tuple[dict[TopicPartition, PartitionDescription], dict[str, Exception]]:
    """Return the partitions that were typed, or all of the cluster with --all.

    Raises WrongUseError if none of the ways to name them was used, or more than one.
    """
    if bool(given.topic) + given.all + (given.from_file is not None) != 1:
        raise WrongUseError("Give topics or partitions, or --from-file, or --all.")
    if given.partition is not None:
        if any(each.partitions is not None for each in given.topic) or not given.topic:
            raise WrongUseError("--partition is for topics that are named without partitions.")
        for each in given.topic:
            each.partitions = given.partition.values
    if given.all:
        listed = await admin.list_topics(internal=True)
        return await find_partitions(admin, map(TopicPartitions, listed))
    if given.from_file is not None:
        return await find_partitions(admin, given.from_file.partitions)
    return await find_partitions(admin, given.topic)


async def find_partitions(
    admin: Admin, typed: Iterable[TopicPartitions]
) -> tuple[dict[TopicPartition, PartitionDescription], dict[str, Exception]]:
    """Return the descriptions of the partitions that were typed, and the errors of unknown ones.

    A topic without numbers means all of its partitions.
    """
    from aiokclient import TopicPartition

    wanted = list(typed)
    described = await admin.describe_topics(dict.fromkeys(each.topic for each in wanted))
    known = described.succeeded
    failures: dict[str, Exception] = {str(name): e for name, e in described.errors.items()}
    partitions: dict[TopicPartition, PartitionDescription] = {}
    for each in wanted:
        if each.topic not in known:
            continue
        by_number = {part.index: part for part in known[each.topic].partitions}
        for number in sorted(by_number) if each.partitions is None else each.partitions:
            if number in by_number:
                partitions[TopicPartition(each.topic, number)] = by_number[number]
            else:
                failures[f"{each.topic}-{number}"] = NotFoundError(
                    f"Topic {each.topic} has {len(by_number)} partitions."
                )
    return partitions, failures


async def elect(
    admin: Admin,
    given: Namespace,
    election_type: ElectionType,
    partitions: Mapping[TopicPartition, PartitionDescription],
    failures: Mapping[str, Exception],
) -> Result:
    """Elect leaders, and return a row for each partition that was named or has a new leader."""
    from aiokclient.errors import ElectionNotNeededError

    needed = {tp: each for tp, each in partitions.items() if needs_election(each, election_type)}
    before = {tp: each.leader for tp, each in partitions.items()}
    outcomes: dict[TopicPartition, KafkaError | None] = dict.fromkeys(needed)
    after = before | {tp: expected_leader(each, election_type) for tp, each in needed.items()}
    if not given.dry_run:
        # Only the partitions that the user has agreed to may lose records.
        wanted = needed if election_type.name == "UNCLEAN" else partitions
        asks_all = given.all and wanted is partitions
        if wanted or asks_all:
            results = await admin.elect_leaders(election_type, None if asks_all else wanted)
            errors = results.errors
            outcomes = {tp: errors.get(tp) for tp in results}
        elected = [tp for tp, error in outcomes.items() if error is None]
        after = before | await wait_for_leaders(admin, elected, before)
    rows: list[Row] = []
    failed = dict(failures)
    for tp in outcomes if given.all else partitions:
        error = outcomes.get(tp)
        if error is not None and not isinstance(error, ElectionNotNeededError):
            failed[str(tp)] = error
            continue
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "before": before.get(tp),
                "after": after.get(tp),
                "outcome": "elected" if tp in outcomes and error is None else "not needed",
            }
        )
    return rows_result(
        ["topic", "partition", "before", "after", "outcome"], rows, failed, dry_run_notes(given)
    )


def needs_election(partition: PartitionDescription, election_type: ElectionType) -> bool:
    """Return whether an election would give a partition another leader."""
    if election_type.name == "UNCLEAN":
        return partition.leader is None
    preferred = partition.replicas[0]
    return partition.leader != preferred and preferred in partition.isr


def expected_leader(partition: PartitionDescription, election_type: ElectionType) -> int | None:
    """Return the leader after an election, or None if it may be any of several replicas."""
    return None if election_type.name == "UNCLEAN" else partition.replicas[0]


async def wait_for_leaders(
    admin: Admin, elected: Iterable[TopicPartition], before: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int | None]:
    """Return the new leaders, as soon as the brokers know them.

    The controller elects leaders, and the brokers learn of them a moment later.
    """
    import asyncio

    from aiokclient import TopicPartition

    loop = asyncio.get_running_loop()
    until = loop.time() + LEADER_WAIT_S
    waiting = set(elected)
    leaders: dict[TopicPartition, int | None] = {}
    while waiting:
        described = (await admin.describe_topics({tp.topic for tp in waiting})).succeeded
        for topic in described.values():
            now = {TopicPartition(topic.name, p.index): p.leader for p in topic.partitions}
            leaders |= {
                tp: leader
                for tp, leader in now.items()
                if tp in waiting and leader is not None and leader != before.get(tp)
            }
        waiting -= leaders.keys()
        if loop.time() > until:
            break
        if waiting:
            await asyncio.sleep(LEADER_POLL_S)
    return leaders


COMMANDS: Sequence[type[Command]] = (ElectPreferred, ElectUnclean)
