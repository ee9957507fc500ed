"""The command that looks for faults of a cluster."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.exit_codes import ExitCode, in_words_of_commands
from aiokclient.cli.grammar import Command, Option
from aiokclient.cli.output import Result, Table, as_json, write_result
from aiokclient.cli.values import counted

if TYPE_CHECKING:
    from aiokclient.admin import ClusterReport


class CheckCluster(Command):
    """Look for faults of a cluster and of the way to it, and say what to do about each.

    The addresses of brokers, TLS, logins, versions, the quorum, partitions, and disks are checked,
    also if no client can connect. Nothing is changed. The exit code is 1 if there is a fault, which
    is a finding of the severity error.
    """

    accepts_controllers = True
    options = (Option(("--passed",), "Show what was checked and is right, too."),)

    def run(self, given: Namespace) -> int:
        """Print what was found, and return the exit code."""
        import asyncio

        from aiokclient import Admin
        from aiokclient.cli.connection import make_client

        async def check() -> ClusterReport:
            admin = make_client(Admin, self, given)
            # It is not started: what prevents its start is in the report, too.
            return await admin.check_cluster()

        report = asyncio.run(check())
        code = write_result(report_result(report, given), given)
        return code or (ExitCode.SUCCESS if report.ok else ExitCode.FAILED)


def report_result(report: ClusterReport, given: Namespace) -> Result:
    """Return a report as a result, the faults first."""
    findings = as_json(report.findings)
    for finding in findings:
        finding["advice"] = in_words_of_commands(finding["advice"])
    passed = as_json(report.passed)
    tables = [Table(["subject", "severity", "check", "text", "advice"], findings)]
    if given.passed:
        tables.append(Table(["subject", "check", "text"], passed))
    faults = sum(each.severity == "error" for each in report.findings)
    note = (
        f"{counted(faults, 'fault')}, {counted(len(findings) - faults, 'other finding')}, "
        f"{counted(len(passed), 'check')} passed."
    )
    data = {"ok": report.ok, "findings": findings, "passed": passed}
    return Result(data, tables, notes=[note])


COMMANDS: Sequence[type[Command]] = (CheckCluster,)
