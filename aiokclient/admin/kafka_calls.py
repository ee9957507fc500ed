"""The calls of an admin client that Kafka's own admin client has, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

# The module of a subject is imported when one of its calls is first used: `subjects.topics` is
# `aiokclient.admin.topics`. All modules together would double the time that importing this one
# takes.
import aiokclient.admin as subjects
from aiokclient.admin import replicas, security
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.cluster.lifecycle.public_calls import need_brokers, watch_calls
from aiokclient.config.admin import CONTROLLER_CALLS

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.admin import ActiveProducer, FencedProducer, LogDirDescription
    from aiokclient.admin.cluster import ClusterDescription, FeatureMetadata, FeatureUpdate
    from aiokclient.admin.configs import Change, ConfigEntry, ConfigResource, ResourceType
    from aiokclient.admin.group_descriptions import GroupDescription, GroupListing
    from aiokclient.admin.hanging_transactions import HangingTransaction
    from aiokclient.admin.log_dirs import ReplicaLogDirs, TopicPartitionReplica
    from aiokclient.admin.offsets import ListedOffset, OffsetSpec
    from aiokclient.admin.quorum import QuorumInfo, RaftVoterEndpoint
    from aiokclient.admin.replicas.partitions import ElectionType, PartitionReassignment
    from aiokclient.admin.requests import AdminRequests
    from aiokclient.admin.results import Results
    from aiokclient.admin.security.acls import AclBinding, AclBindingFilter
    from aiokclient.admin.security.client_quotas import ClientQuotaEntity, ClientQuotaFilter
    from aiokclient.admin.security.delegation_tokens import DelegationToken, TokenOrHmac
    from aiokclient.admin.security.scram_credentials import (
        ScramCredentialInfo,
        UserScramCredentialAlteration,
    )
    from aiokclient.admin.share_groups import SharePartitionOffset, ShareStart
    from aiokclient.admin.streams_groups import StreamsGroupDescription
    from aiokclient.admin.topics import (
        CreatedTopic,
        NewPartitions,
        NewTopic,
        Topic,
        TopicDescription,
        TopicListing,
    )
    from aiokclient.admin.transactions import TransactionDescription, TransactionListing
    from aiokclient.types import OffsetAndMetadata, TopicPartition


@security.hide_hmacs
@need_brokers(apart=CONTROLLER_CALLS)
@watch_calls()
class KafkaCalls(Lifecycle):
    """The counterparts of the methods of Java's `Admin`, which `docs/migration/java.md` lists.

    `Admin` inherits them and adds the calls that combine several of them. Each call is a signature,
    a docstring, and one line, which calls the function of the same name in the module of its
    subject.
    """

    @property
    def _requests(self) -> AdminRequests:
        from aiokclient.admin.requests import AdminRequests  # a late module

        return AdminRequests(self)

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout: float | None = None,
    ) -> Results[str, CreatedTopic]:
        """Create topics, or with `validate_only` only check whether they can be created.

        The call returns when the controller has created the topics. Other brokers may learn of
        them a moment later. Usual errors: TopicExistsError, InvalidReplicationFactorError,
        InvalidConfigError, PolicyViolationError, TopicAuthorizationError. TopicExistsError may
        also mean that an earlier attempt of this call succeeded but its response was lost. Topics
        that a quota on changes has refused are created until the timeout, as the quota permits
        (KIP-599). With `retry_on_quota_violation=False`, their error is
        ThrottlingQuotaExceededError; `validate_only` counts, too. After a cancellation, it is
        unknown which topics were created.
        """
        return await subjects.topics.create_topics(
            self._requests, topics, validate_only, retry_on_quota_violation, timeout
        )

    async def delete_topics(
        self,
        topics: Iterable[Topic],
        *,
        retry_on_quota_violation: bool = True,
        timeout: float | None = None,
    ) -> Results[Topic, None]:
        """Delete topics and all their records, by topic name or by topic id.

        Topic ids need brokers of version 2.8 or later. Usual errors:
        UnknownTopicOrPartitionError, UnknownTopicIdError, TopicAuthorizationError,
        TopicDeletionDisabledError. The first two may also mean that an earlier attempt of this
        call succeeded but its response was lost. `retry_on_quota_violation` is that of
        `create_topics`. After a cancellation, it is unknown which topics were deleted.
        """
        return await subjects.topics.delete_topics(
            self._requests, topics, retry_on_quota_violation, timeout
        )

    async def describe_topics(
        self,
        topics: Iterable[Topic],
        *,
        include_authorized_operations: bool = False,
        partitions_per_response: int | None = None,
        timeout: float | None = None,
    ) -> Results[Topic, TopicDescription]:
        """Return the partitions, leaders, and replicas of topics, by topic name or by topic id.

        Topic ids need brokers of version 3.1 or later. Usual errors:
        UnknownTopicOrPartitionError (also for a moment after a topic was created),
        UnknownTopicIdError, InvalidTopicError, TopicAuthorizationError.

        With `partitions_per_response`, topics that are given by name are read in pages of at most
        as many partitions, one after the other, with their eligible leader replicas (KIP-966). A
        topic may change between two pages. Brokers limit pages, too, usually to 2,000 partitions.
        Brokers before version 3.8 have no pages: they describe all partitions at once.
        """
        return await subjects.topics.describe_topics(
            self._requests, topics, include_authorized_operations, partitions_per_response, timeout
        )

    async def list_topics(
        self, *, internal: bool = False, timeout: float | None = None
    ) -> dict[str, TopicListing]:
        """Return all topics that the user is permitted to describe, by name.

        Kafka's internal topics are included only with `internal=True`.
        """
        return await subjects.topics.list_topics(self._requests, internal, timeout)

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Add partitions to topics until each one has the given total number of partitions.

        With `validate_only`, the brokers only check whether that is possible. After partitions were
        added, new records with a known key may go to another partition than the older records with
        that key. Usual errors: UnknownTopicOrPartitionError, InvalidPartitionsError,
        InvalidReplicaAssignmentError, ReassignmentInProgressError. `retry_on_quota_violation` is
        that of `create_topics`. After a cancellation, it is unknown which partitions were added.
        """
        return await subjects.topics.create_partitions(
            self._requests, totals, validate_only, retry_on_quota_violation, timeout
        )

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, int]:
        """Delete all records of each partition before the given offset.

        Offset -1 deletes all records of the partition. The result is the lowest offset that the
        partition has afterwards. Usual errors: UnknownTopicOrPartitionError,
        OffsetOutOfRangeError, TopicAuthorizationError, PolicyViolationError (the topic is
        compacted). After a cancellation, it is unknown which records were deleted.
        """
        return await subjects.topics.delete_records(self._requests, offsets, timeout)

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        check: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartition, ListedOffset | None]:
        """Return an offset of each partition: its start, its end, or that for a time.

            await admin.list_offsets({
                TopicPartition("orders", 0): OffsetSpec.LATEST,
                TopicPartition("orders", 1): 1_790_000_000_000,
            })

        For a time, in milliseconds since the epoch, the result is the first offset whose record is
        not older, or None if there is no such record. With "read_committed", a partition ends at
        the last stable offset, before which no transaction is open; the result is also None if
        the record for a time is not before it. The record for a time may be one of an aborted
        transaction.

        `OffsetSpec.MAX_TIMESTAMP` may be before the start of the partition if `delete_records` has
        deleted the record, and it may be the marker that ends a transaction.

        A negative time raises ArgumentValueError; with `check=False` it is sent as it is. Usual
        errors: UnknownTopicOrPartitionError, TopicAuthorizationError, LeaderNotAvailableError (the
        partition had no leader until the timeout), UnsupportedVersionError (the broker is too old
        for the `OffsetSpec`; the other partitions have results).
        """
        return await subjects.offsets.list_offsets(
            self._requests, specs, isolation_level, check, timeout
        )

    async def elect_leaders(
        self,
        election_type: ElectionType,
        tps: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Elect the leaders of partitions, or of all partitions that need it.

        A preferred election makes the first replica of a partition its leader again. An unclean one
        makes any running replica the leader of a partition that has none: the records that this
        replica lacks are lost, and nothing in the result tells of them. Without `tps`, the result
        has only the partitions with an election or an error.

        The brokers know the new leader a moment later. Needs brokers of version 2.2 or later, and
        for unclean elections 2.4 (KIP-460). Usual errors: ElectionNotNeededError (the partition has
        the leader already; never without `tps`; this may also mean that an earlier attempt of this
        call succeeded but its response was lost), PreferredLeaderNotAvailableError,
        EligibleLeadersNotAvailableError, UnknownTopicOrPartitionError, ClusterAuthorizationError.
        After a cancellation, it is unknown which leaders were elected.
        """
        return await replicas.partitions.elect_leaders(self._requests, election_type, tps, timeout)

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Move the replicas of partitions to other brokers, or with None cancel that (KIP-455).

            await admin.alter_partition_reassignments({
                TopicPartition("orders", 0): [3, 1],  # broker ids, the preferred leader first
                TopicPartition("orders", 1): None,
            })

        The call returns when the controller has begun. `list_partition_reassignments` returns the
        partitions whose new replicas do not have all records yet. A reassignment replaces an
        earlier one of the partition, but cancel that before: Kafka 4.4.0 still removes what the
        earlier one was to remove if the later one removes nothing, and ends with fewer replicas. A
        cancellation removes the new replicas, but does not restore the order of the others, and
        thereby the preferred leader. A reassignment to a broker that does not run waits for that
        broker.

        Needs brokers of version 2.4 or later, and to refuse another number of replicas 4.1. Usual
        errors: InvalidReplicaAssignmentError, InvalidReplicationFactorError,
        NoReassignmentInProgressError (there is nothing to cancel; this may also mean that an
        earlier attempt of this call succeeded but its response was lost),
        UnknownTopicOrPartitionError, ClusterAuthorizationError. After a cancellation of this
        call, it is unknown which partitions are being moved.
        """
        return await replicas.partitions.alter_partition_reassignments(
            self._requests, reassignments, allow_replication_factor_change, timeout
        )

    async def list_partition_reassignments(
        self, tps: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions whose replicas are being moved (KIP-455).

        With `tps`, only those are returned, without those that do not exist. Needs brokers of
        version 2.4 or later. Raises ClusterAuthorizationError.
        """
        return await replicas.partitions.list_partition_reassignments(self._requests, tps, timeout)

    async def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription:
        """Return the cluster's id, controller, and brokers.

        Raises UnsupportedVersionError for `include_fenced_brokers` if the brokers are older than
        4.0, and the error of the request if it fails.
        """
        return await subjects.cluster.describe_cluster(
            self._requests, include_authorized_operations, include_fenced_brokers, timeout
        )

    async def describe_metadata_quorum(self, *, timeout: float | None = None) -> QuorumInfo:
        """Return the leader, the voters, and the observers of the metadata quorum (KIP-595).

        The leader is the active controller. Needs brokers of version 3.3 or later in KRaft mode.
        Raises UnsupportedVersionError with others, and ClusterAuthorizationError.
        """
        return await subjects.quorum.describe_metadata_quorum(self._requests, timeout)

    async def add_raft_voter(
        self,
        voter_id: int,
        directory_id: UUID,
        endpoints: Iterable[RaftVoterEndpoint],
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Make a controller a voter of the metadata quorum (KIP-853).

        The controller runs already as an observer, and `directory_id` is the id of its metadata
        directory. `endpoints` are the addresses of its listeners. With `cluster_id`, the request is
        refused by another cluster. Needs the feature kraft.version at level 1.

        Raises DuplicateVoterError (which may also mean that an earlier attempt of this call
        succeeded but its response was lost), UnsupportedVersionError (kraft.version is 0),
        InconsistentClusterIdError, InvalidRequestError (a listener is missing), ApiTimeoutError
        (the quorum cannot reach the new voter), and ClusterAuthorizationError. After a
        cancellation, it is unknown whether the voter was added.
        """
        await subjects.quorum.add_raft_voter(
            self._requests, voter_id, directory_id, endpoints, cluster_id, timeout
        )

    async def remove_raft_voter(
        self,
        voter_id: int,
        directory_id: UUID,
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove a controller from the voters of the metadata quorum (KIP-853).

        Also the leader can be removed, after which another one leads. `describe_metadata_quorum`
        has the `directory_id` of each voter. Needs the feature kraft.version at level 1.

        Raises VoterNotFoundError (also for the only voter; this may also mean that an earlier
        attempt of this call succeeded but its response was lost), UnsupportedVersionError
        (kraft.version is 0), InconsistentClusterIdError, and ClusterAuthorizationError. After a
        cancellation, it is unknown whether the voter was removed.
        """
        await subjects.quorum.remove_raft_voter(
            self._requests, voter_id, directory_id, cluster_id, timeout
        )

    async def unregister_broker(
        self, broker_id: int, *, check: bool = True, timeout: float | None = None
    ) -> None:
        """Remove the registration of a broker that will not return (KIP-500).

        Its replicas remain assigned to it, and can be moved with `alter_partition_reassignments`.
        A broker that runs would vanish from the cluster until its next start. It raises
        IllegalStateError, unless `check` is false. Needs brokers of version 2.8 or later in KRaft
        mode.

        Raises BrokerIdNotRegisteredError (which may also mean that an earlier attempt of this call
        succeeded but its response was lost), and ClusterAuthorizationError. After a cancellation,
        it is unknown whether the registration was removed.
        """
        await subjects.quorum.unregister_broker(self._requests, broker_id, check, timeout)

    async def unregister_controller(
        self, controller_id: int, *, check: bool = True, timeout: float | None = None
    ) -> None:
        """Remove the registration of a controller that will not return (KIP-1312).

        A controller that is still a voter raises IllegalStateError, unless `check` is false. Needs
        brokers of version 4.4 or later.

        Raises ControllerIdNotRegisteredError (which may also mean that an earlier attempt of this
        call succeeded but its response was lost), InvalidRequestError (the controller is the active
        one), and ClusterAuthorizationError. After a cancellation, it is unknown whether the
        registration was removed.
        """
        await subjects.quorum.unregister_controller(self._requests, controller_id, check, timeout)

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource] | Mapping[ConfigResource, Iterable[str] | None],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Return the configuration of topics, brokers, and other resources.

        A mapping selects the options that are returned for each resource; its value None means
        all of them. Usual errors: UnknownTopicOrPartitionError, TopicAuthorizationError,
        ClusterAuthorizationError, InvalidRequestError (the broker does not exist).
        """
        return await subjects.configs.describe_configs(
            self._requests, resources, include_synonyms, include_documentation, timeout
        )

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, Change]],
        *,
        validate_only: bool = False,
        check: bool = True,
        timeout: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Change the named options of resources and leave all other options as they are.

        The value None restores the default. `Append` and `Subtract` change options that are
        lists. Needs brokers of version 2.3 or later. Usual errors: InvalidConfigError,
        UnknownTopicOrPartitionError, PolicyViolationError, authorization errors. After a
        cancellation, it is unknown which options were changed.

        Brokers accept an unknown option of a broker, the removal of an unknown option of a topic,
        and an empty `cleanup.policy`. Such changes of a resource are not sent: its error is
        InvalidConfigError. With `check=False`, all changes are sent as they are.
        """
        return await subjects.configs.alter_configs(
            self._requests, changes, validate_only, check, timeout
        )

    async def list_config_resources(
        self,
        types: Iterable[ResourceType | str] | None = None,
        *,
        timeout: float | None = None,
    ) -> list[ConfigResource]:
        """Return the resources that may have a configuration, sorted (KIP-1142).

        `types` selects the types of resources; without it, the list has all of them. Topics and
        brokers are listed because they exist, groups and subscriptions to client metrics because
        options are set for them. Needs brokers of version 4.1 or later, but for client metrics
        alone 3.7. Raises UnsupportedVersionError with older ones, and ClusterAuthorizationError.
        """
        return await subjects.configs.list_config_resources(self._requests, types, timeout)

    async def describe_features(
        self, *, node_id: int | None = None, timeout: float | None = None
    ) -> FeatureMetadata:
        """Return the features that brokers support, and their levels in the cluster (KIP-584).

        The supported levels are those of one broker: the one with the id `node_id`, or any. The
        other brokers may be of another version. An older broker does not return features whose
        lowest level is 0 (KAFKA-17011). Raises ApiTimeoutError if the cluster has no such broker
        until the timeout.
        """
        return await subjects.cluster.describe_features(self._requests, node_id, timeout)

    async def update_features(
        self,
        updates: Mapping[str, int | FeatureUpdate],
        *,
        validate_only: bool = False,
        check: bool = True,
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Change the levels of features in the cluster, or with `validate_only` only check that.

            await admin.update_features({
                "transaction.version": 2,
                "group.version": FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE),
            })

        Either all levels change, or none, and then each feature has the same error. The brokers
        follow a moment later, as `describe_features` shows by a higher `epoch`. Some upgrades
        cannot be undone. Needs brokers of version 2.7 or later, and for `validate_only` and
        downgrades 3.3.

        A level that does not exist, and an upgrade to level 0, raise ArgumentValueError; with
        `check=False` they are sent as they are. Usual errors: InvalidUpdateVersionError,
        ClusterAuthorizationError. After a cancellation, it is unknown whether the levels were
        changed; repeating the call does no harm.
        """
        return await subjects.cluster.update_features(
            self._requests, updates, validate_only, check, timeout
        )

    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout: float | None = None,
    ) -> dict[str, GroupListing]:
        """Return all groups that the user is permitted to describe, with their coordinators.

        The call asks every broker for the groups that it coordinates. `states` ("Stable", "Empty",
        "PreparingRebalance", ...) and `types` ("classic", "consumer", "share", "streams") make the
        brokers return only groups in these states or of these types. Raises UnsupportedVersionError
        if a broker is too old for such a filter. If the request to an existing broker still fails
        at the timeout, raises the last error of that broker.
        """
        return await subjects.groups.list_groups(self._requests, states, types, timeout)

    async def describe_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> Results[str, GroupDescription]:
        """Return the state, protocol, coordinator, and members of groups.

        Groups may be of any type except streams, for which there is `describe_streams_groups`.
        Usual errors: GroupIdNotFoundError (also for groups of a type that this client does not
        know), GroupAuthorizationError.
        """
        return await subjects.groups.describe_groups(
            self._requests, groups, include_authorized_operations, timeout
        )

    async def describe_streams_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        include_topology_description: bool = False,
        timeout: float | None = None,
    ) -> Results[str, StreamsGroupDescription]:
        """Return the state, the topology, and the members of groups of Kafka Streams (KIP-1071).

        Their offsets are those of `list_consumer_group_offsets`, `alter_consumer_group_offsets`,
        and `delete_consumer_group_offsets`. Needs brokers of version 4.1 or later, and for the
        nodes of the topology 4.4 with a plugin that stores them (KIP-1331). Usual errors:
        GroupIdNotFoundError (also for groups of another type), GroupAuthorizationError,
        UnsupportedVersionError.
        """
        return await subjects.streams_groups.describe_streams_groups(
            self._requests,
            groups,
            include_authorized_operations,
            include_topology_description,
            timeout,
        )

    async def delete_groups(
        self, groups: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, None]:
        """Delete groups of any type that have no members, with their committed offsets.

        Usual errors: GroupIdNotFoundError, GroupNotEmptyError, GroupAuthorizationError. The first
        may also mean that an earlier attempt of this call succeeded but its response was lost.
        After a cancellation, it is unknown which groups were deleted.
        """
        return await subjects.groups.delete_groups(self._requests, groups, timeout)

    async def remove_members(
        self,
        group: str,
        members: Iterable[str],
        *,
        static: bool = False,
        reason: str = "removed by an admin",
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Remove members from a classic group, by member id, or with `static` by instance id.

        A member that still runs joins the group again. If a static member will not return, removing
        it spares the group the wait for its session timeout. `reason` appears in the brokers'
        logs. Usual errors: UnknownMemberIdError (also when the session of the member has expired),
        FencedInstanceIdError, GroupAuthorizationError. If the response to one attempt was lost
        and the next attempt does not find the member, it counts as removed. After a cancellation,
        it is unknown which members were removed.
        """
        return await subjects.groups.remove_members(
            self._requests, group, members, static, reason, timeout
        )

    async def list_consumer_group_offsets(
        self,
        groups: Iterable[str],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> Results[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return all committed offsets of groups.

        A group that does not exist has no offsets. With `require_stable`, the call waits until
        all open transactions that contain offsets of the group have ended (KIP-447). Usual errors:
        GroupAuthorizationError, UnstableOffsetCommitError (transactions were open until the
        timeout).
        """
        return await subjects.groups.list_consumer_group_offsets(
            self._requests, groups, require_stable, timeout
        )

    async def alter_consumer_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        check: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Set committed offsets of a group that has no members.

        A group that does not exist is created. A negative offset raises ArgumentValueError, and one
        outside of its partition is not sent: its error is OffsetOutOfRangeError. With
        `check=False`, offsets are sent as they are, and the brokers accept them. Usual errors:
        UnknownMemberIdError (the group has members: stop them, or call `rewind_group` of one of
        them if it uses the classic protocol), UnknownTopicOrPartitionError,
        GroupAuthorizationError. After a cancellation, the offsets may have been set or not.
        """
        return await subjects.groups.alter_consumer_group_offsets(
            self._requests, group, offsets, check, timeout
        )

    async def delete_consumer_group_offsets(
        self, group: str, tps: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Delete a group's committed offsets of partitions.

        The group must not be subscribed to the topics of these partitions. Usual errors:
        GroupSubscribedToTopicError, GroupIdNotFoundError, GroupAuthorizationError. After a
        cancellation, the offsets may have been deleted or not.
        """
        return await subjects.groups.delete_consumer_group_offsets(
            self._requests, group, tps, timeout
        )

    async def list_share_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        check: bool = True,
        timeout: float | None = None,
    ) -> Results[str, dict[TopicPartition, SharePartitionOffset | None]]:
        """Return the start offsets of share groups and their lags (KIP-932, KIP-1226).

        A mapping selects the partitions that are returned for each group; its value None means all
        that the group knows. The offset is None if no start is stored for the partition: no member
        has settled a record yet, and `Admin.create_share_group` has not set it. Once all records
        are finished, the start may still be that of older ones, but the lag is 0. Topics that the
        user may not describe are left out, unless they are selected. Needs brokers of version 4.1
        or later.

        A group or a partition that does not exist is not sent, because brokers answer such requests
        late (after 27 seconds) or without an error; with `check=False` they are sent as they are.
        Usual errors: GroupIdNotFoundError, UnknownTopicOrPartitionError, GroupAuthorizationError.
        """
        return await subjects.share_groups.list_share_group_offsets(
            self._requests, groups, check, timeout
        )

    async def alter_share_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, ShareStart],
        *,
        check: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Set the start offsets of a share group that has no members (KIP-932).

        Each one is an offset; "earliest" or "latest", for the start or the end of the partition; or
        an aware datetime, for the first record that is not older, or the end if there is none. A
        group that does not exist is created; `Admin.create_share_group` creates one for whole
        topics. Former members whose sessions with brokers are still open lose their locks. Needs
        brokers of version 4.2 or later; those of Kafka 4.1 change nothing, and the error of each
        partition is UnsupportedVersionError.

        A negative offset raises ArgumentValueError, and one outside of its partition is not sent:
        its error is OffsetOutOfRangeError. With `check=False`, offsets are sent as they are, and
        the brokers accept them. Raises ConfigError for a datetime that has no time zone or is
        before 1970. Usual errors: GroupNotEmptyError, UnknownTopicOrPartitionError,
        GroupIdNotFoundError (the group is not a share group), GroupAuthorizationError,
        TopicAuthorizationError, LeaderNotAvailableError (the partition of a time or a bound had no
        leader; half of the timeout is for looking them up). After a cancellation, it is unknown
        which offsets were set; repeating the call does no harm.
        """
        return await subjects.share_groups.alter_share_group_offsets(
            self._requests, group, offsets, check, timeout
        )

    async def delete_share_group_offsets(
        self, group: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, None]:
        """Delete the offsets of topics in a share group that has no members (KIP-932).

        Needs brokers of version 4.1 or later. Usual errors: GroupNotEmptyError,
        GroupIdNotFoundError, UnknownTopicOrPartitionError (the group has no offsets of the topic;
        this may also mean that an earlier attempt of this call succeeded but its response was
        lost), GroupAuthorizationError, TopicAuthorizationError. After a cancellation, it is unknown
        which offsets were deleted.
        """
        return await subjects.share_groups.delete_share_group_offsets(
            self._requests, group, topics, timeout
        )

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        older_than_ms: int | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, TransactionListing]:
        """Return all transactional ids that the user is permitted to describe, by id (KIP-664).

        The call asks every broker for the transactional ids that it coordinates. The arguments
        make the brokers return only some of them:

        - `states`: those in one of these states ("Empty", "Ongoing", "PrepareCommit",
          "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence");
        - `producer_ids`: those with one of these producer ids;
        - `older_than_ms`: those whose latest transaction began more than this many milliseconds
          ago, and those that have had no transaction. Add `states=["Ongoing"]` for open
          transactions. Needs brokers of version 3.8 or later (KIP-994);
        - `pattern`: those of which the whole id matches this regular expression, in the syntax of
          RE2/J. Needs brokers of version 4.1 or later (KIP-1152).

        Needs brokers of version 3.0 or later. Raises UnsupportedVersionError if a broker is too old
        for the call or an argument, IllegalStateError for a state that a broker does not know, and
        InvalidRegularExpressionError. If the request to an existing broker still fails at the
        timeout, raises the last error of that broker.
        """
        return await subjects.transactions.list_transactions(
            self._requests, states, producer_ids, older_than_ms, pattern, timeout
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, TransactionDescription]:
        """Return the producer, state, start, and partitions of transactions, by id (KIP-664).

        Needs brokers of version 3.0 or later. Usual errors: TransactionalIdNotFoundError,
        TransactionalIdAuthorizationError.
        """
        return await subjects.transactions.describe_transactions(
            self._requests, transactional_ids, timeout
        )

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        topics: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> Results[int, tuple[LogDirDescription, ...]]:
        """Return the log directories of each broker, with the sizes of the replicas in them.

        Without `brokers`, the result has all brokers. With `topics`, it has only the replicas of
        these topics. Each broker returns its own directories. Usual errors:
        ClusterAuthorizationError (brokers older than 3.2 return an empty result instead), and
        ApiTimeoutError for a broker that does not respond or does not exist. A directory that is
        offline has an error of its own. Raises
        UnknownTopicOrPartitionError for a topic that does not exist.
        """
        return await subjects.log_dirs.describe_log_dirs(self._requests, brokers, topics, timeout)

    async def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout: float | None = None
    ) -> Results[TopicPartitionReplica, ReplicaLogDirs]:
        """Return the log directories of replicas, and those to which they are moved (KIP-113).

        A replica that its broker does not have is no error: its `path` is None. Usual errors:
        ApiTimeoutError (the broker did not answer), ClusterAuthorizationError.
        """
        return await subjects.log_dirs.describe_replica_log_dirs(self._requests, replicas, timeout)

    async def alter_replica_log_dirs(
        self,
        paths: Mapping[TopicPartitionReplica, str],
        *,
        check: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartitionReplica, None]:
        """Move replicas to other log directories of their brokers (KIP-113).

            await admin.alter_replica_log_dirs({TopicPartitionReplica("orders", 0, 1): "/disk-2"})

        A path must be written as in the options of the broker. The call returns when the brokers
        have begun; `describe_replica_log_dirs` has a `future_path` until the copy is complete. The
        directory in which the replica is already cancels a move.

        A replica that does not exist is not sent, because the broker would remember the directory
        for a topic that is created later; with `check=False` it is sent as it is. Usual errors:
        LogDirNotFoundError, ReplicaNotAvailableError (the broker has no replica of the partition),
        InvalidReplicaAssignmentError (the directory is cordoned), UnknownTopicOrPartitionError,
        KafkaStorageError, ClusterAuthorizationError. After a cancellation, it is unknown which
        replicas are being moved; repeating the call does no harm.
        """
        return await subjects.log_dirs.alter_replica_log_dirs(self._requests, paths, check, timeout)

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout: float | None = None,
    ) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the idempotent and transactional producers of each partition (KIP-664).

        The leaders of the partitions respond. With `broker_id`, that broker responds for its
        replicas. Needs brokers of version 2.8 or later. Usual errors: UnknownTopicOrPartitionError,
        TopicAuthorizationError, and IllegalStateError (the broker has no replica of the partition).
        """
        return await subjects.transactions.describe_producers(
            self._requests, partitions, broker_id, timeout
        )

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, FencedProducer]:
        """Fence all producers with these transactional ids, and abort their open transactions.

        A fenced producer gets ProducerFencedError or InvalidProducerEpochError, and cannot write
        any more. A new producer with the same id works. A transactional id that does not exist is
        created. Usual errors: TransactionalIdAuthorizationError, ClusterAuthorizationError, and
        ApiTimeoutError with the cause ConcurrentTransactionsError (a partition of the transaction
        has no leader, which would have to write the transaction's end). After a cancellation, it is
        unknown which producers were fenced; repeating the call does no harm.
        """
        return await subjects.transactions.fence_producers(
            self._requests, transactional_ids, timeout
        )

    async def force_terminate_transaction(
        self, transactional_id: str, *, timeout: float | None = None
    ) -> None:
        """Abort the open transaction of a transactional id, and fence its producer.

        This is `fence_producers` for one id, except that an error is raised, not returned. After a
        cancellation, it is unknown whether the transaction was aborted.
        """
        await subjects.transactions.force_terminate_transaction(
            self._requests, transactional_id, timeout
        )

    async def abort_transaction(
        self, transaction: HangingTransaction, *, timeout: float | None = None
    ) -> None:
        """Abort a hanging transaction in the log of its partition (KIP-664).

        The leader of the partition writes a marker, without the coordinator. This ends the
        transaction in this partition only. Therefore use it only for a transaction that
        `find_hanging_transactions` returned. Use `force_terminate_transaction` for a transaction
        that a coordinator knows, because the coordinator could still commit that transaction in its
        other partitions. Needs the permission CLUSTER_ACTION. Usual errors:
        ClusterAuthorizationError, InvalidProducerEpochError (the producer has a newer epoch),
        TransactionCoordinatorFencedError (the marker's coordinator epoch is too old),
        UnknownTopicOrPartitionError. After a cancellation, it is unknown whether the transaction
        was aborted; repeating the call does no harm.
        """
        await subjects.hanging_transactions.abort_transaction(self._requests, transaction, timeout)

    async def create_acls(
        self, acls: Iterable[AclBinding], *, timeout: float | None = None
    ) -> Results[AclBinding, None]:
        """Create ACLs. An ACL that exists already is accepted.

        Other brokers may apply the ACLs a moment later. Usual errors: SecurityDisabledError (the
        brokers have no authorizer), ClusterAuthorizationError, InvalidRequestError (for example a
        pattern without a name). After a cancellation, it is unknown which ACLs were created;
        repeating the call does no harm.
        """
        return await security.acls.create_acls(self._requests, acls, timeout)

    async def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, *, timeout: float | None = None
    ) -> tuple[AclBinding, ...]:
        """Return the ACLs that a filter selects, or all of them.

        Raises SecurityDisabledError if the brokers have no authorizer, and
        ClusterAuthorizationError.
        """
        return await security.acls.describe_acls(self._requests, acl_filter, timeout)

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout: float | None = None
    ) -> Results[AclBindingFilter, tuple[AclBinding, ...]]:
        """Delete the ACLs that each filter selects, and return them.

        `AclBinding.to_filter()` returns the filter for one ACL. If one of the ACLs cannot be
        deleted, its error is the result of the filter, with a note on those that were deleted.
        Usual errors: SecurityDisabledError, ClusterAuthorizationError. If the response to one
        attempt was lost, the result lacks the ACLs that this attempt deleted. After a cancellation,
        it is unknown which ACLs were deleted.
        """
        return await security.acls.delete_acls(self._requests, filters, timeout)

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> Results[str, tuple[ScramCredentialInfo, ...]]:
        """Return the mechanisms and iterations of the SCRAM credentials of users (KIP-554).

        Without `users`, the result has all users with credentials. Needs brokers of version 2.7 or
        later. Usual errors: ResourceNotFoundError (the user has no credentials),
        ClusterAuthorizationError.
        """
        return await security.scram_credentials.describe_user_scram_credentials(
            self._requests, users, timeout
        )

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialAlteration],
        *,
        timeout: float | None = None,
    ) -> Results[str, None]:
        """Set and delete SCRAM credentials, and return a result for each user (KIP-554).

            await admin.alter_user_scram_credentials([
                UserScramCredentialUpsertion("alice", password),
                UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256),
            ])

        The alterations of one user are made in the order of their mechanisms, SCRAM-SHA-256 first.
        If one fails, the earlier ones remain, and the later ones are not made. Passwords are
        prepared in the same way as those of `SaslScram`, and are salted in a thread. They are never
        sent. Other brokers may learn of the credentials a moment later. Needs brokers of version
        2.7 or later. Usual errors: ResourceNotFoundError (there is no credential to delete; this
        may also mean that an earlier attempt of this call succeeded but its response was lost),
        UnacceptableCredentialError (too many iterations), DuplicateResourceError (two alterations
        of a user have the same mechanism), ClusterAuthorizationError. After a cancellation, it is
        unknown which credentials were changed.
        """
        return await security.scram_credentials.alter_user_scram_credentials(
            self._requests, alterations, timeout
        )

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = -1,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Create a delegation token, with which other clients log in as its owner (KIP-48).

        The owner is the user of this client, or with `owner` another user, which needs brokers of
        version 3.3 or later and the permission CREATE_TOKENS on that user. Only the owner and the
        renewers may renew the token and let it expire. The user that creates a token for another
        owner may do neither, unless it is one of the renewers. Principals are written as in
        "User:alice". The token can be renewed for `max_lifetime_ms`; -1 means the value of the
        brokers' option `delegation.token.max.lifetime.ms`. The brokers may learn of the token a
        moment later; until then they do not find it.

        Raises DelegationTokenDisabledError, UnsupportedByAuthenticationError (the client has not
        logged in, or it has logged in with a token), DelegationTokenAuthorizationError, and
        InvalidPrincipalTypeError. If the response to an attempt was lost, or after a cancellation,
        there may be a token that no client has received. `describe_delegation_token` returns it
        until it expires.
        """
        return await security.delegation_tokens.create_delegation_token(
            self._requests, owner, renewers, max_lifetime_ms, timeout
        )

    async def renew_delegation_token(
        self,
        token: TokenOrHmac,
        *,
        renew_time_period_ms: int = -1,
        timeout: float | None = None,
    ) -> int:
        """Renew a delegation token, and return its new expiry in milliseconds since the epoch.

        `token` is the token, or its HMAC in base64. The renewed token is valid for
        `renew_time_period_ms` from now on, but not beyond its `max_timestamp`. -1 means the value
        of the brokers' option `delegation.token.expiry.time.ms`, which is also the longest period.
        Raises DelegationTokenNotFoundError, DelegationTokenExpiredError,
        DelegationTokenOwnerMismatchError (the user is neither the owner nor a renewer), and the
        errors of `create_delegation_token`. After a cancellation, it is unknown whether the token
        was renewed.
        """
        return await security.delegation_tokens.renew_delegation_token(
            self._requests, token, renew_time_period_ms, timeout
        )

    async def expire_delegation_token(
        self,
        token: TokenOrHmac,
        *,
        expiry_time_period_ms: int = -1,
        timeout: float | None = None,
    ) -> int:
        """Change the expiry of a delegation token, and return it in milliseconds since the epoch.

        `token` is the token, or its HMAC in base64. The token expires in `expiry_time_period_ms`,
        or with -1 immediately. Raises the errors of `renew_delegation_token`.
        DelegationTokenNotFoundError may also mean that an earlier attempt of this call succeeded
        but its response was lost. After a cancellation, it is unknown whether the expiry was
        changed.
        """
        return await security.delegation_tokens.expire_delegation_token(
            self._requests, token, expiry_time_period_ms, timeout
        )

    async def describe_delegation_token(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> tuple[DelegationToken, ...]:
        """Return the delegation tokens of some owners, or all that the user may describe.

        Owners are principals, such as "User:alice". The user may describe its own tokens, those
        that it may renew, and those for which it has the permission DESCRIBE, or DESCRIBE_TOKENS on
        their owner. Raises DelegationTokenDisabledError, UnsupportedByAuthenticationError.
        """
        return await security.delegation_tokens.describe_delegation_token(
            self._requests, owners, timeout
        )

    async def describe_client_quotas(
        self, quota_filter: ClientQuotaFilter | None = None, *, timeout: float | None = None
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Return the quotas that are set, by entity and name of the quota (KIP-546).

        Without a filter, the result has all entities. Needs brokers of version 2.6 or later. Raises
        ClusterAuthorizationError, and InvalidRequestError or UnsupportedVersionError for a filter
        that the brokers do not support.
        """
        return await security.client_quotas.describe_client_quotas(
            self._requests, quota_filter, timeout
        )

    async def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[ClientQuotaEntity, None]:
        """Set the named quotas of entities, or remove them with the value None (KIP-546).

            await admin.alter_client_quotas({
                ClientQuotaEntity(user="alice"): {"producer_byte_rate": 1_000_000},
            })

        All other quotas remain as they are. Users and client ids have the quotas
        `producer_byte_rate`, `consumer_byte_rate`, `request_percentage`, and
        `controller_mutation_rate`, and IP addresses have `connection_creation_rate`. With
        `validate_only`, the brokers only check the changes. Needs brokers of version 2.6 or later.
        Usual errors: InvalidRequestError (for example a quota that does not exist),
        ClusterAuthorizationError. After a cancellation, it is unknown which quotas were changed;
        repeating the call does no harm.
        """
        return await security.client_quotas.alter_client_quotas(
            self._requests, changes, validate_only, timeout
        )

    async def list_client_metrics(self, *, timeout: float | None = None) -> list[str]:
        """Return the names of the subscriptions to the metrics of clients, sorted (KIP-714).

        A subscription is a configuration, which `describe_configs` and `alter_configs` describe,
        create, and change:

            orders = ConfigResource.client_metrics("orders")
            changes = {
                "metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.",
                "interval.ms": 60_000,
                "match": "client_id=orders-.*",
            }
            (await admin.alter_configs({orders: changes})).raise_for_errors()

        `metrics` lists prefixes of the names of metrics; "*" means all metrics. `interval.ms` is
        the time between two pushes of a client, from 100 to 3,600,000, by default 300,000. `match`
        lists conditions that a client must meet: a regular expression for each of
        `client_instance_id`, `client_id`, `client_software_name`, `client_software_version`,
        `client_source_address`, and `client_source_port`. Without `match`, the subscription is for
        all clients.

        Needs brokers of version 3.7 or later. Raises UnsupportedVersionError with older ones, and
        ClusterAuthorizationError.
        """
        return await subjects.configs.list_client_metrics(self._requests, timeout)
