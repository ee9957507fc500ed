"""The security configs of brokers, which do not change while the brokers run.

    authorizer.class.name             if it is empty, everybody may do everything; if it is a name
                                      of Kafka's StandardAuthorizer, ACLs apply
    super.users                       principals separated by ";", whom ACLs do not restrict
    allow.everyone.if.no.acl.found    whether a resource without ACLs is open to everybody
    delegation.token.secret.key       enables delegation tokens
    delegation.token.max.lifetime.ms  the maximum lifetime of a token
    delegation.token.expiry.time.ms   the time after which a token expires unless it is renewed

DescribeConfigs returns those that Kafka returns, without the secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aiokclient.testing.broker.security.acls import Authorizer
from aiokclient.testing.broker.security.principal import parse_principal

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_DEFAULTS = {
    "authorizer.class.name": "",
    "super.users": "",
    "allow.everyone.if.no.acl.found": "false",
    "delegation.token.secret.key": "",
    "delegation.token.max.lifetime.ms": "604800000",
    "delegation.token.expiry.time.ms": "86400000",
}


class TokenOptions(NamedTuple):
    """The options of delegation tokens. Without a secret, delegation tokens are disabled."""

    secret: str
    max_lifetime_ms: int
    expiry_ms: int


def split_configs(configs: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split configs into those about security, completed with defaults, and all others."""
    security = {name: configs.get(name, default) for name, default in _DEFAULTS.items()}
    return security, {name: value for name, value in configs.items() if name not in _DEFAULTS}


def make_authorizer(configs: Mapping[str, str]) -> Authorizer | None:
    """Return the authorizer of a cluster, or None without one. Raises ValueError."""
    name, users = configs["authorizer.class.name"], configs["super.users"]
    everyone = configs["allow.everyone.if.no.acl.found"].lower()
    if everyone not in ("true", "false"):
        raise ValueError(f"allow.everyone.if.no.acl.found={everyone!r}: Use true or false.")
    if name not in ("", AUTHORIZER):
        raise ValueError(f"authorizer.class.name={name!r}: The embedded cluster has {AUTHORIZER}.")
    if not name and (users or everyone == "true"):
        raise ValueError(
            "super.users and allow.everyone.if.no.acl.found need authorizer.class.name="
            f"{AUTHORIZER}."
        )
    if not name:
        return None
    named = [str(parse_principal(each.strip())) for each in users.split(";") if each.strip()]
    return Authorizer(named, everyone == "true")


def read_token_options(configs: Mapping[str, str]) -> TokenOptions:
    """Return the options of delegation tokens. Raises ValueError."""
    return TokenOptions(
        configs["delegation.token.secret.key"],
        int(configs["delegation.token.max.lifetime.ms"]),
        int(configs["delegation.token.expiry.time.ms"]),
    )
