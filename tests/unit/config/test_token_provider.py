"""A token provider that an option names as module:function, and what replaces Amazon's options."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from aiokclient import Client, Consumer, Producer, SaslOAuthBearer
from aiokclient.config.client import ClientConfig
from aiokclient.errors import ConfigError
from aiokclient.spark.sink.options import SinkOptions
from aiokclient.spark.source.options import SourceOptions
from aiokclient.testing import BrokerListener, EmbeddedCluster

BROKEN = "raise RuntimeError('no region')"
MODULE = """
from aiokclient import OAuthToken
from aiokclient.testing.tokens import unsecured_token

NUMBER = 7
calls = []

async def token():
    calls.append(1)
    return OAuthToken(unsecured_token("alice"), 2**50)

class Tokens:
    provide = staticmethod(token)
"""
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
IAM = "software.amazon.msk.auth.iam"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with token providers."""
    name = f"tokens_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"broken_{name}.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize("path", ["token", "Tokens.provide"])
async def test_clients_log_in_with_tokens_of_the_function_that_an_option_names(
    module: str, path: str
) -> None:
    listeners = {"SASL": BrokerListener(mechanisms=["OAUTHBEARER"])}
    with EmbeddedCluster(brokers=1, listeners=listeners) as cluster:
        options = {
            **LOGIN,
            "bootstrap.servers": cluster.bootstrap_servers_for("SASL"),
            "sasl.oauthbearer.token.provider": f"{module}:{path}",
        }
        cluster.create_topic("t")
        async with Producer[Any, Any].from_properties(options) as producer:
            await producer.send("t", b"v")
        by_name = {name.replace(".", "_"): value for name, value in options.items()}
        kwargs: Any = {**by_name, "auto_offset_reset": "earliest"}
        async with Consumer("t", **kwargs) as consumer:
            assert [record.value async for record in consumer.until_end()] == [b"v"]
    assert len(sys.modules[module].calls) == 2


def test_option_becomes_the_security_object_of_each_client(module: str) -> None:
    options: Any = {
        "bootstrap_servers": "h:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_provider": f" {module}:token ",
        "sasl_jaas_config": "a.OAuthBearerLoginModule required;",
    }
    security = ClientConfig(**options).security
    assert isinstance(security, SaslOAuthBearer)
    assert security.token_provider is sys.modules[module].token
    assert security.tls is not None


WRONG = [
    ({"provider": "tokens"}, "'tokens' is not allowed. It must be module:function, such as"),
    ({"provider": "a b:c"}, "'a b:c' is not allowed"),
    ({"provider": ":c"}, "':c' is not allowed"),
    ({"provider": "a:"}, "'a:' is not allowed"),
    ({"provider": "a:b:c"}, "'a:b:c' is not allowed"),
    ({"provider": "no_such_module:f"}, "no_such_module:f cannot be imported (ModuleNotFoundError"),
    ({"provider": "MODULE:missing"}, "MODULE:missing cannot be imported (AttributeError"),
    ({"provider": "broken_MODULE:f"}, "cannot be imported (RuntimeError: no region)"),
    ({"provider": "MODULE:NUMBER"}, "MODULE:NUMBER is a int. It must be an async function."),
    (
        {"provider": "MODULE:token", "token.endpoint.url": "https://idp/t"},
        "It replaces sasl.oauthbearer.token.endpoint.url. Give only one of them.",
    ),
    (
        {"provider": "MODULE:token", "handler": "a.OAuthBearerLoginCallbackHandler"},
        "It replaces sasl.login.callback.handler.class.",
    ),
    (
        {"provider": "MODULE:token", "jaas": 'a.OAuthBearerLoginModule required clientId="a";'},
        "It replaces sasl.jaas.config.",
    ),
]
NAMES = {
    "provider": "sasl.oauthbearer.token.provider",
    "token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "handler": "sasl.login.callback.handler.class",
    "jaas": "sasl.jaas.config",
}


@pytest.mark.parametrize(("options", "text"), WRONG, ids=[text for _, text in WRONG])
def test_wrong_provider_is_explained(module: str, options: dict[str, str], text: str) -> None:
    given = {NAMES[name]: value.replace("MODULE", module) for name, value in options.items()}
    broker = {"bootstrap.servers": "h:9092"}
    with pytest.raises(ConfigError) as caught:
        Client.from_properties({**LOGIN, **broker, **given})
    message = str(caught.value).splitlines()[0]
    assert message.startswith("sasl.oauthbearer.token.provider: ")
    assert text.replace("MODULE", module) in message
    in_spark = {f"kafka.{name}": value for name, value in {**LOGIN, **broker, **given}.items()}
    with pytest.raises(ConfigError, match=r"^kafka\.sasl\.oauthbearer\.token\.provider: "):
        SourceOptions.parse({**in_spark, "subscribe": "t"}, streaming=False)
    with pytest.raises(ConfigError, match=r"^kafka\.sasl\.oauthbearer\.token\.provider: "):
        SinkOptions.parse({**in_spark, "topic": "t"}, streaming=False)


def test_another_mechanism_refuses_the_option(module: str) -> None:
    given = {"sasl.oauthbearer.token.provider": f"{module}:token", "bootstrap.servers": "h:9092"}
    with pytest.raises(ConfigError, match="provider needs security"):
        Client.from_properties(given)


AMAZON = [
    {"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": f"{IAM}.IAMLoginModule required;"},
    {"sasl.mechanism": "AWS_MSK_IAM"},
    {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{IAM}.IAMLoginModule required;"},
    {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "org.apache.OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
    },
    {
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{IAM}.IAMLoginModule required;",
        "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
    },
]


@pytest.mark.parametrize("options", AMAZON)
def test_options_of_amazon_name_the_provider_and_the_package(options: dict[str, str]) -> None:
    given = {"security.protocol": "SASL_SSL", "bootstrap.servers": "h:9098", **options}
    with pytest.raises(ConfigError) as caught:
        Client.from_properties(given)
    text = str(caught.value)
    assert "token_provider=module:function" in text or "token.provider=module:function" in text
    in_spark = {f"kafka.{name}": value for name, value in given.items()}
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse({**in_spark, "subscribe": "t"}, streaming=True)
    text = str(caught.value)
    assert "kafka.sasl.oauthbearer.token.provider=module:function" in text
    assert "security=" not in text
