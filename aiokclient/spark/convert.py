"""Convert the checkpoint of a query that used Spark's Kafka connector.

    python -m aiokclient.spark.convert CHECKPOINT

The offset log is written again for this source, to a folder next to the old one. The two folders
are exchanged when the new one is complete:

    CHECKPOINT/offsets              the converted offset log
    CHECKPOINT/offsets.connector    the original log; to undo the conversion, rename it to "offsets"

Nothing else in the checkpoint changes. A folder `offsets.converting` is left by a conversion that
was interrupted; the next run removes it or completes the conversion. A checkpoint that has anything
unknown is refused and not changed. Stop the query first.

CHECKPOINT is a local folder, or one that Spark can open, such as hdfs://host/path. A file system
that cannot rename a folder in one step, such as that of s3a://bucket/path, may have a part of the
log in each of two folders after an interruption. The next run then says what to do, and changes
nothing.

The connector stores no topic ids. The query takes them from the cluster in its first batch, so a
topic that was created again before that is not recognized by its id.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiokclient import TopicPartition
from aiokclient.errors import ConfigError
from aiokclient.spark.checkpoint_files import CheckpointFiles, open_checkpoint
from aiokclient.spark.source.offsets import StreamOffsets, connector_offsets, load, parse

LOG_VERSION = "v1"
OFFSETS = "offsets"
BACKUP = "offsets.connector"
CONVERTING = "offsets.converting"
UNUSED = "-"
"""The text that Spark writes for a source that has no offset in a batch."""
REFUSED = 1


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of a conversion."""

    batches: tuple[int, ...]
    """The numbers of the batches in the offset log; empty if the log was converted before."""
    sources: tuple[int, ...]
    """The positions of the connector's sources in the query."""
    backup: str
    """The name of the folder with the original offset log."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """A file of Spark's offset log: a version, metadata, and a line for each source."""

    number: int
    lines: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        return self.lines[2:]

    def describe_line(self, source: int) -> str:
        return f"The line {source + 3} of offsets/{self.number}"

    def with_sources(self, sources: Sequence[str]) -> str:
        return "\n".join((*self.lines[:2], *sources))


def convert(checkpoint: str | Path, sources: Collection[int] = ()) -> Converted:
    """Convert a checkpoint, and return the batches and sources that were converted.

    `sources` are the positions of the connector's sources in a query that also has other sources.
    Raises ConfigError if something is unknown; then nothing has changed.
    """
    log = _Log(open_checkpoint(checkpoint))
    if log.complete_exchange():
        return Converted((), (), log.backup)
    batches = [log.read_batch(number) for number in log.list_batch_numbers()]
    if not batches:
        raise ConfigError(f"{log.offsets} has no batches, so there is nothing to convert.")
    if log.has_backup():
        log.require_exchanged(all(_is_converted(batch) for batch in batches))
        return Converted((), (), log.backup)
    chosen = tuple(sorted(sources)) or tuple(range(len(batches[0].sources)))
    written = {batch.number: _converted(batch, chosen, log) for batch in batches}
    log.replace_log(written, batches)
    return Converted(tuple(written), chosen, log.backup)


