"""The admin calls that describe and change the SCRAM credentials of users (KIP-554).

The client sends a salted password, which a broker turns into the keys that it stores. Neither the
network nor the broker gets the password itself.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from aiokclient import threads
from aiokclient.admin.arguments import as_name, as_names, require_integer
from aiokclient.admin.requests import AdminRequests, Answers, read_failure
from aiokclient.admin.results import OpenEnum, Results
from aiokclient.cluster.targets import AnyBroker, Controller
from aiokclient.config.secret import Secret
from aiokclient.errors import ApiTimeoutError, IllegalStateError, KafkaError
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokclient.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)
from aiokclient.types import public_in

DESCRIBE: Final = "DescribeUserScramCredentials"
ALTER: Final = "AlterUserScramCredentials"
DEFAULT_ITERATIONS: Final = 4096
"""The number of iterations that Kafka's tools use, and the lowest that brokers accept."""
SALT_BYTES: Final = 24


@public_in("aiokclient.admin")
class ScramMechanism(OpenEnum):
    """The mechanisms of SCRAM. The values are those of Kafka's protocol."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name of the mechanism in SASL, such as "SCRAM-SHA-512"."""
        return self.name.replace("_", "-")


MECHANISMS: Final = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


@public_in("aiokclient.admin")
@dataclasses.dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """A credential of a user, as brokers describe it: without salt and keys."""

    mechanism: ScramMechanism
    iterations: int


@public_in("aiokclient.admin")
@dataclasses.dataclass(frozen=True, slots=True, init=False)
class UserScramCredentialUpsertion:
    """A credential to be added to a user, or to replace the user's credential for the mechanism.

    The mechanism is a `ScramMechanism` or its name, such as "SCRAM-SHA-512". Brokers accept from
    4096 to 16384 iterations. Without `salt`, the client chooses a random one.
    """

    user: str
    password: Secret = dataclasses.field(repr=False)
    mechanism: ScramMechanism
    iterations: int
    salt: bytes | None = dataclasses.field(repr=False)

    def __init__(
        self,
        user: str,
        password: str | Secret,
        mechanism: ScramMechanism | str = ScramMechanism.SCRAM_SHA_512,
        iterations: int = DEFAULT_ITERATIONS,
        salt: bytes | None = None,
    ) -> None:
        from aiokclient.network.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS

        password = Secret(password)
        _require_user(user)
        _require_password(password)
        require_integer(iterations, "a number of iterations")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise IllegalStateError(
                f"{iterations} iterations are not allowed. Pass a number from {MIN_ITERATIONS} to "
                "16384, which is the highest that brokers accept."
            )
        if salt is not None and not (isinstance(salt, bytes) and salt):
            raise ArgumentTypeError(
                "The salt must be bytes that are not empty, or None for a new one."
            )
        values = {"user": user, "password": password, "mechanism": _as_mechanism(mechanism)}
        for name, value in (values | {"iterations": iterations, "salt": salt}).items():
            object.__setattr__(self, name, value)


@public_in("aiokclient.admin")
@dataclasses.dataclass(frozen=True, slots=True, init=False)
class UserScramCredentialDeletion:
    """The deletion of the credential of a user for one mechanism."""

    user: str
    mechanism: ScramMechanism

    def __init__(
        self, user: str, mechanism: ScramMechanism | str = ScramMechanism.SCRAM_SHA_512
    ) -> None:
        _require_user(user)
        object.__setattr__(self, "user", user)
        object.__setattr__(self, "mechanism", _as_mechanism(mechanism))


UserScramCredentialAlteration: TypeAlias = (
    UserScramCredentialUpsertion | UserScramCredentialDeletion
)
"""A change of one credential of a user."""


async def describe_user_scram_credentials(
    requests: AdminRequests, users: Iterable[str] | None, timeout: float | None
) -> Results[str, tuple[ScramCredentialInfo, ...]]:
    """See `Admin.describe_user_scram_credentials`."""
    if users is None:
        log = requests.cluster.make_log("admin")
        return Results(await _ask_for_credentials(requests, None, timeout), log)

    async def ask(
        items: dict[str, None], remaining: float
    ) -> Answers[str, tuple[ScramCredentialInfo, ...]]:
        return await _ask_for_credentials(requests, items, remaining)

    return await requests.ask_items(dict.fromkeys(as_names(users)), ask, timeout)


async def _ask_for_credentials(
    requests: AdminRequests, users: Iterable[str] | None, timeout: float | None
) -> dict[str, tuple[ScramCredentialInfo, ...] | KafkaError]:
    # A request without users asks for all of them.
    names = [UserName(name=user) for user in users or ()]
    request = DescribeUserScramCredentialsRequest(users=names)
    response = await requests.send_request(request, AnyBroker(), timeout)
    return {result.user: _read_credentials(result) for result in response.results}


async def alter_user_scram_credentials(
    requests: AdminRequests,
    alterations: Iterable[UserScramCredentialAlteration],
    timeout: float | None,
) -> Results[str, None]:
    """See `Admin.alter_user_scram_credentials`."""
    wanted = _group_by_user(alterations)
    requests.require_open()
    steps = _Alterations(requests, requests.compute_deadline(timeout))
    return await requests.ask_items(wanted, steps.alter_users, timeout)


