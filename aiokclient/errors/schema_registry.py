"""Errors of schema registries, which answer with an HTTP status and often with a code of their own.

The codes are those of Confluent's registry. Other registries use some of them, 0, or the HTTP
status, and proxies answer without any. So `describe_refusal` looks at the code first, then at the
status.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from aiokclient.errors.base import KafkaError, RetriableError

__all__ = [
    "SchemaNotFoundError",
    "SchemaRegistryError",
    "SchemaRegistryUnavailableError",
]


Refusal: TypeAlias = tuple[str | None, str, str]
"""The meaning of a code or status of a registry: its name, what happened, and what to do."""

_CHECK_SUBJECT = "Check the name of the subject, the context, and the URL of the registry."
_ASK_OPERATOR = "Check the registry and its log. The same call may succeed later."
_SUBJECT_FIRST = "Delete it without permanent=True first."

CODES: Final[dict[int, Refusal]] = {
    40401: ("SUBJECT_NOT_FOUND", "The schema registry does not know the subject.", _CHECK_SUBJECT),
    40402: (
        "VERSION_NOT_FOUND",
        "The subject has no such version.",
        "List the versions of the subject, and check the URL of the registry.",
    ),
    40403: (
        "SCHEMA_NOT_FOUND",
        "The schema registry does not know the schema.",
        "Check the URL of the registry and the context. If this is a lookup, register the schema.",
    ),
    40404: (
        "SUBJECT_SOFT_DELETED",
        "The subject was deleted.",
        "Register a schema in it again, or delete it with permanent=True.",
    ),
    40405: ("SUBJECT_NOT_SOFT_DELETED", "The subject was not deleted before.", _SUBJECT_FIRST),
    40406: (
        "VERSION_SOFT_DELETED",
        "The version was deleted.",
        "Register its schema again, or delete it with permanent=True.",
    ),
    40407: ("VERSION_NOT_SOFT_DELETED", "The version was not deleted before.", _SUBJECT_FIRST),
    40408: (
        "SUBJECT_COMPATIBILITY_NOT_CONFIGURED",
        "The subject has no configuration of its own.",
        "The registry's own configuration applies to it.",
    ),
    40409: (
        "SUBJECT_MODE_NOT_CONFIGURED",
        "The subject has no mode of its own.",
        "The registry's own mode applies to it.",
    ),
    40410: (
        "ASSOCIATION_NOT_FOUND",
        "The schema registry has no such association.",
        "Check the topic, and create the association.",
    ),
    40901: (
        "INCOMPATIBLE_SCHEMA",
        "The schema is not compatible with one that is registered in the subject.",
        "Change the schema so that the subject's compatibility level allows it.",
    ),
    42201: (
        "INVALID_SCHEMA",
        "The schema registry does not accept the schema.",
        "Correct the schema, its type, or its references.",
    ),
    42202: (
        "INVALID_VERSION",
        "The version is not valid.",
        'Give a number that is greater than 0, or "latest".',
    ),
    42203: (
        "INVALID_COMPATIBILITY_LEVEL",
        "The schema registry does not know the compatibility level.",
        "Give NONE, BACKWARD, FORWARD, FULL, or one of the last three with _TRANSITIVE.",
    ),
    42204: (
        "INVALID_MODE",
        "The schema registry does not know the mode.",
        "Give READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, or FORWARD.",
    ),
    42205: (
        "OPERATION_NOT_PERMITTED",
        "The schema registry or the subject is in a mode that does not permit this.",
        "Look at its mode. Only an administrator should change it.",
    ),
    42206: (
        "REFERENCE_EXISTS",
        "Other schemas refer to this version.",
        "Delete those first.",
    ),
    42207: (
        "ID_DOES_NOT_MATCH",
        "The id belongs to another schema.",
        "Register the schema without an id.",
    ),
    42208: (
        "INVALID_SUBJECT",
        "The schema registry does not accept the name of the subject.",
        "Use another name.",
    ),
    42209: (
        "SCHEMA_TOO_LARGE",
        "The schema is too large for the schema registry.",
        "Split it by references, or raise the limit of the registry.",
    ),
    42210: (
        "INVALID_RULE_SET",
        "The schema registry does not accept the rules of the schema.",
        "Correct the rules.",
    ),
    42211: (
        "CONTEXT_NOT_EMPTY",
        "The context still contains subjects.",
        "Delete its subjects with permanent=True first.",
    ),
    50001: ("STORE_ERROR", "The schema registry cannot use its store.", _ASK_OPERATOR),
    50002: ("OPERATION_TIMEOUT", "The schema registry took too long.", _ASK_OPERATOR),
    50003: (
        "REQUEST_FORWARDING_FAILED",
        "The schema registry could not forward the request to its leader.",
        _ASK_OPERATOR,
    ),
    50004: ("UNKNOWN_LEADER", "The schema registry has no leader now.", _ASK_OPERATOR),
}
"""The codes of registries by number."""

STATUSES: Final[dict[int, Refusal]] = {
    401: (
        None,
        "The schema registry did not accept the credentials.",
        "Check basic_auth, or the token provider and the audience of its tokens.",
    ),
    403: (
        None,
        "The schema registry does not permit this to the user.",
        "Check the permissions of the user at the registry.",
    ),
    404: (
        None,
        "The schema registry does not have this call.",
        "Check the URL, including its path. Other registries than Confluent's have a part of the "
        "calls only.",
    ),
    409: CODES[40901],
    413: CODES[42209],
    429: (None, "The schema registry has too many requests.", _ASK_OPERATOR),
    502: (None, "A proxy could not reach the schema registry.", _ASK_OPERATOR),
    503: (None, "The schema registry is not in service.", _ASK_OPERATOR),
    504: (None, "A proxy got no answer from the schema registry in time.", _ASK_OPERATOR),
}
"""The meaning of an HTTP status that comes without a known code."""

_UNEXPECTED: Final = (
    None,
    "The schema registry refused the request.",
    "Check the URL, including its path, and the log of the registry.",
)


_UNUSABLE: Final = (
    None,
    "The answer is not that of a schema registry.",
    "Check the URL, including its path, and whether a proxy has answered.",
)


def describe_refusal(status: int, error_code: int | None) -> Refusal:
    """Return what an answer of a registry means."""
    if 200 <= status < 300:
        return _UNUSABLE
    return CODES.get(error_code or 0) or STATUSES.get(status, _UNEXPECTED)


class SchemaRegistryError(KafkaError):
    """An error raised when a schema registry refuses a request, or gives an answer of no use.

    `status` is the HTTP status, `error_code` the registry's own code, or None for an answer without
    one, and `url` the address that was asked, without credentials. `name` is the name of the code,
    such as `INCOMPATIBLE_SCHEMA`, or None. The HTTP method is `api`.
    """

    def __init__(
        self,
        message: str = "",
        *,
        status: int,
        error_code: int | None = None,
        url: str,
        method: str = "GET",
    ) -> None:
        super().__init__(message, api=method)
        self.status = status
        self.error_code = error_code
        self.url = url
        refusal = describe_refusal(status, error_code)
        self.name, self.what, self.hint = refusal

    def _label_text(self) -> str:
        if self.name is None:
            return f"HTTP status {self.status}"
        return f"{self.name} ({self.error_code or self.status})"

    def _describe_place(self) -> str:
        return f" in {self.api} {self.url}"


class SchemaNotFoundError(SchemaRegistryError):
    """An error raised when a schema registry answers that the id, subject, or version is unknown.

    A registry that lacks the whole call answers with the HTTP status 404, too, but with another
    code. That is a `SchemaRegistryError`.
    """


class SchemaRegistryUnavailableError(RetriableError):
    """An error raised when no URL of a schema registry gives an answer before the timeout.

    A registry also counts as unavailable while it answers with the HTTP status 429, 502, 503, or
    504, or says that it has no leader or no store. `attempts` has the last outcome of each URL that
    was tried. `may_be_done` is whether the registry may have carried out a request that changes
    something, for example because the connection was lost afterwards. The error of the last attempt
    is the cause.
    """

    what = "The schema registry is not available."
    hint = "Check the URLs, the network, and that the registry is running."

    def __init__(
        self,
        message: str = "",
        *,
        attempts: Sequence[tuple[str, str]] = (),
        may_be_done: bool = False,
    ) -> None:
        outcomes = "; ".join(f"{url}: {outcome}" for url, outcome in attempts)
        super().__init__(" ".join(part for part in (message, outcomes) if part))
        self.attempts = tuple(attempts)
        self.may_be_done = may_be_done
