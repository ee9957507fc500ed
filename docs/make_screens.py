"""Make the screens and plots of the site, each in a light and a dark color scheme.

    python docs/make_screens.py                 all of them: about two minutes
    python docs/make_screens.py demo commands   some of them

Screens are what the programs print, as SVG. The demo, the commands, and the dashboard run on
embedded clusters, and the notebook in a kernel. The plot shows the table of the README.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
IMAGES: Final = ROOT / "docs" / "images"
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(ROOT / "tests" / "harness")]

from rich.console import Console  # noqa: E402
from rich.syntax import Syntax  # noqa: E402
from rich.terminal_theme import TerminalTheme  # noqa: E402
from rich.text import Text  # noqa: E402

COLORS: Final = {
    "light": TerminalTheme(
        (255, 255, 255),
        (36, 41, 47),
        [
            *((36, 41, 47), (207, 34, 46), (17, 99, 41), (122, 75, 0)),
            *((9, 105, 218), (130, 80, 223), (27, 124, 131), (110, 119, 129)),
        ],
        [
            *((87, 96, 106), (164, 14, 38), (26, 127, 55), (99, 60, 1)),
            *((33, 139, 255), (163, 113, 247), (49, 146, 170), (140, 149, 159)),
        ],
    ),
    "dark": TerminalTheme(
        (19, 20, 22),
        (230, 237, 243),
        [
            *((72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)),
            *((88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)),
        ],
        [
            *((110, 118, 129), (255, 161, 152), (86, 211, 100), (227, 179, 65)),
            *((121, 192, 255), (210, 168, 255), (86, 212, 221), (240, 246, 252)),
        ],
    ),
}
STYLES: Final = {"light": "default", "dark": "dark_background"}
SYNTAX: Final = {"light": "default", "dark": "github-dark"}
WIDTH: Final = 110


def save(name: str, title: str, parts: Callable[[str], Iterator[Any]], width: int = WIDTH) -> None:
    """Write the SVG files of a screen: what `parts` yields for a color scheme."""
    for scheme, theme in COLORS.items():
        console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
        for part in parts(scheme):
            console.print(part, highlight=False, soft_wrap=False)
        svg = console.export_svg(title=title, theme=theme, unique_id=f"{name}-{scheme}")
        # Fonts from another site would be fetched by each reader.
        svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.S)
        svg = re.sub(
            r"font-family: [^;]*;",
            "font-family: DejaVu Sans Mono, Menlo, Consolas, monospace;",
            svg,
        )
        svg = re.sub(r"[ \t]+$", "", svg, flags=re.M)
        (IMAGES / f"{name}-{scheme}.svg").write_text(svg)


def make_demo() -> None:
    """Run the demo, and save its output."""
    environment = {**os.environ, "FORCE_COLOR": "1", "TTY_INTERACTIVE": "0", "COLUMNS": str(WIDTH)}
    environment["PYTHONPATH"] = str(ROOT)
    words = ["examples/demo.py", "--records", "200000"]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("sent ")]
    command = f"python {' '.join(words)}"
    text = Text.from_ansi("\n".join([f"$ {command}", *lines]))
    save("demo", command, lambda _: iter([text]))


def make_commands() -> None:
    """Run some commands on a terminal, and save the screens."""
    from command_process import run_on_terminal, variables

    from aiokclient import Consumer, Producer
    from aiokclient.testing import EmbeddedCluster

    async def fill(servers: str) -> None:
        async with Producer(bootstrap_servers=servers) as producer:
            await producer.gather(
                producer.send_many("orders", [b"order %d" % n for n in range(90)])
            )
        for group in ("billing", "search"):
            async with Consumer(
                "orders", group_id=group, bootstrap_servers=servers, auto_offset_reset="earliest"
            ) as consumer:
                await consumer.poll(timeout=10.0, max_records=60 if group == "billing" else 5)
                await consumer.commit()

    commands = (
        ("topics", "describe", "orders"),
        ("groups", "list", "--lag"),
        ("consume", "orders", "-n", "3"),
        ("doctor",),
    )
    lines = []
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedCluster(brokers=3, topics={"orders": 3}) as cluster,
    ):
        servers = cluster.bootstrap_servers
        asyncio.run(fill(servers))
        for words in commands:
            screen = run_on_terminal(words, variables(Path(folder), servers))
            shown = screen.text.replace("\r", "").replace(servers, "localhost:9092").strip("\n")
            lines += [f"\x1b[1m$ aiokclient {' '.join(words)}\x1b[0m", shown, ""]
    text = Text.from_ansi("\n".join(lines).rstrip())
    save("command-line", "aiokclient", lambda _: iter([text]))


def make_dashboard() -> None:
    """Run the fleet of clients, and save its table and its picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    fleet_module = importlib.import_module("fleet")
    fleet = fleet_module.Fleet()
    asyncio.run(fleet_module.run(fleet, Console(file=io.StringIO()), 60))
    save("dashboard", "python examples/fleet.py", lambda _: iter([fleet.table()]), width=130)
    for scheme, style in STYLES.items():
        with pyplot.style.context(style):
            fleet.draw(IMAGES / f"fleet-{scheme}.png")


