"""Security objects and Kafka's options for them, JAAS texts, and secrets that stay hidden."""

from __future__ import annotations

import copy
import dataclasses
import hmac
import json
import pickle
import ssl
from base64 import urlsafe_b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from hidden import assert_hidden
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import (
    Admin,
    Client,
    Consumer,
    GroupMember,
    OAuthToken,
    Producer,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
    Tls,
)
from aiokclient.config.client import ClientConfig
from aiokclient.config.secret import Secret
from aiokclient.config.security.jaas import parse_jaas
from aiokclient.errors import ConfigError
from aiokclient.patterns import single_writer

SECRET = "open-sesame"
MODULE = "org.apache.kafka.common.security."
PLAIN = MODULE + f'plain.PlainLoginModule required username="alice" password="{SECRET}";'
SCRAM = MODULE + f'scram.ScramLoginModule required username="alice" password="{SECRET}"'
TOKEN = MODULE + "oauthbearer.OAuthBearerLoginModule required"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"
SERVER = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
"""A context for servers, with which a client cannot connect."""
SERVERS = {"bootstrap.servers": "localhost:9092"}


def read(**options: str) -> Any:
    """Return the security object of Kafka's options."""
    dotted = {name.replace("_", "."): text for name, text in options.items()}
    return ClientConfig.from_properties(SERVERS | dotted).security


# -- options -------------------------------------------------------------------------------------


def test_kafkas_options_of_plain_become_one_object() -> None:
    made = read(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN)
    assert made == SaslPlain("alice", SECRET, Tls())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafkas_options_of_scram_become_one_object(mechanism: str) -> None:
    made = read(
        security_protocol="sasl_plaintext", sasl_mechanism=mechanism, sasl_jaas_config=f"{SCRAM};"
    )
    assert made == SaslScram("alice", SECRET, mechanism)
    token = read(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_jaas_config=f"{SCRAM} tokenauth=true;",
    )
    assert token == SaslScram("alice", SECRET, mechanism, token_auth=True)


def test_tls_options_are_kept_with_sasl() -> None:
    made = read(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=PLAIN,
        ssl_truststore_location="/ca.pem",
        ssl_endpoint_identification_algorithm="",
    )
    assert made.tls == Tls(cafile="/ca.pem", check_hostname=False)


async def test_unsecured_tokens_have_the_claims_of_the_login_module() -> None:
    made = read(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=f'{TOKEN} unsecuredLoginStringClaim_sub="alice" '
        'unsecuredLoginListClaim_scope=",a,b" unsecuredLoginNumberClaim_n="3" '
        'unsecuredLoginExtension_pool="p" unsecuredLoginLifetimeSeconds="60";',
    )
    token = await made.token_provider()
    head, claims, signature = token.token.reveal().split(".")
    assert json.loads(urlsafe_b64decode(head + "==")) == {"alg": "none"}
    found = json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert (found["sub"], found["scope"], found["n"]) == ("alice", ["a", "b"], 3)
    assert found["exp"] - found["iat"] == pytest.approx(60)
    assert (signature, token.principal, dict(token.extensions)) == ("", "alice", {"pool": "p"})
    assert token.expires_at_ms == pytest.approx(1000 * found["exp"], abs=1)


WRONG = [
    ({"sasl_mechanism": "GSSAPI", "sasl_jaas_config": KERBEROS}, "useKeyTab=true needs keyTab"),
    ({"sasl_mechanism": "MD5", "sasl_jaas_config": PLAIN}, "'MD5' is not allowed. It must be one"),
    ({"sasl_mechanism": "PLAIN"}, "sasl.jaas.config: PLAIN needs it"),
    ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": f"{TOKEN};"}, "does not fit"),
    ({"sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": PLAIN}, "does not fit"),
    ({"sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": f"{TOKEN};"}, "unsecuredLogin options"),
    ({"sasl_mechanism": "PLAIN", "sasl_oauthbearer_scope": "s"}, "PLAIN needs it"),
    (
        {
            "sasl_mechanism": "PLAIN",
            "sasl_jaas_config": PLAIN,
            "sasl_login_callback_handler_class": "a.b.Handler",
        },
        "class: It is not available for PLAIN",
    ),
    (
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_jaas_config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        },
        "aws-msk-iam-sasl-signer-python",
    ),
    ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN[:-1]}, "semicolon"),
    ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": f"{PLAIN} {PLAIN}"}, "only one login module"),
    ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": f'a.B required x="{SECRET};'}, "quotation"),
    ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": "a.PlainLoginModule;"}, "flag is missing"),
    (
        {"sasl_mechanism": "PLAIN", "sasl_jaas_config": f"a.PlainLoginModule {SECRET} x=y;"},
        "flag after the login module must be one of",
    ),
    (
        {"sasl_mechanism": "PLAIN", "sasl_jaas_config": f"a.PlainLoginModule required {SECRET};"},
        "no value",
    ),
    (
        {"sasl_mechanism": "PLAIN", "sasl_jaas_config": "a.PlainLoginModule required username=a;"},
        "option password of the login module is missing",
    ),
]


