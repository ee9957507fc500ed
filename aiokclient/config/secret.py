"""Secrets among the options: passwords, tokens, and private keys.

A secret is wrapped as soon as the library receives it, and it is revealed only where its bytes are
needed. A traceback refers to the local variables of its functions, and error reporters show them.
Therefore no function that can raise an error has the text of a secret in a local variable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Self

HIDDEN: Final = "***"

_BARE: Final = (str, bytes, bytearray, Mapping, list, tuple)
"""Types of values whose repr would show a secret."""


class Secret:
    """A text that does not appear in a repr, a str, a log line, or a pickle.

    Two secrets are compared in constant time.
    """

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value: object = value._value if isinstance(value, Secret) else value

    @classmethod
    def of(cls, value: object) -> Self | None:
        """Return the value as a secret, or None for None."""
        return None if value is None else cls(value)

    @property
    def is_text(self) -> bool:
        """Whether the value is a str, as it must be."""
        return isinstance(self._value, str)

    @property
    def is_unicode(self) -> bool:
        """Whether the text has no half of a surrogate pair, which UTF-8 cannot express."""
        return not any("\ud800" <= character <= "\udfff" for character in self.reveal())

    @property
    def type_name(self) -> str:
        """The name of the type of the value, for errors about values that are not a str."""
        return type(self._value).__name__

    def reveal(self) -> str:
        """Return the text. The caller must not keep it in a variable."""
        assert isinstance(self._value, str)
        return self._value

    def encode(self) -> bytes:
        """Return the text in UTF-8. The caller must not keep it in a variable."""
        return self.reveal().encode("utf-8", "surrogatepass")

    def strip_space(self) -> Secret:
        """Return the text without white space at both ends."""
        return Secret(self.reveal().strip()) if self.is_text else self

    def scrub_text(self, text: str) -> str:
        """Return `text` without this secret, which a broker or a server may have put there."""
        return text.replace(self.reveal(), HIDDEN) if self.is_text and self._value else text

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if self.is_text and other.is_text:
            from hmac import compare_digest  # Imported only here, because this loads OpenSSL.

            return compare_digest(self.encode(), other.encode())
        return self._value is other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value)) if self.is_text else id(self._value)

    def __repr__(self) -> str:
        return f"Secret({HIDDEN!r})"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __getstate__(self) -> Any:
        raise TypeError("A secret cannot be pickled. Create the object where it is used.")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__getstate__()


def hide_secrets(options: Any, secret: Collection[str], public: Collection[str]) -> None:
    """Replace the values of secret options by `Secret` objects, in place.

    `secret` and `public` are the names of options. A text or a collection under any other name is
    also replaced, because the name may be a misspelled name of a secret, or the name of a secret of
    another kind of client. So is a text or a collection as `security`, which may contain a
    password. This does not raise.
    """
    for name in options:
        unsure = name == "security" or name not in public
        if name in secret or (unsure and isinstance(options[name], _BARE)):
            options[name] = Secret.of(options[name])
