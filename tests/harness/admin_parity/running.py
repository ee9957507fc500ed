"""The scenarios of a cluster, run one after the other, and how their results differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from admin_parity.comparing import Cluster, compare, is_same
from admin_parity.java import JavaAdmin
from admin_parity.scenario import Scenario
from admin_parity.tables import SAMPLE, SCENARIOS

ABSENT = "nothing"


@dataclass(frozen=True)
class Outcome:
    """The results of one scenario, without what is different in each call."""

    scenario: Scenario
    theirs: Any
    ours: Any

    def describe_problem(self) -> str:
        """Return where the results differ although they should not, or that they do not differ.

        The text is empty if all is as the table says.
        """
        reason = self.scenario.differs
        if is_same(self.theirs, self.ours):
            return f"{self.scenario.name}: no difference. Remove: {reason}" if reason else ""
        if reason:
            return ""
        lines = [
            f"    {path}: Java {theirs!r}, ours {ours!r}"
            for path, theirs, ours in find_differences(self.theirs, self.ours)
        ]
        return "\n".join([f"{self.scenario.name}:", *lines])


async def run_scenarios(cluster: Cluster, java: JavaAdmin, chosen: str = "") -> list[Outcome]:
    """Run the scenarios of the cluster whose names contain a text, or those of "sample"."""
    wanted = [
        (number, each)
        for number, each in enumerate(SCENARIOS)
        if cluster.kind in each.on
        and (each.name in SAMPLE if chosen == "sample" else chosen in each.name)
    ]
    await cluster.start()
    try:
        for client in cluster.admins:
            java.open(client, cluster.options(client))
        return [
            Outcome(each, *await compare(cluster, java, each, number)) for number, each in wanted
        ]
    finally:
        await cluster.close()


def find_differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path and both values of each difference."""
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for key in sorted({*theirs, *ours}):
            below = (theirs.get(key, ABSENT), ours.get(key, ABSENT))
            yield from find_differences(*below, f"{path}/{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, below in enumerate(zip(theirs, ours, strict=True)):
            yield from find_differences(*below, f"{path}/{number}")
    elif theirs != ours:
        yield path, theirs, ours


def without_configs(result: Any) -> Any:
    """Return a result without the options of topics, whose defaults each cluster has."""
    if isinstance(result, Mapping):
        return {key: without_configs(part) for key, part in result.items() if key != "config"}
    return result


def find_refusals(result: Any) -> Any:
    """Return the error of the call, or those of its items, without any values."""
    if "value" not in result:
        return result
    value = result["value"]
    if isinstance(value, Mapping):
        return {key: each for key, each in value.items() if has_refusal({"value": {key: each}})}
    return {}


def has_success(result: Any) -> bool:
    """Return whether the call succeeded, for at least one of its items."""
    if "value" not in result:
        return False
    return any("error" not in each for each in _list_items(result["value"]))


def has_refusal(result: Any) -> bool:
    """Return whether the call failed, at least for one of its items."""
    if "value" not in result:
        return True
    return any("error" in each for each in _list_items(result["value"]))


def _list_items(value: Any) -> Iterable[Any]:
    """Return the results of the items, or the value of a call that has none, as one item."""
    if isinstance(value, Mapping) and value:
        items = [each for each in value.values() if isinstance(each, Mapping)]
        if items and all(not each.keys().isdisjoint(("value", "error")) for each in items):
            return items
    return [{"value": value}]