class _Alterations:
    """The alterations of one call, which may need several requests."""

    def __init__(self, requests: AdminRequests, deadline: float) -> None:
        self._requests = requests
        self._deadline = deadline
        self._salted: dict[str, list[ScramCredentialUpsertion]] = {}
        self._done: set[tuple[str, ScramMechanism]] = set()

    async def alter_users(
        self, items: dict[str, list[UserScramCredentialAlteration]], remaining: float
    ) -> Answers[str, None]:
        """Alter the credentials of users, with one request for each mechanism.

        Brokers refuse a request with two credentials of one user. An alteration that has succeeded
        is not repeated.
        """
        await _add_salted(items, self._salted, remaining)
        answers: dict[str, KafkaError | None] = {}
        for mechanism in MECHANISMS:
            left = {
                user: [each for each in changes if each.mechanism is mechanism]
                for user, changes in items.items()
                if answers.get(user) is None and (user, mechanism) not in self._done
            }
            left = {user: changes for user, changes in left.items() if changes}
            if left:
                for user in left:
                    answers.pop(user, None)
                answers |= await self._send_alterations(left, mechanism)
        return answers

    async def _send_alterations(
        self, items: dict[str, list[UserScramCredentialAlteration]], mechanism: ScramMechanism
    ) -> dict[str, KafkaError | None]:
        request = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=user, mechanism=mechanism)
                for user, changes in items.items()
                for each in changes
                if isinstance(each, UserScramCredentialDeletion)
            ],
            upsertions=[
                each for user in items for each in self._salted[user] if each.mechanism == mechanism
            ],
        )
        remaining = self._requests.compute_remaining_s(self._deadline)
        response = await self._requests.send_request(request, Controller(), remaining)
        answers = {
            result.user: read_failure(result, ALTER, f"user {result.user}")
            for result in response.results
        }
        self._done.update((user, mechanism) for user, error in answers.items() if error is None)
        return answers


async def _add_salted(
    items: Mapping[str, Sequence[UserScramCredentialAlteration]],
    upsertions: dict[str, list[ScramCredentialUpsertion]],
    timeout: float,
) -> None:
    """Salt the passwords of users for the first attempt. Later attempts send the same messages."""
    try:
        async with asyncio.timeout(timeout):
            for user, changes in items.items():
                if user not in upsertions:
                    upsertions[user] = [
                        await threads.run(_salt_password, each)
                        for each in changes
                        if isinstance(each, UserScramCredentialUpsertion)
                    ]
    except TimeoutError:
        text = f"The salted passwords were not computed within {timeout:.1f} s."
        raise ApiTimeoutError(text, api=ALTER) from None


def _salt_password(change: UserScramCredentialUpsertion) -> ScramCredentialUpsertion:
    # This runs in a thread, and the repr of the task that waits for it shows the result: a message,
    # which hides the salted password. The mechanisms are imported only here, when they are needed.
    from aiokclient.network.sasl.scram import HASHES, salted_password

    salt = change.salt or secrets.token_bytes(SALT_BYTES)
    name = HASHES[change.mechanism.sasl_name]
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=change.mechanism,
        iterations=change.iterations,
        salt=salt,
        salted_password=salted_password(name, change.password, salt, change.iterations),
    )


def _group_by_user(
    alterations: Iterable[UserScramCredentialAlteration],
) -> dict[str, list[UserScramCredentialAlteration]]:
    # The text shows only types, because a wrong object may contain a password.
    checked: Any = alterations
    if not isinstance(checked, Iterable):
        raise ArgumentTypeError(
            f"{type(checked).__name__} is not a collection of alterations. Pass a list."
        )
    found: dict[str, list[UserScramCredentialAlteration]] = {}
    for each in checked:
        if not isinstance(each, UserScramCredentialUpsertion | UserScramCredentialDeletion):
            raise ArgumentTypeError(
                f"{type(each).__name__} is not an alteration of a SCRAM credential. Pass "
                "UserScramCredentialUpsertion or UserScramCredentialDeletion objects."
            )
        found.setdefault(each.user, []).append(each)
    return found


def _read_credentials(
    result: DescribeUserScramCredentialsResult,
) -> tuple[ScramCredentialInfo, ...] | KafkaError:
    error = read_failure(result, DESCRIBE, f"user {result.user}")
    return error or tuple(
        ScramCredentialInfo(ScramMechanism(each.mechanism), each.iterations)
        for each in sorted(result.credential_infos, key=lambda info: info.mechanism)
    )


def _as_mechanism(given: Any) -> ScramMechanism:
    for mechanism in MECHANISMS:
        if given is mechanism or (isinstance(given, str) and given.upper() == mechanism.sasl_name):
            return mechanism
    kind = IllegalStateError if isinstance(given, str | ScramMechanism) else ArgumentTypeError
    raise kind(
        f"{given!r} is not a mechanism of SCRAM. Pass ScramMechanism.SCRAM_SHA_256 or "
        "ScramMechanism.SCRAM_SHA_512."
    )


def _require_user(user: Any) -> None:
    if not isinstance(user, str):
        raise ArgumentTypeError(f"{user!r} is not the name of a user. Pass a str.")
    if not user:
        raise IllegalStateError("The name of a user must not be empty.")
    as_name(user, "user")


def _require_password(password: Secret) -> None:
    if not password.is_text:
        raise ArgumentTypeError("The password is not a text. Pass a str.")
    if not password or not password.is_unicode:
        raise IllegalStateError(
            "The password must not be empty, and must not contain half of a surrogate pair."
        )
