"""The commands of the features of a cluster (KIP-584), and which release has which levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.asking import confirm
from aiokclient.cli.grammar import (
    NO_CHECK,
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
    value_error,
)
from aiokclient.cli.nouns.topics import dry_run_notes
from aiokclient.cli.output import Result, Row, Table, as_json, rows_result, write_result

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin
    from aiokclient.admin import UpgradeType

METADATA = "metadata.version"
LOWEST_LEVEL = 7
"""The level of metadata.version of the first release. Each later one is one higher."""
RELEASES = (
    "3.3-IV3",
    "3.4-IV0",
    "3.5-IV0",
    "3.5-IV1",
    "3.5-IV2",
    "3.6-IV0",
    "3.6-IV1",
    "3.6-IV2",
    "3.7-IV0",
    "3.7-IV1",
    "3.7-IV2",
    "3.7-IV3",
    "3.7-IV4",
    "3.8-IV0",
    "3.9-IV0",
    "4.0-IV0",
    "4.0-IV1",
    "4.0-IV2",
    "4.0-IV3",
    "4.1-IV0",
    "4.1-IV1",
    "4.2-IV0",
    "4.2-IV1",
    "4.3-IV0",
    "4.4-IV0",
    "4.4-IV1",
    "4.4-IV2",
)
"""The versions of the metadata, oldest first. Several belong to one release of Kafka."""
LEVELS: Mapping[str, Mapping[int, int]] = {
    "kraft.version": {1: 21},
    "transaction.version": {1: 24, 2: 24},
    "group.version": {1: 22},
    "eligible.leader.replicas.version": {1: 26},
    "share.version": {1: 28, 2: 31},
    "streams.version": {1: 29},
}
"""The levels above 0 of each other feature, and for each of them the level of metadata.version from
which on it is the default."""
NEEDS: Mapping[tuple[str, int], Mapping[str, int]] = {
    ("eligible.leader.replicas.version", 1): {METADATA: 23},
}
"""The levels of other features that a level of a feature needs."""


class Release:
    """A release of Kafka, such as 4.0, 4.0.1, or 4.0-IV2, as its level of metadata.version."""

    def __init__(self, text: str) -> None:
        number = ".".join(text.split(".")[:2])
        same = [name for name in RELEASES if name == text or name.split("-")[0] == number]
        if not same:
            raise value_error(
                f"{text!r} is none of the releases that are known here: {', '.join(RELEASES)}"
            )
        self.level = LOWEST_LEVEL + RELEASES.index(same[-1])

    @property
    def levels(self) -> dict[str, int]:
        """The level of each feature in this release."""
        others = {
            name: max((level for level, since in levels.items() if since <= self.level), default=0)
            for name, levels in LEVELS.items()
        }
        return {METADATA: self.level, **others}


class FeatureLevel:
    """A level of a feature, as NAME=LEVEL. The level of metadata.version may be a release."""

    def __init__(self, text: str) -> None:
        self.name, equals, level = text.partition("=")
        if not equals or not self.name:
            raise value_error(f"{text!r} is not NAME=LEVEL")
        try:
            self.level = int(level)
        except ValueError:
            if self.name != METADATA:
                raise value_error(f"{level!r} is no level of {self.name}") from None
            self.level = Release(level).level


LEVEL = Argument("LEVEL", "New levels, as NAME=LEVEL.", "*", type=FeatureLevel)
NAMES = Argument("NAME", "Names of features.", "+")
RELEASE = Option(
    ("--release", "--release-version"),
    "Use the levels that all features have in this release.",
    "VERSION",
    type=Release,
)
UNSAFE = Option(("--unsafe",), "Also if metadata will be lost.")


class DescribeFeatures(AdminCommand):
    """Describe the features: their levels in the cluster, and those that a broker supports.

    The brokers may support different levels. Without --node, any of them is asked.
    """

    verb = "describe"
    accepts_controllers = True
    options = (
        Option(("--node", "--node-id"), "Ask this broker.", "ID", type=int, completes="brokers"),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the features, as a table with a row for each."""
        features = await admin.describe_features(node_id=given.node)
        rows = [
            {
                "name": name,
                "lowest": levels.lowest,
                "highest": levels.highest,
                "level": features.finalized.get(name, 0),
                "release": release_of(name, features.finalized.get(name, 0)),
                "epoch": features.epoch,
            }
            for name, levels in sorted(features.supported.items())
        ]
        columns = ["name", "lowest", "highest", "level", "release", "epoch"]
        return Result(as_json(features), [Table(columns, rows)])


class UpgradeFeatures(AdminCommand):
    """Raise the levels of features. Either all of them change, or none.

    Some upgrades cannot be undone. Upgrade all brokers before.
    """

    verb = "upgrade"
    changes = True
    accepts_controllers = True
    arguments = (LEVEL,)
    options = (RELEASE, NO_CHECK)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each feature, with its level before and after."""
        from aiokclient.admin import UpgradeType

        levels = wanted_levels(given)
        if given.release is not None:
            # A feature that the release has at level 0 stays as it is.
            levels = {name: level for name, level in levels.items() if level}
        return await change_levels(admin, given, levels, UpgradeType.UPGRADE)


class DowngradeFeatures(AdminCommand):
    """Lower the levels of features. Either all of them change, or none."""

    verb = "downgrade"
    changes = True
    destroys = True
    accepts_controllers = True
    arguments = (LEVEL,)
    options = (RELEASE, UNSAFE, NO_CHECK)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each feature, with its level before and after."""
        levels = wanted_levels(given)
        if given.release is not None:
            now = (await admin.describe_features()).finalized
            levels = {name: level for name, level in levels.items() if now.get(name, 0) > level}
        texts = [f"{name} to {level}" for name, level in levels.items()]
        if levels:
            confirm_loss(given, f"Downgrade {', '.join(texts)}?")
        return await change_levels(admin, given, levels, downgrade_type(given))


