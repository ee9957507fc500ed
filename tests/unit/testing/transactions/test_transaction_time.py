"""Tests of transactions in virtual time: timeouts are exact, and a seed determines everything."""

import asyncio

import pytest
from parity import named
from virtual_group import Line, in_virtual_time

from aiokclient.protocol import messages
from aiokclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

TIMEOUT_MS = 7_500
EXPIRATION_S = 5.0


class Producer:
    """A transactional producer on a simulated network, which is connected to its coordinator."""

    def __init__(self, world):
        self.world, self.cluster = world, world.cluster

    async def connect(self):
        address = self.cluster.address(self.cluster.coordinator("t"))
        options = {"tls": None, "server_hostname": None}
        transport = await self.world.sim.connector.connect(address, Line, **options)
        self.line = transport.get_protocol()
        return self

    async def init(self):
        request = messages.InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=TIMEOUT_MS
        )
        answer = await self.line.send(request)
        self.pid, self.epoch = answer.producer_id, answer.producer_epoch
        return named(answer.error_code)

    async def add(self):
        transaction = AddPartitionsToTxnTransaction(
            transactional_id="t",
            producer_id=self.pid,
            producer_epoch=self.epoch,
            topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
        )
        answer = await self.line.send(
            messages.AddPartitionsToTxnRequest(transactions=[transaction])
        )
        (topic,) = answer.results_by_transaction[0].topic_results
        return named(topic.results_by_partition[0].partition_error_code)

    @property
    def view(self):
        return self.cluster.transactions["t"]


async def open_transaction(world):
    producer = await Producer(world).connect()
    assert (await producer.init(), await producer.add()) == ("ok", "ok")
    return producer


def test_a_transaction_is_aborted_at_its_timeout():
    async def scenario(world):
        producer = await open_transaction(world)
        await asyncio.sleep(TIMEOUT_MS / 1000 - 0.1)
        before = producer.view.state
        await asyncio.sleep(0.2)
        return before, producer.view.state, producer.view.producer_epoch

    assert in_virtual_time(scenario) == ("Ongoing", "CompleteAbort", 1)


@pytest.mark.parametrize("level", [2, 1])
def test_a_timeout_continues_on_another_coordinator(level):
    async def scenario(world):
        producer = await open_transaction(world)
        await asyncio.sleep(5)
        moved = world.cluster.move_coordinator("t")
        await asyncio.sleep(2.3)
        before = producer.view.state, producer.view.coordinator == moved
        await asyncio.sleep(0.3)
        return before, producer.view.state, producer.view.producer_epoch

    found = in_virtual_time(scenario, transaction_version=level)
    assert found == (("Ongoing", True), "CompleteAbort", 1)


def test_a_paused_coordinator_aborts_when_it_resumes():
    async def scenario(world):
        producer = await open_transaction(world)
        world.cluster.pause(producer.view.coordinator)
        await asyncio.sleep(20)
        before = producer.view.state
        world.cluster.resume(producer.view.coordinator)
        await asyncio.sleep(0.1)
        return before, producer.view.state

    assert in_virtual_time(scenario) == ("Ongoing", "CompleteAbort")


def test_a_seed_determines_the_transactions():
    async def scenario(world):
        producer = await open_transaction(world)
        await asyncio.sleep(8)
        return producer.view, await producer.init(), producer.view

    assert in_virtual_time(scenario) == in_virtual_time(scenario)


def test_an_unused_transactional_id_expires_and_an_open_one_does_not():
    async def scenario(world):
        producer = await Producer(world).connect()
        seen = [await producer.init()]
        await asyncio.sleep(EXPIRATION_S - 1)
        seen += [await producer.add(), "t" in world.cluster.transactions]
        await asyncio.sleep(TIMEOUT_MS / 1000 - 1)
        seen.append(producer.view.state)
        await asyncio.sleep(2)
        seen.append(producer.view.state)
        await asyncio.sleep(EXPIRATION_S - 2)
        seen.append("t" in world.cluster.transactions)
        await asyncio.sleep(2)
        seen += ["t" in world.cluster.transactions, await producer.add()]
        first = producer.pid
        seen += [await producer.init(), producer.pid > first, producer.epoch, await producer.add()]
        return seen

    configs = {"transactional.id.expiration.ms": int(EXPIRATION_S * 1000)}
    assert in_virtual_time(scenario, configs=configs) == [
        *("ok", "ok", True, "Ongoing", "CompleteAbort", True, False),
        *("INVALID_PRODUCER_ID_MAPPING", "ok", True, 0, "ok"),
    ]
