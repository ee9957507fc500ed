"""The files of a query's checkpoint, in a local folder or in a file system of Hadoop.

Paths are relative to the checkpoint, with `/`. Spark's classes read and write hdfs://, s3a://, and
the like, with the settings and packages of the session that they are in.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiokclient.errors import ConfigError

COPY = (
    "Or copy the checkpoint to a local folder, convert it there, and replace its folder offsets by "
    "the converted one."
)


class CheckpointFiles(Protocol):
    """A checkpoint. All methods raise OSError if the file system fails."""

    def full_name(self, path: str = "") -> str:
        """Return the full name of a path, for messages."""

    def is_folder(self, path: str = "") -> bool:
        """Return whether a folder exists."""

    def is_file(self, path: str) -> bool:
        """Return whether a file exists."""

    def list_names(self, path: str) -> list[str]:
        """Return the names in a folder."""

    def read_file(self, path: str) -> bytes:
        """Return the content of a file."""

    def write_folder(self, folder: str, contents: Mapping[str, bytes]) -> None:
        """Create a folder with these files. They are stored durably."""

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and everything in it, if it exists."""

    def rename_folder(self, old: str, new: str) -> None:
        """Rename a folder. The new name must not exist."""


def open_checkpoint(checkpoint: str | Path) -> CheckpointFiles:
    """Return the files of a checkpoint. Raises ConfigError if it is not a folder."""
    text = str(checkpoint)
    files: CheckpointFiles = HadoopFiles(text) if _is_remote(text) else _local_files(text)
    if not files.is_folder():
        raise ConfigError(f"{files.full_name()} is not a folder. Pass the folder of a checkpoint.")
    return files


def query_id(checkpoint: str) -> str | None:
    """Return the id of the query that has a local checkpoint, or None if it cannot be read."""
    if _is_remote(checkpoint):
        return None
    try:
        found = json.loads(_local_files(checkpoint).read_file("metadata"))
    except (OSError, ValueError, ConfigError):
        return None
    name = found.get("id") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def _is_remote(text: str) -> bool:
    return "://" in text and urlsplit(text).scheme != "file"


def _local_files(text: str) -> LocalFiles:
    parts = urlsplit(text)
    if text.startswith("file:"):
        if parts.netloc not in ("", "localhost"):
            raise ConfigError(f"{text} names a host. It must be a path such as file:///checkpoint.")
        # A path of Hadoop has no percent-encoding.
        path = text.removeprefix("file:")
        return LocalFiles(Path(path.removeprefix(f"//{parts.netloc}")))
    return LocalFiles(Path(text))


class LocalFiles:
    """A checkpoint in a local folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def full_name(self, path: str = "") -> str:
        return str(self._root / path)

    def is_folder(self, path: str = "") -> bool:
        return (self._root / path).is_dir()

    def is_file(self, path: str) -> bool:
        return (self._root / path).is_file()

    def list_names(self, path: str) -> list[str]:
        return [each.name for each in (self._root / path).iterdir()]

    def read_file(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def write_folder(self, folder: str, contents: Mapping[str, bytes]) -> None:
        created = self._root / folder
        created.mkdir()
        for name, content in contents.items():
            with open(created / name, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        _sync(created)

    def remove_folder(self, folder: str) -> None:
        if (self._root / folder).exists():
            shutil.rmtree(self._root / folder)

    def rename_folder(self, old: str, new: str) -> None:
        (self._root / old).rename(self._root / new)
        _sync(self._root)


class HadoopFiles:
    """A checkpoint in a file system of Hadoop, such as hdfs:// or s3a://.

    It uses the Spark session of the program, or starts a local one.
    """

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        session = _session(root)
        self._path = session._jvm.org.apache.hadoop.fs.Path
        try:
            with _failures():
                configuration = session._jsc.hadoopConfiguration()
                self._files = self._path(self._root).getFileSystem(configuration)
        except OSError as error:
            problem = str(error)
        else:
            return
        raise ConfigError(
            f"Spark cannot open {root}: {problem}. Pass it the packages and settings of this file "
            f"system, such as PYSPARK_SUBMIT_ARGS='--packages ... pyspark-shell'. {COPY}"
        )

    def full_name(self, path: str = "") -> str:
        return f"{self._root}/{path}".rstrip("/")

    def is_folder(self, path: str = "") -> bool:
        with _failures():
            found = self._make_path(path)
            return bool(
                self._files.exists(found) and self._files.getFileStatus(found).isDirectory()
            )

    def is_file(self, path: str) -> bool:
        with _failures():
            found = self._make_path(path)
            return bool(self._files.exists(found) and self._files.getFileStatus(found).isFile())

    def list_names(self, path: str) -> list[str]:
        with _failures():
            return [
                each.getPath().getName() for each in self._files.listStatus(self._make_path(path))
            ]

    def read_file(self, path: str) -> bytes:
        with _failures():
            stream = self._files.open(self._make_path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write_folder(self, folder: str, contents: Mapping[str, bytes]) -> None:
        with _failures():
            self._files.mkdirs(self._make_path(folder))
            for name, content in contents.items():
                stream = self._files.create(self._make_path(f"{folder}/{name}"), False)
                try:
                    stream.write(content)
                finally:
                    stream.close()

    def remove_folder(self, folder: str) -> None:
        with _failures():
            self._files.delete(self._make_path(folder), True)

    def rename_folder(self, old: str, new: str) -> None:
        with _failures():
            if not self._files.rename(self._make_path(old), self._make_path(new)):
                raise OSError(
                    f"{self.full_name(old)} could not be renamed to {self.full_name(new)}"
                )

    def _make_path(self, path: str) -> Any:
        return self._path(self.full_name(path))


def _session(root: str) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        session = None
    else:
        builder = SparkSession.builder.appName("aiokclient.spark.convert").master("local[1]")
        session = (
            SparkSession.getActiveSession()
            or builder.config("spark.ui.enabled", "false").getOrCreate()
        )
    if session is None:
        raise ConfigError(
            f"{root} is not a local folder, and pyspark, which can open it, is not installed. "
            f"Install aiokclient[spark]. {COPY}"
        )
    return session


@contextmanager
def _failures() -> Iterator[None]:
    """Raise OSError if a Java method fails in the body of the `with` statement."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        problem = str(error.java_exception.toString()).splitlines()[0]
    else:
        return
    raise OSError(problem)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
