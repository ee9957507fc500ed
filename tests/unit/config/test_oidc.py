"""Token providers that request tokens from an endpoint, and Kafka's options for them."""

from __future__ import annotations

import asyncio
import json
import pickle
import ssl
import time
from base64 import b64decode, urlsafe_b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from hidden import assert_hidden
from hypothesis import given
from hypothesis import strategies as st
from token_server import Asked, TokenServer, granted, refused, token_server

from aiokclient import OidcClientCredentials, OidcJwtBearer, SaslOAuthBearer, Tls
from aiokclient.config.client import ClientConfig
from aiokclient.config.secret import Secret
from aiokclient.config.security.oidc.endpoint import MAX_RESPONSE, Reply
from aiokclient.config.security.oidc.response import Claims, token_from_reply
from aiokclient.errors import ConfigError, KafkaError, TokenProviderError, TokenRefusedError
from aiokclient.testing.tokens import unsecured_token

SECRET = "open-sesame/&"
MODULE = "org.apache.kafka.common.security.oauthbearer."


@pytest.fixture
async def server() -> AsyncIterator[TokenServer]:
    """The token endpoint of a test."""
    async with token_server() as made:
        yield made


def credentials(server: TokenServer, **options: Any) -> OidcClientCredentials:
    return OidcClientCredentials(server.url, "app", SECRET, **options)


def decoded(part: str) -> Any:
    return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))


# -- client credentials --------------------------------------------------------------------------


async def test_client_credentials_are_sent_as_rfc_6749_describes(server: TokenServer) -> None:
    token = await credentials(server, scope="kafka read", extensions={"pool": "p"})()
    (asked,) = server.requests
    assert asked.form == {"grant_type": "client_credentials", "scope": "kafka read"}
    scheme, _, pair = asked.headers["authorization"].partition(" ")
    assert (scheme, b64decode(pair).decode()) == ("Basic", f"app:{SECRET}")
    assert (asked.path, asked.headers["accept"]) == ("/token", "application/json")
    assert (token.principal, dict(token.extensions)) == ("alice", {"pool": "p"})
    claims = decoded(token.token.reveal().split(".")[1])
    assert token.expires_at_ms == int(1000 * claims["exp"])


async def test_credentials_are_encoded_if_the_server_expects_it(server: TokenServer) -> None:
    await credentials(server, header_urlencode=True)()
    pair = server.requests[0].headers["authorization"].removeprefix("Basic ")
    assert b64decode(pair).decode() == "app:open-sesame%2F%26"


async def test_an_opaque_token_expires_as_the_response_says(server: TokenServer) -> None:
    server.respond = lambda asked: granted("opaque", expires_in="60")
    before = time.time()
    token = await credentials(server)()
    assert before + 60 <= token.expires_at_ms / 1000 + 0.001 <= time.time() + 60.001
    assert token.principal is None


async def test_claims_may_have_other_names(server: TokenServer) -> None:
    token = unsecured_token("alice", client="bob", scp=["a"], scope=5)
    server.respond = lambda asked: granted(token)
    found = await credentials(server, sub_claim_name="client", scope_claim_name="scp")()
    assert found.principal == "bob"
    with pytest.raises(TokenProviderError, match="claim scope is neither"):
        await credentials(server)()


# -- errors --------------------------------------------------------------------------------------


async def test_a_wrong_secret_is_an_error_with_the_endpoint_and_the_oauth_error(
    server: TokenServer,
) -> None:
    server.respond = lambda asked: refused("invalid_client", "no such client", 401)
    with pytest.raises(TokenRefusedError) as caught:
        await credentials(server)()
    error = caught.value
    assert (error.endpoint, error.oauth_error) == (server.url, "invalid_client")
    assert f"{server.url} refused the request with the HTTP status 401" in str(error)
    assert "the error invalid_client: no such client." in str(error)
    assert not error.retriable
    assert pickle.loads(pickle.dumps(error)).oauth_error == "invalid_client"
    assert_hidden(error, SECRET)


async def test_a_server_that_repeats_the_credentials_does_not_make_them_visible(
    server: TokenServer,
) -> None:
    def repeat(asked: Asked) -> tuple[int, bytes]:
        basic = asked.headers["authorization"].removeprefix("Basic ")
        return refused(SECRET, f"{SECRET} {basic} open-sesame%2F%26 é\n", 400)

    server.respond = repeat
    with pytest.raises(TokenRefusedError) as caught:
        await credentials(server)()
    error = caught.value
    assert error.oauth_error is None
    basic = server.requests[0].headers["authorization"].removeprefix("Basic ")
    for hidden in (SECRET, basic, "open-sesame%2F%26"):
        assert_hidden(error, hidden)


