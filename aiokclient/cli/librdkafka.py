"""Options of librdkafka, by the names that files of kcat have, as options of the client.

kcat reads a file of lines NAME=VALUE. Lines that begin with `#` are comments, values have no
escapes, and the names of options for topics may begin with `topic.`. Options that only tune
librdkafka itself are ignored, and those that this client cannot do are errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokclient.cli.grammar import WrongUseError

RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "socket.timeout.ms": "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "message.max.bytes": "max.request.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "message.timeout.ms": "delivery.timeout.ms",
    "request.required.acks": "acks",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}
"""The names of librdkafka that Kafka's Java clients do not have, and those for the same here."""
TEXTS = {
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
"""The options that are paths, and those here whose values are the contents of these files."""
LOGIN = ("sasl.username", "sasl.password")
"""The options that become a JAAS text."""
_SECRET = ("password", "passphrase", "secret", "jaas", "key.pem")
"""Parts of the names of options that are secret."""
IGNORED = {
    "api.version.fallback.ms",
    "api.version.request",
    "batch.num.messages",
    "broker.address.family",
    "broker.version.fallback",
    "debug",
    "enable.partition.eof",
    "fetch.error.backoff.ms",
    "fetch.queue.backoff.ms",
    "log.connection.close",
    "log.level",
    "log_level",
    "message.send.max.retries",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "statistics.interval.ms",
}
"""The options that only tune librdkafka itself."""
FOREIGN = IGNORED.union(RENAMED, TEXTS, LOGIN)
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


def is_secret(name: str) -> bool:
    """Return whether an option is a secret by its name, which the library need not know."""
    return any(part in name.replace("_", ".").lower() for part in _SECRET)


def read_kcat_file(path: str) -> Mapping[str, str] | str:
    """Return the options of a file of kcat. Return the path if it is no such file.

    It is one if it has a name that only librdkafka knows.
    """
    try:
        with open(path) as file:
            lines = file.read().splitlines()
    except (OSError, ValueError):
        return path  # The library reads the file, too, and says what is wrong.
    found = {}
    for line in lines:
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            found[name.strip().removeprefix("topic.")] = value.strip()
    return found if FOREIGN.intersection(found) else path


def translate_names(sources: Sequence[Mapping[str, Any] | str]) -> list[Mapping[str, Any] | str]:
    """Return sources of options, with the names of this library. Paths stay as they are.

    A user name and a password may come from different sources. Raises WrongUseError if one of them
    is missing, or if a file cannot be read.
    """
    translated: list[Mapping[str, Any] | str] = []
    login: dict[str, str] = {}
    last = 0
    for source in sources:
        if isinstance(source, str):
            translated.append(source)
            continue
        options = {}
        for name, value in source.items():
            if name in LOGIN:
                login[name], last = str(value), len(translated)
            elif name in TEXTS:
                options[TEXTS[name]] = _read_text(name, str(value))
            elif name not in IGNORED:
                options[RENAMED.get(name, name)] = value
        translated.append(options)
    if login:
        # What counts more than the user name and the password may have a login of its own.
        translated.insert(last + 1, {"sasl.jaas.config": _make_jaas(login)})
    return translated


def _read_text(name: str, path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise WrongUseError(f"{name}: the file {path} cannot be read: {reason}.") from None


def _make_jaas(login: Mapping[str, str]) -> str:
    for name, other in (LOGIN, LOGIN[::-1]):
        if name not in login:
            variable = f"AIOKCLIENT_{name.replace('.', '_').upper()}"
            raise WrongUseError(
                f"{other} is given without {name}. Give it in the same place, or by the "
                f"environment variable {variable}."
            )
    user, password = (login[name].translate(_ESCAPES) for name in LOGIN)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'{module} required username="{user}" password="{password}";'
