"""Checks of docs/spec-map.md: it has every term of the specifications, and its names exist."""

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "spec-map.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| The proposal"))
]
WORDS = """
    JoinGroup, SyncGroup, Heartbeat, GroupId, SessionTimeout, MemberId, ProtocolType,
    GroupProtocols, Protocol, MemberMetadata, ErrorCode, GroupGenerationId, GroupProtocol,
    GroupLeaderId, Members, GroupState, MemberState, Down, Initialize, Stable, Joining, AwaitSync,
    AssignmentStrategy, AssignmentStrategies, Version, Subscription, Topics, UserData, Assignment,
    TopicPartitions, generation, leader, rejoin, resync, sticky, co-partitioning, redundant,
    rack-aware, Copycat, single-writer, addTopic(topic), poll(timeout), commit(), commit(topic),
    MessageAndOffset, MessageAndMetadata, list_groups, create_group, delete_group, join_group,
    im_alive, ListGroups, CreateGroup, DeleteGroup, RegisterConsumer, RewindConsumer,
    rewind_offsets, PartitionsToOwn, ControllerGeneration, ControllerBroker, NewOffsets,
    DeletedConsumerGroups, ActualOffsets, PartitionOffset, ConsumerId, heart_beat_freq, ephemeral,
    group_generation, controller_id, process(messages), undesignated, low-level RPC,
    GetTelemetrySubscriptionsRequest, PushTelemetryRequest, SubscriptionId,
    Retriable, RefreshRetriableException, Abortable, Application-Recoverable,
    Invalid-Configuration, CorruptRecordException, NotEnoughReplicasException,
    NotEnoughReplicasAfterAppendException, TimeoutException, ConcurrentTransactionsException,
    CoordinatorLoadInProgressException, UnknownTopicOrPartitionException,
    NotLeaderOrFollowerException, InvalidMetadataException, NotCoordinatorException,
    CoordinatorNotAvailableException, TransactionAbortableException, IllegalStateException,
    KafkaException, RuntimeException, InvalidProducerEpochException, ProducerFencedException,
    InvalidPidMappingException, FencedInstanceIdException, CommitFailedException,
    UnknownMemberIdException, IllegalGenerationException, CorrelationIdMismatchException,
    InvalidTxnStateException, AuthenticationException, ClusterAuthorizationException,
    TransactionalIdAuthorizationException, UnsupportedVersionException,
    UnsupportedForMessageFormatException, InvalidRecordException, InvalidRequiredAcksException,
    RecordBatchTooLargeException, InvalidTopicException, TopicAuthorizationException,
    GroupAuthorizationException, AuthorizationException, ApplicationRecoverableException,
    OutOfOrderSequenceException, UnknownProducerIdException, initTransactions, beginTransaction,
    sendOffsetsToTransaction, commitTransaction, abortTransaction, closeAll,
    resetToLastCommittedPositions, metadata.recovery.strategy,
    metadata.recovery.rebootstrap.trigger.ms, REBOOTSTRAP_REQUIRED, RebootstrapRequiredException
"""
SPECIFICATIONS = ("Client-side\nAssignment", "Client Rewrite", "KIP-714", "KIP-1050", "KIP-1102")
SECTIONS = (
    "Client-side assignment",
    "Client rewrite",
    "Client metrics",
    "Errors of transactions",
    "Rebootstraps",
)


def test_every_row_names_something_or_says_why_not() -> None:
    assert len(ROWS) > 80
    for term, here, _ in ROWS:
        assert ("`aiokclient." in here) is not here.startswith("none, because "), term


def test_the_introduction_names_each_specification_and_each_has_a_section() -> None:
    introduction, *_ = TEXT.partition("\n## ")
    assert [each for each in SPECIFICATIONS if each not in introduction] == []
    assert re.findall(r"^## (.*)$", TEXT, re.M) == list(SECTIONS)


@pytest.mark.parametrize("term", [word.strip() for word in WORDS.split(",")])
def test_every_term_is_there(term: str) -> None:
    assert any(term in said for said, _, _ in ROWS)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(aiokclient\.[\w.]+)`", TEXT))))
def test_every_name_exists(path: str) -> None:
    assert found(path) is not None


def found(path: str) -> Any:
    parts = path.split(".")
    value: Any = import_module(parts[0])
    for depth, part in enumerate(parts[1:], 2):
        try:
            value = getattr(value, part)
        except AttributeError:
            if part in getattr(value, "__annotations__", {}):
                return value.__annotations__[part]
            value = import_module(".".join(parts[:depth]))
    return value


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(tests/[\w/]+\.py)::", TEXT))))
def test_every_test_exists(path: str) -> None:
    names = re.findall(rf"`{re.escape(path)}::(\w+)`", TEXT)
    tree = ast.parse((ROOT / path).read_text())
    functions = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set(names) <= functions
