"""Visits of the tour of secrets: commands whose passwords come from everywhere they may."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

from command_forks import run_fork
from command_process import variables
from secret_tour import PASSWORD, SECRETS, WRONG, Tour

__all__ = ["COMMANDS"]

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OPTIONS = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}


async def visit_commands(tour: Tour) -> None:
    """Log in with right and wrong passwords, with --verbose, and show what is configured."""
    for password, code in ((PASSWORD, 0), (WRONG, 1)):
        for way in ("properties", "kcat", "variables", "profile"):
            words, more = write_options(tour, way, password)
            listed = await type_words(tour, ["topics", "list", "--verbose", *words], more)
            assert listed == code, f"{way}: {listed}"
            await type_words(tour, ["request", "Metadata", "-v", *words], more)
            await type_words(tour, ["__complete", "aiokclient topics describe "], more)
        for words in (["list"], ["show", "tour"], ["show", "tour", "--json"], ["check", "tour"]):
            await type_words(tour, ["profiles", *words, "--verbose"], more)


async def visit_wrong_commands(tour: Tour) -> None:
    """Give secrets where they do not belong, and options that are wrong beside secrets."""
    for name, secret in (
        ("sasl.password", PASSWORD),
        ("sasl.jaas.config", f'{MODULE} required username="alice" password="{WRONG}"'),
        ("ssl.key.password", SECRETS["key password"]),
        ("sasl.oauthbearer.client.secret", SECRETS["client secret"]),
    ):
        words = ["topics", "list", "--verbose", "-X", f"{name}={secret}"]
        assert await type_words(tour, words, {}) == 2, name
    words, more = write_options(tour, "profile", PASSWORD)
    for wrong in ("-X=retries", "--config=/nowhere", "--timeout=0", "--nothing"):
        assert await type_words(tour, ["topics", "list", "--verbose", wrong], more) == 2, wrong
    # What is no JAAS text, and what is no TOML, is shown by its line at most.
    broken = {"AIOKCLIENT_SASL_JAAS_CONFIG": f'{MODULE} required password="{PASSWORD}'}
    assert await type_words(tour, ["topics", "list", "-v"], broken) == 2
    path = tour.folder / "profiles.toml"
    path.write_text(f'[profiles.tour]\nsasl_password = "{SECRETS["base64"]}\n')
    assert await type_words(tour, ["topics", "list", "-v"], more) == 2


def write_options(tour: Tour, way: str, password: str) -> tuple[list[str], dict[str, str]]:
    """Return the words and the variables of a command whose password comes in one way."""
    servers = tour.cluster.bootstrap_servers_for("SASL")
    dotted = {name.replace("_", "."): value for name, value in OPTIONS.items()}
    path = tour.folder / f"options-of-{way}"
    if way == "properties":
        escaped = password.replace("\\", "\\\\").replace('"', '\\"')
        dotted["sasl.jaas.config"] = f'{MODULE} required username="alice" password="{escaped}";'
        lines = [f"{name}={value}".replace("\\", "\\\\") for name, value in dotted.items()]
        path.write_text("\n".join([*lines, f"bootstrap.servers={servers}", ""]))
        return ["--config", str(path)], {}
    if way == "kcat":
        dotted |= {"sasl.username": "alice", "sasl.password": password}
        lines = [f"{name}={value}" for name, value in dotted.items()]
        path.write_text("\n".join([*lines, f"metadata.broker.list={servers}", ""]))
        return ["--config", str(path)], {}
    if way == "variables":
        options = {**OPTIONS, "sasl_username": "alice", "sasl_password": password}
        more = {f"AIOKCLIENT_{name.upper()}": value for name, value in options.items()}
        return ["-b", servers], more
    secret = tour.folder / "the-secret"
    secret.write_text(f"{password}\n")
    options = {**OPTIONS, "bootstrap_servers": servers, "sasl_username": "alice"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    command = json.dumps(shlex.split(f"cat {secret}"))
    lines += [f"sasl_password = {{ command = {command} }}"]
    lines += ["[profiles.tour.registry]", f"password = {json.dumps(SECRETS['typed password'])}"]
    profiles = tour.folder / "profiles.toml"
    profiles.write_text("\n".join(['default = "tour"', "[profiles.tour]", *lines, ""]))
    return [], {"AIOKCLIENT_PROFILES": str(profiles)}


async def type_words(tour: Tour, words: list[str], more: dict[str, str]) -> int:
    """Run a command, collect what it shows and the files that it leaves, and return its code."""
    environment = variables(tour.folder, **more)
    # The words and the variables have secrets, and locals of other functions are collected, too.
    ended = await asyncio.to_thread(lambda: run_fork(words, environment))
    for text in (ended.out, ended.err):
        tour.collector.collected.add("output", text)
    for path in filter(Path.is_file, (tour.folder / "cache").rglob("*")):
        tour.collector.collected.add("files", path.name)
        tour.collector.collected.add("files", path.read_bytes())
    return ended.code


COMMANDS = (visit_commands, visit_wrong_commands)
