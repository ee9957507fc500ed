"""The field specifiers with which messages are declared.

A specifier such as ``int32`` or ``string`` is called in the body of a message
class and returns a ``Field``, which the metaclass in ``schema`` collects. For a
type checker the call returns Any, so that the annotation of the attribute is
its type and the constructor's argument is optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack
from uuid import UUID

if TYPE_CHECKING:
    Buffer = bytes | bytearray | memoryview

    class Records:
        """The types of a ``records`` attribute.

        The attribute can be set to the bytes of record batches, in one buffer or
        in a sequence of segments. In a decoded message it is a view into the frame.
        """

        def __get__(self, message: object, owner: object = None) -> bytes | memoryview | None: ...
        def __set__(self, message: object, value: Buffer | Sequence[Buffer] | None) -> None: ...


ALL: Final = "0+"
NONE: Final = "none"
MAX_VERSION: Final = 32767


def parse_versions(text: str) -> tuple[int, int]:
    """Convert ``"3-12"``, ``"3+"``, ``"3"`` or ``"none"`` to the first and last version.

    ``"none"`` becomes the empty range (0, -1).
    """
    if text == NONE:
        return 0, -1
    low, dash, high = text.partition("-")
    if dash:
        return int(low), int(high)
    if low.endswith("+"):
        return int(low[:-1]), MAX_VERSION
    return int(low), int(low)


def _within(text: str | None, version: int) -> bool:
    if text is None:
        return False
    if text == ALL:
        return True
    low, high = parse_versions(text)
    return low <= version <= high


class Unset:
    """The type of UNSET, which stands for "the default of the field's kind"."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()


class Traits(TypedDict, total=False):
    """The arguments of `Field` that specifiers take, too."""

    null: str | None
    tag: int | None
    tagged: str | None
    flexible: str | None
    default: object
    ignorable: bool
    secret: bool


class Field:
    """One declared field of a message.

    kind: the name of the specifier, such as "int32" or "array"
    element: the type of the elements of an array, or the class of a struct
    versions, null, tagged: the versions in which the field exists, may be None,
        or is tagged (by default, a field with a tag is tagged in all versions)
    flexible: the versions in which the length has the compact form; None means
        the flexible versions of the message
    ignorable: whether the value may be dropped in versions without the field
    secret: whether the value is hidden in repr() and in errors
    """

    __slots__ = (
        "default",
        "element",
        "flexible",
        "ignorable",
        "kind",
        "name",
        "null",
        "secret",
        "tag",
        "tagged",
        "versions",
    )

    def __init__(
        self,
        kind: str,
        element: Any,
        versions: str,
        *,
        null: str | None = None,
        tag: int | None = None,
        tagged: str | None = None,
        flexible: str | None = None,
        default: object = UNSET,
        ignorable: bool = False,
        secret: bool = False,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.element = element
        self.versions = versions
        self.null = null
        self.tag = tag
        self.tagged = versions if tagged is None and tag is not None else tagged
        self.flexible = flexible
        self.default = default
        self.ignorable = ignorable
        self.secret = secret

    def present_in(self, version: int) -> bool:
        """Return whether the field exists in a version."""
        return _within(self.versions, version)

    def nullable_in(self, version: int) -> bool:
        """Return whether the field may be None in a version."""
        return _within(self.null, version)

    def tagged_in(self, version: int) -> bool:
        """Return whether the field is a tagged field of a version."""
        return _within(self.tagged, version)

    def flexible_in(self, version: int, message_flexible: bool) -> bool:
        """Return whether the field has a compact length in a version."""
        if self.flexible is None:
            return message_flexible
        return _within(self.flexible, version)

    def new_default(self) -> Any:
        """Return the default value of the field, a new object if it is mutable."""
        if self.default is not UNSET:
            return self.default
        if self.kind == "array":
            return []
        if self.kind == "struct":
            return self.element()
        return self.element.default

    @property
    def shows(self) -> bool:
        """Whether the value may be shown: neither the field nor a field inside of it is secret.

        Records are not shown, because they are the data of the application.
        """
        if self.secret or self.kind == "records":
            return False
        return isinstance(self.element, Scalar) or all(part.shows for part in self.element._fields)

    def __repr__(self) -> str:
        return f"<Field {self.name}: {self.kind} {self.versions}>"


class Scalar:
    """The specifier of a scalar field, and the ``element`` of an array of scalars.

    code: the format character of the struct module, or empty if the size varies
    """

    __slots__ = ("code", "default", "kind", "size")

    def __init__(self, kind: str, code: str, size: int, default: object) -> None:
        self.kind = kind
        self.code = code
        self.size = size
        self.default = default

    def __call__(self, versions: str = ALL, **traits: Unpack[Traits]) -> Any:
        """Declare a field of this kind; see Field for the arguments."""
        return Field(self.kind, self, versions, **traits)

    def __repr__(self) -> str:
        return self.kind


NIL: Final = UUID(int=0)

boolean = Scalar("boolean", "?", 1, False)
int8 = Scalar("int8", "b", 1, 0)
int16 = Scalar("int16", "h", 2, 0)
uint16 = Scalar("uint16", "H", 2, 0)
int32 = Scalar("int32", "i", 4, 0)
uint32 = Scalar("uint32", "I", 4, 0)
int64 = Scalar("int64", "q", 8, 0)
float64 = Scalar("float64", "d", 8, 0.0)
uuid = Scalar("uuid", "16s", 16, NIL)
string = Scalar("string", "", 0, "")
bytes_ = Scalar("bytes", "", 0, b"")
records = Scalar("records", "", 0, None)


def array(element: Scalar | type[Any], versions: str = ALL, **traits: Unpack[Traits]) -> Any:
    """Declare a list of scalars (``array(int32)``) or of structs (``array(Topic)``)."""
    return Field("array", element, versions, **traits)


def struct(element: type[Any], versions: str = ALL, **traits: Unpack[Traits]) -> Any:
    """Declare a struct inside of another one. Its default has the defaults of its fields."""
    return Field("struct", element, versions, **traits)
