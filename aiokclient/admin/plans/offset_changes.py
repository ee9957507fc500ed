"""Changes of the committed offsets of a group without members, and copies to such a group.

Offsets of classic, consumer, and streams groups are read and set by the same requests. Those of
share groups, which are the starts of what these groups have in progress, have requests of their
own (KIP-932).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from aiokclient.admin.arguments import TOPIC, as_list, as_name, as_partition
from aiokclient.admin.group_descriptions import CONSUMER, GroupDescription
from aiokclient.admin.groups import (
    CLASSIC,
    Offsets,
    alter_consumer_group_offsets,
    describe_groups,
    list_consumer_group_offsets,
)
from aiokclient.admin.requests import AdminRequests
from aiokclient.admin.results import Results
from aiokclient.admin.share_groups import alter_share_group_offsets, list_share_group_offsets
from aiokclient.admin.streams_groups import StreamsGroupDescription, describe_streams_groups
from aiokclient.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    KafkaError,
    NoOffsetError,
    UnsupportedVersionError,
)
from aiokclient.errors.local import ArgumentValueError
from aiokclient.types import OffsetAndMetadata, TopicPartition, public_in
from aiokclient.types.named_tuple import NamedTuple

COPY: Final = "copy_offsets"
SHARE: Final = "share"
NAMED: Final = 20
"""Number of members that an error text names."""
NO_PARTITION: Final = -1
"""The number that stands for a topic as a whole in results by partition."""

Group: TypeAlias = GroupDescription | StreamsGroupDescription
Selection: TypeAlias = dict[str | TopicPartition, None]
"""Topics, each of which stands for all of its partitions, and single partitions."""


@public_in("aiokclient.admin")
class OffsetChange(NamedTuple):
    """The committed offset of a group in a partition, before and after a change.

    `before` is None if the group had committed none. `metadata` and `leader_epoch` are committed
    with `after`; share groups have neither. `requested` is None, unless the requested offset is
    outside of the log; `after` is then the end of the log that is nearest to it. `created_group` is
    whether the group did not exist before.
    """

    before: int | None
    after: int
    metadata: str = ""
    leader_epoch: int | None = None
    requested: int | None = None
    created_group: bool = False


class KnownGroup(NamedTuple):
    """A group, its description (None if it does not exist), and its committed offsets."""

    group_id: str
    description: Group | None
    offsets: Offsets

    @property
    def is_share(self) -> bool:
        """Whether its offsets are those of a share group."""
        return isinstance(self.description, GroupDescription) and self.description.type == SHARE

    def make_change(
        self, tp: TopicPartition, offset: OffsetAndMetadata, requested: int | None = None
    ) -> OffsetChange:
        """Return the change of the committed offset of a partition."""
        before = self.offsets.get(tp)
        return OffsetChange(
            None if before is None else before.offset,
            offset.offset,
            "" if self.is_share else offset.metadata,
            None if self.is_share else offset.leader_epoch,
            requested,
            self.description is None,
        )


def as_selection(given: Any) -> Selection | None:
    """Return the names of topics and the partitions in a collection, each once, or None for None.

    Raises ArgumentTypeError if it is not such a collection, and the errors of `as_name`.
    """
    if given is None:
        return None
    return dict.fromkeys(
        as_name(each, TOPIC) if isinstance(each, str) else as_partition(each)
        for each in as_list(given, "topics and partitions")
    )


async def read_group(requests: AdminRequests, group: str, deadline: float) -> KnownGroup:
    """Return a group of any type with its committed offsets.

    Raises the error of the group, unless it is that the group does not exist.
    """
    description = await _describe_group(requests, group, deadline)
    known = KnownGroup(group, description, {})
    if description is None:
        return known
    remaining = requests.compute_remaining_s(deadline)
    if known.is_share:
        # The group exists, so the check of `list_share_group_offsets` is not needed.
        listed = await list_share_group_offsets(requests, [group], False, remaining)
        starts = listed.raise_for_errors()[group]
        return known._replace(
            offsets={
                tp: OffsetAndMetadata(start.start_offset)
                for tp, start in starts.items()
                if start is not None
            }
        )
    committed = await list_consumer_group_offsets(requests, [group], False, remaining)
    return known._replace(offsets=committed.raise_for_errors()[group])


async def _describe_group(requests: AdminRequests, group: str, deadline: float) -> Group | None:
    remaining = requests.compute_remaining_s(deadline)
    found: Group | KafkaError
    found = (await describe_groups(requests, [group], False, remaining))[group]
    if _is_absent(found):
        remaining = requests.compute_remaining_s(deadline)
        streams = await describe_streams_groups(requests, [group], False, False, remaining)
        found = streams[group]
        # Brokers before 4.1 have no streams groups.
        if _is_absent(found) or _has_code(found, UnsupportedVersionError.code):
            return None
    if isinstance(found, KafkaError):
        raise found
    return found


def _is_absent(found: object) -> bool:
    return _has_code(found, GroupIdNotFoundError.code)


def _has_code(found: object, code: int | None) -> bool:
    return isinstance(found, KafkaError) and found.code == code


def require_group(group: KnownGroup, api: str, hint: str) -> None:
    """Raise GroupIdNotFoundError with advice if the group does not exist."""
    if group.description is None:
        error = GroupIdNotFoundError(api=api, resource=f"group {group.group_id}")
        error.hint = hint
        raise error


def require_no_members(group: KnownGroup, api: str) -> None:
    """Raise GroupNotEmptyError, which names the members, if the group has any."""
    if group.description is None or not group.description.members:
        return
    members = group.description.members
    named = [f"{member.client_id} on {member.host}" for member in members[:NAMED]]
    if len(members) > NAMED:
        named.append(f"and {len(members) - NAMED} more")
    error = GroupNotEmptyError(
        f"The members, by client id and host: {', '.join(named)}",
        api=api,
        resource=f"group {group.group_id}",
    )
    error.what = "The offsets of a group with members are not changed."
    error.hint = (
        "Stop its members, and wait until their sessions have ended, or remove members that will "
        "not return by Admin.remove_members()."
    )
    description = group.description
    if (
        isinstance(description, GroupDescription)
        and description.type == CLASSIC
        and description.protocol_type == CONSUMER
    ):
        error.hint += (
            " Or call Consumer.rewind_group() in one of them, which moves the whole group while it "
            "runs, if all of them use this library."
        )
    raise error


def make_absence(tp: TopicPartition, group: str, api: str, hint: str) -> NoOffsetError:
    """Return the error of a partition, or of a topic, in which a group has committed no offset."""
    error = NoOffsetError(api=api, topic_partition=tp)
    error.what, error.hint = f"The group {group} has no committed offset here.", hint
    return error


async def commit_changes(
    requests: AdminRequests,
    group: KnownGroup,
    planned: Mapping[TopicPartition, OffsetChange | KafkaError],
    as_share: bool,
    deadline: float,
) -> Results[TopicPartition, OffsetChange]:
    """Set the planned offsets of a group, and return each change or the error that prevented it.

    `as_share` is whether the group is a share group, or becomes one.
    """
    changes = {tp: each for tp, each in planned.items() if isinstance(each, OffsetChange)}
    errors: dict[TopicPartition, KafkaError] = {}
    if changes:
        remaining = requests.compute_remaining_s(deadline)
        if as_share:
            starts = {tp: change.after for tp, change in changes.items()}
            altered = await alter_share_group_offsets(
                requests, group.group_id, starts, False, remaining
            )
        else:
            offsets = {
                tp: OffsetAndMetadata(change.after, change.metadata, change.leader_epoch)
                for tp, change in changes.items()
            }
            altered = await alter_consumer_group_offsets(
                requests, group.group_id, offsets, False, remaining
            )
        errors = altered.errors
    return make_results(requests, {tp: errors.get(tp, each) for tp, each in planned.items()})


def make_results(
    requests: AdminRequests, changes: Mapping[TopicPartition, OffsetChange | KafkaError]
) -> Results[TopicPartition, OffsetChange]:
    """Return changes and errors as the results of a call."""
    return Results(changes, requests.cluster.make_log("admin"))


def _select_committed(
    group: KnownGroup, selection: Selection | None
) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
    """Return the committed offsets of a group in the selected topics and partitions, in order.

    A topic or a partition without committed offsets has an error.
    """
    if selection is None:
        return dict(sorted(group.offsets.items()))
    hint = "Leave it out, or set the offset with reset_offsets()."
    found: dict[TopicPartition, OffsetAndMetadata | KafkaError] = {}
    for each in selection:
        whole = TopicPartition(each, NO_PARTITION) if isinstance(each, str) else each
        tps: Iterable[TopicPartition] = [whole]
        if isinstance(each, str):
            tps = sorted(tp for tp in group.offsets if tp.topic == each) or [whole]
        for tp in tps:
            found[tp] = group.offsets.get(tp) or make_absence(tp, group.group_id, COPY, hint)
    return found


async def copy_offsets(
    requests: AdminRequests,
    source: str,
    target: str,
    topics: Iterable[str | TopicPartition] | None,
    dry_run: bool,
    timeout: float | None,
) -> Results[TopicPartition, OffsetChange]:
    """See `Admin.copy_offsets`."""
    if as_name(source, "group") == as_name(target, "group"):
        raise ArgumentValueError(
            f"{source!r} is both the source and the target. Pass two different groups."
        )
    selection = as_selection(topics)
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    receiver = await read_group(requests, target, deadline)
    require_no_members(receiver, COPY)
    giver = await read_group(requests, source, deadline)
    require_group(giver, COPY, "Check the spelling of the source.")
    planned = {
        tp: each if isinstance(each, KafkaError) else receiver.make_change(tp, each)
        for tp, each in _select_committed(giver, selection).items()
    }
    if dry_run:
        return make_results(requests, planned)
    # A group that does not exist yet becomes one of the type of the source.
    as_share = receiver.is_share or (receiver.description is None and giver.is_share)
    return await commit_changes(requests, receiver, planned, as_share, deadline)
