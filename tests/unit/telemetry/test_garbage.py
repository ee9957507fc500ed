"""Brokers that respond with bytes that are not a response, on real connections."""

import uuid
from typing import Any

import pytest
from scripted import ScriptedBroker

from aiokclient import AnyBroker, Client, State
from aiokclient.errors import ApiTimeoutError
from aiokclient.protocol import ApiKey, messages

ASK, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
GARBAGE = {
    "nothing": b"",
    "zeros": bytes(1_000),
    "ones": b"\xff" * 1_000,
    "a count of 2^31": bytes(22) + b"\xff\xff\xff\xff\x07",
    "half a response": bytes(9),
}


def subscription(request: Any, version: int) -> Any:
    return messages.GetTelemetrySubscriptionsResponse(
        client_instance_id=uuid.UUID(int=7), push_interval_ms=100, requested_metrics=["*"]
    )


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("api", [ASK, PUSH])
async def test_client_goes_on_after_garbage(api: ApiKey, garbage: bytes) -> None:
    async with ScriptedBroker() as broker:
        broker.versions.update({ASK: (0, 0), PUSH: (0, 0)})
        broker.handlers[ASK] = subscription
        broker.handlers[api] = lambda request, version: garbage
        options = {
            "reconnect_backoff_ms": 1,
            "reconnect_backoff_max_ms": 5,
            "request_timeout_ms": 1_000,
            "close_timeout_ms": 500,
        }
        async with Client(bootstrap_servers=broker.address, **options) as client:
            if api is ASK:
                with pytest.raises(ApiTimeoutError):
                    await client.client_instance_id(timeout=0.5)
            else:
                await client.client_instance_id()
                await broker.until(lambda: broker.count(PUSH) >= 2)
            request = messages.MetadataRequest(topics=[])
            assert (await client.request(request, AnyBroker())).cluster_id == "scripted"
            assert client.state is State.RUNNING
            assert not client.health().telemetry.startswith("failed")
        assert broker.count(api) > 0
