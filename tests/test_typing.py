"""The types of the public API: strict mypy checks code that is written as users write it.

This is the code in `tests/typed`, and that of all pages of the documentation.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="the checkers are installed on the newest Python only")

ROOT = Path(__file__).resolve().parent.parent
TYPED = Path(__file__).resolve().parent / "typed"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(`{3,})python\n(.*?)^\1$", re.M | re.S)
SPARK = "import typing; spark: typing.Any"
"""The first line of pages about Spark, which use a session that the reader has."""

Finding = tuple[int, str]


def module_of(page: str, first_line: str = "") -> str:
    """Return the blocks of a page as a module, in which they have the same lines as on the page.

    Each block is a function, because it may use `await`. It is nested in that of the block before
    it, so that it can use the names of earlier blocks, and define them anew.
    """
    lines = [""] * (page.count("\n") + 1)
    lines[0] = first_line
    for depth, block in enumerate(BLOCK.finditer(page)):
        fence = page.count("\n", 0, block.start())
        lines[fence] = "    " * depth + f"async def block_at_line_{fence + 2}() -> None:"
        for number, line in enumerate(block[2].splitlines(), fence + 1):
            lines[number] = "    " * (depth + 1) + line if line.strip() else ""
    return "\n".join(lines) + "\n"


def write_pages(folder: Path) -> list[Path]:
    """Write the modules of all pages that have blocks of Python, and return their files."""
    files = []
    for page in PAGES:
        text = page.read_text()
        if BLOCK.search(text):
            name = re.sub(r"\W", "_", page.relative_to(ROOT).with_suffix("").as_posix())
            files.append(folder / f"page_{name}.py")
            files[-1].write_text(module_of(text, SPARK if "spark" in name else ""))
    return files


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[Finding]]:
    """Return the lines that mypy reports with their error codes, by file."""
    options = ["--strict", "--no-error-summary", "--show-error-codes", "--hide-error-context"]
    # Check the files as separate modules, without the exceptions that apply to the project's tests.
    options.append("--no-explicit-package-bases")
    pages = write_pages(tmp_path_factory.mktemp("pages"))
    files = [str(file) for file in (*sorted(TYPED.glob("*.py")), *pages)]
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


def test_the_programs_of_the_pages_have_no_errors_of_types(
    findings: dict[str, set[Finding]],
) -> None:
    pages = {name: found for name, found in findings.items() if name.startswith("page_")}
    assert pages == {}, f"The lines are those of the page: {pages}"


def test_nothing_else_is_complained_of(findings: dict[str, set[Finding]]) -> None:
    others = {name for name in findings if not name.startswith("page_")}
    assert others <= {"accepted.py", "refused.py"}


def test_blocks_of_a_page_use_the_names_of_earlier_ones_and_keep_their_lines() -> None:
    page = "# A\n\n```python\na = 1\n\nb = 2\n```\n\n```sh\nls\n```\n\n```python\nawait a\n```\n"
    module = module_of(page)
    assert module.splitlines() == [
        "",
        "",
        "async def block_at_line_4() -> None:",
        "    a = 1",
        "",
        "    b = 2",
        *[""] * 6,
        "    async def block_at_line_14() -> None:",
        "        await a",
        *[""] * 2,
    ]


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "aiokclient" / "py.typed").exists()
