"""A real Apache Kafka for tests and benchmarks, which Maven downloads and which starts in seconds.

Most callers use ``KafkaCluster``; ``python tests/harness --help`` offers the same in a shell. This
package does not use the library under test, so that the library's errors cannot hide here.
"""

from .cluster import ExternalKafka, KafkaCluster
from .distribution import KAFKA, OLD, SHARING, TOOLS, Distribution
from .java import MissingToolError, find_java
from .node import KafkaNode
from .probe import KafkaProbeError, Probe
from .telemetry import Pushed, pushed
from .token_server import TokenServer
from .tool_host import ToolHost, ToolRun
from .tools import JavaTool

__all__ = [
    "KAFKA",
    "OLD",
    "SHARING",
    "TOOLS",
    "Distribution",
    "ExternalKafka",
    "JavaTool",
    "KafkaCluster",
    "KafkaNode",
    "KafkaProbeError",
    "MissingToolError",
    "Probe",
    "Pushed",
    "TokenServer",
    "ToolHost",
    "ToolRun",
    "find_java",
    "pushed",
]
