"""The admin client, which manages topics, configurations, groups, and offsets of a cluster.

The calls that Java's client has, too, are in `KafkaCalls`, the base class of `Admin`. Here are the
others, for which operators would make several of those calls, such as `reset_offsets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Literal, Never, Unpack

# The module of a subject is imported when one of its calls is first used, as in `KafkaCalls`.
import aiokclient.admin as subjects
from aiokclient.admin import replicas
from aiokclient.admin.kafka_calls import KafkaCalls
from aiokclient.background import LATE_ADMIN
from aiokclient.cluster.lifecycle.lifecycle import config_of
from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.cluster.lifecycle.public_calls import need_brokers, watch_calls
from aiokclient.config.admin import CONTROLLER_CALLS, AdminConfig, AdminOptions
from aiokclient.config.problems import refuse_positional
from aiokclient.log.foreign_names import with_foreign_names
from aiokclient.types import public_in

if TYPE_CHECKING:
    from aiokclient.admin import ClusterReport
    from aiokclient.admin.configs import ConfigResource
    from aiokclient.admin.groups import PartitionLag
    from aiokclient.admin.hanging_transactions import HangingTransaction
    from aiokclient.admin.plans.offset_changes import OffsetChange
    from aiokclient.admin.plans.offset_resets import OffsetTarget
    from aiokclient.admin.plans.share_creation import GroupStart
    from aiokclient.admin.plans.topic_checks import EnsuredTopic
    from aiokclient.admin.replicas.plan import ReassignmentPlan, ReassignmentProgress
    from aiokclient.admin.results import Results
    from aiokclient.admin.topics import NewTopic
    from aiokclient.types import TopicPartition


@public_in("aiokclient.admin")
@with_foreign_names
@need_brokers(apart=CONTROLLER_CALLS)
@watch_calls()
class Admin(KafkaCalls):
    """A client that creates, describes, changes, and deletes the resources of a cluster.

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            created = await admin.create_topics([NewTopic("orders", 6)])
            created.raise_for_errors()

    A call that takes several items returns `Results`, a mapping from each item to its result or
    its error. Any other call returns its result, or raises. Every call ends within `timeout`
    seconds (by default `default_api_timeout_ms`), except those that wait for the end of a plan, and
    until then repeats whatever failed with a retriable error. Calls may run at the same time. A
    cancelled call that only reads has no effect on the cluster. The docstring of each other call
    says what it may have changed. `AdminConfig` describes the options. With `client`, the admin
    client shares the connections and the metadata of that client.

    With `bootstrap_controllers` instead of `bootstrap_servers`, the client talks to controllers of
    version 3.7 or later (KIP-919), for example because no broker is in service. Requests go to the
    active controller. Controllers answer the calls about the cluster, the quorum, features,
    configurations, ACLs, and reassignments, and unregister brokers and controllers. All other calls
    raise UnsupportedVersionError.
    """

    closing_rank: ClassVar[int] = 2
    _late_modules = LATE_ADMIN
    config_type: ClassVar[type[AdminConfig]] = AdminConfig

    def __init__(
        self, *wrong: Never, client: Parent | None = None, **options: Unpack[AdminOptions]
    ) -> None:
        AdminConfig.hide_options(options)
        refuse_positional("Admin", wrong)
        super().__init__(AdminConfig.build(options, client=config_of(client)), client)

    async def _open(self, wait: bool) -> None:
        from aiokclient.metrics import OwnMetrics  # a late module

        rack = self._config.client_rack
        attributes = (("client_rack", rack),) if rack else ()
        own_metrics = OwnMetrics(self._cluster.metrics, "admin", attributes=attributes)
        self._cluster.metrics.add_owner(own_metrics)
        self._unsubscribe.append(own_metrics.end_owner)

    async def group_lag(
        self,
        groups: Iterable[str],
        *,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout: float | None = None,
    ) -> Results[str, dict[TopicPartition, PartitionLag]]:
        """Return how far groups are from the ends of their partitions, and who reads these.

        The partitions of a group are those that have a committed offset or are assigned to a
        member. With "read_committed", a partition ends at the last stable offset, before which no
        transaction is open. Usual errors: GroupIdNotFoundError, GroupAuthorizationError,
        TopicAuthorizationError, LeaderNotAvailableError (a partition had no leader until the
        timeout).
        """
        return await subjects.groups.group_lag(self._requests, groups, isolation_level, timeout)

    async def reset_offsets(
        self,
        group: str,
        to: OffsetTarget,
        *,
        topics: Iterable[str | TopicPartition] | None = None,
        dry_run: bool = False,
        check: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartition, OffsetChange]:
        """Set the committed offsets of a group to a time or another target, or plan that.

            plan = await admin.reset_offsets("billing", timedelta(hours=1), dry_run=True)
            for tp, change in plan.succeeded.items():
                print(tp, change.before, change.after)

        The target `to` is one of:

        - an `OffsetSpec`, or its name in lower case, such as "earliest";
        - an aware datetime: the first record that is not older;
        - a timedelta: the first record that is not older than so long before now, by the clock of
          this machine;
        - an int: this offset in each partition;
        - a `Shift`: so many offsets after the committed one, or before it;
        - "current": the committed offset, or the end if there is none. With `dry_run`, this
          exports what is committed;
        - a mapping from partitions to offsets, or to `OffsetAndMetadata`.

        If no record is as new as the time, the partition is reset to its end. An offset outside of
        the log is moved to the nearest end of the log, and is the `requested` one of the change.
        With `check=False`, ints and mappings are not moved, and the brokers accept them. A negative
        offset raises ArgumentValueError, unless `check` is false.

        `topics` has names of topics, which stand for all their partitions, and partitions. By
        default, the partitions with a committed offset are reset. The error of a topic that cannot
        be described has the key `TopicPartition(topic, -1)`.

        The group may be of any type, and must have no members: otherwise the call raises
        GroupNotEmptyError, which names their client ids and hosts, and nothing is changed. A group
        that does not exist is created if `topics` or a mapping is given, as `created_group` of the
        changes says; otherwise the call raises GroupIdNotFoundError. In a share group, the
        offset is the start of what the group has in progress, without metadata (KIP-932). With
        `dry_run`, the result is the plan, and nothing is changed.

        Raises ConfigError for a datetime that has no time zone or is before 1970, and for a
        negative timedelta; and the error of the group, such as GroupAuthorizationError. Usual
        errors of partitions: UnknownTopicOrPartitionError, NoOffsetError (there is no committed
        offset to shift), LeaderNotAvailableError and ApiTimeoutError (the partition had no leader;
        half of the timeout is for looking up offsets), OffsetOutOfRangeError (nothing is in remote
        storage), UnknownMemberIdError (a member has joined meanwhile). After a cancellation, the
        offsets of some or all partitions may have been set; repeating the call does no harm, except
        with a `Shift`.
        """
        from aiokclient.admin.plans.offset_resets import reset_offsets  # a late module

        return await reset_offsets(self._requests, group, to, topics, dry_run, check, timeout)

    async def copy_offsets(
        self,
        source: str,
        target: str,
        *,
        topics: Iterable[str | TopicPartition] | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Results[TopicPartition, OffsetChange]:
        """Commit the offsets of a group for another group, with metadata and leader epochs.

        The source may have members. Its offsets are those at the time of the call, without those
        of open transactions. The target must have no members: otherwise the call raises
        GroupNotEmptyError, which names their client ids and hosts. If the target does not exist, it
        is created, as `created_group` of the changes says. Offsets of the target in other
        partitions remain. `topics` selects topics by name, and partitions. With `dry_run`, the
        result is the plan, and nothing is changed. The offsets of a share group are the starts of
        what it has in progress; a share group has no metadata (KIP-932).

        Raises GroupIdNotFoundError if the source does not exist, and the errors of both groups,
        such as GroupAuthorizationError. Usual errors of partitions: NoOffsetError (the source has
        committed no offset of a selected partition, or of a topic, whose key is then
        `TopicPartition(topic, -1)`), UnknownTopicOrPartitionError (the topic was deleted),
        UnknownMemberIdError (a member has joined meanwhile). After a cancellation, some or all
        offsets may have been copied; repeating the call does no harm.
        """
        from aiokclient.admin.plans.offset_changes import copy_offsets  # a late module

        return await copy_offsets(self._requests, source, target, topics, dry_run, timeout)

    async def create_share_group(
        self,
        group: str,
        topics: Iterable[str],
        start: GroupStart,
        *,
        dry_run: bool = False,
        check: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartition, OffsetChange]:
        """Create a share group whose starts are stored before its first member joins (KIP-932).

            created = await admin.create_share_group("billing", ["orders"], "latest")
            created.raise_for_errors()

        Otherwise, a group that begins with `share.auto.offset.reset=latest`, the default, finds its
        start when a member first fetches, and stores it when a member first settles a record. If
        the leader moves or the members reconnect before, it is found again, later in the log, and
        the records between are skipped without a trace.

        `start` is "earliest", "latest" (the end at the time of this call), an aware datetime (the
        first record that is not older, or the end if there is none), or a mapping with the offset
        of each partition of the topics. In the result, `after` is the start of a partition.

        Call it for all topics of the group, as often as you like: a partition that has a start
        keeps it, so that `before` is `after`. If one has none, the group must not have members:
        otherwise the call raises GroupNotEmptyError, and nothing is changed. With `dry_run`, the
        result is the plan, and nothing is changed. Start no members unless all partitions succeed.

        An offset outside of the log is not sent: its error is OffsetOutOfRangeError. With
        `check=False`, it is sent as it is, and the brokers accept it. The error of a topic that
        cannot be described has the key `TopicPartition(topic, -1)`. Needs brokers of version 4.2 or
        later: those of Kafka 4.1 store no starts.

        Raises InconsistentGroupProtocolError if the group is not a share group, ConfigError for a
        datetime that has no time zone or is before 1970, and the error of the group, such as
        GroupAuthorizationError. Usual errors of partitions: UnknownTopicOrPartitionError,
        NoOffsetError (a mapping lacks the partition), LeaderNotAvailableError (the partition had no
        leader; half of the timeout is for looking up offsets), TopicAuthorizationError,
        UnsupportedVersionError (share groups are disabled: `share.version` is 0, or the brokers are
        older). After a cancellation, some or all starts may have been stored; repeating the call
        does no harm.
        """
        from aiokclient.admin.plans.share_creation import create_share_group  # a late module

        return await create_share_group(
            self._requests, group, topics, start, dry_run, check, timeout
        )

    async def ensure_topics(
        self, topics: Iterable[NewTopic], *, dry_run: bool = False, timeout: float | None = None
    ) -> Results[str, EnsuredTopic]:
        """Create those of the topics that do not exist, and compare the others.

            ensured = await admin.ensure_topics([NewTopic("orders", 6), NewTopic("refunds", 3)])
            for name, topic in ensured.raise_for_errors().items():
                for setting, expected, actual in topic.differences:
                    print(f"{name}: {setting} is {actual}, not {expected}")

        An existing topic is not changed. Its `differences` are the partitions, the replication
        factor, the assignments, and the options of the `NewTopic` that it does not have. What the
        `NewTopic` leaves to the defaults of the cluster is not compared. While replicas are being
        moved, the old and the new ones count. A topic that something else creates during the call
        is compared, too.

        With `dry_run`, the brokers only check whether they can create the missing topics. This
        counts towards a quota on changes, by which both forms of the call wait (KIP-599).

        Usual errors: those of `create_topics` except TopicExistsError, and InvalidConfigError (also
        for an option that does not exist). `created` is false for a topic that an earlier attempt
        of this call created, but its response was lost. After a cancellation, it is unknown which
        topics were created; repeating the call does no harm.
        """
        from aiokclient.admin.plans.topic_checks import ensure_topics  # a late module

        return await ensure_topics(self._requests, topics, dry_run, timeout)

    async def rebalance_plan(
        self,
        topics: Iterable[str] | None = None,
        *,
        brokers: Iterable[int] | None = None,
        ignore_racks: bool = False,
        timeout: float | None = None,
    ) -> ReassignmentPlan:
        """Return a plan that distributes replicas and preferred leaders evenly. Nothing is changed.

            plan = await admin.rebalance_plan(["orders"], brokers=[1, 2, 3])
            await admin.apply_plan(plan, throttle=50_000_000)

        Without `topics`, the plan is for all topics, with Kafka's internal ones. With `brokers`,
        replicas on other brokers move to these. Without, they move among the brokers that run, and
        those on brokers that are stopped stay there.

        As few replicas move as possible, and their number for each partition stays the same. A
        partition keeps its replicas in as many racks as before, as far as the brokers have other
        racks, unless `ignore_racks` is set. New replicas fit into the free bytes of a broker (known
        from Kafka 3.3 on). The same cluster has the same plan.

        Raises InvalidReplicaAssignmentError (there are too few brokers for a partition, or none has
        room for it), IllegalStateError (a partition is being moved already, or one of `brokers`
        cannot get replicas), BrokerIdNotRegisteredError (one of `brokers` does not exist),
        LeaderNotAvailableError (a partition to be moved has no leader),
        UnknownTopicOrPartitionError, ClusterAuthorizationError, and ApiTimeoutError (a broker did
        not describe its log directories, or the plan was not computed in time).
        """
        return await replicas.planning.rebalance_plan(
            self._requests, topics, brokers, ignore_racks, timeout
        )

    async def apply_plan(
        self,
        plan: ReassignmentPlan,
        *,
        throttle: int | None = None,
        wait: bool = True,
        on_progress: Callable[[ReassignmentProgress], object] | None = None,
        timeout: float | None = None,
    ) -> ReassignmentProgress:
        """Move the replicas as a plan says, and wait until they have all records.

        Then the preferred leaders are elected. `throttle` is the highest number of bytes a second
        that each broker sends, and receives, for the copies; the options that limit it are removed
        at the end. `on_progress` is called every two seconds, at first more often. What is complete
        or in progress already is not begun again.

        `timeout` is not the time of the whole call. It limits the requests before the copies, and
        the wait without any progress of the copies, after which ApiTimeoutError is raised: set it
        higher for a low throttle. With `wait=False`, the call returns when the controller has
        begun. `describe_plan_progress` then shows the progress, `throttle_reassignments(None)`
        removes the throttle, and `elect_leaders` elects the leaders.

        After an error or a cancellation, the partitions that are still being moved get their former
        replicas, in their order, and the throttle is removed. This takes up to 15 seconds. If the
        brokers do not answer, or the process ends, moves and throttle remain; the error has a note
        on it, and a WARNING is logged. `cancel_plan` cleans up. Replicas for which the plan names
        another directory of the broker on which they are stay in that directory.

        Raises IllegalStateError (the replicas are not those for which the plan was made, a
        partition is being moved elsewhere, or a broker that gets replicas does not run),
        UnknownTopicOrPartitionError, PolicyViolationError, and ClusterAuthorizationError. Needs
        brokers of version 2.4 or later (KIP-455).
        """
        return await replicas.moves.apply_plan(
            self._requests, plan, throttle, wait, on_progress, timeout
        )

    async def drain_broker(
        self,
        broker_id: int,
        *,
        throttle: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[ReassignmentProgress], object] | None = None,
        timeout: float | None = None,
    ) -> ReassignmentPlan:
        """Move all replicas and leaders off a broker, and return the plan by which that was done.

        The replicas go to the other brokers that run, by the rules of `rebalance_plan`; replicas on
        other brokers stay where they are. With `dry_run`, the plan is only returned. Otherwise the
        call ends when it has been carried out, as by `apply_plan` with the same arguments. The
        broker may be stopped. Partitions that are created meanwhile may have replicas on it, so
        repeat the call until the plan is empty.

        Raises what `rebalance_plan` and `apply_plan` raise, and BrokerIdNotRegisteredError if no
        such broker exists. After a cancellation, some partitions have been moved; the others are as
        before, as described for `apply_plan`.
        """
        return await replicas.moves.drain_broker(
            self._requests, broker_id, throttle, dry_run, on_progress, timeout
        )

    async def describe_plan_progress(
        self, plan: ReassignmentPlan, *, timeout: float | None = None
    ) -> ReassignmentProgress:
        """Return which partitions of a plan have been moved, and how many bytes were copied.

        Raises TopicAuthorizationError and ClusterAuthorizationError. A broker that does not answer
        counts as one that has copied nothing.
        """
        return await replicas.moves.describe_plan_progress(self._requests, plan, timeout)

    async def cancel_plan(
        self, plan: ReassignmentPlan, *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Stop the moves of a plan that are in progress, and remove their throttle.

        The partitions get their former replicas, in their order if the plan names them. Partitions
        that have been moved stay there: the result is without them. The rates of brokers stay while
        other partitions are being moved. Usual errors: NoReassignmentInProgressError (the partition
        has been moved meanwhile), ClusterAuthorizationError. After a cancellation of this call, it
        is unknown which moves were stopped; repeating the call does no harm.
        """
        return await replicas.moves.cancel_plan(self._requests, plan, timeout)

    async def throttle_reassignments(
        self, throttle: int | None, *, timeout: float | None = None
    ) -> Results[ConfigResource, None]:
        """Limit the bytes a second that each broker copies for the moves that are in progress.

        The result has the brokers and topics whose options were changed; it is empty if nothing is
        being moved. None removes the options that limit copies from all brokers that run and from
        all topics. Usual errors: ClusterAuthorizationError, TopicAuthorizationError. After a
        cancellation, it is unknown which options were changed.
        """
        return await replicas.throttle.throttle_reassignments(self._requests, throttle, timeout)

    async def check_cluster(self, *, timeout: float | None = None) -> ClusterReport:
        """Check the cluster and the way to it, and return each fault with what to do about it.

            report = await Admin(bootstrap_servers="localhost:9092").check_cluster()
            for finding in report.findings:
                print(finding.severity, finding.subject, finding.text, finding.advice)

        Each bootstrap server, and each broker at the address that it advertises, is tried on a
        connection of its own: the resolution of its name, TCP, TLS, the protocol, and the login.
        Then the brokers are asked for their versions and features, the metadata quorum, fenced
        brokers, partitions without a leader or with too few replicas in sync, log directories, and
        hanging transactions. Only topics that the user may describe are checked.

        This object need not have started, and its start may have failed: what prevents it is in
        the report then, not raised. Such a call leaves nothing open. What the user has no
        permission for, and what the brokers are too old for, are findings, too.

        `timeout` (seconds) limits all of it. A server that does not answer costs at most a tenth of
        it for each step of connecting. Raises ClosedError after a close, and the failure of a
        client that has failed. Changes nothing in the cluster.
        """
        from aiokclient.admin.checks import check_cluster  # a late module

        return await check_cluster(self, self._get_timeout_s(timeout))

    async def find_hanging_transactions(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        broker_id: int | None = None,
        max_transaction_timeout_ms: int = 900_000,
        timeout: float | None = None,
    ) -> tuple[HangingTransaction, ...]:
        """Return the open transactions that no coordinator will end (KIP-664).

        The search covers one partition, one topic, or all partitions of which the broker has a
        replica. With both `topic` and `broker_id`, it covers the topic's partitions on that broker.
        It considers transactions whose last record is older than `max_transaction_timeout_ms`
        milliseconds, which should be the brokers' `transaction.max.timeout.ms`. Needs brokers of
        version 3.0 or later. Raises IllegalStateError if neither `topic` nor `broker_id` is given,
        BrokerIdNotRegisteredError if no such broker runs and nothing is on it, and the first error
        of the requests.
        """
        return await subjects.hanging_transactions.find_hanging_transactions(
            self._requests, topic, partition, broker_id, max_transaction_timeout_ms, timeout
        )

    async def delete_client_metrics(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, None]:
        """Delete subscriptions to the metrics of clients, by name (KIP-714).

        Deleting a subscription that does not exist succeeds. Needs brokers of version 3.7 or later.
        Usual errors: ClusterAuthorizationError, InvalidRequestError. After a cancellation, it is
        unknown which subscriptions were deleted; repeating the call does no harm.
        """
        return await subjects.configs.delete_client_metrics(self._requests, names, timeout)
