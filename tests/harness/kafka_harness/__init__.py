"""A real Apache Kafka for tests and benchmarks: fetched by Maven, started in seconds.

``KafkaCluster`` is what most callers want; ``python tests/harness --help`` is the same from
a shell. Nothing here uses the library under test, so that a fault there cannot hide here.
"""

from .cluster import ExternalKafka, KafkaCluster
from .distribution import KAFKA, OLD, TOOLS, Distribution
from .java import MissingToolError, find_java
from .node import KafkaNode
from .probe import KafkaProbeError, Probe
from .tools import JavaTool

__all__ = [
    "KAFKA",
    "OLD",
    "TOOLS",
    "Distribution",
    "ExternalKafka",
    "JavaTool",
    "KafkaCluster",
    "KafkaNode",
    "KafkaProbeError",
    "MissingToolError",
    "Probe",
    "find_java",
]