GARBAGE = [
    ((500, b"oops"), "HTTP status 500"),
    ((503, b'{"error": "temporarily_unavailable"}'), "503 and the error temporarily_unavailable"),
    (refused("slow_down"), "400 and the error slow_down"),
    ((429, b""), "HTTP status 429"),
    ((302, b""), "HTTP status 302"),
    ((200, b""), "no access_token"),
    ((200, b"\xff\xfe{"), "no access_token"),
    ((200, b"[" * 100_000), "no access_token"),
    ((200, b"[1]"), "no access_token"),
    (granted(5), "no access_token"),
    (granted("opaque"), "no expiry"),
    (granted("opaque", expires_in=True), "no expiry"),
    (granted("opaque", expires_in=1e400), "no expiry"),
    (granted("opaque", expires_in="9" * 5000), "no expiry"),
    (granted("not allowed\x01", expires_in=5), "characters that are not allowed"),
    ((200, b"x" * (MAX_RESPONSE + 1)), "more than 1048576 bytes"),
]


@pytest.mark.parametrize(("answer", "text"), GARBAGE, ids=[text for _, text in GARBAGE])
async def test_a_server_that_fails_is_a_retriable_error(
    server: TokenServer, answer: tuple[int, bytes], text: str
) -> None:
    server.respond = lambda asked: answer
    with pytest.raises(TokenProviderError, match=text) as caught:
        await credentials(server)()
    assert caught.value.retriable
    assert server.url in str(caught.value)
    assert_hidden(caught.value, SECRET)


async def test_a_server_that_is_silent_is_a_retriable_error(server: TokenServer) -> None:
    server.respond = lambda asked: None
    with pytest.raises(TokenProviderError, match="did not respond") as caught:
        await credentials(server, read_timeout_ms=50)()
    assert caught.value.retriable
    assert_hidden(caught.value, SECRET)


async def test_a_cancelled_request_ends_its_connection_and_its_thread(server: TokenServer) -> None:
    server.respond = lambda asked: None
    call = asyncio.ensure_future(credentials(server, read_timeout_ms=3_600_000)())
    async with asyncio.timeout(30):
        await server.asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.left.wait()


async def test_a_server_that_does_not_exist_is_a_retriable_error() -> None:
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    url = f"http://127.0.0.1:{port}/token"
    with pytest.raises(TokenProviderError, match=r"cannot be asked \(.*refused\)") as caught:
        await OidcClientCredentials(url, "app", SECRET)()
    assert isinstance(caught.value.__cause__, OSError)
    assert_hidden(caught.value, SECRET)


@pytest.mark.fuzz
@given(st.integers(100, 599), st.binary(max_size=200))
def test_any_response_is_a_token_or_a_typed_error(status: int, body: bytes) -> None:
    try:
        token_from_reply(
            Reply(status, Secret(body.decode("latin-1"))), "https://x", 0, Claims(), str
        )
    except KafkaError as error:
        found = error
    else:
        return
    assert isinstance(found, TokenProviderError | TokenRefusedError)
    assert len(str(found)) < 1000


@pytest.mark.parametrize("status", [200, 201])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": "invalid_client", "error_description": "who?"}, "invalid_client"),
        ({"error": "invalid_client", "access_token": None}, "invalid_client"),
        ({"error": "invalid_client", "access_token": ""}, "invalid_client"),
        ({"error": {"code": 5}}, None),
        ({"error": "no such\nclient"}, None),
    ],
)
async def test_an_error_with_a_status_of_success_is_a_refusal(
    server: TokenServer, status: int, body: dict[str, Any], code: str | None
) -> None:
    server.respond = lambda asked: (status, json.dumps(body).encode())
    with pytest.raises(TokenRefusedError, match=f"HTTP status {status}") as caught:
        await credentials(server)()
    assert caught.value.oauth_error == code


async def test_a_temporary_error_with_status_200_is_no_refusal(server: TokenServer) -> None:
    server.respond = lambda asked: refused("temporarily_unavailable", status=200)
    with pytest.raises(TokenProviderError, match="temporarily_unavailable"):
        await credentials(server)()


async def test_an_error_member_beside_a_token_is_ignored(server: TokenServer) -> None:
    server.respond = lambda asked: granted("opaque", expires_in=60, error="")
    assert (await credentials(server)()).principal is None


