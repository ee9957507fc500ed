"""The commands of ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.asking import confirm
from aiokclient.cli.grammar import (
    NO_CHECK,
    AdminCommand,
    Command,
    Option,
    WrongUseError,
    value_error,
)
from aiokclient.cli.nouns.topics import count_of, dry_run_notes
from aiokclient.cli.output import Result, Row, as_json, rows_result

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin
    from aiokclient.admin import AclBinding, AclBindingFilter, ResourcePatternFilter

TYPES = {
    "topic": "topic",
    "group": "group",
    "cluster": "cluster",
    "transactional-id": "transactional_id",
    "token": "delegation_token",
    "user": "user",
}
"""The types of resources as they are typed, each with its name in the library."""
CLUSTER_NAME = "kafka-cluster"
FORMS = "topic:NAME, group:NAME, cluster, transactional-id:ID, token:ID, user:PRINCIPAL"
OPERATIONS = {
    "topic": "read write create describe delete alter describe_configs alter_configs",
    "group": "read describe delete describe_configs alter_configs",
    "cluster": "create cluster_action describe_configs alter_configs idempotent_write alter "
    "describe",
    "transactional_id": "describe write two_phase_commit",
    "delegation_token": "describe",
    "user": "create_tokens describe_tokens",
}
"""The operations that a resource of each type has. `all` stands for all of them."""
NAMES = ("all", *sorted({name for each in OPERATIONS.values() for name in each.split()}))
ROLES = {
    "producer": {"topic": "write describe create", "transactional_id": "write describe"},
    "idempotent-producer": {
        "topic": "write describe create",
        "transactional_id": "write describe",
        "cluster": "idempotent_write",
    },
    "consumer": {"topic": "read describe", "group": "read"},
}
"""The operations of each role, by the type of the resource."""
MATCHES = ("any", "match", "literal", "prefixed")
COLUMNS = ("principal", "permission", "operation", "resource", "pattern_type", "host")


def dashed(name: str) -> str:
    """Return a name of the library as it is typed."""
    return name.replace("_", "-")


class AclResource:
    """A resource that ACLs protect, such as topic:orders. The name `*` is all of the type."""

    def __init__(self, text: str) -> None:
        word, _, name = text.partition(":")
        is_cluster = word == "cluster" and name in ("", CLUSTER_NAME)
        if word not in TYPES or (not is_cluster and (word == "cluster" or not name)):
            raise value_error(f"{text!r} is none of {FORMS}")
        self.type = TYPES[word]
        self.name = CLUSTER_NAME if is_cluster else name
        self.text = text


class Principal:
    """A principal with its type, such as User:alice. `User:*` is every user."""

    def __init__(self, text: str) -> None:
        kind, _, name = text.partition(":")
        if not kind or not name:
            raise value_error(f"{text!r} is no principal with its type, such as User:alice")
        self.text = text


class Operation:
    """An operation by its name, such as describe-configs or DescribeConfigs."""

    def __init__(self, text: str) -> None:
        plain = text.replace("-", "").replace("_", "").lower()
        found = [each for each in NAMES if each.replace("_", "") == plain]
        if not found:
            names = ", ".join(map(dashed, NAMES))
            raise value_error(f"{text!r} is no operation. There are {names}")
        self.name = found[0]


ON = Option(
    ("--on",), f"One of {FORMS}. Can be repeated.", "RESOURCE", type=AclResource, repeated=True
)
PREFIXED = Option(("--prefixed",), "The names of the resources are prefixes.")
MATCH = Option(
    ("--match",),
    "The patterns that are meant: literal, prefixed, any of both, or match, which is all that "
    "apply to the names.",
    "TYPE",
    choices=MATCHES,
)
CHANGED = (
    Option(
        ("--allow",),
        "A principal that is allowed to do something, such as User:alice. Can be repeated.",
        "PRINCIPAL",
        type=Principal,
        repeated=True,
    ),
    Option(
        ("--deny",),
        "A principal that is not, whatever is allowed. Can be repeated.",
        "PRINCIPAL",
        type=Principal,
        repeated=True,
    ),
    Option(
        ("--allow-host",),
        "An IP address from which those of --allow connect. Can be repeated.",
        "HOST",
        repeated=True,
    ),
    Option(
        ("--deny-host",),
        "An IP address from which those of --deny connect. Can be repeated.",
        "HOST",
        repeated=True,
    ),
    ON,
    PREFIXED,
    Option(
        ("--operation",),
        f"One of {', '.join(map(dashed, NAMES))}. Can be repeated.",
        "OPERATION",
        type=Operation,
        repeated=True,
    ),
    Option(
        ("--role",),
        f"All operations of a {', '.join(ROLES)}, instead of --operation. Can be repeated.",
        "ROLE",
        choices=tuple(ROLES),
        repeated=True,
    ),
)


class ListAcls(AdminCommand):
    """List ACLs: all, or those of some resources or principals."""

    verb = "list"
    accepts_controllers = True
    options = (
        ON,
        Option(
            ("--principal",),
            "A principal, such as User:alice. Can be repeated.",
            "PRINCIPAL",
            type=Principal,
            repeated=True,
        ),
        PREFIXED,
        MATCH,
    )

    def run(self, given: Namespace) -> int:
        """Refuse arguments that do not belong together before connecting."""
        match_of(given, "any")
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each ACL."""
        from aiokclient.admin import AclBindingFilter

        match = match_of(given, "any")
        resources = [(each.type, each.name) for each in given.on] or [("any", "")]
        filters = [
            AclBindingFilter(make_pattern_filter(*resource, match), principal)
            for resource in resources
            for principal in [each.text for each in given.principal] or [None]
        ]
        return rows_result(COLUMNS, [acl_row(each) for each in await find_acls(admin, filters)])


