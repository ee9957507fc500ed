"""The checks of what the brokers of a cluster say: versions, features, quorum, and partitions.

Versions and features are in the answers that the brokers gave when they were connected to. A
started client asks for the rest, all at the same time. What fails becomes a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from aiokclient.admin.checks.addresses import (
    ReachedCluster,
    Server,
    ServerAnswer,
)
from aiokclient.admin.checks.report import (
    NAMED,
    ReportNotes,
    counted,
    listed_names,
    listed_nodes,
)
from aiokclient.admin.cluster import describe_cluster
from aiokclient.admin.configs import ConfigResource, describe_configs
from aiokclient.admin.hanging_transactions import (
    HangingTransaction,
    list_candidates,
    select_hanging,
)
from aiokclient.admin.log_dirs import LogDirDescription, describe_log_dirs
from aiokclient.admin.quorum import QuorumReplica, describe_metadata_quorum
from aiokclient.admin.replicas.partitions import list_partition_reassignments
from aiokclient.admin.requests import AdminRequests, split_into_steps
from aiokclient.admin.topics import PartitionDescription, describe_topics, list_topics
from aiokclient.clock import Clock
from aiokclient.cluster.requests.per_item import ask_in_parallel
from aiokclient.errors import KafkaError, UnknownTopicOrPartitionError
from aiokclient.protocol.api import ApiKey
from aiokclient.types import TopicPartition

SKEW_S: Final = 2.0
"""A difference between the clocks of the controller and of this machine that is a finding."""
SILENT_S: Final = 10.0
"""A voter that has not fetched for so long is a finding. Voters fetch twice a second."""

T = TypeVar("T")

MIN_ISR: Final = "min.insync.replicas"
LONGEST_TRANSACTION_MS: Final = 900_000
"""The default of the brokers' option transaction.max.timeout.ms."""
FULL: Final = 0.05
"""A log directory whose volume has less free space, as a fraction, is a finding."""

LEADERLESS, UNDER_MIN_ISR, UNDER_REPLICATED = "leaderless", "under-min-isr", "under-replicated"
LOG_DIRS, HANGING = "log-dirs", "hanging-transactions"

Partitions = dict[TopicPartition, PartitionDescription]