class _Log:
    """The offset log of a checkpoint, and its folders before and after the conversion."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self.checkpoint = files.full_name()
        self.offsets = files.full_name(OFFSETS)
        self.backup = files.full_name(BACKUP)

    def has_backup(self) -> bool:
        """Return whether the log was converted before."""
        return self._files.is_folder(BACKUP)

    def require_exchanged(self, converted: bool) -> None:
        """Raise ConfigError if there is a backup, but the log is not completely converted."""
        if not converted:
            raise ConfigError(
                f"{self.backup} exists from an earlier conversion, but {self.offsets} is not "
                "converted. If an object store was interrupted while it moved the files, copy the "
                f"files that are missing in offsets from {BACKUP}. Then move {BACKUP} to another "
                "folder."
            )
        if self._files.is_folder(CONVERTING):
            raise ConfigError(
                f"{self.offsets} may lack batches, because the conversion was interrupted while an "
                "object store moved them. Remove this folder and "
                f"{self._files.full_name(CONVERTING)}, rename {self.backup} to offsets, and run "
                "the conversion again."
            )

    def complete_exchange(self) -> bool:
        """Complete an interrupted exchange of the folders. Return whether there was one."""
        if self._files.is_folder(OFFSETS):
            return False
        if not (self.has_backup() and self._files.is_folder(CONVERTING)):
            raise ConfigError(
                f"{self.checkpoint} is not the checkpoint of a query: it has no folder offsets."
            )
        self._files.rename_folder(CONVERTING, OFFSETS)
        return True

    def list_batch_numbers(self) -> list[int]:
        """Return the numbers of the batches, in order."""
        found = []
        for name in self._files.list_names(OFFSETS):
            if name.startswith("."):
                continue  # A checksum of Hadoop's local file system.
            path = f"{OFFSETS}/{name}"
            if not name.isdigit() or not self._files.is_file(path):
                raise ConfigError(
                    f"{self._files.full_name(path)} is not a batch of an offset log. Remove it if "
                    "it is not part of the checkpoint."
                )
            found.append(int(name))
        return sorted(found)

    def read_batch(self, number: int) -> _Batch:
        """Return a batch of the log."""
        path = f"{OFFSETS}/{number}"
        where = self._files.full_name(path)
        lines = tuple(self._read_text(path).removesuffix("\n").split("\n"))
        if lines[0] != LOG_VERSION:
            raise ConfigError(
                f"{where} begins with {lines[0]!r}. Only offset logs of the version {LOG_VERSION} "
                "can be converted."
            )
        if len(lines) < 3:
            raise ConfigError(f"{where} ends after {len(lines)} lines. It has no offsets.")
        load(lines[1], f"Line 2 of {where}")
        return _Batch(number, lines)

    def find_starts(self, source: int) -> dict[TopicPartition, int] | None:
        """Return the offsets at which a source of the connector started, or None.

        None means that the checkpoint does not have these offsets.
        """
        path = f"sources/{source}/0"
        if not self._files.is_file(path):
            return None
        where = self._files.full_name(path)
        # The connector writes a zero byte first, for Spark 2.1.
        version, _, document = self._read_text(path).lstrip("\0").partition("\n")
        found = connector_offsets(load(document, f"The second line of {where}"))
        if version != LOG_VERSION or found is None:
            raise ConfigError(f"{where} does not have the starting offsets of Spark's connector.")
        return found

    def is_committed(self, number: int) -> bool:
        """Return whether a batch was committed."""
        return self._files.is_file(f"commits/{number}")

    def replace_log(self, written: dict[int, str], batches: Sequence[_Batch]) -> None:
        """Write the converted log. Replace the original log unless it has changed meanwhile."""
        self._files.remove_folder(CONVERTING)
        contents = {str(number): text.encode() for number, text in written.items()}
        self._files.write_folder(CONVERTING, contents)
        if [self.read_batch(number) for number in self.list_batch_numbers()] != list(batches):
            self._files.remove_folder(CONVERTING)
            raise ConfigError(
                f"{self.offsets} has changed during the conversion. Stop the query, and run the "
                "conversion again."
            )
        self._files.rename_folder(OFFSETS, BACKUP)
        self._files.rename_folder(CONVERTING, OFFSETS)

    def _read_text(self, path: str) -> str:
        try:
            return self._files.read_file(path).decode()
        except UnicodeDecodeError as error:
            name = self._files.full_name(path)
            problem = f"{name} is not text in UTF-8: its byte {error.start} is wrong."
        raise ConfigError(problem)


def _converted(batch: _Batch, chosen: Sequence[int], log: _Log) -> str:
    lines = list(batch.sources)
    for source in chosen:
        if not 0 <= source < len(lines):
            raise ConfigError(
                f"offsets/{batch.number} has {len(lines)} sources, and none has the position "
                f"{source}. The first position is 0."
            )
        if lines[source] == UNUSED:
            continue
        where = batch.describe_line(source)
        document = load(lines[source], where)
        ends = connector_offsets(document)
        if ends is None and isinstance(document, dict) and "version" in document:
            raise ConfigError(
                f"{where} has offsets of aiokclient already. If the query has other sources that "
                "are the connector's, name their positions with --source."
            )
        if ends is None:
            raise ConfigError(
                f"{where} does not have offsets of Spark's Kafka connector. If the query has other "
                "sources, give the positions of the connector's sources with --source."
            )
        lines[source] = _line(ends, _first_starts(batch, source, log))
    return batch.with_sources(lines)


def _first_starts(batch: _Batch, source: int, log: _Log) -> dict[TopicPartition, int]:
    """Return the starting offsets of the first batch, which are not in Spark's offset log."""
    if batch.number != 0:
        return {}
    starts = log.find_starts(source)
    if starts is None and not log.is_committed(0):
        raise ConfigError(
            f"Batch 0 is not committed, and {log.checkpoint}/sources/{source}/0, which has its "
            "starting offsets, is missing. Restart the query with a new checkpoint."
        )
    return starts or {}


def _line(ends: dict[TopicPartition, int], starts: dict[TopicPartition, int]) -> str:
    ids: dict[str, str | None] = dict.fromkeys((tp.topic for tp in ends), None)
    starts = {tp: offset for tp, offset in starts.items() if tp in ends}
    document = StreamOffsets(ids, ends, starts).as_json()
    parse(document)
    return json.dumps(document)


def _is_converted(batch: _Batch) -> bool:
    return not any(connector_offsets(load(line, "")) for line in batch.sources if line != UNUSED)


def _lines(done: Converted) -> Iterator[str]:
    if not done.batches:
        yield "The checkpoint is converted already. The offset log as it was is in:"
    else:
        first, last = done.batches[0], done.batches[-1]
        sources = ", ".join(map(str, done.sources))
        yield f"Converted the batches {first} to {last} of the sources {sources}."
        yield "The offset log as it was is in:"
    yield f"    {done.backup}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the conversion, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m aiokclient.spark.convert",
        description="Convert the checkpoint of Spark's Kafka connector to that of aiokclient.",
    )
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="a local folder, hdfs://..., s3a://..., or another one that Spark can open",
    )
    parser.add_argument(
        "--source",
        type=int,
        action="append",
        default=[],
        metavar="N",
        help="position of a source of the connector in a query with other sources; repeatable",
    )
    options = parser.parse_args(arguments)
    try:
        done = convert(options.checkpoint, options.source)
    except ConfigError as error:
        sys.stderr.write(f"aiokclient: {error} Nothing was changed.\n")
        return REFUSED
    except OSError as error:
        sys.stderr.write(f"aiokclient: {error}. Run the conversion again to complete it.\n")
        return REFUSED
    sys.stdout.write("\n".join(_lines(done)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
