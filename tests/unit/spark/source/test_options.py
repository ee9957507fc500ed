"""The options of the Spark source: names, defaults, rules, and the texts of errors."""

from __future__ import annotations

import contextlib
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import ConfigError
from aiokclient.spark.option_names import option_names
from aiokclient.spark.source.options import KNOWN, SourceOptions

GIVEN = {"kafka.bootstrap.servers": "h:9092", "subscribe": "a"}
WITHOUT_TOPICS = {"kafka.bootstrap.servers": "h:9092"}


def parse(streaming: bool = False, /, **options: object) -> SourceOptions:
    found = {name.replace("__", "."): str(value) for name, value in options.items()}
    return SourceOptions.parse({**GIVEN, **found}, streaming=streaming)


def refusal(options: dict[str, str], streaming: bool = False) -> str:
    """Return the first line of the error."""
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse(options, streaming=streaming)
    return str(caught.value).splitlines()[0]


def test_defaults_of_the_source_are_those_of_the_connector() -> None:
    batch, stream = parse(), parse(True)
    assert (batch.starting.kind, batch.ending.kind) == ("earliest", "latest")
    assert stream.starting.kind == "latest"
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert stream.max_trigger_delay_ms == 900_000
    assert (batch.fetch_offset_num_retries, batch.fetch_offset_retry_interval_ms) == (3, 10)
    assert batch.min_partitions is batch.max_records_per_partition is None
    assert batch.starting_strategy == "error"


def test_names_are_not_case_sensitive() -> None:
    given = {"KAFKA.Bootstrap.Servers": "h:9092", "SUBSCRIBE": "a, b,a", "minpartitions": "7"}
    found = SourceOptions.parse(given, streaming=False)
    assert found.topics == ("a", "b")
    assert found.min_partitions == 7


def test_properties_of_a_table_in_the_catalog_of_spark_are_ignored() -> None:
    table = {"provider": "aiokclient", "owner": "root", "Comment": "c", "location": "file:/x"}
    assert SourceOptions.parse({**GIVEN, **table}, streaming=False) == parse()
    # Spark repeats the options of a table, and so shows which properties are no options.
    repeated = {f"option.{name}": value for name, value in GIVEN.items()}
    full = {**GIVEN, **repeated, **table, "team": "a"}
    assert SourceOptions.parse(full, streaming=False) == parse()
    wrong = {**full, "subscrib": "b", "option.subscrib": "b"}
    assert refusal(wrong).startswith("subscrib is not an option of the source. Did you mean subscr")
    assert "owner is not an option" in refusal({**GIVEN, "owner": "root"})


def test_query_without_any_option_says_where_those_of_a_table_are() -> None:
    with pytest.raises(ConfigError, match="Spark does not pass the options of a table"):
        SourceOptions.parse({}, streaming=False)


def test_topics_pattern_and_partitions() -> None:
    assert parse().topics == ("a",)
    pattern = {**WITHOUT_TOPICS, "subscribePattern": "a.*"}
    assert SourceOptions.parse(pattern, streaming=False).pattern == "a.*"
    assigned = {**WITHOUT_TOPICS, "assign": '{"b": [1, 0], "a": [2, 2]}'}
    assert SourceOptions.parse(assigned, streaming=False).partitions == (
        ("a", 2),
        ("b", 0),
        ("b", 1),
    )


def test_timestamp_goes_before_timestamps_before_offsets() -> None:
    options: dict[str, Any] = {"startingOffsets": "earliest"}
    assert parse(**options).starting.kind == "earliest"
    options["startingOffsetsByTimestamp"] = '{"a": {"0": 17}}'
    assert parse(**options).starting.values == ((TopicPartition("a", 0), 17),)
    options["startingTimestamp"] = "18"
    found = parse(**options).starting
    assert (found.option, found.kind, found.timestamp) == ("startingTimestamp", "timestamp", 18)


def test_offsets_have_words_and_numbers() -> None:
    found = parse(startingOffsets='{"a": {"0": 5, "1": -2}}', endingOffsets=' {"a": {"0": -1}}')
    assert dict(found.starting.values) == {("a", 0): 5, ("a", 1): -2}
    assert dict(found.ending.values) == {("a", 0): -1}
    assert parse(True, startingOffsets="LATEST").starting.kind == "latest"


