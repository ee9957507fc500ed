"""The types of the public API: strict mypy checks code that is written as users write it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="the checkers are installed on the newest Python only")

ROOT = Path(__file__).resolve().parent.parent
TYPED = Path(__file__).resolve().parent / "typed"

Finding = tuple[int, str]


@pytest.fixture(scope="module")
def findings() -> dict[str, set[Finding]]:
    """Return the lines that mypy reports with their error codes, by file."""
    options = ["--strict", "--no-error-summary", "--show-error-codes", "--hide-error-context"]
    # Check the files as separate modules, without the exceptions that apply to the project's tests.
    options.append("--no-explicit-package-bases")
    files = [str(file) for file in sorted(TYPED.glob("*.py"))]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr + done.stdout
    found: dict[str, set[Finding]] = {}
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"(\S+?):(\d+): error: .* \[([\w-]+)\]", line)
        if match is not None:
            found.setdefault(Path(match[1]).name, set()).add((int(match[2]), match[3]))
    return found


def test_user_code_has_the_types_that_it_should(findings: dict[str, set[Finding]]) -> None:
    assert findings.get("accepted.py", set()) == set()


def test_mistakes_are_found_before_the_program_runs(findings: dict[str, set[Finding]]) -> None:
    lines = (TYPED / "refused.py").read_text().splitlines()
    marked = {
        (number, match[1])
        for number, line in enumerate(lines, 1)
        if (match := re.search(r"# refused: ([\w-]+)$", line)) is not None
    }
    # Awaiting a result that is not awaitable is also reported as "misc".
    assert {finding for finding in findings["refused.py"] if finding[1] != "misc"} == marked


def test_nothing_else_is_complained_of(findings: dict[str, set[Finding]]) -> None:
    assert set(findings) <= {"accepted.py", "refused.py"}


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "aiokclient" / "py.typed").exists()
