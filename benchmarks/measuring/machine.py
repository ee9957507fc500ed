"""A description of the machine, without names of hosts, users or folders."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

LIBRARIES = ("aiokclient", "confluent-kafka", "aiokafka", "kafka-python", "uvloop", "pyarrow")


def describe(kafka: str) -> list[tuple[str, str]]:
    """Return names and values for a table."""
    found = [("CPU", _cpu()), ("cores", str(os.cpu_count())), ("memory", _memory())]
    found += [("system", f"{platform.system()} {platform.release().split('-')[0]}")]
    found += [("Python", f"{platform.python_implementation()} {platform.python_version()}")]
    found += [("build of Python", _build())]
    found += [(name, _version(name)) for name in LIBRARIES]
    found += [("aiokclient's records", _records()), ("librdkafka", _librdkafka())]
    found += [("Kafka", kafka), ("franz-go", _franz_go())]
    found += [("Go", _line(["go", "version"])), ("Java", _line(["java", "-version"]))]
    load = os.getloadavg()
    return [*found, ("load average at the end", " ".join(f"{each:.1f}" for each in load))]


PACKAGED = "--with-wheel-pkg-dir=/usr/share/python-wheels/"
"""An option of Debian's and Ubuntu's builds. Their packages build with PGO and LTO by their own
rules, and leave these out of the configuration that modules are built with."""


def optimizations() -> list[str]:
    """Return how the interpreter was optimized when it was built: by PGO, LTO, both, or neither."""
    configured = sysconfig.get_config_var("CONFIG_ARGS") or ""
    if PACKAGED in configured:
        return ["PGO", "LTO"]
    options = {"PGO": "--enable-optimizations", "LTO": "--with-lto"}
    return [name for name, option in options.items() if option in configured]


def _build() -> str:
    """Describe the build, because the clients in Go and Java lose nothing by a slow one."""
    found = " and ".join(optimizations())
    if found:
        return found
    return "without PGO and LTO, which slows the clients in Python, but not those in Go and Java"


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    model = re.search(r"model name\s*: (.*)", text)
    return model.group(1) if model else platform.machine()


def _memory() -> str:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{total / 2**30:.0f} GiB"


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return getattr(__import__("aiokclient"), "__version__", "") if "kc" in library else "-"


def _records() -> str:
    import aiokclient

    return "native" if aiokclient.native else "pure"


def _librdkafka() -> str:
    try:
        from confluent_kafka import libversion
    except ImportError:
        return "-"
    return str(libversion()[0])


def _franz_go() -> str:
    module = Path(__file__).resolve().parents[1] / "peers" / "franz_go" / "go.mod"
    found = re.search(r"franz-go (v\S+)", module.read_text())
    return found.group(1) if found else "-"


def _line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "-"
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout or done.stderr).splitlines()[0].strip()
