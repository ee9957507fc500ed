"""The admin call that creates topics unless they exist, and compares those that do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from aiokclient.admin.arguments import format_config_value
from aiokclient.admin.configs import ConfigEntry, ConfigResource, ConfigType, describe_configs
from aiokclient.admin.requests import AdminRequests, Answers
from aiokclient.admin.results import Results
from aiokclient.admin.topics import (
    CreatedTopic,
    NewTopic,
    TopicDescription,
    as_new_topics,
    create_topics,
    describe_topics,
)
from aiokclient.errors import (
    InvalidConfigError,
    KafkaError,
    RefreshRetriableError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from aiokclient.types import public_in
from aiokclient.types.named_tuple import NamedTuple

ENSURE: Final = "ensure_topics"
NUMBERS: Final = frozenset({ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE})


@public_in("aiokclient.admin")
class TopicDifference(NamedTuple):
    """A setting of a topic whose value is not the expected one.

    `setting` is "partitions", "replication_factor", "assignments[0]" for the replicas of
    partition 0, or the name of an option. The values of options are texts.
    """

    setting: str
    expected: int | str | tuple[int, ...]
    actual: int | str | tuple[int, ...] | None


@public_in("aiokclient.admin")
class EnsuredTopic(NamedTuple):
    """A topic that `ensure_topics` has created, or that existed already.

    `topic_id`, `partitions`, and `replication_factor` are those of the topic, or None if the broker
    does not return them. `differences` is empty if the topic was created or is as expected.
    """

    created: bool
    topic_id: UUID | None
    partitions: int | None
    replication_factor: int | None
    differences: tuple[TopicDifference, ...] = ()


async def ensure_topics(
    requests: AdminRequests, topics: Iterable[NewTopic], dry_run: bool, timeout: float | None
) -> Results[str, EnsuredTopic]:
    """See `Admin.ensure_topics`."""
    wanted = as_new_topics(topics)
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    # A topic without leaders is described until the end of this time. The others are then created
    # in the rest.
    within = requests.compute_remaining_s(deadline) / 2
    found = dict(await _compare_topics(requests, wanted, within))
    missing = {name: wanted[name] for name, each in found.items() if _is_missing(each)}
    created = await create_topics(
        requests, missing.values(), dry_run, True, requests.compute_remaining_s(deadline)
    )
    found.update((name, _make_created(each, dry_run)) for name, each in created.succeeded.items())
    found.update(created.errors)
    existing = {
        name: wanted[name]
        for name, error in created.errors.items()
        if error.code == TopicExistsError.code
    }

    async def ask(items: dict[str, NewTopic], remaining: float) -> Answers[str, EnsuredTopic]:
        answers = await _compare_topics(requests, items, remaining)
        return {
            name: _make_late(name) if _is_missing(each) else each for name, each in answers.items()
        }

    # Something else has created these topics since the first comparison.
    remaining = requests.compute_remaining_s(deadline)
    compared = await requests.ask_items(existing, ask, remaining)
    found.update({**compared.succeeded, **compared.errors})
    return Results({name: found[name] for name in wanted}, requests.cluster.make_log("admin"))


def _is_missing(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.code == UnknownTopicOrPartitionError.code


def _make_late(name: str) -> KafkaError:
    text = "The topic was created at the same time, and the brokers do not know it yet."
    return RefreshRetriableError(text, api=ENSURE, resource=f"topic {name}")


def _make_created(topic: CreatedTopic, dry_run: bool) -> EnsuredTopic:
    # A broker that only validates invents a topic id.
    topic_id = None if dry_run else topic.topic_id
    return EnsuredTopic(True, topic_id, topic.partitions, topic.replication_factor)


async def _compare_topics(
    requests: AdminRequests, wanted: Mapping[str, NewTopic], timeout: float
) -> Answers[str, EnsuredTopic]:
    """Return the differences of existing topics, and an error for each other topic."""
    deadline = requests.compute_deadline(timeout)
    described = await describe_topics(requests, wanted, False, None, timeout)
    options = {
        ConfigResource.topic(name): list(wanted[name].configs)
        for name in described.succeeded
        if isinstance(name, str) and wanted[name].configs
    }
    configs = await describe_configs(
        requests, options, False, False, requests.compute_remaining_s(deadline)
    )
    answers: dict[str, EnsuredTopic | KafkaError] = {}
    for name, new in wanted.items():
        topic = described[name]
        entries = configs.get(ConfigResource.topic(name), {})
        if isinstance(topic, KafkaError):
            answers[name] = topic
        elif isinstance(entries, KafkaError):
            answers[name] = entries
        else:
            answers[name] = _compare_topic(new, topic, entries)
    return answers


def _compare_topic(
    new: NewTopic, topic: TopicDescription, entries: Mapping[str, ConfigEntry]
) -> EnsuredTopic | KafkaError:
    unknown = [option for option in new.configs if option not in entries]
    if unknown:
        error = InvalidConfigError(api="DescribeConfigs", resource=f"topic {new.name}")
        error.what = f"There is no option {unknown[0]!r}."
        return error
    counts = [len(partition.replicas) for partition in topic.partitions]
    # The partitions may have different numbers, for example while replicas are being moved.
    factor = next(
        (count for count in counts if count != new.replication_factor),
        counts[0] if counts else None,
    )
    differences = (*_compare_replicas(new, topic, factor), *_compare_options(new, entries))
    return EnsuredTopic(False, topic.topic_id, len(counts), factor, differences)


def _compare_replicas(
    new: NewTopic, topic: TopicDescription, factor: int | None
) -> Iterator[TopicDifference]:
    # Assignments replace the two numbers.
    total = len(new.assignments) or new.partitions
    if total is not None and total not in (-1, len(topic.partitions)):
        yield TopicDifference("partitions", total, len(topic.partitions))
    if new.assignments:
        actual = {partition.index: partition.replicas for partition in topic.partitions}
        for index, brokers in sorted(new.assignments.items()):
            if index in actual and actual[index] != tuple(brokers):
                yield TopicDifference(f"assignments[{index}]", tuple(brokers), actual[index])
    elif (expected := new.replication_factor) is not None and expected not in (-1, factor):
        yield TopicDifference("replication_factor", expected, factor)


def _compare_options(
    new: NewTopic, entries: Mapping[str, ConfigEntry]
) -> Iterator[TopicDifference]:
    for option, value in new.configs.items():
        expected, entry = format_config_value(value), entries[option]
        actual = entry.value or ""
        if _normalize_value(expected, entry.type) != _normalize_value(actual, entry.type):
            yield TopicDifference(option, expected, entry.value)


def _normalize_value(text: str, kind: ConfigType) -> object:
    """Return the value of an option in a form in which equal values are equal."""
    if kind is ConfigType.LIST:
        return sorted(part.strip() for part in text.split(","))
    if kind is ConfigType.BOOLEAN:
        return text.strip().lower()
    if kind in NUMBERS:
        try:
            return int(text) if kind is not ConfigType.DOUBLE else float(text)
        except ValueError:
            return text  # It differs from any number that a broker returns.
    return text