def make_notebook() -> None:
    """Run the notebook, and save its cells with their results."""
    import nbclient

    nbformat: Any = importlib.import_module("nbformat")
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120).execute()

    def cells(scheme: str) -> Iterator[Any]:
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type != "code":
                yield Text(cell.source.lstrip("# "), style="bold")
                continue
            yield Text(f"\n[{number}]", style="bright_black")
            yield Syntax(cell.source, "python", theme=SYNTAX[scheme], background_color="default")
            for output in cell.outputs:
                yield Text(output.get("data", {}).get("text/plain", ""), style="blue")

    save("notebook", "examples/notebook.ipynb", cells)


def costs() -> dict[str, dict[str, float]]:
    """Return the CPU seconds of each client by workload, from the table of the README."""
    text = (ROOT / "README.md").read_text().partition("## What a message costs")[2]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    clients = rows[0][1:]
    found = {}
    for work, *cells in rows[2:]:
        numbers = [re.match(r"[\d.]+", cell) for cell in cells]
        found[work] = {c: float(n[0]) for c, n in zip(clients, numbers, strict=True) if n}
    return found


def make_costs() -> None:
    """Plot what a message costs with each client."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = costs()
    for scheme, style in STYLES.items():
        own, other = ("#1b6ca8", "#8c959f") if scheme == "light" else ("#58a6ff", "#8b949e")
        with pyplot.style.context(style), matplotlib.rc_context({"svg.hashsalt": "aiokclient"}):
            figure, axes = pyplot.subplots(1, len(found), figsize=(11, 2.9))
            for axis, (work, numbers) in zip(axes, found.items(), strict=True):
                names = sorted(numbers, key=lambda name: -numbers[name])
                colors = [own if name == "aiokclient" else other for name in names]
                values = [numbers[name] for name in names]
                bars = axis.barh(names, values, color=colors)
                axis.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
                axis.set_title(work, loc="left", fontsize=10)
                axis.spines[["top", "right", "bottom"]].set_visible(False)
                axis.tick_params(axis="y", labelsize=8, length=0)
                axis.set_xticks([])
                axis.margins(x=0.18)
            figure.suptitle(
                "CPU seconds of the client per million messages of 100 bytes (less is better)",
                fontsize=10,
            )
            figure.tight_layout()
            figure.savefig(
                IMAGES / f"costs-{scheme}.svg", transparent=True, metadata={"Date": None}
            )
            pyplot.close(figure)


PARTS: Final = {
    "demo": make_demo,
    "commands": make_commands,
    "dashboard": make_dashboard,
    "notebook": make_notebook,
    "costs": make_costs,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART")
    for part in parser.parse_args().parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