@pytest.mark.parametrize(("options", "text"), WRONG, ids=[text for _, text in WRONG])
def test_wrong_login_options_are_explained(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        read(security_protocol="SASL_SSL", **options)
    assert_hidden(caught.value, SECRET)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: SaslPlain("", "p"), "user must be a string that is not empty"),
        (lambda: SaslPlain("u", ""), "password must be a string that is not empty"),
        (lambda: SaslPlain("u", SECRET.encode()), "password must be a string"),
        (lambda: SaslPlain("u", f"{SECRET}\0"), "must not contain NUL"),
        (lambda: SaslPlain("u", f"{SECRET}\ud800"), "password must be a string"),
        (lambda: SaslPlain("u", SECRET, tls=True), r"tls must be Tls\(\.\.\.\)"),
        (lambda: SaslScram("u", SECRET, "SCRAM-SHA-1"), "'SCRAM-SHA-1' is not allowed"),
        (lambda: SaslScram("u", SECRET, token_auth="yes"), "True or False"),
        (lambda: SaslOAuthBearer("tokens"), "must be an async function"),
        (lambda: OAuthToken(f"{SECRET} \x01", 1), "token must be a string of letters"),
        (lambda: OAuthToken(SECRET, None), "expires_at_ms must be an integer"),
        (lambda: OAuthToken(SECRET, 1, 2), "principal must be"),
        (lambda: OAuthToken(SECRET, 1, extensions={"auth": "x"}), "extensions must map"),
        (lambda: OAuthToken(SECRET, 1, extensions={"a": "\x01"}), "extensions must map"),
        (lambda: Tls(password=SECRET), "need certfile"),
        (lambda: OAuthToken(SECRET, 1, extensions=5), "extensions must be a mapping"),
        (lambda: OAuthToken(SECRET, 1, extensions=[("a", "x")]), "extensions must be a mapping"),
        (lambda: Tls(certfile="a", password=SECRET.encode()), "password must be a string"),
        (lambda: Tls(cafile=5), "cafile must be the path of a file, or None"),
        (lambda: Tls(certfile=["a"]), "certfile must be the path of a file"),
        (lambda: Tls(certfile="a", keyfile=b"b"), "keyfile must be the path of a file"),
        (lambda: Tls(cafile=""), "cafile must not be empty"),
        (lambda: Tls(cadata=""), "cadata must not be empty"),
        (lambda: Tls(certfile="a", keyfile="b", keydata=SECRET), "either keyfile or keydata"),
        (lambda: Tls(check_hostname="false"), "check_hostname must be True or False"),
        (lambda: Tls(strict=None), "strict must be True or False"),
        (lambda: Tls(context="default"), "context must be an ssl.SSLContext for clients"),
        (lambda: SaslPlain("u", SECRET, tls=SERVER), "context must be an ssl.SSLContext for cli"),
        (lambda: Client(bootstrap_servers="a:1", security=SERVER), "context must be an ssl.SSLCon"),
    ],
)
def test_wrong_arguments_of_security_settings_are_explained(
    make: Callable[[], Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        make()
    assert_hidden(caught.value, SECRET, source_has_it=True)


def test_security_objects_are_frozen_and_comparable() -> None:
    made = SaslPlain("alice", SECRET)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.user = "bob"  # type: ignore[misc]
    assert copy.deepcopy(made) == made == SaslPlain("alice", SECRET)
    assert made != SaslPlain("alice", "other")
    assert hash(made) == hash(SaslPlain("alice", SECRET))
    context = ssl.create_default_context()
    assert SaslScram("u", "p", tls=context).ssl_context() is context
    assert SaslPlain("u", "p").ssl_context() is None


# -- certificates as texts -----------------------------------------------------------------------


def test_a_certificate_and_its_key_can_be_texts() -> None:
    leaf = trustme.CA().issue_cert("alice")
    chain = leaf.cert_chain_pems[0].bytes().decode()
    key = leaf.private_key_pem.bytes().decode()
    options = {
        "security_protocol": "SSL",
        "ssl_keystore_certificate_chain": chain,
        "ssl_keystore_key": key,
    }
    made = read(**options)
    assert made.ssl_context() is not None
    assert key not in repr(made)
    with pytest.raises(ConfigError, match="need each other"):
        read(**{name: text for name, text in options.items() if name != "ssl_keystore_key"})
    with pytest.raises(ConfigError, match=r"Give either this or ssl\.keystore\.location"):
        read(**options, ssl_keystore_location="/me.pem")
    with pytest.raises(ConfigError, match="certdata or its key in keydata cannot be loaded"):
        Tls(certdata=chain, keydata="no key").ssl_context()


# -- JAAS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "password"),
    [
        ('"a b"', "a b"),
        ("'a\"b'", 'a"b'),
        (r'"a\"b\\c"', 'a"b\\c'),
        (r'"a\tb\101"', "a\tbA"),
        ("plain-word", "plain-word"),
        ('"//no comment"', "//no comment"),
        ('"pässwörd"', "pässwörd"),
    ],
)
def test_values_of_jaas_texts_are_read_as_java_reads_them(written: str, password: str) -> None:
    text = f"/* all */ a.b.PlainLoginModule // it\n REQUIRED username = u\n password={written} ;"
    entry = parse_jaas(Secret(text))
    assert entry.module == "PlainLoginModule"
    assert entry.options == {"username": Secret("u"), "password": Secret(password)}


@given(st.text(max_size=60) | st.text(alphabet="ab =;\"'\\/*\n", max_size=40))
def test_any_jaas_text_is_read_or_refused(text: str) -> None:
    try:
        parse_jaas(Secret(text))
    except ConfigError as error:
        shown = str(error)
    else:
        return
    assert shown.startswith("sasl_jaas_config: ")


# -- secrets -------------------------------------------------------------------------------------


def test_a_secret_is_shown_nowhere() -> None:
    secret = Secret(SECRET)
    assert SECRET not in f"{secret} {secret!r} {[secret]} {secret:>20}"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(secret, protocol)
    with pytest.raises(TypeError, match="cannot be pickled"):
        secret.__getstate__()
    assert secret == Secret(SECRET)
    assert secret != Secret("other")
    assert secret != SECRET
    assert secret.scrub_text(f"no {SECRET}!") == "no ***!"


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert SaslPlain("alice", SECRET) != SaslPlain("alice", "other")
    assert OAuthToken(SECRET, 1) == OAuthToken(SECRET, 1)
    assert compared == [(SECRET.encode(), b"other"), (SECRET.encode(), SECRET.encode())]


CLIENTS = [Client, Producer, Consumer, Admin]
MISTAKES: list[dict[str, str]] = [
    {"linger": "1"},
    {"request.timeout.ms": "soon"},
    {"sasl.jaas.config": PLAIN},
    {"security.protocol": "SASL_SSL", "sasl.jaas.config": PLAIN[:-1], "sasl.mechanism": "PLAIN"},
    {"security.protocol": "SASL_SSL", "sasl.jaas.config": PLAIN, "sasl.mechanism": "PLAYN"},
    {"security.protocol": "SSL", "ssl.key.password": SECRET},
    {"sasl.jass.config": PLAIN, "ssl.key.pasword": SECRET},
]


@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_no_function_has_a_secret_in_a_variable_when_properties_are_wrong(
    make: Any, mistake: dict[str, str], tmp_path: Path
) -> None:
    properties = SERVERS | {"ssl.key.password": SECRET, "ssl.keystore.key": SECRET} | mistake
    with pytest.raises(ConfigError) as caught:
        make.from_properties(properties)
    assert_hidden(caught.value, SECRET)
    file = tmp_path / "client.properties"
    file.write_text("\n".join(f"{name}={text}" for name, text in properties.items()))
    with pytest.raises(ConfigError) as caught:
        make.from_properties(file)
    assert_hidden(caught.value, SECRET)
    file.write_text(f"ssl.key.password={SECRET}\\u00zz")
    with pytest.raises(ConfigError, match="malformed") as caught:
        make.from_properties(file)
    assert_hidden(caught.value, SECRET)


@pytest.mark.parametrize(
    "make",
    [
        *CLIENTS,
        lambda **options: GroupMember("g", protocol_type="t", protocols=[], **options),
        lambda **options: single_writer("g", **options),
    ],
)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_no_function_has_a_secret_in_a_variable_when_options_are_wrong(
    make: Any, mistake: dict[str, str]
) -> None:
    options = {name.replace(".", "_"): value for name, value in (SERVERS | mistake).items()}
    with pytest.raises(ConfigError) as caught:
        make(ssl_keystore_key=SECRET, **options)
    assert_hidden(caught.value, SECRET)


@pytest.mark.parametrize("make", CLIENTS)
def test_clients_of_secrets_show_none(make: Any) -> None:
    properties = SERVERS | {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    made = make.from_properties(properties | {"sasl.jaas.config": PLAIN})
    assert SECRET not in f"{made!r}{vars(made)!r}{made._config!r}"
    assert made._config.security.password.reveal() == SECRET
