"""Logins on a real Kafka: repeated ones, every five seconds, and a repeated one that is refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from typing import Any

import pytest
from kerberos_peers import MISSING, REQUIRED
from secured_kafka import REAUTH_MS, SecuredKafka

from aiokclient import (
    AclBinding,
    AclOperation,
    Admin,
    AnyBroker,
    Client,
    Consumer,
    NewTopic,
    Producer,
    ResourcePattern,
    SaslScram,
    State,
    TopicPartition,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from aiokclient.errors import DeliveryTimeoutError, SaslAuthenticationError
from aiokclient.events import Authenticated, Disconnected
from aiokclient.protocol import messages

SECONDS = 60 if os.environ.get("AIOKCLIENT_EXPLORE") else 20
RATE = 5_000
"""Records per second from the client with the first login in LOGINS. All other clients together
send a tenth of that."""
PAUSE_S = 0.02
LOGINS = [
    "SCRAM-SHA-512",
    "SCRAM-SHA-256",
    "PLAIN",
    "unsecured token",
    "delegation token",
    # Where it is missing, the summary says so for `test_logins.py`.
    *([] if MISSING and not REQUIRED else ["GSSAPI"]),
]


class Traffic:
    """A producer and a consumer of one partition, on one client."""

    def __init__(self, options: dict[str, Any], topic: str, partition: int, rate: float) -> None:
        self._options = options
        self._topic, self._partition = topic, partition
        self._rate = rate
        self.sent = self.read = 0
        self.events: list[Any] = []

    async def run(self) -> None:
        """Send numbered records for SECONDS, and check that they are read in their order."""
        async with Client(**self._options) as client:
            events = client.events()
            consumer = Consumer(client=client, auto_offset_reset="earliest")
            consumer.assign([TopicPartition(self._topic, self._partition)])
            producer = Producer(client=client, linger_ms=5)
            async with producer, consumer, asyncio.TaskGroup() as group:
                group.create_task(self._read(consumer))
                group.create_task(self._send(producer))
        self.events = [event async for event in events]

    async def _send(self, producer: Producer) -> None:
        time = asyncio.get_running_loop().time
        began, total = time(), int(self._rate * SECONDS)
        while self.sent < total:
            due = min(total, int(self._rate * (time() - began)))
            deliveries = [
                producer.send(self._topic, b"%d" % number, partition=self._partition)
                for number in range(self.sent, due)
            ]
            first, self.sent = self.sent, due
            if deliveries:
                found = await producer.gather(deliveries)
                assert [each.offset for each in found] == list(range(first, due))
            await asyncio.sleep(PAUSE_S)

    async def _read(self, consumer: Consumer) -> None:
        while self.read < int(self._rate * SECONDS):
            for record in await consumer.poll(PAUSE_S):
                assert record.value == b"%d" % self.read
                assert record.offset == self.read
                self.read += 1


@pytest.mark.slow
@pytest.mark.fault(46)
async def test_logins_repeated_under_load_lose_and_reorder_nothing(
    secured: SecuredKafka,
) -> None:
    topic = f"again-{uuid.uuid4().hex[:8]}"
    async with Admin(bootstrap_servers=secured.cluster.bootstrap) as admin:
        (await admin.create_topics([NewTopic(topic, len(LOGINS), 1)])).raise_for_errors()
    every = {}
    for partition, login in enumerate(LOGINS):
        options = (await secured.way(login, "REAUTH")).options
        rate = RATE / (10 * (len(LOGINS) - 1)) if partition else RATE
        every[login] = Traffic(options, topic, partition, rate)
    async with asyncio.TaskGroup() as group:
        for traffic in every.values():
            group.create_task(traffic.run())
    assert every[LOGINS[0]].read >= SECONDS * RATE
    for login, traffic in every.items():
        assert traffic.read == traffic.sent
        again = [e for e in traffic.events if isinstance(e, Authenticated) and e.again]
        lost = [e for e in traffic.events if isinstance(e, Disconnected) and e.cause is not None]
        # Each client has two connections that repeat the login: one to produce and one to fetch.
        assert len(again) >= 2 * (SECONDS * 1000 // REAUTH_MS - 2), login
        assert all(0 < event.lifetime_ms <= REAUTH_MS for event in again), login
        # If the process gets no processor time, a session may end before its login is repeated.
        assert len(lost) <= len(again) // 5, (login, lost)


@pytest.mark.fault(46)
async def test_kafka_renews_a_session_that_ended_while_the_loop_was_blocked(
    secured: SecuredKafka,
) -> None:
    options = (await secured.way("SCRAM-SHA-512", "REAUTH")).options
    async with Client(**options) as client:
        events = client.events()
        await client.request(messages.ListGroupsRequest(), to=AnyBroker())
        time.sleep(REAUTH_MS / 1000 + 0.5)  # noqa: ASYNC251 - as a program that only computes
        seen: list[Any] = []
        async with asyncio.timeout(60):
            async for event in events:
                seen.append(event)
                if isinstance(event, Authenticated) and event.again:
                    break
        await client.request(messages.ListGroupsRequest(), to=AnyBroker())
        assert not [event for event in seen if isinstance(event, Disconnected)]


async def send_until_failure(producer: Producer, topic: str) -> None:
    while True:
        await producer.send(topic, b"accepted until the login is repeated")
        await asyncio.sleep(PAUSE_S)


async def send_until_success(producer: Producer, topic: str) -> None:
    while True:
        with contextlib.suppress(DeliveryTimeoutError):
            await producer.send(topic, b"accepted again")
            return


@pytest.mark.slow
@pytest.mark.fault(46, 48)
async def test_a_producer_whose_user_is_deleted_delivers_once_the_user_is_back(
    secured: SecuredKafka,
) -> None:
    user, topic = f"user-{uuid.uuid4().hex[:8]}", f"deleted-{uuid.uuid4().hex[:8]}"
    upserted = UserScramCredentialUpsertion(user, "secret", "SCRAM-SHA-512")
    servers = secured.servers("REAUTH_PLAINTEXT")
    producer = Producer(
        bootstrap_servers=servers,
        security=SaslScram(user, "secret"),
        request_timeout_ms=2_000,
        delivery_timeout_ms=6_000,
    )
    async with Admin(bootstrap_servers=secured.cluster.bootstrap) as admin:
        (await admin.alter_user_scram_credentials([upserted])).raise_for_errors()
        (await admin.create_topics([NewTopic(topic, 1, 1)])).raise_for_errors()
        permission = AclBinding(ResourcePattern.topic(topic), f"User:{user}", AclOperation.WRITE)
        (await admin.create_acls([permission])).raise_for_errors()
        async with producer:
            events = producer.events()
            await producer.send(topic, b"accepted")
            deleted = UserScramCredentialDeletion(user, "SCRAM-SHA-512")
            (await admin.alter_user_scram_credentials([deleted])).raise_for_errors()
            with pytest.raises(DeliveryTimeoutError) as caught:
                await asyncio.wait_for(send_until_failure(producer, topic), 120)
            assert isinstance(caught.value.__cause__, SaslAuthenticationError)
            assert f"refused the user '{user}'" in str(caught.value.__cause__)
            assert producer.state is State.DEGRADED
            assert user in str(producer.health().reasons)
            (await admin.alter_user_scram_credentials([upserted])).raise_for_errors()
            await asyncio.wait_for(send_until_success(producer, topic), 120)
    refused = [each async for each in events if isinstance(each.cause, SaslAuthenticationError)]
    # With the default backoff, the delay grows from 50 ms to a second.
    assert 1 <= len(refused) < 200
