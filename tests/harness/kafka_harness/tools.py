"""Kafka's command line tools, each run as a process: independent clients for the tests."""

import subprocess
from collections.abc import Sequence

from .distribution import TOOLS, Distribution

MAIN = {
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "configs": "kafka.admin.ConfigCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "producer-perf": "org.apache.kafka.tools.ProducerPerformance",
}
JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class JavaTool:
    """``JavaTool("console-consumer", "--topic", "t").run(input=None) -> bytes``."""

    def __init__(self, name: str, *arguments: str, distribution: Distribution = TOOLS) -> None:
        self.command = distribution.command(MAIN.get(name, name), *arguments, jvm=JVM)

    def run(self, stdin: bytes = b"", timeout: float = 60) -> bytes:
        """Run the tool and return its output. Raises with its errors if it failed."""
        done = subprocess.run(
            self.command, input=stdin, capture_output=True, timeout=timeout, check=False
        )
        if done.returncode:
            raise RuntimeError(
                f"{self.command[-1]} ended with {done.returncode}:\n"
                f"{done.stdout[-1000:]!r}\n{done.stderr.decode(errors='replace')[-3000:]}"
            )
        return done.stdout


def console_consume(bootstrap: str, topic: str, count: int, *options: str) -> list[bytes]:
    """Read ``count`` records from the beginning with Kafka's own consumer, one in each line."""
    arguments: Sequence[str] = ("--bootstrap-server", bootstrap, "--topic", topic)
    limits = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
    return JavaTool("console-consumer", *arguments, *limits, *options).run().splitlines()


def console_produce(bootstrap: str, topic: str, lines: Sequence[bytes], *options: str) -> None:
    """Write a record for each line with Kafka's own producer."""
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, *options)
    JavaTool("console-producer", *arguments).run(b"".join(line + b"\n" for line in lines))
