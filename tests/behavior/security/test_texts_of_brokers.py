"""What brokers say reaches errors, logs, and health in one line, escaped and bounded."""

import logging
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from aiokclient import (
    Admin,
    Client,
    NewTopic,
    OAuthToken,
    Plaintext,
    Producer,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
)
from aiokclient.errors import KafkaError
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import BrokerListener, EmbeddedCluster

EVIL = "ok\r\n2026-01-01 CRITICAL forged\x1b[31m\x1b]0;title\x07\u2028\u202e\x00\x85" + "x" * 20_000
USERS = {"alice": "secret"}
MOST = 4_000


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    listener = BrokerListener(mechanisms=("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"), users=USERS)
    with EmbeddedCluster(topics={"t": 1}, listeners={"SASL": listener}) as made:
        yield made


def check(*texts: str) -> None:
    for text in texts:
        assert text.isprintable(), ascii(text[:200])
        assert len(text) < MOST


def check_logs(caplog: pytest.LogCaptureFixture) -> None:
    check(*(record.getMessage() for record in caplog.records))


def check_error(error: BaseException) -> None:
    check(str(error), repr(error))
    check(*traceback.format_exception_only(error)[-1].splitlines()[:-1])


async def check_failed_start(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, **options: Any
) -> str:
    """Start a client that logs in, check its error and the log, and return the error's text."""
    client = Client(bootstrap_servers=cluster.bootstrap_servers_for("SASL"), **options)
    with pytest.raises(KafkaError) as caught:
        await client.start()
    check_error(caught.value)
    check_logs(caplog)
    await client.close()
    return str(caught.value)


async def token() -> OAuthToken:
    return OAuthToken("a.b.c", 2**45)


@pytest.mark.parametrize(
    "security", [SaslPlain("alice", "secret"), SaslScram("alice", "secret"), SaslOAuthBearer(token)]
)
async def test_a_refusal_of_a_login_is_escaped_and_bounded(
    cluster: EmbeddedCluster, security: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def refuse(request: Any, response: Any) -> Any:
        return messages.SaslAuthenticateResponse(error_code=58, error_message=EVIL)

    with cluster.alter(ApiKey.SASL_AUTHENTICATE, refuse):
        text = await check_failed_start(cluster, caplog, security=security)
    assert "forged\\x1b[31m" in text


@pytest.mark.parametrize("security", [SaslPlain("alice", "secret"), Plaintext()])
async def test_the_names_of_mechanisms_are_escaped_and_bounded(
    cluster: EmbeddedCluster, security: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def offer(request: Any, response: Any) -> Any:
        return messages.SaslHandshakeResponse(error_code=33, mechanisms=[EVIL, EVIL, *"ab" * 999])

    with cluster.alter(ApiKey.SASL_HANDSHAKE, offer):
        await check_failed_start(cluster, caplog, security=security, default_api_timeout_ms=1_000)


async def test_a_scram_message_of_the_broker_is_escaped_and_bounded(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: Any, response: Any) -> Any:
        return messages.SaslAuthenticateResponse(auth_bytes=f"e={EVIL}".encode())

    with cluster.alter(ApiKey.SASL_AUTHENTICATE, refuse):
        await check_failed_start(cluster, caplog, security=SaslScram("alice", "secret"))


async def test_error_messages_are_escaped_and_bounded(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def refuse_topic(request: Any, response: Any) -> Any:
        for topic in response.topics:
            topic.error_code, topic.error_message = 37, EVIL
        return response

    def refuse_records(request: Any, response: Any) -> Any:
        for topic in response.responses:
            for part in topic.partition_responses:
                part.error_code, part.error_message = 87, EVIL
        return response

    options = {"bootstrap_servers": cluster.bootstrap_servers}
    async with Admin(**options) as admin, Producer(**options) as producer:
        with cluster.alter(ApiKey.CREATE_TOPICS, refuse_topic):
            results = await admin.create_topics([NewTopic("new", 1)])
            for error in results.errors.values():
                check_error(error)
            check(repr(results))
            with pytest.raises(KafkaError) as caught:
                results.raise_for_errors()
            check_error(caught.value)
        with cluster.alter(ApiKey.PRODUCE, refuse_records):
            with pytest.raises(KafkaError) as caught:
                await producer.send("t", b"v")
            check_error(caught.value)
    check_logs(caplog)


async def test_advertised_names_are_escaped_and_bounded(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def advertise(request: Any, response: Any) -> Any:
        for broker in response.brokers:
            broker.host = EVIL
        response.cluster_id = EVIL[:200]
        return response

    with cluster.alter(ApiKey.METADATA, advertise):
        client = Client(bootstrap_servers=cluster.bootstrap_servers, default_api_timeout_ms=1_000)
        with pytest.raises(KafkaError) as caught:
            await client.start()
        check_error(caught.value)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        events = producer.events()
        with cluster.alter(ApiKey.METADATA, advertise):
            with pytest.raises(KafkaError) as caught:
                await producer.prepare("new", timeout=1.0)
            check_error(caught.value)
            await cluster.until(lambda: "forged" in str(producer.health().addresses), 10.0)
            health = producer.health()
            check(*health.reasons, *map(str, health.brokers.values()), repr(producer))
            check(*(str(address) for address in health.addresses.values()))
    check_logs(caplog)
    async for event in events:
        check(getattr(event, "address", ""))


async def test_a_coordinator_with_an_evil_name_is_escaped_and_bounded(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def refuse(request: Any, response: Any) -> Any:
        for each in response.coordinators:
            each.node_id, each.host, each.port, each.error_message = 77, EVIL, 9092, EVIL
        return response

    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with cluster.alter(ApiKey.FIND_COORDINATOR, refuse):
            results = await admin.describe_groups(["g"], timeout=1.0)
            for error in results.errors.values():
                check_error(error)
    check_logs(caplog)
