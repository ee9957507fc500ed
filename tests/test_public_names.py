"""The public names: all promised ones exist, are synchronous or coroutines, and have docstrings."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
from public_packages import NEED_PYSPARK, PUBLIC_PACKAGES

from aiokclient import (
    Admin,
    Client,
    Consumer,
    ConsumerRecord,
    GroupMember,
    OffsetAndMetadata,
    Producer,
    RecordMetadata,
    State,
    TopicPartition,
    errors,
)
from aiokclient.cluster.requests.attempts import PendingResponse
from aiokclient.group.generation import GroupGeneration
from aiokclient.producer.delivery.delivery import Delivery
from aiokclient.schema import SchemaRegistry
from aiokclient.testing import EmbeddedCluster, Simulation

DOCUMENTED = (
    *(name for name in PUBLIC_PACKAGES if name not in NEED_PYSPARK or find_spec("pyspark")),
    "aiokclient.config.security",
    "aiokclient.consumer",
    "aiokclient.group",
    "aiokclient.policy",
    "aiokclient.producer",
    "aiokclient.record.batch",
    "aiokclient.types",
)
"""The public packages, and the internal ones whose names each need a docstring."""

PLAIN: dict[type, str] = {
    Client: "send events health metrics from_properties",
    Producer: "send send_many send_arrow send_threadsafe events health metrics from_properties",
    Delivery: "done result exception add_done_callback",
    PendingResponse: "done result exception add_done_callback",
    Consumer: "subscribe unsubscribe assign assignment seek seek_to_beginning seek_to_end pause "
    "resume paused group_metadata consumed stop until_end batches arrow_batches subscription "
    "mark_processed partitions_for_topic highwater last_stable_offset "
    "events health metrics from_properties",
    Admin: "events health metrics from_properties",
    GroupMember: "generations rejoin group_metadata events health metrics from_properties",
    EmbeddedCluster: "fail drop delay stop start move_leader move_coordinator produce records "
    "committed rebalance wait_for reset",
    SchemaRegistry: "from_properties",
    Simulation: "run cluster",
}
COROUTINES: dict[type, str] = {
    Client: "start close request end_transaction client_instance_id",
    Producer: "start close send_and_wait send_all gather flush drain prepare client_instance_id",
    Consumer: "start close poll get commit committed position beginning_offsets end_offsets "
    "offsets_for_times lag table partitions_for list_topics client_instance_id",
    Admin: "start close create_topics delete_topics describe_topics list_topics "
    "create_partitions delete_records describe_cluster describe_configs alter_configs "
    "list_groups describe_groups delete_groups remove_members list_consumer_group_offsets "
    "alter_consumer_group_offsets delete_consumer_group_offsets group_lag "
    "reset_offsets copy_offsets ensure_topics "
    "list_transactions describe_transactions describe_producers fence_producers "
    "force_terminate_transaction find_hanging_transactions abort_transaction "
    "create_acls describe_acls delete_acls "
    "describe_user_scram_credentials alter_user_scram_credentials "
    "elect_leaders alter_partition_reassignments list_partition_reassignments "
    "rebalance_plan drain_broker apply_plan describe_plan_progress cancel_plan "
    "throttle_reassignments "
    "describe_replica_log_dirs alter_replica_log_dirs list_offsets list_config_resources "
    "check_cluster describe_features update_features describe_metadata_quorum add_raft_voter "
    "list_share_group_offsets alter_share_group_offsets delete_share_group_offsets "
    "create_share_group "
    "describe_streams_groups remove_raft_voter unregister_broker unregister_controller "
    "create_delegation_token renew_delegation_token expire_delegation_token "
    "describe_delegation_token describe_client_quotas alter_client_quotas",
    GroupMember: "start close client_instance_id",
    EmbeddedCluster: "until",
    SchemaRegistry: "close register lookup by_id by_guid latest version resolve subjects versions "
    "versions_of_id referenced_by types delete_version delete_subject check config set_config "
    "delete_config mode set_mode delete_mode contexts delete_context associated_subject",
}
ATTRIBUTES: dict[type, str] = {
    Client: "state",
    Producer: "state full",
    Consumer: "state",
    Admin: "state",
    GroupMember: "state",
    GroupGeneration: "member_id is_leader protocol assignment",
    Delivery: "topic partition offset timestamp",
    EmbeddedCluster: "bootstrap_servers requests",
}
TOGETHER: dict[type, tuple[type, ...]] = {
    errors.RefreshRetriableError: (errors.RetriableError,),
    errors.InvalidMetadataError: (errors.RefreshRetriableError,),
    errors.AuthorizationError: (errors.InvalidConfigurationError,),
    errors.AuthenticationError: (errors.InvalidConfigurationError,),
    errors.KafkaTimeoutError: (errors.RetriableError, TimeoutError),
    errors.DeliveryTimeoutError: (errors.KafkaTimeoutError,),
    errors.ApiTimeoutError: (errors.KafkaTimeoutError,),
    errors.RequestTimedOutError: (errors.KafkaTimeoutError,),
    errors.BufferExhaustedError: (errors.RetriableError,),
    errors.ConfigError: (errors.KafkaError, ValueError),
    errors.CorruptBatchError: (errors.RecordError,),
    errors.DecompressionLimitError: (errors.RecordError,),
    errors.UsageError: (errors.KafkaError, RuntimeError),
    errors.ClosedError: (errors.UsageError,),
    errors.IllegalStateError: (errors.UsageError,),
    errors.WrongThreadError: (errors.UsageError,),
    errors.WrongLoopError: (errors.UsageError,),
    errors.ConcurrentReadError: (errors.UsageError,),
    errors.DeliveryErrors: (ExceptionGroup,),
    errors.LockLostError: (errors.InvalidRecordStateError,),
    errors.AcknowledgeError: (errors.KafkaError,),
    errors.AcknowledgeErrors: (ExceptionGroup,),
}


def pairs(table: dict[type, str]) -> list[Any]:
    return [
        pytest.param(owner, name, id=f"{owner.__name__}.{name}")
        for owner, names in table.items()
        for name in names.split()
    ]


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(function).parameters)
    found.pop("self", None)
    return found


@pytest.mark.parametrize(("owner", "name"), pairs(PLAIN))
def test_plain(owner: type, name: str) -> None:
    function = inspect.getattr_static(owner, name)
    assert not isinstance(function, property)
    assert not inspect.iscoroutinefunction(getattr(owner, name))


@pytest.mark.parametrize(("owner", "name"), pairs(COROUTINES))
def test_coroutines(owner: type, name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(owner, name))


@pytest.mark.parametrize(("owner", "name"), pairs(ATTRIBUTES))
def test_attributes(owner: type, name: str) -> None:
    # A property, or its counterpart in a native class.
    assert inspect.isdatadescriptor(inspect.getattr_static(owner, name))


@pytest.mark.parametrize("owner", [Client, Producer, Consumer, Admin, GroupMember])
def test_ways_to_start(owner: type) -> None:
    assert inspect.iscoroutinefunction(owner.__aenter__)  # type: ignore[attr-defined]
    assert hasattr(owner, "__await__")
    timeout = parameters(owner.close)["timeout"]  # type: ignore[attr-defined]
    assert timeout.default is None


@pytest.mark.parametrize("owner", [Producer, Consumer, Admin, GroupMember])
def test_a_client_can_be_shared(owner: type) -> None:
    client = parameters(owner.__init__)["client"]  # type: ignore[misc]
    assert client.kind is inspect.Parameter.KEYWORD_ONLY
    assert client.default is None


@pytest.mark.parametrize("name", ["send", "send_and_wait", "send_threadsafe"])
def test_a_record_is_given_in_one_order(name: str) -> None:
    expected = ["topic", "value", "key", "partition", "timestamp", "headers"]
    assert list(parameters(getattr(Producer, name))) == expected


def test_a_delivery_is_no_future() -> None:
    assert not issubclass(Delivery, asyncio.Future)
    assert hasattr(Delivery, "__await__")


def test_defaults_of_read_range() -> None:
    assert {name: p.default for name, p in parameters(Client.read_range).items()} == {
        **dict.fromkeys(("tp", "start", "end"), inspect.Parameter.empty),
        "columns": None,
        "isolation_level": "read_uncommitted",
        "batch_rows": 10_000,
        "fetch_max_bytes": 52_428_800,
        "timeout": None,
        "topic_id": None,
    }


def test_reading() -> None:
    assert hasattr(Consumer, "__aiter__")
    assert parameters(Consumer.poll)["timeout"].default == 1.0
    assert parameters(Consumer.get)["timeout"].default == 1.0
    batches = {name: p.default for name, p in parameters(Consumer.batches).items()}
    assert batches == {
        "max_records": 500,
        "max_wait": 0.0,
        "by_partition": False,
        "until_end": False,
        "max_bytes": 67_108_864,
    }


@pytest.mark.parametrize(("owner", "name"), pairs({Consumer: PLAIN[Consumer]}))
def test_collections_are_one_argument(owner: type, name: str) -> None:
    kinds = {parameter.kind for parameter in parameters(getattr(owner, name)).values()}
    assert name == "from_properties" or inspect.Parameter.VAR_POSITIONAL not in kinds


@pytest.mark.parametrize(("owner", "name"), pairs({Admin: COROUTINES[Admin]}))
def test_every_admin_call_has_a_timeout(owner: type, name: str) -> None:
    assert name == "start" or parameters(getattr(owner, name))["timeout"].default is None


def test_values() -> None:
    assert TopicPartition("orders", 3) == ("orders", 3)
    assert OffsetAndMetadata(7)[0] == 7
    assert RecordMetadata._fields == ("topic", "partition", "offset", "timestamp")
    fields = "topic partition offset timestamp timestamp_type key value headers leader_epoch"
    assert list(parameters(ConsumerRecord.__init__)) == fields.split()
    names = [state.name for state in State]
    assert names == ["NEW", "STARTING", "RUNNING", "DEGRADED", "FAILED", "CLOSED"]


def test_the_embedded_cluster_is_made_as_promised() -> None:
    names = set(parameters(EmbeddedCluster.__init__))
    assert {"brokers", "topics", "resync", "persist_groups", "seed"} <= names
    assert {"times", "broker"} <= set(parameters(EmbeddedCluster.fail))
    assert "when" in parameters(EmbeddedCluster.drop)
    for name in ("__enter__", "__exit__", "__aenter__", "__aexit__"):
        assert hasattr(EmbeddedCluster, name)


@pytest.mark.parametrize("error", TOGETHER, ids=lambda error: error.__name__)
def test_errors_have_the_bases_that_they_should(error: type) -> None:
    assert all(issubclass(error, base) for base in TOGETHER[error])


# -- docstrings -------------------------------------------------------------------------------


def public(module: ModuleType) -> Iterator[tuple[str, object]]:
    for name in getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]):
        value = getattr(module, name)
        ours = getattr(value, "__module__", "").startswith("aiokclient")
        if ours and (inspect.isclass(value) or inspect.isfunction(value)):
            yield f"{module.__name__}.{name}", value


def members(owner: type) -> Iterator[tuple[str, object]]:
    """Yield the public functions and properties that a class or its bases in the package define."""
    for base in owner.__mro__:
        if base.__module__.startswith("aiokclient"):
            for name, value in vars(base).items():
                called = isinstance(value, property | staticmethod | classmethod)
                if not name.startswith("_") and (called or inspect.isfunction(value)):
                    yield f"{base.__module__}.{base.__qualname__}.{name}", value


@pytest.mark.parametrize("module_name", DOCUMENTED)
def test_every_public_name_has_a_docstring(module_name: str) -> None:
    module = import_module(module_name)
    assert module.__doc__
    assert [name for name, value in public(module) if not (value.__doc__ or "").strip()] == []


@pytest.mark.parametrize("owner", [*PLAIN, errors.KafkaError], ids=lambda owner: owner.__name__)
def test_every_public_method_has_a_docstring(owner: type) -> None:
    missing = [name for name, value in members(owner) if not (inspect.getdoc(value) or "").strip()]
    assert missing == []


def test_what_can_be_cancelled_says_what_that_leaves() -> None:
    for call in (Client.request, Producer.send, Producer.flush, Producer.gather, Consumer.poll):
        assert "ancel" in (call.__doc__ or ""), call.__qualname__