class AddAcls(AdminCommand):
    """Add ACLs: each principal may, or may not, do each operation on each resource.

    A role needs the resources that its operations are about: a consumer topics and groups, a
    producer topics, and transactional ids if it has transactions. Other operations than a resource
    has are refused, unless --no-check is given.
    """

    verb = "add"
    changes = True
    accepts_controllers = True
    options = (*CHANGED, NO_CHECK)

    def run(self, given: Namespace) -> int:
        """Refuse arguments that do not belong together before connecting."""
        refuse_wrong_acls(given)
        if not given.on:
            raise WrongUseError(f"Give the resources by --on: {FORMS}.")
        if not given.allow and not given.deny:
            raise WrongUseError("Give the principals by --allow or --deny.")
        if not given.operation and not given.role:
            raise WrongUseError("Give the operations by --operation, or a --role.")
        if not given.no_check:
            refuse_wrong_operations(given)
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each ACL that was added."""
        acls = list(dict.fromkeys(make_acls(given)))
        rows: list[Row] = [acl_row(each) for each in acls]
        failures: dict[str, Exception] = {}
        if not given.dry_run:
            created = await admin.create_acls(acls)
            failures = {str(acl): error for acl, error in created.errors.items()}
            rows = [acl_row(each) for each in created.succeeded]
        return rows_result(COLUMNS, rows, failures, dry_run_notes(given))


class RemoveAcls(AdminCommand):
    """Remove the ACLs that the options select.

    What is not given selects all, so --on topic:orders alone is all ACLs of the topic. Without
    --prefixed or --match, literal names are meant.
    """

    verb = "remove"
    changes = True
    destroys = True
    accepts_controllers = True
    options = (*CHANGED, MATCH)

    def run(self, given: Namespace) -> int:
        """Refuse arguments that do not belong together before connecting."""
        refuse_wrong_acls(given)
        if not (given.on or given.allow or given.deny):
            raise WrongUseError("Give the ACLs by --on, --allow, or --deny.")
        match_of(given, "literal")
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each ACL that was removed."""
        chosen = await find_acls(admin, make_filters(given))
        if not chosen:
            return rows_result(COLUMNS, [], notes=["There is no such ACL."])
        texts = [str(each).removeprefix("ACL ") for each in chosen]
        confirm(given, f"Remove {count_of(texts, 'ACL')}?")
        rows: list[Row] = [acl_row(each) for each in chosen]
        failures: dict[str, Exception] = {}
        if not given.dry_run:
            # Exactly those that the question named, and none that was added meanwhile.
            deleted = await admin.delete_acls([each.to_filter() for each in chosen])
            failures = {str(each): error for each, error in deleted.errors.items()}
            rows = [acl_row(acl) for acls in deleted.succeeded.values() for acl in acls]
        return rows_result(COLUMNS, rows, failures, dry_run_notes(given))


def acl_row(acl: AclBinding) -> Row:
    """Return an ACL with the fields of the library, and its resource as it is typed."""
    words = {type_name: word for word, type_name in TYPES.items()}
    type_name = acl.pattern.type.name.lower()
    word = words.get(type_name, type_name)
    return {
        **as_json(acl),
        "resource": word if word == "cluster" else f"{word}:{acl.pattern.name}",
        "pattern_type": as_json(acl.pattern.pattern_type),
    }


