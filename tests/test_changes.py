"""The most frequent changes, made in a copy of the package as a newcomer would make them.

Each test states which files the change needs. If a change needs more files than before, first ask
what the additional file must know about the thing that was added.
"""

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXTENSIONS = ROOT / "docs" / "_ext"


class Checkout:
    """A copy of the package without native modules, in which changes can be tried."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ignored = shutil.ignore_patterns("*.so", "*.pyd", "*.c", "*.h", "*.p[yx][xdi]", ".*")
        shutil.copytree(ROOT / "aiokclient", folder / "aiokclient", ignore=ignored)
        shutil.copytree(ROOT / ".ci", folder / ".ci")

    def create(self, path: str, text: str) -> None:
        """Write a new file."""
        file = self._folder / "aiokclient" / path
        assert not file.exists()
        file.write_text(text)

    def insert(self, path: str, text: str, *, before: str = "", after: str = "") -> None:
        """Insert text before or after the first occurrence of another text."""
        file = self._folder / "aiokclient" / path
        head, found, tail = file.read_text().partition(before or after)
        assert found, f"{path} has no {before or after!r}"
        file.write_text(head + (text + found if before else found + text) + tail)

    def append(self, path: str, text: str) -> None:
        """Add text at the end of the file."""
        with (self._folder / "aiokclient" / path).open("a") as file:
            file.write(text)

    def run(self, *arguments: str) -> str:
        """Run Python with the copy, and return its output."""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self._folder}{os.pathsep}{EXTENSIONS}",
            "AIOKCLIENT_PURE": "1",
        }
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def changed(self) -> set[str]:
        """The files of the package that are new or differ from those of the project."""
        package = self._folder / "aiokclient"
        names = {file.relative_to(package).as_posix() for file in package.rglob("*.py")}
        original = ROOT / "aiokclient"
        return {
            name
            for name in names
            if not (original / name).exists()
            or not filecmp.cmp(package / name, original / name, shallow=False)
        }


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_an_error_code_is_one_class(checkout: Checkout) -> None:
    file = "errors/retriable.py"
    checkout.insert(file, '\n    "BrokerAsleepError",', after="__all__ = [")
    checkout.append(
        file,
        """

class BrokerAsleepError(RetriableError, code=9001, name="BROKER_ASLEEP"):
    what = "The broker is asleep."
    hint = "Wait until it wakes up."
""",
    )
    printed = checkout.run(
        "-c",
        """
from aiokclient import errors, policy
error = errors.error_for(9001, "It snores.", api="Fetch", broker=3)
print(isinstance(error, errors.BrokerAsleepError), "BrokerAsleepError" in errors.__all__)
print(error)
for scope in policy.Scope:
    policy.classify(error, scope)
""",
    )
    assert printed.startswith("True True\n")
    assert "The broker is asleep. It snores. Wait until it wakes up." in printed
    assert checkout.changed == {file}


def test_a_consumer_option_is_one_declaration(checkout: Checkout) -> None:
    file = "config/consumer.py"
    option = """
    naps_per_hour: int = option(
        POSITIVE,
        2,
        "How often the consumer rests.",
    )
"""
    checkout.insert(file, option.lstrip("\n"), before="    group_id: str | None = option(")
    checkout.run(".ci/write-options")
    printed = checkout.run(
        "-c",
        """
from aiokclient import Consumer
from aiokclient.config.consumer import ConsumerConfig, ConsumerOptions
from option_reference import describe
from aiokclient.errors import ConfigError
print(ConsumerConfig.build({"bootstrap_servers": "h:1"}).naps_per_hour)
texts = {"bootstrap.servers": "h:1", "naps.per.hour": "7"}
print(ConsumerConfig.from_properties(texts).naps_per_hour)
try:
    Consumer("t", bootstrap_servers="h:1", naps_per_hour=0)
except ConfigError as error:
    print(error)
print([entry.text for entry in describe(ConsumerConfig) if entry.name == "naps_per_hour"])
print("naps_per_hour" in ConsumerOptions.__annotations__)
""",
    )
    default, read, refused, described, typed = printed.splitlines()
    assert (default, read, typed) == ("2", "7", "True")
    assert "naps_per_hour" in refused
    assert described == "['How often the consumer rests.']"
    assert checkout.changed == {file}


def test_a_codec_is_one_module_and_one_row(checkout: Checkout) -> None:
    checkout.insert(
        "config/codecs.py",
        "\n    DEFLATE = 5, CodecTraits(levels=range(1, 10), default_level=6)",
        after="default_level=3)",
    )
    checkout.create(
        "record/codecs/deflate.py",
        """
import zlib

from aiokclient.record.compression import collected

def compress(data, level):
    return zlib.compress(data, level)

def pieces(data, size):
    yield zlib.decompress(data)

def decompress(data, limit):
    return collected(pieces(data, limit), limit, "deflate")
""",
    )
    printed = checkout.run(
        "-c",
        """
import asyncio
from aiokclient import Consumer, Producer
from aiokclient.config.producer import ProducerConfig
from aiokclient.errors import ConfigError
from aiokclient.testing import EmbeddedCluster

async def round_trip(servers):
    options = {"bootstrap_servers": servers, "compression_type": "deflate", "compression_level": 9}
    async with Producer(**options, linger_ms=20) as producer:
        await producer.gather(producer.send_many("t", [b"again and again"] * 1000))
    async with Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        print(len([record async for record in consumer.until_end()]))

with EmbeddedCluster(brokers=1) as cluster:
    cluster.create_topic("t", configs={"compression.type": "deflate"})
    asyncio.run(round_trip(cluster.bootstrap_servers))
