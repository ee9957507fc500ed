"""Any request of the protocol, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, topics={"orders": 3}) as cluster:
        yield cluster


@pytest.fixture
def embedded(cluster: EmbeddedCluster, run_on: Callable[[str], Run]) -> Iterator[Run]:
    """A function that runs a command on the embedded cluster."""
    yield run_on(cluster.bootstrap_servers)
    cluster.reset()


@pytest.mark.parametrize("api", ["DescribeConfigs", "describe-configs", "DESCRIBE_CONFIGS", "32"])
def test_an_api_has_a_name_or_a_number(embedded: Run, api: str) -> None:
    fields = {"resources": [{"resource_type": 2, "resource_name": "orders"}]}
    ended = embedded("request", api, json.dumps(fields))
    assert (ended.code, ended.err) == (0, "")
    (result,) = json.loads(ended.out)["results"]
    assert result["error_code"] == 0
    values = {each["name"]: each["value"] for each in result["configs"]}
    assert values["cleanup.policy"] == "delete"


def test_a_request_without_fields_has_their_defaults(run: Run) -> None:
    ended = run("request", "DescribeCluster")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["brokers"]
    assert set(found["brokers"][0]) == {"broker_id", "host", "port", "rack", "is_fenced"}


def test_fields_are_read_from_standard_input(embedded: Run) -> None:
    ended = embedded("request", "Metadata", "-", typed='{"topics": [{"name": "orders"}]}')
    (topic,) = json.loads(ended.out)["topics"]
    assert topic["name"] == "orders"
    assert len(topic["topic_id"]) == 22
    again = {"topics": [{"topic_id": topic["topic_id"], "name": None}]}
    (named,) = json.loads(embedded("request", "Metadata", json.dumps(again)).out)["topics"]
    assert named["name"] == "orders"


@pytest.mark.parametrize("words", [("--broker", "2"), ("--leader", "orders:1"), ("--controller",)])
def test_a_request_goes_where_the_option_says(
    cluster: EmbeddedCluster, embedded: Run, words: tuple[str, ...]
) -> None:
    ended = embedded("request", "ListGroups", *words)
    assert ended.code == 0, ended.err
    (request,) = [each for each in cluster.requests if each.api is ApiKey.LIST_GROUPS]
    if words[0] == "--broker":
        assert request.broker == 2
    assert json.loads(ended.out)["error_code"] == 0


def test_a_request_goes_to_a_coordinator(embedded: Run) -> None:
    fields = {"groups": [{"group_id": "g", "topics": None}]}
    words = ("request", "OffsetFetch", json.dumps(fields), "--coordinator", "group:g")
    ended = embedded(*words)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["groups"][0]["group_id"] == "g"


def test_formats_are_documents(embedded: Run) -> None:
    whole = embedded("request", "ListGroups").out
    assert json.loads(whole) == json.loads(embedded("request", "ListGroups", "--jsonl").out)
    assert "error_code: 0\n" in embedded("request", "ListGroups", "--yaml").out


def test_a_dry_run_prints_the_request_and_sends_nothing(
    cluster: EmbeddedCluster, embedded: Run
) -> None:
    fields = '{"topics": [{"name": "new", "num_partitions": 2, "replication_factor": 1}]}'
    ended = embedded("request", "CreateTopics", fields, "--dry-run")
    assert ended.code == 0, ended.err
    shown = json.loads(ended.out)
    assert shown["api"] == "CreateTopics"
    assert shown["request"]["topics"][0]["num_partitions"] == 2
    assert shown["request"]["validate_only"] is False
    assert "new" not in cluster.topics
    assert cluster.requests == []
    assert embedded("request", "CreateTopics", json.dumps(shown["request"])).code == 0
    assert "new" in cluster.topics


def test_what_destroys_needs_yes_without_a_terminal(
    cluster: EmbeddedCluster, embedded: Run
) -> None:
    cluster.create_topic("old", 1)
    words = ("request", "DeleteTopics", '{"topics": [{"name": "old"}], "timeout_ms": 5000}')
    refused = embedded(*words)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert embedded(*words, "--yes").code == 0
    assert "old" not in cluster.topics


@pytest.mark.parametrize(
    ("api", "fields", "hint"),
    [
        ("Metdata", "{}", "There is no API Metdata. There are Produce,"),
        ("Metadata", "{", "not valid JSON"),
        ("Metadata", "[]", "must be an object with the fields topics,"),
        ("Metadata", '{"topic": []}', "Metadata has no field topic."),
        ("Metadata", '{"topics": [{"nam": "a"}]}', "Metadata.topics[0] has no field nam."),
        ("Metadata", '{"topics": {}}', "Metadata.topics must be an array."),
        ("Metadata", '{"topics": [{"topic_id": "x"}]}', "Metadata.topics[0].topic_id must be"),
        ("CreateTopics", '{"timeout_ms": 1e9}', "from -2147483648 to 2147483647"),
        ("CreateTopics", '{"timeout_ms": true}', "CreateTopics.timeout_ms must be an integer"),
        ("CreateTopics", '{"validate_only": 1}', "must be of type boolean, not 1."),
        ("CreateTopics", '{"topics": null}', "CreateTopics.topics cannot be null."),
        ("SaslAuthenticate", '{"auth_bytes": {"base64": "*"}}', "must be a text, or"),
    ],
)
def test_a_wrong_field_is_named_with_its_path(
    embedded: Run, api: str, fields: str, hint: str
) -> None:
    ended = embedded("request", api, fields)
    (line,) = ended.err.splitlines()
    assert hint in line
    assert (ended.code, ended.out) == (2, "")


@pytest.mark.parametrize(
    "words",
    [
        ("--broker", "1", "--controller"),
        ("--leader", "orders"),
        ("--coordinator", "g"),
        ("--coordinator", "pub:g"),
    ],
    ids=" ".join,
)
def test_a_wrong_target_is_wrong_use(embedded: Run, words: tuple[str, ...]) -> None:
    ended = embedded("request", "ListGroups", *words)
    assert ended.code == 2
    assert words[0] in ended.err


def test_an_unknown_broker_has_exit_code_3(embedded: Run) -> None:
    ended = embedded("request", "ListGroups", "--broker", "9")
    assert ended.err == "aiokclient: No broker 9 is running. There are 1, 2, 3.\n"
    assert ended.code == 3