PLUGIN_APIS: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""APIs that a broker has if it has a plugin, whatever its version."""


def name_cluster(cluster: ReachedCluster) -> str:
    """Return the subject of findings about the whole cluster."""
    return "cluster" if cluster.cluster_id is None else f"cluster {cluster.cluster_id}"


# -- what the brokers have said when they were connected to -------------------------------------


def check_versions(notes: ReportNotes, answers: Mapping[int, ServerAnswer]) -> None:
    """Check that all brokers have the same APIs in the same versions."""
    ranges = {
        node: {
            each.api_key: (each.min_version, each.max_version)
            for each in answer.versions.api_keys
            if each.api_key not in PLUGIN_APIS
        }
        for node, answer in sorted(answers.items())
    }
    if not ranges:
        return
    noun = _find_noun(answers)
    groups: list[tuple[dict[int, tuple[int, int]], list[int]]] = []
    for node, found in ranges.items():
        alike = next((nodes for other, nodes in groups if other == found), None)
        if alike is None:
            groups.append((found, [node]))
        else:
            alike.append(node)
    if len(groups) == 1:
        count = len(groups[0][0])
        text = f"All have the same {counted(count, 'API')} in the same versions."
        notes.add_pass("versions", listed_nodes(noun, ranges), text)
        return
    first = groups[0][0]
    different = sorted(
        {key for other, _ in groups for key in other | first if other.get(key) != first.get(key)}
    )
    names = [ApiKey(key).api_name if key in set(ApiKey) else f"API {key}" for key in different]
    notes.add_finding(
        "warning",
        "versions",
        "; ".join(listed_nodes(noun, nodes) for _, nodes in groups),
        f"The {noun}s run different versions of Kafka. They differ in {listed_names(names)}.",
        f"Complete the upgrade of all {noun}s.",
    )


def _find_noun(answers: Mapping[int, ServerAnswer]) -> str:
    """Return the noun for the servers that have answered, which is the same for all of them."""
    return next(iter(answers.values())).server.noun


def check_features(notes: ReportNotes, answers: Mapping[int, ServerAnswer]) -> None:
    """Check that all brokers support the levels of the features that are enabled."""
    versions = [answer.versions for answer in answers.values()]
    latest = max(versions, key=lambda each: each.finalized_features_epoch, default=None)
    if latest is None or latest.finalized_features_epoch < 0:
        return
    levels = {each.name: each.max_version_level for each in latest.finalized_features}
    supported = {
        node: {
            each.name: (each.min_version, each.max_version)
            for each in answer.versions.supported_features
        }
        for node, answer in sorted(answers.items())
    }
    noun, wrong = _find_noun(answers), False
    for node, features in supported.items():
        for name, level in levels.items():
            lowest, highest = features.get(name, (0, 0))
            if level and not lowest <= level <= highest:
                wrong = True
                notes.add_finding(
                    "error",
                    "features",
                    f"{noun} {node}",
                    f"It supports the levels {lowest} to {highest} of {name}, and the cluster uses "
                    f"level {level}.",
                    f"Upgrade this {noun} to the version of the others.",
                )
    names = sorted(set.intersection(*map(set, supported.values())))
    highest_of_all = {name: min(each[name][1] for each in supported.values()) for name in names}
    lower = {
        name: f"{name} {levels.get(name, 0)} of {highest}"
        for name, highest in highest_of_all.items()
        if levels.get(name, 0) < highest
    }
    if lower:
        notes.add_finding(
            "info",
            "features",
            listed_names(lower),
            f"These features are below the level that all {noun}s support: "
            f"{listed_names(lower.values())}.",
            "When an upgrade is complete and stays, raise the levels by Admin.update_features. "
            "Some features are optional.",
        )
    if not wrong:
        text = f"All {noun}s support the levels of {counted(len(levels), 'feature')}."
        notes.add_pass("features", listed_nodes(noun, supported), text)


# -- what the brokers say when they are asked ---------------------------------------------------


async def ask_cluster(
    requests: AdminRequests, notes: ReportNotes, cluster: ReachedCluster, deadline: float
) -> None:
    """Ask the brokers about all that they know, at the same time."""

    async def ask_brokers() -> None:
        await _check_brokers(requests, notes, cluster, deadline)

    async def ask_quorum() -> None:
        await _check_quorum(requests, notes, len(cluster.brokers), deadline)

    async def ask_partitions() -> None:
        await _check_partitions(requests, notes, cluster, deadline)

    async def ask_log_dirs() -> None:
        await _check_log_dirs(requests, notes, cluster, deadline)

    checks: dict[str, Callable[[], Awaitable[None]]] = {"quorum": ask_quorum}
    if requests.uses_controllers:
        text = "Brokers, partitions, log directories, and transactions were not checked."
        advice = "Check them by an Admin with bootstrap_servers. Controllers do not answer that."
        notes.add_finding("info", "brokers", name_cluster(cluster), text, advice)
    else:
        checks |= {
            "brokers": ask_brokers,
            "leaderless": ask_partitions,
            "log-dirs": ask_log_dirs,
        }
    await ask_in_parallel(
        {(name, check): name for name, check in checks.items()},
        lambda target, _: target[1](),
        lambda name, error: notes.add_failure(name, name_cluster(cluster), error),
    )


async def _check_brokers(
    requests: AdminRequests, notes: ReportNotes, cluster: ReachedCluster, deadline: float
) -> None:
    """Check that no broker is fenced."""
    remaining = requests.compute_remaining_s(deadline)
    described = await describe_cluster(requests, False, True, remaining)
    fenced = [each for each in described.brokers if each.fenced]
    for each in fenced:
        notes.add_finding(
            "error",
            "brokers",
            Server(each.host, each.port, each.node_id).subject,
            "The broker is registered, but fenced: it does not take part in the cluster.",
            "Start it, or check that it reaches the controllers. If it is gone forever, move its "
            "replicas, and remove it by Admin.unregister_broker.",
        )
    if not fenced:
        nodes = [each.node_id for each in described.brokers]
        text = f"{counted(len(nodes), 'broker')} in service: {listed_names(nodes)}."
        notes.add_pass("brokers", name_cluster(cluster), text)


async def _check_quorum(
    requests: AdminRequests, notes: ReportNotes, brokers: int, deadline: float
) -> None:
    """Check the leader and the voters of the metadata quorum, and the clock of the leader."""
    clock = requests.cluster.clock
    began_ms = clock.time_ms()
    quorum = await describe_metadata_quorum(requests, requests.compute_remaining_s(deadline))
    voters = {each.replica_id: each for each in quorum.voters}
    leader = voters.get(quorum.leader_id)
    if leader is None:
        notes.add_finding(
            "error",
            "quorum",
            listed_nodes("controller", voters),
            "The controllers have no leader, so that nothing in the cluster can change.",
            "Start controllers until a majority of the voters runs, and check their logs.",
        )
        return
    # The leader's own times are those of its answer.
    now_ms = leader.last_fetch_timestamp
    others = [each for node, each in voters.items() if node != quorum.leader_id]
    missing = [each for each in others if now_ms and _note_voter(notes, each, leader, now_ms)]
    if now_ms is not None:
        _check_clock(notes, clock, quorum.leader_id, began_ms, now_ms)
    if len(voters) == 1 and brokers > 1:
        notes.add_finding(
            "info",
            "quorum",
            f"controller {quorum.leader_id}",
            "It is the only voter. When it stops, nothing in the cluster can change.",
            "Use three or five controllers where that matters.",
        )
    if not missing:
        text = f"Controller {quorum.leader_id} leads {counted(len(voters), 'voter')}."
        notes.add_pass("quorum", listed_nodes("controller", voters), text)


def _note_voter(
    notes: ReportNotes, voter: QuorumReplica, leader: QuorumReplica, now_ms: int
) -> bool:
    """Note what is wrong with a voter that does not lead. Return whether anything is."""
    fetched, caught_up = voter.last_fetch_timestamp, voter.last_caught_up_timestamp
    lag = max(leader.log_end_offset - voter.log_end_offset, 0)
    if fetched is None or now_ms - fetched > 1000 * SILENT_S:
        since = "since the leader was elected"
        if fetched is not None:
            since = f"for {(now_ms - fetched) / 1000:.0f} s"
        text = f"It has not fetched the metadata {since}."
        advice = "Start it, or check that it reaches the other controllers."
    elif lag and (caught_up is None or now_ms - caught_up > 1000 * SILENT_S):
        text = f"It lacks {counted(lag, 'record')} of the metadata that the leader has."
        advice = "Check its load, its disk, and its network."
    else:
        return False
    notes.add_finding("error", "quorum", f"controller {voter.replica_id}", text, advice)
    return True


def _check_clock(
    notes: ReportNotes, clock: Clock, leader_id: int, began_ms: int, now_ms: int
) -> None:
    """Compare the clock of the active controller with that of this machine.

    Retention, timestamps, and the expiry of tokens and certificates depend on clocks.
    """
    ended_ms = clock.time_ms()
    ahead_s = max(now_ms - ended_ms, min(now_ms - began_ms, 0)) / 1000
    subject = f"controller {leader_id}"
    if abs(ahead_s) <= SKEW_S:
        notes.add_pass("clock", subject, "Its clock agrees with that of this machine.")
        return
    text = (
        f"Its clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'late against'} that "
        "of this machine."
    )
    advice = "Synchronize the clocks of all machines (NTP)."
    notes.add_finding("warning", "clock", subject, text, advice)


# -- partitions and log directories ---------------------------------------------------------------


async def _check_partitions(
    requests: AdminRequests, notes: ReportNotes, cluster: ReachedCluster, deadline: float
) -> None:
    """Check the leaders, the replicas, and the transactions of all partitions."""
    listed = await list_topics(requests, True, requests.compute_remaining_s(deadline))
    # Texts name the first few partitions: those of the applications, rather than of Kafka itself.
    topics = sorted(listed, key=lambda name: (listed[name].internal, name))
    partitions = await _describe_partitions(requests, notes, topics, deadline)
    adding = await _list_added_replicas(requests, notes, deadline)
    least = await _read_min_isr(requests, notes, {tp.topic for tp in partitions}, deadline)
    _note_leaderless(notes, partitions)
    _note_under_min_isr(notes, partitions, least)
    _note_under_replicated(notes, partitions, adding)
    led = [tp for tp, each in partitions.items() if each.leader in cluster.answers]
    await _check_transactions(requests, notes, cluster, led, deadline)


async def _describe_partitions(
    requests: AdminRequests, notes: ReportNotes, topics: Sequence[str], deadline: float
) -> Partitions:
    partitions: Partitions = {}
    for step in split_into_steps(topics):
        remaining = requests.compute_remaining_s(deadline)
        results = await describe_topics(requests, step, False, None, remaining)
        _note_first_error(notes, LEADERLESS, results.errors)
        for topic in results.succeeded.values():
            for each in sorted(topic.partitions, key=lambda each: each.index):
                partitions[TopicPartition(topic.name, each.index)] = each
    return partitions


async def _list_added_replicas(
    requests: AdminRequests, notes: ReportNotes, deadline: float
) -> dict[TopicPartition, int]:
    """Return the number of replicas that a reassignment adds, which have not all records yet."""
    try:
        moving = await list_partition_reassignments(
            requests, None, requests.compute_remaining_s(deadline)
        )
    except KafkaError as error:
        notes.add_failure(UNDER_REPLICATED, "reassignments", error)
        return {}
    return {tp: len(each.adding) for tp, each in moving.items()}


async def _read_min_isr(
    requests: AdminRequests, notes: ReportNotes, topics: Iterable[str], deadline: float
) -> dict[str, int]:
    """Return the replicas that must be in sync for a write with acks=all, by topic."""
    least: dict[str, int] = {}
    for step in split_into_steps(sorted(topics)):
        wanted = {ConfigResource.topic(name): [MIN_ISR] for name in step}
        remaining = requests.compute_remaining_s(deadline)
        results = await describe_configs(requests, wanted, False, False, remaining)
        _note_first_error(notes, UNDER_MIN_ISR, results.errors)
        for resource, entries in results.succeeded.items():
            entry = entries.get(MIN_ISR)
            if entry is not None and entry.value is not None and entry.value.isdecimal():
                least[resource.name] = int(entry.value)
    return least


def _note_first_error(notes: ReportNotes, check: str, errors: Mapping[T, KafkaError]) -> None:
    """Note the first of several errors, except those of topics that were deleted meanwhile."""
    left = {
        item: error
        for item, error in errors.items()
        if error.code != UnknownTopicOrPartitionError.code
    }
    if left:
        notes.add_failure(check, listed_names(left), next(iter(left.values())))


def _note_leaderless(notes: ReportNotes, partitions: Partitions) -> None:
    without = [tp for tp, each in partitions.items() if each.leader is None]
    if not without:
        text = f"{_count(partitions)} that the user may describe have a leader."
        notes.add_pass(LEADERLESS, "partitions", text)
        return
    replicas = sorted({node for tp in without for node in partitions[tp].replicas})
    notes.add_finding(
        "error",
        LEADERLESS,
        listed_names(without),
        f"{_count(without)} cannot be written or read, because there is no leader. The replicas "
        f"are on {listed_nodes('broker', replicas)}.",
        "Start these brokers. If they are lost, elect_leaders with ElectionType.UNCLEAN makes "
        "another replica the leader, and loses the records that it lacks.",
    )


def _note_under_min_isr(
    notes: ReportNotes, partitions: Partitions, least: Mapping[str, int]
) -> None:
    known = {tp: each for tp, each in partitions.items() if tp.topic in least}
    few = [
        tp
        for tp, each in known.items()
        if each.leader is not None and len(each.isr) < least[tp.topic]
    ]
    if few:
        notes.add_finding(
            "error",
            UNDER_MIN_ISR,
            listed_names(few),
            f"{_count(few)} cannot be written with acks='all', because fewer replicas are in sync "
            f"than {MIN_ISR} demands.",
            f"Start the brokers of the other replicas, or add replicas by a reassignment. "
            f"{MIN_ISR} must not be above the number of replicas.",
        )
    elif known or not partitions:
        text = f"{_count(known)} have as many replicas in sync as {MIN_ISR} demands."
        notes.add_pass(UNDER_MIN_ISR, "partitions", text)


def _note_under_replicated(
    notes: ReportNotes, partitions: Partitions, adding: Mapping[TopicPartition, int]
) -> None:
    lagging = {
        tp: set(each.replicas) - set(each.isr)
        for tp, each in partitions.items()
        if len(each.isr) < len(each.replicas) - adding.get(tp, 0)
    }
    if not lagging:
        text = f"All replicas of {_count(partitions)} are in sync."
        notes.add_pass(UNDER_REPLICATED, "partitions", text)
        return
    missing = Counter(node for nodes in lagging.values() for node in nodes)
    by_broker = [
        f"broker {node} ({counted(count, 'replica')})" for node, count in missing.most_common()
    ]
    notes.add_finding(
        "error",
        UNDER_REPLICATED,
        listed_names(lagging),
        f"{_count(lagging)} have replicas that are not in sync, on {listed_names(by_broker)}.",
        "Check that these brokers are running, and their disks, network, and logs. A running "
        "broker catches up by itself.",
    )


async def _check_transactions(
    requests: AdminRequests,
    notes: ReportNotes,
    cluster: ReachedCluster,
    partitions: Sequence[TopicPartition],
    deadline: float,
) -> None:
    errors: dict[TopicPartition, KafkaError] = {}
    try:
        hanging: Sequence[HangingTransaction] = await list_candidates(
            requests, partitions, None, LONGEST_TRANSACTION_MS, deadline, errors.__setitem__
        )
        # Any broker may be the coordinator of a transaction. One that was not reached would hold
        # the check up until its deadline.
        silent = sorted(cluster.brokers.keys() - cluster.answers.keys())
        if not silent:
            hanging = await select_hanging(requests, hanging, deadline)
    except KafkaError as error:
        notes.add_failure(HANGING, "partitions", error)
        return
    _note_first_error(notes, HANGING, errors)
    for each in hanging[:NAMED]:
        _note_hanging(notes, each, silent)
    if len(hanging) > NAMED:
        more = [each.partition for each in hanging[NAMED:]]
        text = f"There are {counted(len(more), 'more hanging transaction')}."
        notes.add_finding("error", HANGING, listed_names(more), text, _ABORT)
    searched = len(partitions) - len(errors)
    if not hanging and (searched or not errors):
        text = f"No transaction hangs in {counted(searched, 'partition')}."
        notes.add_pass(HANGING, "partitions", text)


_ABORT: Final = "Admin.find_hanging_transactions returns it, and Admin.abort_transaction ends it."


def _note_hanging(notes: ReportNotes, each: HangingTransaction, silent: Sequence[int]) -> None:
    """Note a transaction that hangs, or that may hang if some brokers did not say whether."""
    of = f" of {each.transactional_id}" if each.transactional_id else ""
    text = (
        f"A transaction{of} hangs, which no coordinator will end (producer id {each.producer_id})."
        if not silent
        else f"A transaction is open for longer than any may be (producer id {each.producer_id}). "
        f"Whether a coordinator will end it is unknown, because {listed_nodes('broker', silent)} "
        "cannot be reached."
    )
    text += f" Consumers with isolation_level='read_committed' wait at offset {each.start_offset}."
    if each.last_timestamp is not None and each.last_timestamp >= 0:
        then = datetime.fromtimestamp(each.last_timestamp // 1000, UTC)
        text += f" Its last record is of {then:%Y-%m-%d %H:%M:%S} UTC."
    advice = "Repeat the check when all brokers can be reached." if silent else _ABORT
    notes.add_finding("error", HANGING, str(each.partition), text, advice)


async def _check_log_dirs(
    requests: AdminRequests, notes: ReportNotes, cluster: ReachedCluster, deadline: float
) -> None:
    """Check that the log directories of the brokers that were reached are online, and not full."""
    results = await describe_log_dirs(
        requests, sorted(cluster.answers), None, requests.compute_remaining_s(deadline)
    )
    for node, error in results.errors.items():
        notes.add_failure(LOG_DIRS, f"broker {node}", error)
    for node, directories in results.succeeded.items():
        bad = [each for each in directories if _note_log_dir(notes, node, each)]
        if directories and not bad:
            text = f"{counted(len(directories), 'log directory', 'log directories')} in use."
            notes.add_pass(LOG_DIRS, f"broker {node}", text)


def _note_log_dir(notes: ReportNotes, node: int, directory: LogDirDescription) -> bool:
    """Note what is wrong with a log directory. Return whether anything is."""
    subject = f"broker {node}, {directory.path}"
    if directory.error is not None:
        text = f"The log directory is offline. {directory.error.brief}"
        advice = "Check the disk, and restart the broker when it is repaired."
        notes.add_finding("error", LOG_DIRS, subject, text, advice)
        return True
    total, usable = directory.total_bytes, directory.usable_bytes
    if total and usable is not None and usable < FULL * total:
        text = f"Only {usable / total:.1%} of the volume is free ({usable:,} bytes)."
        advice = (
            "Delete records or topics, shorten their retention, or move replicas to other "
            "directories or brokers."
        )
        notes.add_finding("warning", LOG_DIRS, subject, text, advice)
        return True
    if directory.is_cordoned:
        text = "The log directory is cordoned: it gets no new replicas."
        advice = "Remove it from the broker's option cordoned.log.dirs if that is not intended."
        notes.add_finding("info", LOG_DIRS, subject, text, advice)
        return True
    return False


def _count(partitions: Collection[object]) -> str:
    return counted(len(partitions), "partition")
