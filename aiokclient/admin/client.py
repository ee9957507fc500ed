"""The admin client: everything that is asked of a cluster but records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Never, Unpack

from aiokclient.admin.cluster import ClusterCalls, ClusterDescription
from aiokclient.admin.configs import Change, ConfigCalls, ConfigEntry, ConfigResource
from aiokclient.admin.group_descriptions import GroupDescription, GroupListing
from aiokclient.admin.group_offsets import GroupOffsetCalls
from aiokclient.admin.groups import GroupCalls
from aiokclient.admin.partitions import NewPartitions, PartitionCalls
from aiokclient.admin.records import RecordCalls
from aiokclient.admin.requests import AdminRequests
from aiokclient.admin.results import Results
from aiokclient.admin.topics import (
    CreatedTopic,
    NewTopic,
    Topic,
    TopicCalls,
    TopicDescription,
    TopicListing,
)
from aiokclient.cluster.lifecycle import Lifecycle
from aiokclient.cluster.shared_client import ClientLike, config_of
from aiokclient.cluster.tracebacks import lets_go
from aiokclient.config import AdminConfig, AdminOptions
from aiokclient.config.problems import refuse_positional
from aiokclient.types import OffsetAndMetadata, TopicPartition

__all__ = ["Admin"]


class Admin(Lifecycle):
    """Creates, describes, changes and deletes what a cluster has.

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            created = await admin.create_topics([NewTopic("orders", 6)])
            created.raise_for_errors()

    A call that is about several things answers with `Results`: a mapping from each thing to its
    result or its error. What a call is about as a whole, it returns or raises. Every call ends by
    its `timeout` in seconds (`default_api_timeout_ms`) and tries again until then what may pass.
    Calls may run at the same time. Options: `AdminConfig`; `client` shares connections.
    """

    closing_rank: ClassVar[int] = 2
    config_type: ClassVar[type[AdminConfig]] = AdminConfig

    def __init__(
        self, *wrong: Never, client: ClientLike | None = None, **options: Unpack[AdminOptions]
    ) -> None:
        refuse_positional("Admin", wrong)
        shared = config_of(client)
        super().__init__(AdminConfig.build(options, client=shared), client)
        requests = AdminRequests(self)
        self._topics = TopicCalls(requests)
        self._partitions = PartitionCalls(requests)
        self._records = RecordCalls(requests)
        self._cluster_calls = ClusterCalls(requests)
        self._configs = ConfigCalls(requests)
        self._groups = GroupCalls(requests)
        self._group_offsets = GroupOffsetCalls(requests)

    @lets_go
    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[str, CreatedTopic]:
        """Creates topics; with `validate_only` only checks that they could be.

        Returns once the controller has made them; other brokers may take a moment to know them.
        Usual errors: TopicExistsError, InvalidReplicationFactorError, InvalidConfigError,
        PolicyViolationError, TopicAuthorizationError. TopicExistsError may also mean that a first
        attempt succeeded whose answer was lost. Cancelling it leaves open what was created.
        """
        return await self._topics.create_topics(
            topics, validate_only=validate_only, timeout=timeout
        )

    @lets_go
    async def delete_topics(
        self, topics: Iterable[Topic], *, timeout: float | None = None
    ) -> Results[Topic, None]:
        """Deletes topics by name or by id (brokers since 2.8), with all their records.

        Usual errors: UnknownTopicOrPartitionError, UnknownTopicIdError, TopicAuthorizationError,
        TopicDeletionDisabledError. Cancelling it leaves open what was deleted.
        """
        return await self._topics.delete_topics(topics, timeout=timeout)

    @lets_go
    async def describe_topics(
        self,
        topics: Iterable[Topic],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> Results[Topic, TopicDescription]:
        """Partitions, leaders and replicas of topics, by name or by id (brokers since 3.1).

        Usual errors: UnknownTopicOrPartitionError (also for a moment after the creation),
        UnknownTopicIdError, InvalidTopicError, TopicAuthorizationError.
        """
        return await self._topics.describe_topics(
            topics, include_authorized_operations=include_authorized_operations, timeout=timeout
        )

    @lets_go
    async def list_topics(
        self, *, internal: bool = False, timeout: float | None = None
    ) -> dict[str, TopicListing]:
        """Return all topics that this user may describe, by name.

        Kafka's own topics are listed with `internal` only.
        """
        return await self._topics.list_topics(internal=internal, timeout=timeout)

    @lets_go
    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Adds partitions until each topic has its total; with `validate_only` only checks it.

        The keys of a topic fall into other partitions afterwards. Usual errors:
        UnknownTopicOrPartitionError, InvalidPartitionsError, InvalidReplicaAssignmentError,
        ReassignmentInProgressError. Cancelling it leaves open what was added.
        """
        return await self._partitions.create_partitions(
            totals, validate_only=validate_only, timeout=timeout
        )

    @lets_go
    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, int]:
        """Deletes all records before an offset, for each partition; -1 means all there are.

        The result is the partition's first offset after that. Usual errors:
        UnknownTopicOrPartitionError, OffsetOutOfRangeError, TopicAuthorizationError,
        PolicyViolationError (the topic is compacted). Cancelling it leaves open what was deleted.
        """
        return await self._records.delete_records(offsets, timeout=timeout)

    @lets_go
    async def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription:
        """The cluster's id, controller and brokers.

        Raises UnsupportedVersionError if `include_fenced_brokers` is asked of brokers before 4.0,
        and what a request raises.
        """
        return await self._cluster_calls.describe_cluster(
            include_authorized_operations=include_authorized_operations,
            include_fenced_brokers=include_fenced_brokers,
            timeout=timeout,
        )

    @lets_go
    async def describe_configs(
        self,
        resources: Iterable[ConfigResource] | Mapping[ConfigResource, Iterable[str] | None],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """The options of resources; of a mapping only those named (None: all).

        Usual errors: UnknownTopicOrPartitionError, TopicAuthorizationError,
        ClusterAuthorizationError, InvalidRequestError (no such broker).
        """
        return await self._configs.describe_configs(
            resources,
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
            timeout=timeout,
        )

    @lets_go
    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, Change]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Changes the options that are named and leaves all others as they are.

        A value of None goes back to the default; `Append` and `Subtract` change lists. Brokers
        since 2.3. Usual errors: InvalidConfigError, UnknownTopicOrPartitionError,
        PolicyViolationError, authorization errors. Cancelling it leaves open what was changed.
        """
        return await self._configs.alter_configs(
            changes, validate_only=validate_only, timeout=timeout
        )

    @lets_go
    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout: float | None = None,
    ) -> dict[str, GroupListing]:
        """All groups that this user may describe, of all types and with their coordinators.

        Every broker is asked for those that it coordinates. `states` ("Stable", "Empty",
        "PreparingRebalance", ...) and `types` ("classic", "consumer", "share", "streams") leave
        out all others, in the broker; an old one raises UnsupportedVersionError for them. Raises
        what a broker that is there goes on answering, or its timeout.
        """
        return await self._groups.list_groups(states=states, types=types, timeout=timeout)

    @lets_go
    async def describe_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> Results[str, GroupDescription]:
        """State, protocol, coordinator and members of groups, of whatever type they are.

        Usual errors: GroupIdNotFoundError (also for types that the broker has and this client
        does not know), GroupAuthorizationError.
        """
        return await self._groups.describe_groups(
            groups, include_authorized_operations=include_authorized_operations, timeout=timeout
        )

    @lets_go
    async def delete_groups(
        self, groups: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, None]:
        """Deletes groups without members, of any type, with their offsets.

        Usual errors: GroupIdNotFoundError, GroupNotEmptyError, GroupAuthorizationError. Cancelling
        it leaves open what was deleted.
        """
        return await self._groups.delete_groups(groups, timeout=timeout)

    @lets_go
    async def remove_members(
        self,
        group: str,
        members: Iterable[str],
        *,
        static: bool = False,
        reason: str = "removed by an admin",
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Removes members from a classic group, by member id, or by instance id if `static`.

        A member that still runs joins anew; a static one that does not come back any more need not
        be waited for. `reason` is shown in the brokers' logs. Usual errors: UnknownMemberIdError
        (also when the session of the member has expired), FencedInstanceIdError,
        GroupAuthorizationError. Cancelling it leaves open who was removed. If the response to an
        attempt was lost and the next attempt finds a member gone, the member counts as removed.
        """
        return await self._groups.remove_members(
            group, members, static=static, reason=reason, timeout=timeout
        )

    @lets_go
    async def list_consumer_group_offsets(
        self,
        groups: Iterable[str],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> Results[str, dict[TopicPartition, OffsetAndMetadata]]:
        """All offsets that groups have committed; of a group that there is not, none.

        With `require_stable` it waits for transactions that are about to commit others (KIP-447).
        Usual errors: GroupAuthorizationError, UnstableOffsetCommitError at the timeout.
        """
        return await self._group_offsets.list_consumer_group_offsets(
            groups, require_stable=require_stable, timeout=timeout
        )

    @lets_go
    async def alter_consumer_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Sets offsets of a group that has no members; it is made if there is none.

        Usual errors: UnknownMemberIdError (the group has members: use `rewind_group` of one of
        them), UnknownTopicOrPartitionError, GroupAuthorizationError.
        """
        return await self._group_offsets.alter_consumer_group_offsets(
            group, offsets, timeout=timeout
        )

    @lets_go
    async def delete_consumer_group_offsets(
        self, group: str, tps: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Forgets what a group has committed for partitions of topics that it does not read now.

        Usual errors: GroupSubscribedToTopicError, GroupIdNotFoundError, GroupAuthorizationError.
        """
        return await self._group_offsets.delete_consumer_group_offsets(group, tps, timeout=timeout)
