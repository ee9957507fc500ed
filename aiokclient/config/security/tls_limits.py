"""The versions and cipher suites of TLS that Kafka's options allow.

Suites have the names of IANA, which Java uses, or those of OpenSSL, which librdkafka uses. Python
before 3.15 cannot select suites of TLS 1.3. Therefore the suite is checked after every handshake.
If the options do not allow it, the connection is closed before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from aiokclient.config.kinds import Kind
from aiokclient.errors import ConfigError
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    import ssl

# The numbers of `ssl.TLSVersion`, which are those of the protocol. A client without TLS does not
# import the module.
TLS_1_2: Final = 0x0303
TLS_1_3: Final = 0x0304
VERSIONS: Final = {"TLSv1.2": TLS_1_2, "TLSv1.3": TLS_1_3}
"""The versions that the client uses, by Java's names."""
OUTDATED: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
"""Java's names of versions that are accepted in lists, but not used, as in current JVMs."""

SUITES_OF_13: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
"""The cipher suites of TLS 1.3. OpenSSL has the same names as IANA."""

SUITES_BEFORE_13: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CCM": "ECDHE-ECDSA-AES256-CCM",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM": "ECDHE-ECDSA-AES128-CCM",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8": "ECDHE-ECDSA-AES256-CCM8",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8": "ECDHE-ECDSA-AES128-CCM8",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_256_CCM": "DHE-RSA-AES256-CCM",
    "TLS_DHE_RSA_WITH_AES_128_CCM": "DHE-RSA-AES128-CCM",
    "TLS_DHE_RSA_WITH_AES_256_CCM_8": "DHE-RSA-AES256-CCM8",
    "TLS_DHE_RSA_WITH_AES_128_CCM_8": "DHE-RSA-AES128-CCM8",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CCM": "AES256-CCM",
    "TLS_RSA_WITH_AES_128_CCM": "AES128-CCM",
    "TLS_RSA_WITH_AES_256_CCM_8": "AES256-CCM8",
    "TLS_RSA_WITH_AES_128_CCM_8": "AES128-CCM8",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}
"""The cipher suites of TLS 1.2: OpenSSL's names by those of IANA."""

_NAMES: Final = {
    **{name: name for name in SUITES_OF_13},
    **SUITES_BEFORE_13,
    **{name: name for name in SUITES_BEFORE_13.values()},
}
"""OpenSSL's name of each suite, by the name of IANA and by OpenSSL's own name."""


class _Names(Kind):
    """A tuple of names out of the set `known`. The names may be in upper or lower case.

    The tuple has the names as they are written in `known`. In a text, the names are separated by
    commas, or as in librdkafka, by colons.
    """

    __slots__ = ("example", "known", "what")

    def __init__(self, what: str, known: Collection[str], example: str) -> None:
        self.what = what
        self.known = known
        self.example = example

    @property
    def allowed(self) -> str:
        return f"{self.what}, such as {self.example}, or None"

    def check_value(self, value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        items = re.split("[,:]", value) if isinstance(value, str) else value
        if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
            raise ValueError
        names = [item.strip() for item in items]
        return tuple(dict.fromkeys(self._check_name(name) for name in names if name)) or None

    def _check_name(self, name: str) -> str:
        spellings = {one.lower(): one for one in self.known}
        found = spellings.get(name.lower())
        if found is not None:
            return found
        import difflib

        near = difflib.get_close_matches(name.lower(), spellings, n=3)
        meant = " or ".join(spellings[one] for one in near)
        hint = f"Did you mean {meant}?" if meant else f"It must be {self.allowed}."
        raise ValueError(f"{name!r} is not known. {hint}")


PROTOCOL_NAMES: Final = _Names(
    "a list of TLS versions", (*VERSIONS, *OUTDATED), "'TLSv1.2,TLSv1.3'"
)
CIPHER_SUITES: Final = _Names("a list of cipher suites", tuple(_NAMES), "'TLS_AES_256_GCM_SHA384'")


class ProtocolName(Kind):
    """The highest version of TLS by Java's name, or `TLS` for any."""

    @property
    def allowed(self) -> str:
        return "'TLSv1.3', 'TLSv1.2', 'TLS', or None"

    def check_value(self, value: Any) -> str | None:
        if value is None:
            return None
        for name in ("TLS", *VERSIONS):
            if isinstance(value, str) and value.strip().lower() == name.lower():
                return name
        raise ValueError

    def parse_text(self, text: str) -> str | None:
        return self.check_value(text or None)


PROTOCOL_NAME: Final = ProtocolName()


class TlsLimits(NamedTuple):
    """The versions of TLS from `lowest` to `highest`, and the allowed suites by OpenSSL's names.

    `suites` is None if all suites are allowed.
    """

    lowest: int = TLS_1_2
    highest: int = TLS_1_3
    suites: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        enabled: Collection[str] | None,
        protocol: str | None,
        suites: Collection[str] | None,
    ) -> Self | None:
        """Return the limits of Kafka's options, or None if there are none.

        Raises ConfigError if the options exclude each other.
        """
        if enabled is None and protocol in (None, "TLS") and suites is None:
            return None
        highest = VERSIONS.get(protocol or "TLS", max(VERSIONS.values()))
        names = VERSIONS if enabled is None else enabled
        versions = {VERSIONS[name] for name in names if name in VERSIONS}
        if not versions:
            raise ConfigError(
                f"ssl_enabled_protocols: {', '.join(names)} is not allowed, because these versions "
                "are not secure. Include TLSv1.2 or TLSv1.3."
            )
        versions = {version for version in versions if version <= highest}
        if not versions:
            raise ConfigError(
                f"ssl_protocol: {protocol} is the highest version, and ssl_enabled_protocols has "
                "only higher ones. Leave one of them out."
            )
        chosen = None if suites is None else tuple(_NAMES[name] for name in suites)
        if chosen is not None:
            has = {
                TLS_1_3: any(name in SUITES_OF_13 for name in chosen),
                TLS_1_2: any(name not in SUITES_OF_13 for name in chosen),
            }
            versions = {version for version in versions if has[version]}
        if not versions:
            raise ConfigError(
                "ssl_cipher_suites: No suite fits a version of TLS that ssl_enabled_protocols and "
                "ssl_protocol allow. Suites without WITH in their names are for TLSv1.3, all "
                "others for TLSv1.2."
            )
        return cls(min(versions), max(versions), chosen)

    def apply_to(self, context: ssl.SSLContext) -> None:
        """Restrict a context. Raises ssl.SSLError if OpenSSL has none of the suites."""
        import ssl

        context.minimum_version = ssl.TLSVersion(self.lowest)
        context.maximum_version = ssl.TLSVersion(self.highest)
        if self.suites is None:
            return
        older = [name for name in self.suites if name not in SUITES_OF_13]
        if older:
            context.set_ciphers(":".join(older))
        select = getattr(context, "set_ciphersuites", None)
        newer = [name for name in self.suites if name in SUITES_OF_13]
        if select is not None and newer:
            select(":".join(newer))

    def allows_suite(self, suite: str) -> bool:
        """Return whether a connection may use this suite, which has OpenSSL's name."""
        return self.suites is None or suite in self.suites
