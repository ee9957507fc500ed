"""The paths of Java and Maven, or the commands that install them."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = {"java": "openjdk-17-jre-headless", "javac": "openjdk-17-jdk-headless", "mvn": "maven"}


class MissingToolError(RuntimeError):
    """A program that the tests need is not installed. The message says how to install it."""


def install_command(*programs: str) -> list[str]:
    packages = [PACKAGES[program] for program in programs]
    return ["apt-get", "install", "-y", "--no-install-recommends", *packages]


def find(program: str) -> str:
    """Return the path of a program. For Java's own programs, JAVA_HOME takes precedence."""
    home = os.environ.get("JAVA_HOME")
    if home and program != "mvn" and (candidate := Path(home, "bin", program)).is_file():
        return str(candidate)
    found = shutil.which(program)
    if found is None:
        raise MissingToolError(
            f"{program} was not found, and the tests against a real Apache Kafka need it."
            f" Install it with: sudo {' '.join(install_command(program))}"
            f" (Homebrew: brew install openjdk@17 maven), or leave these tests out with:"
            f" pytest -m 'not kafka and not java'"
        )
    return found


def find_java() -> str:
    return find("java")


@functools.cache
def java_identity() -> str:
    """Return the identity of the JVM, because an AppCDS archive is valid for one JVM only."""
    done = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True)
    return done.stderr or done.stdout
