"""Names with several addresses, which are tried in a race (RFC 8305), and slow name resolution."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest
from world import World, simulate

from aiokclient import AnyBroker
from aiokclient.errors import BootstrapError, ConnectionSetupError
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing.simulation.network import NameFault, Weather

NAME = "kafka.test"
DEAD = "10.255.0.1"
"""An address that drops packets: connecting to it never ends."""
CANONICAL = "resolve_canonical_bootstrap_servers_only"


class Closing(asyncio.Protocol):
    """A server that closes each connection at the first byte."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.close()


class Web(Closing):
    """A server that speaks another protocol."""

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def port_of(world: World) -> int:
    return world.cluster.address(1)[1]


def block(world: World, *addresses: str) -> None:
    """Let these addresses drop all packets to the broker's port."""
    names = [f"[{a}]:{port_of(world)}" if ":" in a else f"{a}:{port_of(world)}" for a in addresses]
    world.network.part(["client"], names)


def named(world: World, *addresses: str, **more: Any) -> dict[str, Any]:
    """Return options whose bootstrap server is a name with these addresses."""
    world.network.names[NAME] = list(addresses)
    return {"bootstrap_servers": f"{NAME}:{port_of(world)}", **more}


def outcomes(world: World) -> list[str]:
    """Return the outcome of each attempt to connect, in order."""
    words = [what.split()[0] for _, what in world.network.events]
    return [word for word in words if word in ("opened", "refused")]


@pytest.mark.parametrize("dead", [1, 3])
def test_address_that_drops_packets_delays_the_next_by_a_quarter_of_a_second(dead: int) -> None:
    async def scenario(world: World) -> None:
        addresses = [DEAD, "::1", "10.255.0.2"][:dead]
        block(world, *addresses)
        began = world.now
        async with world.client(**named(world, *addresses, "127.0.0.1")):
            pass
        # The addresses that drop packets are tried first. Each delays the next attempt.
        assert 0.25 * dead <= world.now - began < 0.25 * dead + 0.1

    simulate(scenario)


def test_families_alternate_so_that_a_network_without_ipv6_costs_one_delay() -> None:
    async def scenario(world: World) -> None:
        dead = [f"2001:db8::{number}" for number in range(1, 9)]
        block(world, *dead)
        began = world.now
        async with world.client(**named(world, *dead, "127.0.0.1")):
            assert 0.25 <= world.now - began < 0.35

    simulate(scenario)


def test_next_address_follows_a_refusal_immediately() -> None:
    async def scenario(world: World) -> None:
        began = world.now
        async with world.client(**named(world, "::1", "127.0.0.2", "127.0.0.1")):
            assert world.now - began < 0.1
        assert outcomes(world)[:3] == ["refused", "refused", "opened"]

    simulate(scenario)


def test_faster_of_two_addresses_wins_and_the_other_connection_is_not_made() -> None:
    async def scenario(world: World) -> None:
        slow = world.network.listen("::1", port_of(world), Closing)
        world.network.slowed[f"[::1]:{port_of(world)}"] = 1.0
        async with world.client(**named(world, "::1", "127.0.0.1")) as client:
            assert world.network.connections_made == 1
            await asyncio.sleep(2)
            assert world.network.connections_made == 1
            assert client.cluster.brokers.any_connected
        slow.close()

    simulate(scenario, advertised_host=NAME)


def test_slow_first_address_wins_when_the_next_ones_fail() -> None:
    async def scenario(world: World) -> None:
        world.network.slowed[f"127.0.0.1:{port_of(world)}"] = 1.0
        began = world.now
        async with world.client(**named(world, "127.0.0.1", "::1", "10.0.0.1")):
            assert world.now - began >= 1
            world.network.slowed.clear()
        assert outcomes(world).count("opened") == 1

    simulate(scenario, advertised_host=NAME)


def test_addresses_that_were_cancelled_are_tried_after_an_unusable_winner() -> None:
    """The second address wins the race, and then closes the connection."""

    async def scenario(world: World) -> None:
        bad = world.network.listen("::1", port_of(world), Closing)
        world.network.slowed[f"127.0.0.1:{port_of(world)}"] = 0.4
        began = world.now
        async with world.client(**named(world, "127.0.0.1", "::1")):
            assert world.now - began < 5
            world.network.slowed.clear()
        assert outcomes(world)[:2] == ["opened", "opened"]
        bad.close()

    simulate(scenario, advertised_host=NAME)


def test_start_raises_when_the_winner_speaks_another_protocol() -> None:
    async def scenario(world: World) -> None:
        bad = world.network.listen("::1", port_of(world), Web)
        client = world.client(**named(world, "::1", "127.0.0.1"))
        with pytest.raises(ConnectionSetupError, match="HTTP"):
            await client.start()
        await client.close()
        bad.close()

    simulate(scenario)


