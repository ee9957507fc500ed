"""The option `enable_metrics_push`, and what is imported before the first push."""

import subprocess
import sys

import pytest

from aiokclient import Client, Producer
from aiokclient.errors import ConfigError

LAZY = """
import sys
import aiokclient
aiokclient.Producer, aiokclient.Consumer, aiokclient.Admin, aiokclient.Client
import aiokclient.telemetry.reporter
assert "aiokclient.telemetry.reporter" in sys.modules
print([name for name in sys.modules if name.startswith(("opentelemetry", "google"))])
"""


def test_option_has_kafkas_name() -> None:
    properties = {"bootstrap.servers": "localhost:1", "enable.metrics.push": "false"}
    assert not Client.from_properties(properties).config.enable_metrics_push
    assert Client(bootstrap_servers="localhost:1").config.enable_metrics_push


def test_objects_that_share_a_client_have_its_option() -> None:
    client = Client(bootstrap_servers="localhost:1")
    with pytest.raises(ConfigError, match="enable_metrics_push"):
        Producer(client=client, enable_metrics_push=False)


def test_otlp_is_not_imported_before_the_first_push() -> None:
    run = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