async def test_a_response_beyond_the_limit_is_not_read_to_its_end() -> None:
    chunk, chunks = b" " * 65_536, 1_024
    sent = 0
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            await reader.readuntil(b"\r\n\r\n")
            size = len(chunk) * chunks
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
            for _ in range(chunks):
                writer.write(chunk)
                await writer.drain()
                sent += len(chunk)
        except OSError:
            pass  # The client has closed the connection.
        finally:
            writer.close()
            ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = OidcClientCredentials(f"http://127.0.0.1:{port}/token", "app", SECRET)
    with pytest.raises(TokenProviderError, match="more than 1048576 bytes"):
        await provider()
    await ended.wait()
    assert sent < len(chunk) * chunks / 2, "the rest was not read"
    server.close()
    await server.wait_closed()


# -- TLS -----------------------------------------------------------------------------------------


async def test_the_certificate_of_the_endpoint_is_verified(tmp_path: Path) -> None:
    ca = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("localhost").configure_cert(context)
    cafile = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(cafile)
    async with token_server(context) as server:
        with pytest.raises(TokenProviderError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            await credentials(server)()
        assert "pass tls=Tls(cafile=...)" in str(caught.value)
        assert "ssl.truststore.location in sasl_jaas_config" in str(caught.value)
        assert server.requests == []
        assert (await credentials(server, tls=Tls(cafile=str(cafile)))()).principal == "alice"


# -- assertions ----------------------------------------------------------------------------------


def write_key(path: Path, key: Any, passphrase: bytes | None = None) -> str:
    encryption: Any = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    pem = serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, pem, encryption))
    return str(path)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_an_assertion_is_signed_by_the_key_of_the_file(
    server: TokenServer, tmp_path: Path, algorithm: str
) -> None:
    keys = {"RS256": rsa.generate_private_key(65537, 2048), "ES256": None}
    key = keys[algorithm] or ec.generate_private_key(ec.SECP256R1())
    template = tmp_path / "template.json"
    template.write_text('{"header": {"kid": "k", "alg": "none"}, "payload": {"sub": "s", "x": 1}}')
    provider = OidcJwtBearer(
        server.url,
        private_key_file=write_key(tmp_path / "key.pem", key, b"passphrase"),
        private_key_passphrase="passphrase",
        algorithm=algorithm,
        audience="https://idp",
        issuer="app",
        subject="app",
        lifetime_s=100,
        not_before_s=10,
        include_jti=True,
        template_file=str(template),
        scope="kafka",
    )
    before = int(time.time())
    await provider()
    await provider()
    first, second = server.requests
    assert first.form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert first.form["scope"] == "kafka"
    assert "authorization" not in first.headers
    header, payload, signature = first.form["assertion"].split(".")
    assert decoded(header) == {"kid": "k", "alg": algorithm, "typ": "JWT"}
    claims = decoded(payload)
    assert claims["jti"] != decoded(second.form["assertion"].split(".")[1])["jti"]
    assert (claims["aud"], claims["iss"], claims["sub"], claims["x"]) == (
        "https://idp",
        "app",
        "s",
        1,
    )
    assert claims["iat"] >= before
    assert (claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"]) == (100, 10)
    raw = urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    data = f"{header}.{payload}".encode()

    def verify(data: bytes) -> None:
        public = key.public_key()
        if algorithm == "RS256":
            public.verify(raw, data, padding.PKCS1v15(), SHA256())
        else:
            halves = (int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
            public.verify(encode_dss_signature(*halves), data, ec.ECDSA(SHA256()))

    verify(data)
    with pytest.raises(InvalidSignature):
        verify(data + b"x")


async def test_an_assertion_file_is_read_again_for_each_request(
    server: TokenServer, tmp_path: Path
) -> None:
    file = tmp_path / "assertion"
    provider = OidcJwtBearer(server.url, assertion_file=str(file))
    with pytest.raises(TokenProviderError, match="assertion cannot be read: No such file"):
        await provider()
    for text in ("a.b.c\n", "d.e.f"):
        file.write_text(text)
        await provider()
    assert [asked.form["assertion"] for asked in server.requests] == ["a.b.c", "d.e.f"]
    server.respond = lambda asked: refused("invalid_grant", "d.e.f has expired")
    with pytest.raises(TokenRefusedError, match="invalid_grant") as caught:
        await provider()
    assert_hidden(caught.value, "d.e.f")


async def test_a_client_may_identify_itself_by_an_assertion(
    server: TokenServer, tmp_path: Path
) -> None:
    file = tmp_path / "assertion"
    file.write_text("a.b.c")
    await OidcClientCredentials(server.url, "app", assertion_file=str(file))()
    assert server.requests[0].form == {
        "grant_type": "client_credentials",
        "client_id": "app",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": "a.b.c",
    }


async def test_keys_that_cannot_be_used_are_explained(server: TokenServer, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    path = write_key(tmp_path / "key.pem", key, b"passphrase")
    for passphrase in (None, "wrong-phrase"):
        with pytest.raises(TokenProviderError, match=r"key\.pem cannot be loaded") as caught:
            await OidcJwtBearer(
                server.url, private_key_file=path, private_key_passphrase=passphrase
            )()
        assert_hidden(caught.value, "wrong-phrase", source_has_it=True)
    with pytest.raises(TokenProviderError, match="does not fit the algorithm RS256"):
        await OidcJwtBearer(
            server.url, private_key_file=path, private_key_passphrase="passphrase"
        )()
    bad = tmp_path / "bad.json"
    bad.write_text("[]")
    with pytest.raises(TokenProviderError, match=r"bad\.json is not a JSON object"):
        await OidcJwtBearer(server.url, private_key_file=path, template_file=str(bad))()
    assert server.requests == []


# -- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: OidcClientCredentials("http://idp/t", "a", SECRET), "http sends the credentials"),
        (lambda: OidcClientCredentials("ftp://idp/t", "a", SECRET), "must be a URL"),
        (lambda: OidcClientCredentials("https://idp/\nt", "a", SECRET), "must be a URL"),
        (lambda: OidcClientCredentials("https://idp/\u00e9", "a", SECRET), "must be a URL"),
        (lambda: OidcClientCredentials("https://idp/t", "a", SECRET, tls=True), "tls must be"),
        (lambda: OidcClientCredentials("https://u:p@idp/t", "a", SECRET), "neither credentials"),
        (lambda: OidcClientCredentials("https://idp/t", "", SECRET), "client_id must be"),
        (lambda: OidcClientCredentials("https://idp/t", "a"), "either client_secret or"),
        (lambda: OidcClientCredentials("https://idp/t", "a", b"x"), "client_secret must be"),
        (lambda: OidcClientCredentials("https://idp/t", "a", f"{SECRET}\ud800"), "client_secret"),
        (lambda: OidcClientCredentials("https://idp/t", "a", SECRET, 5), "scope must be"),
        (
            lambda: OidcClientCredentials("https://idp/t", "a", SECRET, read_timeout_ms=0),
            "read_timeout_ms must be",
        ),
        (
            lambda: OidcClientCredentials("https://idp/t", "a", SECRET, extensions={"auth": "x"}),
            "extensions must map",
        ),
        (lambda: OidcJwtBearer("https://idp/t"), "either assertion_file or private_key_file"),
        (
            lambda: OidcJwtBearer("https://idp/t", private_key_file="k", algorithm="none"),
            "'none' is not allowed",
        ),
        (
            lambda: OidcJwtBearer("https://idp/t", private_key_file="k", lifetime_s=-1),
            "lifetime_s must be an integer from 0 to 86400",
        ),
    ],
)
def test_wrong_arguments_of_token_providers_are_explained(make: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        make()
    assert_hidden(caught.value, SECRET, source_has_it=True)


def test_an_argument_with_a_wrong_name_shows_no_secret() -> None:
    passphrase = "a-passphrase"
    with pytest.raises(TypeError, match="unexpected keyword argument 'privat_key_file'") as caught:
        OidcJwtBearer(
            "https://idp/t",
            private_key_passphrase=passphrase,
            assertion_file="f",
            privat_key_file="k",
        )
    assert_hidden(caught.value, passphrase)


def test_providers_show_no_secret() -> None:
    made = OidcClientCredentials("https://idp/t?x=1", "app", SECRET)
    assert repr(made) == "OidcClientCredentials('https://idp/t', 'app')"
    assert SECRET not in f"{vars(made)!r}{SaslOAuthBearer(made)!r}"


# -- Kafka's options -----------------------------------------------------------------------------


def read(**options: str) -> Any:
    """Return the token provider of Kafka's options."""
    dotted = {name.replace("_", "."): text for name, text in options.items()}
    base = {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    return ClientConfig.from_properties(base | dotted).security.token_provider


async def test_the_properties_of_a_java_client_ask_its_token_endpoint(server: TokenServer) -> None:
    jaas = (
        f'{MODULE}OAuthBearerLoginModule required clientId="app" clientSecret="{SECRET}" '
        'scope="kafka" extension_pool="p";'
    )
    provider = read(
        sasl_login_callback_handler_class=f"{MODULE}OAuthBearerLoginCallbackHandler",
        sasl_oauthbearer_token_endpoint_url=server.url,
        sasl_jaas_config=jaas,
    )
    token = await provider()
    pair = server.requests[0].headers["authorization"].removeprefix("Basic ")
    assert b64decode(pair).decode() == f"app:{SECRET}"
    assert server.requests[0].form["scope"] == "kafka"
    assert dict(token.extensions) == {"pool": "p"}


async def test_options_take_precedence_over_the_jaas_entry(server: TokenServer) -> None:
    provider = read(
        sasl_oauthbearer_token_endpoint_url=server.url,
        sasl_oauthbearer_client_credentials_client_id="other",
        sasl_oauthbearer_client_credentials_client_secret=SECRET,
        sasl_oauthbearer_scope="read",
        sasl_jaas_config=f'{MODULE}OAuthBearerLoginModule required clientId="app" scope="s";',
    )
    await provider()
    pair = server.requests[0].headers["authorization"].removeprefix("Basic ")
    assert b64decode(pair).decode() == f"other:{SECRET}"
    assert server.requests[0].form["scope"] == "read"


async def test_a_jwt_bearer_grant_is_configured_by_options(
    server: TokenServer, tmp_path: Path
) -> None:
    path = write_key(tmp_path / "key.pem", rsa.generate_private_key(65537, 2048), b"phrase")
    provider = read(
        sasl_oauthbearer_jwt_retriever_class=f"{MODULE}JwtBearerJwtRetriever",
        sasl_oauthbearer_token_endpoint_url=server.url,
        sasl_oauthbearer_assertion_private_key_file=path,
        sasl_oauthbearer_assertion_private_key_passphrase="phrase",
        sasl_oauthbearer_assertion_claim_iss="app",
        sasl_oauthbearer_assertion_claim_exp_seconds="7",
        sasl_oauthbearer_assertion_algorithm="rs256",
    )
    await provider()
    claims = decoded(server.requests[0].form["assertion"].split(".")[1])
    assert (claims["iss"], claims["exp"] - claims["iat"]) == ("app", 7)


async def test_a_file_url_is_the_path_of_a_token(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    provider = read(sasl_oauthbearer_token_endpoint_url=file.as_uri())
    with pytest.raises(TokenProviderError, match="cannot be read"):
        await provider()
    file.write_text(unsecured_token("alice") + "\n")
    assert (await provider()).principal == "alice"
    file.write_text("opaque")
    with pytest.raises(TokenProviderError, match="no expiry"):
        await provider()


URL = {"sasl_oauthbearer_token_endpoint_url": "https://idp/t"}
WRONG = [
    ({}, "OAUTHBEARER needs it"),
    ({"sasl_oauthbearer_scope": "s"}, "scope needs sasl.oauthbearer.token.endpoint.url"),
    ({"sasl_login_callback_handler_class": "a.b.Mine"}, r"a\.b\.Mine is not available"),
    (
        {"sasl_login_callback_handler_class": f"{MODULE}OAuthBearerLoginCallbackHandler"},
        "class needs sasl.oauthbearer.token.endpoint.url",
    ),
    (URL, "client.id and sasl.oauthbearer.client.credentials.client.secret are needed"),
    (URL | {"sasl_oauthbearer_jwt_retriever_class": "a.b.Mine"}, "Mine is not available"),
    (
        URL | {"sasl_oauthbearer_jwt_retriever_class": "JwtBearerJwtRetriever"},
        r"either sasl\.oauthbearer\.assertion\.file or sasl\.oauthbearer\.assertion\.private",
    ),
    ({"sasl_oauthbearer_token_endpoint_url": "file:token"}, "must be a URL such as file:///"),
    (
        {
            "sasl_oauthbearer_token_endpoint_url": "http://idp/t",
            "sasl_oauthbearer_client_credentials_client_id": "a",
            "sasl_oauthbearer_client_credentials_client_secret": SECRET,
        },
        r"^sasl\.oauthbearer\.token\.endpoint\.url: http sends the credentials unencrypted",
    ),
]


@pytest.mark.parametrize(("options", "text"), WRONG, ids=[text for _, text in WRONG])
def test_wrong_properties_of_a_token_provider_are_explained(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        read(**options)
    assert_hidden(caught.value, SECRET)
