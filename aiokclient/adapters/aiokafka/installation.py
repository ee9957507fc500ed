"""The installation of the adapter in place of aiokafka."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import logging
import sys
from collections.abc import Iterable, Sequence
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from aiokclient.adapters.aiokafka.client import VERSION

NAME: Final = "aiokafka"
ADAPTER: Final = __package__ or ""

log = logging.getLogger(ADAPTER)


class _AdapterFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder that gives the adapter's modules under aiokafka's names, and its metadata."""

    def __init__(self) -> None:
        self._specs: dict[ModuleType, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module of aiokafka, which the adapter has or lacks."""
        if fullname != NAME and not fullname.startswith(NAME + "."):
            return None
        own = ADAPTER + fullname.removeprefix(NAME)
        if importlib.util.find_spec(own) is None:
            raise ModuleNotFoundError(
                f"The adapter for aiokafka has no module {fullname}. The migration page of the "
                "documentation says what to use instead.",
                name=fullname,
            )
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the module of the adapter itself, so that its classes exist once."""
        module = importlib.import_module(ADAPTER + spec.name.removeprefix(NAME))
        self._specs[module] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own spec: it was executed under its own name."""
        module.__spec__ = self._specs[module]

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        """Return the distribution `aiokafka`, for programs that look up its version."""
        name = None if context is None else context.name
        return [_AdapterDistribution()] if name in (None, NAME) else []


class _AdapterDistribution(importlib.metadata.Distribution):
    """The distribution `aiokafka` as `importlib.metadata` shows it."""

    def read_text(self, filename: str) -> str | None:
        """Return the metadata, the only file."""
        if filename not in ("METADATA", "PKG-INFO"):
            return None
        message = Message()
        message["Metadata-Version"] = "2.1"
        message["Name"] = NAME
        message["Version"] = VERSION
        message["Summary"] = "aiokafka's interface on aiokclient"
        return message.as_string()

    def locate_file(self, path: Any) -> Any:
        """Return the path of a file: there are none."""
        return Path(__file__).parent / str(path)


_finder: Final = _AdapterFinder()


def install() -> None:
    """Put the adapter in place of `aiokafka`, with all its submodules. Synchronous.

    Call it before anything imports aiokafka: `import aiokafka` then gives the adapter, and
    `importlib.metadata.version("aiokafka")` gives the version whose interface it has. A second call
    does nothing. Raises RuntimeError if aiokafka itself was imported before.
    """
    if _finder in sys.meta_path:
        return
    imported = sys.modules.get(NAME)
    if imported is not None:
        raise RuntimeError(
            "aiokafka was imported before install(). Call install() first, for example at the top "
            f"of the program's main module. It was imported from {imported.__file__}."
        )
    sys.meta_path.insert(0, _finder)
    log.info("aiokclient stands in for aiokafka %s in this process.", VERSION)