def test_error_lists_each_address_when_none_can_be_used() -> None:
    async def scenario(world: World) -> None:
        block(world, DEAD)
        bad = world.network.listen("::1", port_of(world), Closing)
        client = world.client(
            **named(world, DEAD, "::1", "10.0.0.1", default_api_timeout_ms=2_000),
            socket_connection_setup_timeout_ms=1_000,
        )
        with pytest.raises(BootstrapError) as caught:
            await client.start()
        assert world.now < 2.1
        ((address, outcome),) = caught.value.attempts
        assert address == f"{NAME}:{port_of(world)}"
        assert "any of its 3 addresses" in outcome
        assert f"{DEAD} did not accept a connection within 1" in outcome
        assert "[::1] closed the connection" in outcome
        assert re.search(r"10\.0\.0\.1: .*refused", outcome)
        await client.close()
        bad.close()

    simulate(scenario)


def test_cancelled_race_leaves_nothing_open() -> None:
    """The start is cancelled at 40 moments. `simulate` checks tasks and connections."""

    async def scenario(world: World) -> None:
        block(world, DEAD)
        bad = world.network.listen("::1", port_of(world), Closing)
        for step in range(40):
            client = world.client(**named(world, DEAD, "::1", "10.0.0.1", "127.0.0.1"))
            starting = asyncio.create_task(client.start())
            await asyncio.sleep(0.02 * step)
            starting.cancel()
            await asyncio.wait([starting])
            await client.close()
            assert not world.network.connections or step > 12
            await asyncio.sleep(0.1)
            assert not world.network.connections
        bad.close()

    simulate(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_connections_that_are_made_at_the_same_time_leave_one(seed: int) -> None:
    async def scenario(world: World) -> None:
        late = world.network.listen("::1", port_of(world), Closing)
        # The first address is slowed by as much as the second attempt is delayed. There is no
        # jitter, so both are connected at the same time.
        world.network.slowed[f"[::1]:{port_of(world)}"] = 0.25
        async with world.client(**named(world, "::1", "127.0.0.1")) as client:
            await asyncio.sleep(1)
            assert client.cluster.brokers.connections == 1
            assert len(world.network.connections) == 1
        late.close()

    simulate(scenario, seed=seed, weather=Weather(latency_s=(0.0, 0.0)))


# -- IPv6 ------------------------------------------------------------------------------------------


def test_ipv6_address_has_brackets_wherever_it_is_shown() -> None:
    async def scenario(world: World) -> None:
        client = world.client(bootstrap_servers="[::1]:1", default_api_timeout_ms=500)
        assert "[::1]:1" in repr(client)
        with pytest.raises(BootstrapError) as caught:
            await client.start()
        assert caught.value.attempts[0][0] == "[::1]:1"
        assert "::1:1" not in str(caught.value).replace("[::1]:1", "")
        await client.close()

    simulate(scenario)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_client_works_with_advertised_ipv6_addresses(host: str) -> None:
    """Kafka advertises IPv6 addresses without brackets. Other servers may add brackets."""

    def advertise(request: Any, response: Any) -> Any:
        for broker in response.brokers:
            broker.host = host
        return response

    async def scenario(world: World) -> None:
        with world.cluster.alter(ApiKey.METADATA, advertise):
            async with world.client(bootstrap_servers=world.cluster.bootstrap_servers) as client:
                await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
                address = f"[::1]:{port_of(world)}"
                health = client.health()
                assert set(health.addresses.values()) == {address}
                assert address in repr(health)
                assert "::1" not in repr(client).replace(address, "")

    simulate(scenario, host="::1")


# -- bootstrap_resolve_timeout_ms --------------------------------------------------------------


def counted(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the names that are looked up, in order, from now on."""
    looked_up: list[str] = []
    resolve = world.network.resolve

    async def counting(host: str, port: int) -> Any:
        looked_up.append(host)
        return await resolve(host, port)

    monkeypatch.setattr(world.network, "resolve", counting)
    return looked_up


@pytest.mark.fault(16)
@pytest.mark.parametrize("fault", NameFault)
@pytest.mark.parametrize("lookup", ["use_all_dns_ips", CANONICAL])
def test_start_raises_at_the_resolve_timeout_when_no_name_resolves(
    fault: NameFault, lookup: str
) -> None:
    async def scenario(world: World) -> None:
        world.network.names |= {"one.test": fault, "two.test": fault}
        client = world.client(
            bootstrap_servers="one.test:9092,two.test:9092",
            bootstrap_resolve_timeout_ms=5_000,
            client_dns_lookup=lookup,
        )
        with pytest.raises(BootstrapError) as caught:
            await client.start()
        assert 4.9 <= world.now <= 5.1
        assert "bootstrap_resolve_timeout_ms" in str(caught.value)
        assert {address for address, _ in caught.value.attempts} == {
            "one.test:9092",
            "two.test:9092",
        }
        await client.close()

    simulate(scenario)


@pytest.mark.fault(16)
@pytest.mark.parametrize("fault", [NameFault.FAIL, NameFault.EMPTY])
def test_each_name_is_resolved_once_when_the_resolve_timeout_is_0(
    fault: NameFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        world.network.names |= {"one.test": fault, "two.test": fault}
        looked_up = counted(world, monkeypatch)
        servers = "one.test:9092,two.test:9092"
        client = world.client(bootstrap_servers=servers, bootstrap_resolve_timeout_ms=0)
        with pytest.raises(BootstrapError, match="The name one") as caught:
            await client.start()
        assert "The name two" in str(caught.value)
        assert "bootstrap_resolve_timeout_ms" in str(caught.value)
        assert sorted(looked_up) == ["one.test", "two.test"]
        assert world.now < 0.1
        await client.close()

    simulate(scenario)


@pytest.mark.fault(16)
@pytest.mark.parametrize("lookup", ["use_all_dns_ips", CANONICAL])
def test_start_succeeds_when_a_name_resolves_within_the_resolve_timeout(lookup: str) -> None:
    async def scenario(world: World) -> None:
        world.network.names["one.test"] = NameFault.FAIL
        client = world.client(
            bootstrap_servers=f"one.test:{port_of(world)}",
            bootstrap_resolve_timeout_ms=20_000,
            client_dns_lookup=lookup,
        )
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(5)
        world.network.names["one.test"] = ["127.0.0.1"]
        await starting
        assert world.now < 7.5
        await client.close()

    simulate(scenario)


@pytest.mark.fault(16)
@pytest.mark.parametrize("timeout_ms", [0, 2_000])
def test_resolve_timeout_does_not_end_a_start_when_one_name_is_resolved(timeout_ms: int) -> None:
    """The broker with the resolved name is down for the first five seconds."""

    async def scenario(world: World) -> None:
        world.network.names |= {"one.test": NameFault.FAIL, "two.test": ["127.0.0.1"]}
        world.cluster.stop(1)
        client = world.client(
            bootstrap_servers=f"one.test:9092,two.test:{port_of(world)}",
            bootstrap_resolve_timeout_ms=timeout_ms,
        )
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(5)
        world.cluster.start(1)
        await starting
        await client.close()

    simulate(scenario)


def test_last_of_many_names_is_resolved_within_the_resolve_timeout() -> None:
    """The client begins at least one lookup per second, and more if the timeout requires it."""

    async def scenario(world: World) -> None:
        names = [f"blocked{number}.test" for number in range(20)]
        world.network.names |= dict.fromkeys(names, NameFault.BLOCK)
        world.network.names["good.test"] = ["127.0.0.1"]
        servers = [*(f"{name}:9092" for name in names), f"good.test:{port_of(world)}"]
        async with world.client(bootstrap_servers=servers, bootstrap_resolve_timeout_ms=5_000):
            assert world.now < 3

    simulate(scenario)


def test_resolve_timeout_does_not_end_a_start_that_does_not_wait() -> None:
    async def scenario(world: World) -> None:
        world.network.names["one.test"] = NameFault.FAIL
        client = world.client(
            bootstrap_servers=f"one.test:{port_of(world)}", bootstrap_resolve_timeout_ms=1_000
        )
        await client.start(wait=False)
        await asyncio.sleep(10)
        world.network.names["one.test"] = ["127.0.0.1"]
        await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
        await client.close()

    simulate(scenario)


@pytest.mark.parametrize("lookup", ["use_all_dns_ips", CANONICAL])
def test_one_log_line_names_what_does_not_resolve(
    lookup: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        faults = {"one.test": NameFault.FAIL, "two.test": NameFault.EMPTY}
        world.network.names |= faults
        client = world.client(
            bootstrap_servers="one.test:9092,two.test:9092",
            default_api_timeout_ms=5_000,
            client_dns_lookup=lookup,
        )
        with pytest.raises(BootstrapError):
            await client.start()
        await client.close()

    with caplog.at_level(logging.INFO, "aiokclient"):
        simulate(scenario)
    texts = [r.getMessage() for r in caplog.records if "not resolved" in r.getMessage()]
    assert len(texts) == 1
    assert "one.test cannot be resolved" in texts[0]
    assert "two.test has no address" in texts[0]
