"""The report of `Admin.check_cluster`: what is wrong, what to do about it, and what is right."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from aiokclient.errors import KafkaError, UnsupportedVersionError
from aiokclient.policy import refuses_permission
from aiokclient.types import public_in

Severity: TypeAlias = Literal["error", "warning", "info"]

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")

CHECKS: Final = (
    "names",
    "tcp",
    "tls",
    "protocol",
    "login",
    "versions",
    "brokers",
    "features",
    "quorum",
    "clock",
    "leaderless",
    "under-min-isr",
    "under-replicated",
    "log-dirs",
    "hanging-transactions",
)
"""The names of all checks, in the order of a report."""

NAMED: Final = 10
"""The maximum number of partitions or brokers that one text names."""


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a cluster that `check_cluster` has found, or a remark about it.

    `severity` is "error" for a fault, "warning" for what may become one or could not be checked,
    and "info" for what is good to know. `subject` is the address, broker, or partitions that it is
    about, `text` says what was found, and `advice` what to do. `check` is the name of the check,
    such as "tcp" or "under-replicated".
    """

    severity: Literal["error", "warning", "info"]
    subject: str
    text: str
    advice: str
    check: str


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class PassedCheck:
    """A check that has found nothing wrong with its subject. `text` says what it saw."""

    check: str
    subject: str
    text: str


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class ClusterReport:
    """The result of `check_cluster`. It is iterable: its items are the findings.

    `findings` has the errors first, then the warnings, then the remarks. `passed` has the checks
    without a finding. A check that could not be made, because an earlier one failed, is in neither.
    """

    findings: tuple[Finding, ...]
    passed: tuple[PassedCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(each.severity != "error" for each in self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)


class ReportNotes:
    """The notes from which the report of one call is made."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._passed: list[PassedCheck] = []

    def add_finding(
        self, severity: Severity, check: str, subject: str, text: str, advice: str
    ) -> None:
        """Note what a check has found."""
        self._findings.append(Finding(severity, subject, text, advice, check))

    def add_pass(self, check: str, subject: str, text: str) -> None:
        """Note that a check has found nothing wrong, and what it saw."""
        self._passed.append(PassedCheck(check, subject, text))

    def add_failure(self, check: str, subject: str, error: KafkaError) -> None:
        """Note that a check could not be made, because a request has failed."""
        if refuses_permission(error):
            text = f"This was not checked, because the user lacks a permission. {error.brief}"
            self.add_finding("warning", check, subject, text, error.hint)
        elif error.code == UnsupportedVersionError.code:
            text = f"This was not checked, because the brokers are too old. {error.brief}"
            advice = "Upgrade the brokers, or look for this on their machines."
            self.add_finding("info", check, subject, text, advice)
        else:
            advice = "Check the logs of the brokers, and repeat the check."
            text = f"This could not be checked. {error.brief}"
            self.add_finding("error", check, subject, text, advice)

    def make_report(self) -> ClusterReport:
        """Return the report, in the order of severities and checks."""
        order = {check: index for index, check in enumerate(CHECKS)}
        found = sorted(
            self._findings,
            key=lambda each: (SEVERITIES.index(each.severity), order[each.check]),
        )
        passed = sorted(self._passed, key=lambda each: order[each.check])
        return ClusterReport(tuple(found), tuple(passed))


def listed_names(names: Iterable[object]) -> str:
    """Return names as a text, at most `NAMED` of them, and how many more there are."""
    given: Sequence[str] = [str(name) for name in names]
    more = len(given) - NAMED
    return ", ".join(given[:NAMED]) + (f", and {more} more" if more > 0 else "")


def listed_nodes(noun: str, nodes: Collection[int]) -> str:
    """Return the ids of brokers or controllers as a text, such as "brokers 1, 2"."""
    return f"{noun}{'' if len(nodes) == 1 else 's'} {listed_names(sorted(nodes))}"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as "1 partition" or "2 partitions"."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"
