"""The keys and values of control records.

The key and the value of a marker begin with their version as an int16, which is not
part of these definitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.protocol.schema import (
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)

if TYPE_CHECKING:
    from uuid import UUID


class ControlRecordTypeSchema(Message, versions="0", flexible="none"):
    """The key of a control record, after its version."""

    type: int = int16()


class EndTxnMarker(Message, versions="0", flexible="none"):
    """The value of a commit or abort marker, after its version."""

    coordinator_epoch: int = int32()


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: UUID = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The record that a new leader of the metadata quorum writes."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a metadata snapshot."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a metadata snapshot."""

    version: int = int16()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The version of the quorum protocol in use (KIP-853)."""

    version: int = int16()
    kraft_version: int = int16()


class Endpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class ResponseVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters of the metadata quorum (KIP-853)."""

    version: int = int16()
    voters: list[ResponseVoter] = array(ResponseVoter)
