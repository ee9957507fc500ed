"""Kafka's command line tools in one Java process, which starts once and runs any number of them.

A process for each command would take seconds of a processor, most of them for its start.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from .distribution import TOOLS
from .files import CACHE, REPOSITORY, prepared
from .java import find

SOURCE = REPOSITORY / "tests" / "java" / "ToolHost.java"
_PACKAGE = "org.apache.kafka.tools"
_OF_GROUPS = f"{_PACKAGE}.consumer.group"
MAIN = {
    "kafka-acls": f"{_PACKAGE}.AclCommand",
    "kafka-broker-api-versions": f"{_PACKAGE}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{_PACKAGE}.ClientMetricsCommand",
    "kafka-cluster": f"{_PACKAGE}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{_PACKAGE}.ConsoleProducer",
    "kafka-console-share-consumer": f"{_PACKAGE}.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": f"{_OF_GROUPS}.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{_PACKAGE}.ConsumerPerformance",
    "kafka-delegation-tokens": f"{_PACKAGE}.DelegationTokenCommand",
    "kafka-delete-records": f"{_PACKAGE}.DeleteRecordsCommand",
    "kafka-e2e-latency": f"{_PACKAGE}.EndToEndLatency",
    "kafka-features": f"{_PACKAGE}.FeatureCommand",
    "kafka-get-offsets": f"{_PACKAGE}.GetOffsetShell",
    "kafka-groups": f"{_PACKAGE}.GroupsCommand",
    "kafka-leader-election": f"{_PACKAGE}.LeaderElectionCommand",
    "kafka-log-dirs": f"{_PACKAGE}.LogDirsCommand",
    "kafka-metadata-quorum": f"{_PACKAGE}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{_PACKAGE}.ProducerPerformance",
    "kafka-reassign-partitions": f"{_PACKAGE}.reassign.ReassignPartitionsCommand",
    "kafka-share-consumer-perf-test": f"{_PACKAGE}.ShareConsumerPerformance",
    "kafka-share-groups": f"{_OF_GROUPS}.ShareGroupCommand",
    "kafka-streams-application-reset": f"{_PACKAGE}.StreamsResetter",
    "kafka-streams-groups": f"{_PACKAGE}.streams.StreamsGroupCommand",
    "kafka-topics": f"{_PACKAGE}.TopicCommand",
    "kafka-transactions": f"{_PACKAGE}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{_PACKAGE}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{_PACKAGE}.VerifiableProducer",
    "kafka-verifiable-share-consumer": f"{_PACKAGE}.VerifiableShareConsumer",
}
"""The classes of the tools by the names of their scripts."""
# Some tools end their process themselves, which only a security manager can refuse.
JVM = (
    "-Djava.security.manager=allow",
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)


class ToolRun(NamedTuple):
    """The exit code and the output of one command."""

    code: int
    out: str
    err: str


class ToolHost:
    """A Java process that runs Kafka's tools one after another. It is a context manager."""

    def __init__(self) -> None:
        (jar,) = TOOLS.jars().glob("kafka-tools-4*.jar")
        command = TOOLS.command(SOURCE.stem, str(jar), jvm=JVM, plugins=(_compiled(),))
        pipe = subprocess.PIPE
        # Java writes a warning about the security manager to standard error.
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, encoding="utf-8"
        )
        self.commands = 0
        """The number of commands that have run."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def run(self, tool: str, *words: str, stdin: bytes = b"", timeout: float = 120) -> ToolRun:
        """Run a tool, and return what it printed. A tool that hangs ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        typed = base64.b64encode(stdin).decode()
        command = {"main": MAIN[tool], "words": words, "input": typed}
        late = threading.Timer(timeout, self._process.kill)
        late.start()
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        if not line:
            raise RuntimeError(f"{tool} {' '.join(words)} did not end within {timeout:g} s")
        self.commands += 1
        ended = json.loads(line)
        texts = (base64.b64decode(ended[name]).decode() for name in ("out", "err"))
        return ToolRun(ended["code"], *texts)


def _compiled() -> Path:
    """Return the folder with the program's classes, which are compiled once and cached."""

    def compile_into(folder: Path) -> None:
        folder.mkdir()
        command = [find("javac"), "--release", "17", "-nowarn", "-cp", TOOLS.class_path()]
        subprocess.run([*command, "-d", str(folder), str(SOURCE)], check=True)

    return prepared(CACHE / f"tool-host-{SOURCE.stat().st_mtime_ns}", compile_into)