async def find_acls(admin: Admin, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
    """Return the ACLs that any of the filters selects, each once."""
    found: dict[AclBinding, None] = {}
    for each in filters:
        found |= dict.fromkeys(await admin.describe_acls(each))
    return sorted(found, key=str)


def refuse_wrong_acls(given: Namespace) -> None:
    """Raise WrongUseError for options that do not belong together."""
    if given.role and (given.operation or given.deny):
        raise WrongUseError("--role goes with --allow alone, without --operation and --deny.")
    if given.allow_host and not given.allow:
        raise WrongUseError("--allow-host needs --allow.")
    if given.deny_host and not given.deny:
        raise WrongUseError("--deny-host needs --deny.")
    types = {each.type for each in given.on}
    if given.prefixed and "cluster" in types:
        raise WrongUseError("The cluster has no name, so it does not go with --prefixed.")
    for role in given.role:
        if missing := sorted({"topic", "group"}.intersection(ROLES[role]) - types):
            needed = " and ".join(f"--on {each}:NAME" for each in missing)
            raise WrongUseError(f"--role {role} needs {needed}.")
    known = {name for role in given.role for name in ROLES[role]}
    if given.role and (others := [each.text for each in given.on if each.type not in known]):
        raise WrongUseError(f"--role {' and '.join(given.role)} does not go with {others[0]}.")


def refuse_wrong_operations(given: Namespace) -> None:
    """Raise WrongUseError for an operation that a resource does not have.

    Brokers would accept it, and it would have no effect.
    """
    for resource in given.on:
        allowed = OPERATIONS[resource.type].split()
        for operation in given.operation:
            if operation.name not in ("all", *allowed):
                names = ", ".join(map(dashed, allowed))
                raise WrongUseError(
                    f"{resource.text} has no operation {dashed(operation.name)}. It has {names}, "
                    "and all. --no-check adds the ACL nevertheless."
                )


def typed_operations(given: Namespace) -> Iterator[tuple[str, str, str]]:
    """Yield the type and the name of each resource with each operation.

    A resource or an operation that was not typed is "any", without a name.
    """
    if not given.role:
        operations = [each.name for each in given.operation] or ["any"]
        for resource in [(each.type, each.name) for each in given.on] or [("any", "")]:
            for operation in operations:
                yield (*resource, operation)
    for role in given.role:
        typed = [(each.type, each.name) for each in given.on]
        typed += [("cluster", CLUSTER_NAME)] if "cluster" in ROLES[role] else []
        for type_name, name in typed:
            for operation in ROLES[role].get(type_name, "").split():
                yield type_name, name, operation


def typed_principals(given: Namespace) -> Iterator[tuple[str, str, str | None]]:
    """Yield the permission, the principal, and the host that were typed; None for any host."""
    for each in given.allow:
        for host in given.allow_host or [None]:
            yield "ALLOW", each.text, host
    for each in given.deny:
        for host in given.deny_host or [None]:
            yield "DENY", each.text, host


def make_acls(given: Namespace) -> Iterator[AclBinding]:
    """Yield the ACLs that were typed."""
    from aiokclient import admin

    for type_name, name, operation in typed_operations(given):
        is_prefix = given.prefixed and type_name != "cluster"
        pattern = admin.ResourcePattern(
            admin.AclResourceType[type_name.upper()],
            name,
            admin.PatternType.PREFIXED if is_prefix else admin.PatternType.LITERAL,
        )
        for permission, principal, host in typed_principals(given):
            yield admin.AclBinding(
                pattern,
                principal,
                admin.AclOperation[operation.upper()],
                admin.AclPermissionType[permission],
                host or "*",
            )


def make_filters(given: Namespace) -> Iterator[AclBindingFilter]:
    """Yield the filters for the ACLs that were typed."""
    from aiokclient import admin

    match = match_of(given, "literal" if given.on else "any")
    anybody: tuple[str, str, str | None] = ("ANY", "", None)
    principals = [*typed_principals(given)] or [anybody]
    for type_name, name, operation in typed_operations(given):
        pattern = make_pattern_filter(type_name, name, "any" if type_name == "cluster" else match)
        for permission, principal, host in principals:
            yield admin.AclBindingFilter(
                pattern,
                principal or None,
                admin.AclOperation[operation.upper()],
                admin.AclPermissionType[permission],
                host,
            )


def make_pattern_filter(type_name: str, name: str, match: str) -> ResourcePatternFilter:
    """Return the filter for the patterns of a resource, or of all for the type "any"."""
    from aiokclient.admin import AclResourceType, PatternType, ResourcePatternFilter

    return ResourcePatternFilter(
        AclResourceType[type_name.upper()], name or None, PatternType[match.upper()]
    )


def match_of(given: Namespace, default: str) -> str:
    """Return the type of the patterns that are meant. Raises WrongUseError."""
    if given.match is None:
        return "prefixed" if given.prefixed else default
    if given.prefixed:
        raise WrongUseError("Give either --prefixed or --match.")
    if given.match == "match" and not given.on:
        raise WrongUseError("--match match needs the names of resources by --on.")
    return str(given.match)


COMMANDS: Sequence[type[Command]] = (ListAcls, AddAcls, RemoveAcls)
