"""The conversion of Kafka's options for GSSAPI and of Java's Krb5LoginModule to `SaslGssapi`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.config.security.sasl import SaslGssapi
from aiokclient.config.security.tls import Tls
from aiokclient.errors import ConfigError

if TYPE_CHECKING:
    from aiokclient.config.security.jaas import JaasEntry

__all__ = ["credentials"]


def credentials(
    service_name: str | None,
    entry: JaasEntry | None,
    tls: Tls | None,
    domain_name: str | None = None,
) -> SaslGssapi:
    """Return the credentials of a JAAS entry. Without an entry, they are in the ticket cache."""
    if entry is None:
        return SaslGssapi(service_name or "kafka", tls=tls, domain_name=domain_name)
    named = entry.option_text("serviceName")
    if named is not None and service_name is not None and named != service_name:
        raise ConfigError(
            "sasl_kerberos_service_name: It differs from serviceName in sasl_jaas_config. Leave "
            "one of them out."
        )
    keytab = ticket_cache = None
    if entry.has("useKeyTab"):
        keytab = entry.option_text("keyTab")
        if not keytab:
            raise ConfigError(
                "sasl_jaas_config: useKeyTab=true needs keyTab, the path of a keytab."
            )
        keytab = keytab.removeprefix("file:") if keytab.startswith("file:/") else keytab
    elif entry.has("useTicketCache"):
        ticket_cache = entry.option_text("ticketCache")
    else:
        raise ConfigError(
            "sasl_jaas_config: Krb5LoginModule needs useKeyTab=true with keyTab, or "
            "useTicketCache=true."
        )
    return SaslGssapi(
        named or service_name or "kafka",
        entry.option_text("principal"),
        keytab,
        tls,
        ticket_cache=ticket_cache,
        domain_name=domain_name,
    )
