"""The arguments of a client of a registry: URLs, credentials, and properties."""

from __future__ import annotations

import asyncio
import base64
import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from registry_stub import RegistryStub
from token_server import granted, token_server

from aiokclient import Tls
from aiokclient.errors import ClosedError, ConfigError, WrongLoopError
from aiokclient.schema import RegisteredSchema, Schema, SchemaReference, SchemaRegistry


@pytest.mark.parametrize(
    ("urls", "shown"),
    [
        ("http://a", ["http://a"]),
        (" http://a:8081/ , https://b/x/ ", ["http://a:8081", "https://b/x"]),
        (["http://u:p%40@[::1]:1/p"], ["http://[::1]:1/p"]),
        (("http://a", "http://a/"), ["http://a"]),
    ],
)
def test_urls_are_one_or_several_without_credentials(urls: Any, shown: list[str]) -> None:
    registry = SchemaRegistry(urls)
    assert registry.urls == tuple(shown)
    assert repr(registry) == f"SchemaRegistry({', '.join(shown)!r})"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"urls": ""}, "urls is empty"),
        ({"urls": 5}, "urls must be a string"),
        ({"urls": "registry:8081"}, "URL 1 of 1 does not begin with http"),
        ({"urls": "http://a,ftp://b"}, "URL 2 of 2 does not begin"),
        ({"urls": "http://"}, "has no host"),
        ({"urls": "http://a:x"}, "is not a URL such as"),
        ({"urls": "http://a?b=c"}, "has a query"),
        ({"urls": "http://a/ü"}, "must be percent-encoded"),
        ({"basic_auth": "alice"}, "basic_auth must be a pair"),
        ({"basic_auth": ("a:b", "c")}, "basic_auth must be a pair"),
        ({"token_provider": "token"}, "token_provider must be an async function"),
        ({"urls": "http://u:p@a", "basic_auth": "a:b"}, "only one of basic_auth and a user in"),
        ({"security": Tls()}, "no URL begins with https"),
        ({"urls": "https://a", "security": "TLS"}, "security must be a Tls or an ssl.SSLContext"),
        ({"headers": {"Authorization": "x"}}, "The header Authorization is made by the client"),
        ({"headers": {"a b": "x"}}, "The name of header 1"),
        ({"headers": {"a": "x\r\ny: z"}}, "The value of the header a"),
        ({"headers": "x"}, "headers must be a mapping"),
        ({"timeout": 0}, "timeout must be a number greater than 0"),
        ({"cache_size": True}, "cache_size must be a number greater than 0"),
    ],
)
def test_wrong_options_of_a_registry_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SchemaRegistry(**{"urls": "http://a", **options})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda r: r.version("a", 0), "version must be an integer greater than 0"),
        (lambda r: r.version("a", "first"), "version must be an integer greater than 0"),
        (lambda r: r.latest(""), "subject must be a string that is not empty"),
        (lambda r: r.by_id(-1), "id must be an integer that is not negative"),
        (lambda r: r.by_guid("x"), "guid must be a UUID"),
        (lambda r: r.set_mode(None, None), "mode must be a string"),
    ],
)
async def test_wrong_arguments_of_calls_send_nothing(
    registry: SchemaRegistry, stub: RegistryStub, call: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        await call(registry)
    assert stub.requests == []


def test_schemas_are_values() -> None:
    schema = Schema("x", "json", [SchemaReference("a", "b", 1)], metadata={"tags": {}})
    assert schema.type == "JSON"
    for twin in (copy.copy(schema), copy.deepcopy(schema), pickle.loads(pickle.dumps(schema))):
        assert twin == schema
        assert hash(twin) == hash(schema)
    assert schema != Schema("x", "JSON", [SchemaReference("a", "b", 1)])
    assert Schema("x") != "x"
    assert repr(Schema("x" * 200)) == f"Schema('{'x' * 100}...', 'AVRO')"
    with pytest.raises(AttributeError):
        schema.text = "y"
    registered = RegisteredSchema(1, UUID(int=5), "a", 2, schema)
    assert pickle.loads(pickle.dumps(registered)) == registered
    for wrong in ((b"x",), ("x", ""), ("x", "AVRO", ["a"])):
        with pytest.raises(ConfigError, match="Schema: "):
            Schema(*wrong)
    with pytest.raises(ConfigError, match="rule_set must be a mapping"):
        Schema("x", rule_set=[])


async def test_properties_name_the_registry_and_its_user(
    stub: RegistryStub, tmp_path: Path
) -> None:
    stub.authorization = f"Basic {base64.b64encode(b'alice:secret').decode()}"
    base = {"bootstrap.servers": "kafka:9092", "ssl.truststore.location": "/of/kafka"}
    for properties in (
        {"schema.registry.url": stub.url, "basic.auth.user.info": "alice:secret"},
        {
            "schema.registry.url": stub.url,
            "schema.registry.basic.auth.user.info": "alice:secret",
            "schema.registry.basic.auth.credentials.source": "USER_INFO",
        },
        {
            "schema.registry.url": stub.url.replace("//", "//alice:secret@"),
            "basic.auth.credentials.source": "URL",
        },
    ):
        async with SchemaRegistry.from_properties(base | properties) as registry:
            assert "AVRO" in await registry.types()
    file = tmp_path / "registry.properties"
    file.write_text(f"url={stub.url}\nbasic.auth.user.info=alice\\:secret\n")
    async with SchemaRegistry.from_properties(file, timeout=5.0) as registry:
        assert "AVRO" in await registry.types()


async def test_properties_name_tokens(stub: RegistryStub) -> None:
    stub.authorization = "Bearer given-token"
    properties = {
        "schema.registry.url": stub.url,
        "bearer.auth.token": "given-token",
        "bearer.auth.logical.cluster": "lsrc-1",
        "bearer.auth.identity.pool.id": "pool-1",
    }
    async with SchemaRegistry.from_properties(properties) as registry:
        await registry.types()
    headers = stub.requests[-1].headers
    assert headers["target-sr-cluster"] == "lsrc-1"
    assert headers["confluent-identity-pool-id"] == "pool-1"
    async with token_server() as server:
        server.respond = lambda asked: granted("given-token", expires_in=600)
        properties = {
            "schema.registry.url": stub.url,
            "bearer.auth.issuer.endpoint.url": server.url,
            "bearer.auth.client.id": "app",
            "bearer.auth.client.secret": "secret",
            "bearer.auth.scope": "registry",
        }
        async with SchemaRegistry.from_properties(properties) as registry:
            await registry.types()
        assert server.requests[0].form["scope"] == "registry"


def test_properties_name_certificates(tmp_path: Path) -> None:
    for name in ("ssl.ca.location", "schema.registry.ssl.ca.location"):
        url = "schema.registry.url" if name.startswith("schema") else "url"
        made = SchemaRegistry.from_properties({url: "https://a", name: "/ca.pem"})
        assert made._tls == Tls(cafile="/ca.pem")
    made = SchemaRegistry.from_properties(
        {
            "schema.registry.url": "https://a",
            "schema.registry.ssl.truststore.type": "PEM",
            "schema.registry.ssl.truststore.location": "/ca.pem",
            "ssl.ca.location": "/of/kafka.pem",
        }
    )
    assert made._tls is not None
    assert made._tls.cafile == "/ca.pem"


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "schema.registry.url: It is missing"),
        ({"basic.auth.user.infos": "a:b"}, "basic.auth.user.infos: There is no such option"),
        ({"schema.registry.urls": "a"}, "urls: There is no such option"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "SASL_INHERIT is not available"),
        ({"basic.auth.credentials.source": "USER_INFO"}, "basic.auth.user.info: It is missing"),
        ({"bearer.auth.credentials.source": "STATIC_TOKEN"}, "bearer.auth.token: It is missing"),
        ({"bearer.auth.credentials.source": "CUSTOM"}, "CUSTOM is not available"),
        ({"bearer.auth.client.id": "a"}, "bearer.auth.issuer.endpoint.url: OAUTHBEARER needs it"),
        ({"bearer.auth.token": "t", "bearer.auth.client.id": "a"}, "has no effect"),
    ],
)
def test_wrong_properties_of_a_registry_are_refused(properties: dict[str, str], said: str) -> None:
    url = {"schema.registry.url": "http://a"} if properties else {}
    with pytest.raises(ConfigError, match=said):
        SchemaRegistry.from_properties({**url, **properties})