@pytest.mark.parametrize(
    ("given", "milliseconds"), [("15m", 900_000), ("250", 250), ("2 s", 2_000), ("1H", 3_600_000)]
)
def test_max_trigger_delay_has_units(given: str, milliseconds: int) -> None:
    assert parse(True, maxTriggerDelay=given).max_trigger_delay_ms == milliseconds


def test_options_of_kafka_are_divided_between_client_and_reading() -> None:
    found = parse(
        kafka__isolation__level="read_committed",
        kafka__fetch__max__bytes="1000000",
        kafka__session__timeout__ms="10000",
        kafka__client__id="jobs",
    )
    assert found.isolation_level == "read_committed"
    assert found.fetch_max_bytes == 1_000_000
    assert found.properties == (("bootstrap.servers", "h:9092"), ("client.id", "jobs"))


def test_commit_offsets_needs_a_group() -> None:
    assert parse(True, commitOffsets="group", kafka__group__id="g").commit_group == "g"
    given = {**GIVEN, "commitOffsets": "group"}
    assert refusal(given, True) == (
        "commitOffsets=group needs kafka.group.id, the name of the group."
    )


def test_passwords_are_not_shown() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="u" password="hunter2";'
    found = parse(
        kafka__sasl__jaas__config=jaas,
        kafka__sasl__mechanism="PLAIN",
        kafka__security__protocol="SASL_PLAINTEXT",
    )
    assert "hunter2" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found
    text = refusal(
        {**GIVEN, "kafka.sasl.jaas.config": "hunter2 hunter2", "kafka.sasl.x": "hunter2"}
    )
    assert "hunter2" not in text
    text = refusal({**GIVEN, "kafka.sasl.jaas.config": jaas})
    assert text.startswith("kafka.sasl.jaas.config needs kafka.security.protocol=SASL_SSL")
    assert "hunter2" not in text


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "The topics are missing. Set exactly one of subscribe, subscribePattern, and assign."),
        (
            {"subscribe": "a", "assign": '{"a": [0]}'},
            "subscribe and assign exclude each other. Set exactly one of subscribe, "
            "subscribePattern, and assign.",
        ),
        (
            {"subscribe": " , "},
            "subscribe: ' , ' is not allowed. It must be names of topics, separated by commas.",
        ),
        (
            {"subscribePattern": "a("},
            "subscribePattern: 'a(' is not allowed. It is not a regular expression: missing ), "
            "unterminated subpattern at position 1.",
        ),
        (
            {"assign": '{"a": 0}'},
            'assign: \'{"a": 0}\' is not allowed. It must have the form {"topic": [0, 1]}.',
        ),
        (
            {"subscribe": "a", "startingOffsets": '{"a": {"0" 1}}'},
            'startingOffsets: \'{"a": {"0" 1}}\' is not allowed. It is not valid JSON: Expecting '
            "':' delimiter at line 1, column 12. It must have the form "
            '{"topic": {"0": 23, "1": -2}}.',
        ),
        (
            {"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'},
            'startingOffsets: \'{"a": {"0": -3}}\' is not allowed. The value of a-0 must be an '
            "integer of at least -2, not -3.",
        ),
        (
            {"subscribe": "a", "startingOffsets": ""},
            "startingOffsets: '' is not allowed. It must be earliest, latest, or JSON in the form "
            '{"topic": {"0": 23, "1": -2}}.',
        ),
        (
            {"subscribe": "a", "startingOffsets": '{"a": {"0": 1, "0": 2}}'},
            'startingOffsets: \'{"a": {"0": 1, "0": 2}}\' is not allowed. It names \'0\' twice. It '
            'must have the form {"topic": {"0": 23, "1": -2}}.',
        ),
        (
            {"subscribe": "a", "startingOffsets": '{"a": {"00": 1}}'},
            "startingOffsets: '{\"a\": {\"00\": 1}}' is not allowed. '00' of 'a' must be the "
            "number of a partition.",
        ),
        (
            {"assign": f'{{"a": {{"{"9" * 5000}": 1}}}}'},
            f'assign: \'{{"a": {{"{"9" * 112}...\' is not allowed. It must have the form '
            '{"topic": [0, 1]}.',
        ),
        (
            {"subscribe": "a", "startingOffsets": f'{{"a": {{"{"9" * 5000}": 1}}}}'},
            f"startingOffsets: '{{\"a\": {{\"{'9' * 112}...' is not allowed. '{'9' * 20}' of "
            "'a' must be the number of a partition.",
        ),
        (
            {"subscribe": "a", "startingOffsets": "first"},
            "startingOffsets: 'first' is not allowed. It must be earliest, latest, or JSON in the "
            'form {"topic": {"0": 23, "1": -2}}.',
        ),
        (
            {"subscribe": "a", "minpartition": "3"},
            "minpartition is not an option of the source. Did you mean minPartitions?",
        ),
        (
            {"subscribe": "a", "bootstrap.servers": "h"},
            "bootstrap.servers is not an option of the source. Did you mean "
            "kafka.bootstrap.servers?",
        ),
        (
            {"subscribe": "a", "topic": "b"},
            "topic is not an option of the source, but of the sink.",
        ),
        (
            {"subscribe": "a", "minPartitions": "0"},
            "minPartitions: '0' is not allowed. It must be an integer of at least 1.",
        ),
        (
            {"subscribe": "a", "maxOffsetsPerTrigger": "0"},
            "maxOffsetsPerTrigger: '0' is not allowed. It must be an integer of at least 1.",
        ),
        (
            {"subscribe": "a", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            "minOffsetsPerTrigger: '6' is not allowed. maxOffsetsPerTrigger is lower (5).",
        ),
        (
            {"subscribe": "a", "failOnDataLoss": "no"},
            "failOnDataLoss: 'no' is not allowed. It must be true or false.",
        ),
        (
            {"subscribe": "a", "kafka.auto.offset.reset": "latest"},
            "kafka.auto.offset.reset is not allowed. Set startingOffsets, which says where the "
            "source begins.",
        ),
        (
            {"subscribe": "a", "kafka.request.timeout.ms": "soon"},
            "kafka.request.timeout.ms: 'soon' is not allowed. It must be an integer from 1 to "
            "2147483647.",
        ),
        (
            {
                "subscribe": "a",
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "OAUTHBEARER",
            },
            "kafka.sasl.oauthbearer.token.endpoint.url: OAUTHBEARER needs it, or unsecuredLogin "
            "options in kafka.sasl.jaas.config.",
        ),
        (
            {"subscribe": "a", "kafka.isolation.levle": "read_committed"},
            "kafka.isolation.levle is not an option. Did you mean kafka.isolation.level?",
        ),
        (
            {"subscribe": "a, b c"},
            "subscribe: 'a, b c' is not allowed. 'b c' is not the name of a topic: 1 to 249 "
            "letters, digits, '.', '_', and '-', not '.' or '..'.",
        ),
        (
            {"assign": '{"..": [0]}'},
            "assign: '{\"..\": [0]}' is not allowed. '..' is not the name of a topic: 1 to 249 "
            "letters, digits, '.', '_', and '-', not '.' or '..'.",
        ),
        (
            {"subscribe": "a", "startingOffsets": '{"a": {"0": null}}'},
            'startingOffsets: \'{"a": {"0": null}}\' is not allowed. The value of a-0 must be an '
            "integer of at least -2, not null.",
        ),
        (
            {"subscribe": "a", "minPartitions": "2147483648"},
            "minPartitions: '2147483648' is not allowed. It must be an integer of at most "
            "2147483647.",
        ),
        (
            {"subscribe": "a", "minPartitions": "\u0663"},
            "minPartitions: '\u0663' is not allowed. It must be an integer of at least 1.",
        ),
        (
            {"subscribe": "a", "maxTriggerDelay": f"{'9' * 400}d"},
            f"maxTriggerDelay: '{'9' * 120}...' is not allowed. It must be an integer with a unit "
            "(us, ms, s, m, min, h, d), such as 15m.",
        ),
        (
            {"subscribe": "a", "bootstrapServers": "h:9092"},
            "bootstrapservers is not an option of the source. Did you mean "
            "kafka.bootstrap.servers?",
        ),
        (
            {"subscribe": "a", "group_id": "g"},
            "group_id is not an option of the source. Did you mean kafka.group.id?",
        ),
    ],
)
def test_first_line_of_a_refusal_names_option_value_and_what_is_allowed(
    options: dict[str, str], line: str, streaming: bool
) -> None:
    assert refusal({**WITHOUT_TOPICS, **options}, streaming) == line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"startingOffsets": "latest"},
            "startingOffsets: 'latest' is not allowed. In a batch query, nothing would be read.",
        ),
        (
            {"endingOffsets": "earliest"},
            "endingOffsets: 'earliest' is not allowed. In a batch query, nothing would be read.",
        ),
        (
            {"startingOffsets": '{"a": {"0": -1}}'},
            'startingOffsets: \'{"a": {"0": -1}}\' is not allowed. -1 (latest) of a-0 would read '
            "nothing in a batch query.",
        ),
        (
            {"commitOffsets": "group", "kafka.group.id": "g"},
            "commitOffsets is not allowed in a batch query, which commits nothing.",
        ),
    ],
)
def test_batch_query_refuses_what_would_read_nothing(options: dict[str, str], line: str) -> None:
    assert refusal({**GIVEN, **options}) == line


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest", "startingTimestamp": "5"},
        {"startingOffsets": '{"a": {"0": -1}}', "startingOffsetsByTimestamp": '{"a": {"0": 5}}'},
        {"endingOffsets": "earliest", "endingTimestamp": "5"},
    ],
)
def test_offsets_before_which_a_timestamp_goes_may_be_any(given: dict[str, str]) -> None:
    assert SourceOptions.parse({**GIVEN, **given}, streaming=False)


