"""`make secrets`: no secret is shown anywhere, and a leak in any channel would be found.

The tour (`tests/harness/secret_tour.py`) uses known passwords, tokens, keys, and JAAS texts, and
collects all that the library shows. `AIOKCLIENT_LEAK=channel` leaks one on purpose.
"""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest
import secret_command_line
import secret_endpoints
import secret_options
import secret_registry
import secret_telemetry
import secret_visits
from secret_collector import CHANNELS
from secret_command_line import COMMANDS
from secret_endpoints import ENDPOINTS
from secret_leaks import LEAKS, MET_BY, chosen, leaking
from secret_options import OPTIONS
from secret_registry import REGISTRIES
from secret_search import SecretSearch
from secret_telemetry import visit_telemetry
from secret_tour import RECORDS, SECRETS, Tour
from secret_visits import LOGINS, visit_plain
from thinned import one_in

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = "Ab1-one/secr\"et+in\\äny~form?&'<9"
LOGGERS = {"aiokclient", "aiokclient.wire", "aiokclient.consumer", "aiokclient.group", "asyncio"}
PARTS = (
    secret_command_line,
    secret_visits,
    secret_options,
    secret_endpoints,
    secret_registry,
    secret_telemetry,
)
EMPTY = {"files", "output"}
"""Channels in which nothing is expected at all."""


@pytest.fixture(scope="module")
def tour() -> Tour:
    """A tour of everything, or of what meets the chosen leak."""
    tour, leak = Tour(), chosen()
    everything = (*LOGINS, *OPTIONS, *ENDPOINTS, *REGISTRIES, *COMMANDS, visit_telemetry)
    with leaking(leak):
        tour.run(everything if leak is None else [MET_BY.get(leak, visit_plain)])
    return tour


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_channel_shows_no_secret(tour: Tour, channel: str) -> None:
    shown = tour.collector.collected.channels[channel] - {b""}
    assert shown or channel in EMPTY or chosen(), "nothing was collected"
    assert tour.leaks(channel) == []


@pytest.mark.skipif(chosen() is not None, reason="the tour is that of a leak")
def test_the_tour_visits_everything(tour: Tour) -> None:
    defined = [name for part in PARTS for name in dir(part)]
    assert set(tour.visited) == {name for name in defined if name.startswith("visit_")}
    assert tour.collector.seen >= LOGGERS
    for name in ("Authenticated", "TokenRefreshed", "TlsError", "TokenProviderError"):
        assert name in tour.collector.seen
    # The search also included the keys and proofs of SCRAM, tokens, and private keys.
    assert tour.search.names >= {
        *SECRETS,
        "SCRAM client key",
        "SCRAM proof",
        "SCRAM salted password",
        "assertion",
        "delegation token",
        "password in PLAIN",
        "private key",
        "token",
    }


@pytest.mark.skipif(chosen() is not None, reason="another leak is in effect")
@pytest.mark.parametrize("channel", one_in(2, list(CHANNELS)))
def test_a_leak_in_a_channel_is_found(channel: str) -> None:
    tour = Tour()
    with leaking(channel):
        tour.run([MET_BY.get(channel, visit_plain)])
    assert tour.leaks(channel) != []


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("channel", ["prometheus", "pushed", "spans"])
def test_the_search_finds_what_records_contain_in_telemetry(channel: str, name: str) -> None:
    tour = Tour()
    tour.collector.add(channel, "nothing")
    assert tour.leaks(channel) == []
    tour.collector.collected.add(channel, f"label={RECORDS[name]}")
    assert {leak[0] for leak in tour.leaks(channel)} == {name}


def test_every_channel_has_a_leak() -> None:
    assert set(LEAKS) == set(CHANNELS)


@pytest.mark.skipif(chosen() is not None, reason="another leak is in effect")
def test_the_switch_makes_the_search_fail() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"{Path(__file__).relative_to(ROOT)}::test_a_channel_shows_no_secret[log]"],
        cwd=ROOT,
        env={**os.environ, "AIOKCLIENT_LEAK": "log"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "FAILED" in done.stdout, "the tour itself has failed"
    assert "1 failed" in done.stdout


@pytest.mark.parametrize(
    "shown",
    [
        EXAMPLE.encode(),
        repr(EXAMPLE).encode(),
        repr([repr(EXAMPLE)]).encode(),
        repr(EXAMPLE.encode()).encode(),
        ascii(EXAMPLE).encode(),
        EXAMPLE.encode("utf-16"),
        EXAMPLE.encode().hex().encode(),
        b64encode(b"user:" + EXAMPLE.encode()),
        b64encode(b"\0alice\0" + EXAMPLE.encode()),
        urlsafe_b64encode(b"?" + EXAMPLE.encode()),
        b"password=Ab1-one%2fsecr%22et%2Bin%5C%C3%A4ny~form",
        b'{"password": "Ab1-one/secr\\"et+in\\\\\\u00e4ny"}',
        EXAMPLE[:15].encode(),
        b"..." + EXAMPLE[-13:].encode(),
        repr(list(EXAMPLE.encode())).encode(),
    ],
)
def test_the_search_finds_each_form_of_a_secret(shown: bytes) -> None:
    search = SecretSearch()
    search.add("example", EXAMPLE)
    assert list(search.leaks(b"before " + shown + b" after")) != []


def test_the_search_finds_no_secret_in_other_texts() -> None:
    search = SecretSearch()
    search.add("example", EXAMPLE)
    assert list(search.leaks(b"SaslPlain(user='alice', tls=None) Ab1-one *** YWxpY2U=")) == []
