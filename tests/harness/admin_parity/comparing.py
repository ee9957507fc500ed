"""The comparison of a call of Java's Admin with one of this Admin."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from typing import Any

from admin_parity import group_calls, security_calls
from admin_parity.calls import CALLS
from admin_parity.forms import error_form, form, key_text
from admin_parity.java import JavaAdmin
from admin_parity.scenario import ALICE, MECHANISM, PASSWORD, Scenario, World
from aiokclient import Admin, Client, SaslScram
from aiokclient.admin import UserScramCredentialUpsertion
from aiokclient.errors import KafkaError

assert group_calls
assert security_calls

PATIENCE_S = 10
"""The seconds in which every broker must know of a change."""
TIMEOUT_MS = 20_000
HASTE_MS = 3_000
"""The timeout of a client for calls that are known to be repeated until then."""


class Cluster:
    """A cluster with its clients of this library.

    `root` may do everything, and `alice` nothing; `hasty` is a client with a short timeout.
    """

    def __init__(self, kind: str, servers: str, sasl: str) -> None:
        self.kind, self.servers, self.sasl = kind, servers, sasl
        self.run = uuid.uuid4().hex[:4]
        self.admins: dict[str, Admin] = {}
        self.client = Client(bootstrap_servers=servers)
        self.directory = ""
        """A log directory of broker 1."""

    def options(self, client: str) -> dict[str, Any]:
        """Return the options of a client under Kafka's names."""
        options: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "default.api.timeout.ms": TIMEOUT_MS,
            "request.timeout.ms": TIMEOUT_MS - 5_000,
            "client.id": client,
            "enable.metrics.push": "true",
        }
        if client == "hasty":
            options["default.api.timeout.ms"] = HASTE_MS
            options["request.timeout.ms"] = HASTE_MS - 1_000
        if client == ALICE:
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            options |= {
                "bootstrap.servers": self.sasl,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": f'{module} required username="{ALICE}" password="{PASSWORD}";',
            }
        return options

    async def start(self) -> None:
        """Start the clients, and wait until every broker knows the password of alice."""
        await self.client.start()
        root = self.admins["root"] = Admin.from_properties(self.options("root"))
        await root.start()
        change = UserScramCredentialUpsertion(ALICE, PASSWORD, MECHANISM)
        (await root.alter_user_scram_credentials([change])).raise_for_errors()
        for server in self.sasl.split(","):
            await self._log_in(server)
        for name in (ALICE, "hasty"):
            self.admins[name] = Admin.from_properties(self.options(name))
            await self.admins[name].start()
        described = (await root.describe_log_dirs([1])).raise_for_errors()
        self.directory = described[1][0].path

    async def _log_in(self, server: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                login = SaslScram(ALICE, PASSWORD, MECHANISM)
                admin = Admin(bootstrap_servers=server, security=login)
                try:
                    await admin.start()
                    return
                except KafkaError:
                    await asyncio.sleep(0.1)
                finally:
                    await admin.close()

    async def close(self) -> None:
        for admin in self.admins.values():
            await admin.close()
        await self.client.close()

    def world(self, number: int, side: str) -> World:
        prefix = f"p{self.run}{number:03}{side}-"
        world = World(self.servers, self.client, self.admins["root"], prefix)
        world.values["options"] = self.options("other")
        world.values["sasl"] = self.sasl
        world.values["directory"] = self.directory
        return world


async def run_ours(cluster: Cluster, scenario: Scenario, world: World) -> Any:
    """Return the result of our call in the common form."""
    call = CALLS[scenario.method]
    try:
        found = await call(cluster.admins[scenario.client], world.resolve(scenario.given))
        return simplified(scenario, world, {"value": form(found)})
    except (KafkaError, TypeError, ValueError) as error:
        return simplified(scenario, world, error_form(error))


async def run_java(java: JavaAdmin, scenario: Scenario, world: World) -> Any:
    """Return the result of Java's call in the common form."""
    given = world.resolve(scenario.given)
    found = await asyncio.to_thread(java.call, scenario.client, scenario.method, given)
    return simplified(scenario, world, found)


async def prepare(scenario: Scenario, world: World) -> None:
    for step in scenario.before:
        await step(world)


async def compare(cluster: Cluster, java: JavaAdmin, scenario: Scenario, number: int) -> Any:
    """Return Java's result and ours. The effects that `then` shows are in them as `after`."""
    if scenario.reads:
        world = cluster.world(number, "r")
        async with world.stack:
            await prepare(scenario, world)
            return await _compare_reads(cluster, java, scenario, world)
    theirs_in, ours_in = cluster.world(number, "j"), cluster.world(number, "o")
    async with theirs_in.stack, ours_in.stack:
        await prepare(scenario, theirs_in)
        theirs = await run_java(java, scenario, theirs_in)
        await prepare(scenario, ours_in)
        ours = await run_ours(cluster, scenario, ours_in)
        if scenario.then is None or not is_same(theirs, ours):
            return theirs, ours
        shown = await _compare_effects(java, scenario, theirs_in, ours_in)
        results = zip((theirs, ours), shown, strict=True)
        return tuple({**result, "after": effect} for result, effect in results)


async def _compare_reads(
    cluster: Cluster, java: JavaAdmin, scenario: Scenario, world: World
) -> Any:
    """Compare until both are the same: brokers follow the metadata one after the other."""
    clock = asyncio.get_running_loop()
    deadline = clock.time() + PATIENCE_S
    while True:
        theirs = await run_java(java, scenario, world)
        ours = await run_ours(cluster, scenario, world)
        if is_same(theirs, ours) or scenario.differs or clock.time() > deadline:
            return theirs, ours
        await asyncio.sleep(0.2)


async def _compare_effects(
    java: JavaAdmin, scenario: Scenario, theirs_in: World, ours_in: World
) -> Any:
    assert scenario.then is not None
    method, given = scenario.then
    showing = Scenario(method, scenario.title, given, varies=(*scenario.varies, "topicId"))
    clock = asyncio.get_running_loop()
    deadline = clock.time() + PATIENCE_S
    while True:
        theirs = await run_java(java, showing, theirs_in)
        ours = await run_java(java, showing, ours_in)
        if theirs == ours or clock.time() > deadline:
            return theirs, ours
        await asyncio.sleep(0.2)


def is_same(theirs: Any, ours: Any) -> bool:
    """Return whether two results are the same.

    An error of the whole call is here the error of each item.
    """
    if theirs == ours:
        return True
    each = ours.get("value")
    is_whole = "error" in theirs and isinstance(each, Mapping) and bool(each)
    return is_whole and all(one == theirs for one in each.values())


def simplified(scenario: Scenario, world: World, found: Any) -> Any:
    """Return a result without what may be different in each call, or in each world."""
    text = json.dumps(found).replace(world.prefix, "$")
    for name, value in world.values.items():
        if isinstance(value, str) and len(value) > 8:
            text = text.replace(value, f"$={name}")
    return _without(json.loads(text), scenario)


def _without(found: Any, scenario: Scenario) -> Any:
    if isinstance(found, Mapping):
        left = {key: value for key, value in found.items() if key not in scenario.lacks}
        if "error" in left and isinstance(left["error"], str):
            left.pop("text", None)
        return {
            key: "..."
            if key in scenario.varies and value not in (None, -1)
            else _without(value, scenario)
            for key, value in left.items()
        }
    if isinstance(found, list):
        parts = [_without(each, scenario) for each in found]
        # The order of brokers' ids has a meaning, that of all else is a matter of chance.
        return (
            parts if any(isinstance(each, int) for each in parts) else sorted(parts, key=key_text)
        )
    return found
