"""Calls that change ACLs, quotas, SCRAM credentials, and delegation tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from aiokclient.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ClientQuotaEntity,
    ClientQuotaName,
    DelegationToken,
    ResourcePattern,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from aiokclient.errors import (
    DelegationTokenNotFoundError,
    InvalidRequestError,
    KafkaError,
    ResourceNotFoundError,
)

from .call import AdminCall, CallItem, CallMaker, Surroundings, judge_item, judge_items
from .model import BrokenModelError, Done, Model, Refused, State, refused

PRINCIPALS = ("User:ann", "User:ben")
BINDINGS = tuple(
    AclBinding(pattern, principal, operation, permission)
    for pattern in (
        ResourcePattern.topic("walk"),
        ResourcePattern.topic("wa", prefixed=True),
        ResourcePattern.group("walk"),
    )
    for principal in PRINCIPALS
    for operation in (AclOperation.READ, AclOperation.DESCRIBE)
    for permission in (AclPermissionType.ALLOW, AclPermissionType.DENY)
)
ENTITIES = (
    ClientQuotaEntity(user="ann"),
    ClientQuotaEntity(user="ann", client_id="app"),
    ClientQuotaEntity(client_id=ClientQuotaName.DEFAULT),
    ClientQuotaEntity(user="ben"),
)
QUOTAS = {
    "producer_byte_rate": (1e6, 2e6),
    "consumer_byte_rate": (1e6, 3e6),
    "request_percentage": (50.0, 200.0),
}
USERS = ("carol", "dave", "erin")
ITERATIONS = (4096, 5000)


class SecurityCalls(CallMaker):
    """A maker of calls for permissions, limits, and logins."""

    def __init__(self, rng: random.Random, model: Model, around: Surroundings) -> None:
        super().__init__(rng, model, around)
        self._tokens: dict[str, DelegationToken] = {}

    def list_makers(self) -> Iterable[tuple[Callable[[], AdminCall | None], int]]:
        return [
            (self.create_acls, 6),
            (self.delete_acls, 4),
            (self.alter_quotas, 7),
            (self.alter_credentials, 6),
            (self.create_token, 2),
            (self.renew_token, 1),
            (self.expire_token, 2),
        ]

    # -- ACLs

    def create_acls(self) -> AdminCall:
        bindings = self.rng.sample(BINDINGS, self.rng.randint(1, 3))
        text = f"create_acls {', '.join(map(str, bindings))}"
        items = {each: CallItem(("acl", each), lambda _: [Done(True)]) for each in bindings}
        return AdminCall(
            text,
            lambda admin: admin.create_acls(bindings),
            judge_items(text, items),
            [item.key for item in items.values()],
        )

    def delete_acls(self) -> AdminCall:
        if self.has_chance(0.7):
            chosen = self.rng.choice(BINDINGS)
            acl_filter, matching = chosen.to_filter(), [chosen]
        else:
            principal = self.rng.choice(PRINCIPALS)
            acl_filter = AclBindingFilter(principal=principal)
            matching = [each for each in BINDINGS if each.principal == principal]
        text = f"delete_acls {acl_filter}"

        def judge(model: Model, result: Any, disturbed: bool) -> None:
            deleted: Any = result if isinstance(result, KafkaError) else result[acl_filter]
            for binding in matching:
                key = ("acl", binding)
                before = model.list_states(key)
                meaning = judge_item(model, text, key, lambda _: [Done(None)], deleted, disturbed)
                # Those that an attempt without a response has deleted are not in the result.
                if (
                    meaning == "done"
                    and not disturbed
                    and before != {True if binding in deleted else None}
                ):
                    raise BrokenModelError(f"{text} returned {deleted}, and {key} was {before}.")

        keys = [("acl", binding) for binding in matching]
        return AdminCall(text, lambda admin: admin.delete_acls([acl_filter]), judge, keys)

    # -- quotas and credentials

    def alter_quotas(self) -> AdminCall:
        entity, validate_only = self.rng.choice(ENTITIES), self.has_chance(0.15)
        names = self.rng.sample(sorted(QUOTAS), self.rng.randint(1, 2))
        changes = {
            name: None if self.has_chance(0.35) else self.rng.choice(QUOTAS[name]) for name in names
        }
        is_wrong = self.has_chance(0.08)
        if is_wrong:
            changes["no_such_quota"] = 1.0

        def effect(state: State) -> list[Done | Refused]:
            if is_wrong:
                return refused(InvalidRequestError)
            quotas = {**dict(state or ()), **changes}
            after = frozenset((name, value) for name, value in quotas.items() if value is not None)
            return [Done(state if validate_only else after or None)]

        key = ("quota", entity)
        text = (
            f"alter_client_quotas {entity} {changes}{' (validate_only)' if validate_only else ''}"
        )
        return AdminCall(
            text,
            lambda admin: admin.alter_client_quotas({entity: changes}, validate_only=validate_only),
            judge_items(text, {entity: CallItem(key, effect)}),
            [key],
        )

    def alter_credentials(self) -> AdminCall:
        user = self.rng.choice(USERS)
        mechanism = self.rng.choice([ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512])
        iterations = self.rng.choice(ITERATIONS)
        is_deletion = self.has_chance(0.4) and self.around.deletes_credentials

        def effect(state: State) -> list[Done | Refused]:
            credentials = dict(state or ())
            if not is_deletion:
                credentials[mechanism] = iterations
            elif credentials.pop(mechanism, None) is None:
                return refused(ResourceNotFoundError)
            return [Done(frozenset(credentials.items()) or None)]

        change: Any = UserScramCredentialDeletion(user, mechanism)
        if not is_deletion:
            change = UserScramCredentialUpsertion(user, "walk-password", mechanism, iterations)
        key, text = ("scram", user), f"alter_user_scram_credentials {change}"
        return AdminCall(
            text,
            lambda admin: admin.alter_user_scram_credentials([change]),
            judge_items(text, {user: CallItem(key, effect)}),
            [key],
        )

    # -- tokens

    def create_token(self) -> AdminCall:
        def judge(model: Model, result: Any, disturbed: bool) -> None:
            if isinstance(result, DelegationToken):
                self._tokens[result.token_id] = result
                # An earlier attempt may have created another one.
                self.around.lost_tokens += disturbed
                judge_item(
                    model,
                    text,
                    ("token", result.token_id),
                    lambda _: [Done(True)],
                    result,
                    disturbed,
                )
            elif disturbed and result.retriable:
                self.around.lost_tokens += 1
            else:
                raise BrokenModelError(f"{text}: {result}")

        text = "create_delegation_token"
        return AdminCall(
            text, lambda admin: admin.create_delegation_token(), judge, needs_login=True
        )

    def _choose_token(self) -> DelegationToken | None:
        names = sorted(name for name in self._tokens if self.is_settled(("token", name)))
        return self._tokens[self.rng.choice(names)] if names else None

    def renew_token(self) -> AdminCall | None:
        token = self._choose_token()
        if token is None:
            return None
        key, text = ("token", token.token_id), f"renew_delegation_token {token.token_id}"
        return AdminCall(
            text,
            lambda admin: admin.renew_delegation_token(token),
            lambda model, result, disturbed: self._judge_token(
                model, text, key, result, disturbed, True
            ),
            [key],
            needs_login=True,
        )

    def expire_token(self) -> AdminCall | None:
        token = self._choose_token()
        if token is None:
            return None
        key, text = ("token", token.token_id), f"expire_delegation_token {token.token_id}"
        return AdminCall(
            text,
            lambda admin: admin.expire_delegation_token(token),
            lambda model, result, disturbed: self._judge_token(
                model, text, key, result, disturbed, None
            ),
            [key],
            needs_login=True,
        )

    def _judge_token(
        self,
        model: Model,
        text: str,
        key: Any,
        result: Any,
        disturbed: bool,
        after: bool | None,
    ) -> None:
        def effect(state: State) -> list[Done | Refused]:
            unknown = refused(DelegationTokenNotFoundError)
            if state is None:
                return unknown
            return [Done(after), *unknown] if self.around.learns_tokens_late else [Done(after)]

        judge_item(model, text, key, effect, result, disturbed)