def test_imports_of_the_package_bring_no_http_library() -> None:
    code = (
        "import sys, aiokclient, aiokclient.schema\n"
        "from aiokclient.schema import SchemaRegistry, Schema\n"
        "SchemaRegistry('https://a')\n"
        "names = ('httpcore2', 'httpx2', 'h11', 'fastavro', 'jsonschema', 'google.protobuf')\n"
        "print([n for n in names if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokclient.schema.registry.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'aiokclient\[registry\]'"):
        SchemaRegistry("http://a")


async def test_requests_use_no_thread_of_the_application(stub: RegistryStub) -> None:
    """Names are resolved although all threads of the default executor are occupied."""
    release = Event()
    with ThreadPoolExecutor(1) as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        occupied = pool.submit(release.wait)
        try:
            url = stub.url.replace("127.0.0.1", "localhost")
            async with SchemaRegistry(url) as registry:
                assert "AVRO" in await registry.types()
        finally:
            release.set()
            occupied.result()


def test_a_client_belongs_to_one_event_loop() -> None:
    registry = SchemaRegistry("http://127.0.0.1:1")

    async def enter() -> None:
        async with registry:
            pass

    async def ask() -> None:
        await registry.types()

    asyncio.run(enter())
    with pytest.raises(ClosedError):
        asyncio.run(ask())
    other = SchemaRegistry("http://127.0.0.1:1")
    asyncio.run(_start(other))
    with pytest.raises(WrongLoopError, match="another event loop"):
        asyncio.run(_start(other))


async def _start(registry: SchemaRegistry) -> None:
    await registry.__aenter__()


def test_a_client_cannot_be_copied() -> None:
    registry = SchemaRegistry("http://a")
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            duplicate(registry)


async def test_credentials_without_tls_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    for url in ("http://registry.invalid", "http://localhost:1"):
        async with SchemaRegistry(url, basic_auth="alice:secret"):
            pass
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warned) == 1
    assert "http://registry.invalid are sent unencrypted" in warned[0]