@pytest.mark.parametrize("name", ["fetch.max.bytes", "default.api.timeout.ms"])
def test_number_of_kafka_with_thousands_of_digits_is_refused(name: str) -> None:
    assert refusal({**GIVEN, f"kafka.{name}": "9" * 5_000}).startswith(f"kafka.{name}: '999")


def test_isolation_level_is_not_case_sensitive() -> None:
    level = {"kafka.isolation.level": " READ_COMMITTED "}
    found = SourceOptions.parse({**GIVEN, **level}, streaming=False)
    assert found.isolation_level == "read_committed"


def test_group_to_commit_to_is_not_blank() -> None:
    given = {**GIVEN, "commitOffsets": "group", "kafka.group.id": " "}
    assert refusal(given, True).endswith("needs kafka.group.id, the name of the group.")


def test_stream_refuses_an_end() -> None:
    for name, value in (("endingOffsets", "latest"), ("endingTimestamp", "5")):
        text = f"{name} is not allowed in a stream, which has no end. Remove it."
        assert refusal({**GIVEN, name: value}, True) == text


def test_check_finds_what_is_wrong_in_both_kinds_of_queries() -> None:
    assert SourceOptions.read_include_headers(
        {**GIVEN, "includeHeaders": "true", "endingOffsets": "latest"}
    )
    assert not SourceOptions.read_include_headers({**GIVEN, "startingOffsets": "latest"})
    with pytest.raises(ConfigError, match="Did you mean minPartitions"):
        SourceOptions.read_include_headers(
            {**GIVEN, "minpartition": "3", "endingOffsets": "latest"}
        )