class DisableFeatures(AdminCommand):
    """Disable features, which is a downgrade to level 0. Either all are disabled, or none."""

    verb = "disable"
    changes = True
    destroys = True
    accepts_controllers = True
    arguments = (NAMES,)
    options = (UNSAFE, NO_CHECK)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each feature, with its level before and after."""
        levels = dict.fromkeys(given.name, 0)
        confirm_loss(given, f"Disable {', '.join(levels)}?")
        return await change_levels(admin, given, levels, downgrade_type(given))


class DescribeRelease(Command):
    """List the levels that features have in a release of Kafka. No cluster is asked."""

    verb = "of-release"
    connects = False
    arguments = (Argument("VERSION", "The release, such as 4.0 or 4.0-IV3.", "?", type=Release),)

    def run(self, given: Namespace) -> int:
        """Print a row for each feature, and return the exit code."""
        release: Release = given.version or Release(RELEASES[-1])
        rows = [
            {"name": name, "level": level, "release": release_of(name, level)}
            for name, level in release.levels.items()
        ]
        return write_result(rows_result(["name", "level", "release"], rows), given)


class DescribeDependencies(Command):
    """List the levels of other features that levels of features need. No cluster is asked."""

    verb = "dependencies"
    connects = False
    arguments = (Argument("LEVEL", "Levels, as NAME=LEVEL.", "+", type=FeatureLevel),)

    def run(self, given: Namespace) -> int:
        """Print a row for each level, and return the exit code."""
        rows: list[Row] = []
        for each in given.level:
            refuse_unknown_level(each)
            needs = NEEDS.get((each.name, each.level), {})
            rows.append({"name": each.name, "level": each.level, "dependencies": needs})
        return write_result(rows_result(["name", "level", "dependencies"], rows), given)


def wanted_levels(given: Namespace) -> dict[str, int]:
    """Return the levels that were typed. Raises WrongUseError for none, and for a feature twice."""
    typed: Iterable[FeatureLevel] = given.level
    levels = given.release.levels if given.release is not None else {}
    if bool(levels) == bool(typed):
        raise WrongUseError("Give levels as NAME=LEVEL, or --release.")
    for each in typed:
        if each.name in levels:
            raise WrongUseError(f"Give one level of {each.name}.")
        levels[each.name] = each.level
    return levels


def confirm_loss(given: Namespace, question: str) -> None:
    """Ask before levels become lower."""
    confirm(given, f"{question} Metadata may be lost." if given.unsafe else question)


def downgrade_type(given: Namespace) -> UpgradeType:
    """Return the type of a downgrade."""
    from aiokclient.admin import UpgradeType

    return UpgradeType.UNSAFE_DOWNGRADE if given.unsafe else UpgradeType.SAFE_DOWNGRADE


async def change_levels(
    admin: Admin, given: Namespace, levels: Mapping[str, int], upgrade_type: UpgradeType
) -> Result:
    """Change the levels of features, and return a row for each."""
    from aiokclient.admin import FeatureUpdate

    before = (await admin.describe_features()).finalized
    results = await admin.update_features(
        {name: FeatureUpdate(level, upgrade_type) for name, level in levels.items()},
        validate_only=given.dry_run,
        check=not given.no_check,
    )
    rows = [
        {"name": name, "before": before.get(name, 0), "after": levels[name]}
        for name in results.succeeded
    ]
    columns = ["name", "before", "after"]
    return rows_result(columns, rows, results.errors, dry_run_notes(given))


def release_of(name: str, level: int) -> str | None:
    """Return the release that has a level of metadata.version, if it is known here."""
    index = level - LOWEST_LEVEL
    return RELEASES[index] if name == METADATA and 0 <= index < len(RELEASES) else None


def refuse_unknown_level(given: FeatureLevel) -> None:
    """Raise WrongUseError for a level that is not known here."""
    if given.name == METADATA:
        if release_of(given.name, given.level) is None:
            highest = LOWEST_LEVEL + len(RELEASES) - 1
            raise WrongUseError(f"{METADATA} has levels {LOWEST_LEVEL} to {highest}.")
    elif given.name not in LEVELS:
        raise WrongUseError(f"There is no feature {given.name}. There are {', '.join(LEVELS)}.")
    elif given.level not in (0, *LEVELS[given.name]):
        raise WrongUseError(f"{given.name} has levels 0 to {max(LEVELS[given.name])}.")


COMMANDS: Sequence[type[Command]] = (
    DescribeFeatures,
    UpgradeFeatures,
    DowngradeFeatures,
    DisableFeatures,
    DescribeRelease,
    DescribeDependencies,
)
