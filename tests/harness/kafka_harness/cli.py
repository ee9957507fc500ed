"""``fetch`` prepares everything that `make test` needs; ``start`` starts a Kafka cluster."""

import argparse
import signal
import sys
import threading
import time

from . import apicurio
from .cluster import KafkaCluster
from .connector import connector_jars
from .distribution import KAFKA, OLD, SHARING, TOOLS, Distribution
from .java import MissingToolError
from .token_server import jars


def prepare(*distributions: Distribution) -> None:
    for distribution in distributions:
        begin = time.monotonic()
        distribution.prepare()
        what = f"Kafka {distribution.version}{' with tools' if distribution.tools else ''}"
        say(f"{what}: ready ({time.monotonic() - begin:.1f} s)")


def fetch() -> None:
    prepare(KAFKA, TOOLS, OLD)
    begin = time.monotonic()
    jars()
    say(f"Token server: ready ({time.monotonic() - begin:.1f} s)")
    begin = time.monotonic()
    connector_jars()
    say(f"Spark's Kafka connector: ready ({time.monotonic() - begin:.1f} s)")


def fetch_registry() -> None:
    begin = time.monotonic()
    apicurio.installation()
    say(f"Apicurio Registry {apicurio.VERSION}: ready ({time.monotonic() - begin:.1f} s)")


def fetch_sharing() -> None:
    prepare(*SHARING)


def start(version: str, brokers: int, port: int, jvm: list[str]) -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    options = tuple(jvm)
    with KafkaCluster(Distribution(version), brokers, port=port, jvm=options) as cluster:
        say(cluster.bootstrap)
        ended.wait()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/harness", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch Kafka's jars and prepare its quick start")
    commands.add_parser("fetch-registry", help="fetch a schema registry")
    commands.add_parser("fetch-sharing", help="fetch older versions with share groups")
    starting = commands.add_parser("start", help="run a Kafka on loopback until interrupted")
    starting.add_argument("--version", default=KAFKA.version)
    starting.add_argument("--brokers", type=int, default=1)
    starting.add_argument("--port", type=int, default=0, help="of the first broker; 0: any")
    starting.add_argument("--jvm", action="append", default=[], help="an option for the JVM")
    arguments = parser.parse_args()
    try:
        if arguments.command == "fetch":
            fetch()
        elif arguments.command == "fetch-registry":
            fetch_registry()
        elif arguments.command == "fetch-sharing":
            fetch_sharing()
        else:
            start(arguments.version, arguments.brokers, arguments.port, arguments.jvm)
    except MissingToolError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