def test_all_mistakes_are_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse({"minPartitions": "0", "failOnDataLoss": "x"}, streaming=False)
    assert len(caught.value.problems) == 4
    assert str(caught.value) == "\n".join(caught.value.problems)


def test_consumers_read_the_properties_as_the_options_do() -> None:
    # `parse` checks the properties with a consumer, which is never started.
    assert Consumer.from_properties({"bootstrap.servers": "h:9092"}) is not None


NAMES = st.sampled_from((*KNOWN, *(f"kafka.{name}" for name in option_names(Consumer)), "x", ""))
NUMBERS = st.integers().map(str) | st.sampled_from(["9" * 5_000, f"{'9' * 300}d", "\u0663", "1e5"])
DOCUMENTS = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.dictionaries(st.sampled_from(["a", "0", "-1", "\u0663", ""]), inner)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=6,
)
VALUES = st.text(max_size=12) | NUMBERS | DOCUMENTS.map(json.dumps)


@settings(max_examples=300, deadline=None)
@given(options=st.dictionaries(NAMES, VALUES, max_size=4), streaming=st.booleans())
def test_any_options_are_read_or_refused(options: dict[str, str], streaming: bool) -> None:
    for given_options in (options, {**GIVEN, **options}):
        with contextlib.suppress(ConfigError):
            SourceOptions.parse(given_options, streaming=streaming)
        with contextlib.suppress(ConfigError):
            SourceOptions.read_include_headers(given_options)
