"""Run an embedded cluster for any client: `python -m aiokclient.testing --brokers 3`.

It prints the addresses of brokers and controllers, and runs until Ctrl-C (or SIGTERM). Nothing is
stored on disk.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence

from aiokclient.testing.broker.telemetry.otlp_receiver import OtlpHttpTelemetryReceiver
from aiokclient.testing.broker.telemetry.topic_receiver import TopicTelemetryReceiver
from aiokclient.testing.cluster import EmbeddedCluster

OTLP_FLUSH_S = 10.0
"""Seconds for which the process waits at its end for pushed metrics that are being sent."""


def _parse_topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    try:
        return name, int(partitions or 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME:PARTITIONS") from None


def _parse_config(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _parse_endpoint(text: str) -> OtlpHttpTelemetryReceiver:
    try:
        return OtlpHttpTelemetryReceiver(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m aiokclient.testing",
        description="Kafka brokers in this process, for tests and demos; nothing is kept.",
    )
    parser.add_argument("--brokers", type=int, default=1, help="how many (1)")
    parser.add_argument("--port", type=int, default=9092, help="of the first; 0: any (9092)")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (127.0.0.1)")
    parser.add_argument("--advertised-host", help="what clients are told, if not the host")
    parser.add_argument(
        "--topic",
        type=_parse_topic,
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="a topic to begin with; may be given more than once",
    )
    parser.add_argument("--no-auto-create", action="store_true", help="make no topics on demand")
    parser.add_argument(
        "--config",
        type=_parse_config,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a config of the brokers; may be given more than once",
    )
    parser.add_argument(
        "--defaults",
        choices=("tests", "kafka"),
        default="tests",
        help="default values of configs that make tests fast, or those of Kafka (tests)",
    )
    telemetry = parser.add_mutually_exclusive_group()
    telemetry.add_argument(
        "--telemetry",
        type=TopicTelemetryReceiver,
        metavar="TOPIC",
        help="receive the metrics that clients push, and write them into this topic",
    )
    telemetry.add_argument(
        "--telemetry-otlp",
        dest="telemetry",
        type=_parse_endpoint,
        metavar="URL",
        help="receive the metrics that clients push, and send them to this OTLP endpoint, "
        "such as http://localhost:4318/v1/metrics",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal ends the process. Return 2 for bad options or a port that is not free."""
    parser = _make_parser()
    options = parser.parse_args(arguments)
    over = threading.Event()
    try:
        cluster = EmbeddedCluster(
            options.brokers,
            dict(options.topic),
            host=options.host,
            port=options.port,
            advertised_host=options.advertised_host,
            auto_create_topics=not options.no_auto_create,
            defaults=options.defaults,
            configs=dict(options.config),
            telemetry=options.telemetry,
        )
        with cluster:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: over.set())
            sys.stdout.write(f"bootstrap servers: {cluster.bootstrap_servers}\n")
            sys.stdout.write(f"bootstrap controllers: {cluster.bootstrap_controllers}\n")
            sys.stdout.flush()
            over.wait()
        if isinstance(options.telemetry, OtlpHttpTelemetryReceiver):
            options.telemetry.flush(OTLP_FLUSH_S)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