try:
    ProducerConfig(bootstrap_servers="h:1", compression_type="deflate", compression_level=10)
except ConfigError as error:
    print(error)
""",
    )
    assert printed.startswith("1000\n")
    assert "deflate" in printed
    assert checkout.changed == {"config/codecs.py", "record/codecs/deflate.py"}


def test_a_sasl_mechanism_is_one_module_and_one_row(checkout: Checkout) -> None:
    checkout.create(
        "network/sasl/null.py",
        """\
class Null:
    thread = None

    def __init__(self, login):
        self.name = login.credentials.name

    def answer_challenge(self, challenge):
        return None if challenge else self.name.encode()
""",
    )
    rows = "MECHANISMS: dict[str, Callable[[Login], Mechanism]] = {"
    checkout.insert("network/sasl/__init__.py", '"NULL": Null, ', after=rows)
    checkout.insert(
        "network/sasl/__init__.py",
        "from aiokclient.network.sasl.null import Null\n",
        before="\n__all__ = [",
    )
    # Add the same mechanism to the embedded cluster.
    rows = "MECHANISMS: dict[str, Callable[[Accounts], ServerMechanism]] = {"
    server = """
class ServerNull:
    def __init__(self, accounts):
        pass

    def answer_message(self, message):
        if message != b"alice":
            raise Refused(Code.SASL_AUTHENTICATION_FAILED, "This is not Alice.")
        return Challenge(b"welcome", done=True)


"""
    checkout.insert("testing/broker/connections/sasl.py", server.lstrip("\n"), before=rows)
    checkout.insert("testing/broker/connections/sasl.py", '"NULL": ServerNull,', after=rows)
    printed = checkout.run(
        "-c",
        """
import asyncio, dataclasses
from aiokclient import Admin, Plaintext
from aiokclient.errors import AuthenticationError
from aiokclient.testing import BrokerListener, EmbeddedCluster

@dataclasses.dataclass(frozen=True)
class Named(Plaintext):
    name: str = "alice"
    sasl_mechanism = "NULL"

async def main():
    listeners = {"SASL": BrokerListener(mechanisms=("NULL",))}
    async with EmbeddedCluster(topics=["orders"], listeners=listeners) as cluster:
        servers = cluster.bootstrap_servers_for("SASL")
        async with Admin(bootstrap_servers=servers, security=Named()) as admin:
            print(await admin.list_topics())
        try:
            async with Admin(bootstrap_servers=servers, security=Named("bob")):
                pass
        except AuthenticationError as error:
            print(error)

asyncio.run(main())
""",
    )
    listed, refused = printed.splitlines()
    assert "orders" in listed
    assert "This is not Alice." in refused
    assert checkout.changed == {
        "network/sasl/null.py",
        "network/sasl/__init__.py",
        "testing/broker/connections/sasl.py",
    }


SHEEP_MESSAGE = """\
from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, int16, int32


class CountSheepRequest(
    Request["CountSheepResponse"], key=9001, versions="0", flexible="0+", route=Route.ANY
):
    most: int = int32()


class CountSheepResponse(Response, request=CountSheepRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    sheep: int = int32()
"""

SHEEP_PROGRAM = """
import asyncio
from aiokclient import Admin
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

async def main():
    async with EmbeddedCluster() as cluster:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            print(await admin.count_sheep(30), await admin.count_sheep(50))
            from aiokclient.errors import NotControllerError
            with cluster.fail(ApiKey.COUNT_SHEEP, NotControllerError, times=1):
                print(await admin.count_sheep(10))

asyncio.run(main())
"""


def test_an_admin_call_is_one_message_one_method_and_one_handler(checkout: Checkout) -> None:
    checkout.insert("protocol/api.py", "    COUNT_SHEEP = 9001\n", before="    PRODUCE = 0\n")
    checkout.create(
        "protocol/messages/count_sheep.py",
        SHEEP_MESSAGE,
    )
    checkout.insert(
        "admin/cluster.py",
        """\
async def count_sheep(requests: AdminRequests, most: int, timeout: float | None) -> int:
    from aiokclient.protocol.messages.count_sheep import CountSheepRequest

    response = await requests.send_request(CountSheepRequest(most=most), AnyBroker(), timeout)
    return response.sheep


""",
        before="async def describe_cluster(",
    )
    checkout.insert(
        "admin/kafka_calls.py",
        """\
    async def count_sheep(self, most: int, *, timeout: float | None = None) -> int:
        return await subjects.cluster.count_sheep(self._requests, most, timeout)

""",
        before="    async def describe_cluster(",
    )
    checkout.create(
        "testing/broker/handlers/count_sheep.py",
        """\
from aiokclient.protocol.messages.count_sheep import CountSheepResponse


def handle(call):
    return CountSheepResponse(error_code=call.find_refusal(), sheep=min(call.request.most, 40))
""",
    )
    checkout.insert(
        "testing/broker/handlers/__init__.py",
        '    ApiKey.COUNT_SHEEP: "count_sheep",\n',
        before='    ApiKey.PRODUCE: "produce",\n',
    )
    printed = checkout.run(
        "-c",
        SHEEP_PROGRAM,
    )
    assert printed.split() == ["30", "40", "10"]
    assert checkout.changed == {
        "protocol/api.py",
        "protocol/messages/count_sheep.py",
        "admin/cluster.py",
        "admin/kafka_calls.py",
        "testing/broker/handlers/count_sheep.py",
        "testing/broker/handlers/__init__.py",
    }
