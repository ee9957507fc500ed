"""The rules of a data contract, which a schema may have.

Rules are programs: conditions, transformations, and encryption of fields. Confluent's clients run
them when they write and read. This library runs none. To ignore one would write plain text where
the contract asks for encryption, or values that break a condition. So schemas with rules that
would have to run are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

WRITING: Final = frozenset({"WRITE", "WRITEREAD"})
READING: Final = frozenset({"READ", "WRITEREAD"})
"""The modes of the rules that run when a value is written or read.

Migration rules have other modes. They run only where a value of one version is converted to
another version, which this library leaves to the rules of Avro.
"""

_PHASES: Final = ("domainRules", "encodingRules")


def _rules_to_run(rule_set: Mapping[str, Any], modes: frozenset[str]) -> Iterator[str]:
    """Yield a description of each rule that has to run in one of the modes."""
    if str(rule_set.get("enableAt") or "ALL").upper() not in ("ALL", "CLIENT"):
        return  # They run elsewhere, such as in a gateway.
    for phase in _PHASES:
        for rule in rule_set.get(phase) or ():
            mode = str(rule.get("mode") or "WRITEREAD").upper()
            if mode in modes and not rule.get("disabled"):
                yield f"{rule.get('name')} ({rule.get('type')}, {mode})"


def rules_problem(rule_set: Mapping[str, Any] | None, modes: frozenset[str]) -> str:
    """Return why a schema with these rules cannot be used, as sentences, or "" if it can."""
    rules = ", ".join(_rules_to_run(rule_set, modes)) if rule_set else ""
    if not rules:
        return ""
    doing = "written" if modes is WRITING else "read"
    return (
        f"Its rules must run when a value is {doing}, and this client runs no rules: {rules}. Use "
        "a subject without rules, or a client that runs them."
    )
