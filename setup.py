"""Build the native modules, one for each .pyx file. Everything else is in pyproject.toml.

`python setup.py build_ext --inplace` builds the modules whose source, part (.pxi), declaration
(.pxd) or header (.h) has changed, next to their sources.

The native modules are optional. If they cannot be built, for example because there is no C
compiler, the build prints one message and makes a pure Python wheel for any platform. With
`AIOKCLIENT_PURE=1` in the environment, no native module is built. With `AIOKCLIENT_NATIVE=1`, as
for published wheels, the build fails if a native module cannot be built.
"""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import shorten

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("aiokclient", "_native")
OURS = set(NATIVE.glob("*.h"))
# Macros for the C code that Cython generates. Its extension types must be static, because our C
# code sets their slots. No module supports interpreters without a GIL.
MACROS = [("CYTHON_USE_TYPE_SPECS", "0"), ("CYTHON_USE_MODULE_STATE", "0")]
IS_DEBUGGED = "-g" in os.environ.get("CFLAGS", "").split()
# The options with which Python was built often ask for debug information, which takes a third of
# the compiler's time. The linker would strip it.
NO_DEBUG = [] if IS_DEBUGGED else ["-g0"]
OPTIMIZE = ["/O2"] if sys.platform == "win32" else ["-O3", *NO_DEBUG]
PURE = """\
aiokclient: the native modules could not be built ({}).
aiokclient: installing the pure Python package, which gives the same results, but is slower. For
aiokclient: the native modules, install a C compiler and the headers of Python, and install again.
"""


def wanted(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


def link_options() -> list[str]:
    """Return the linker options, which strip symbols unless debug information is requested."""
    if IS_DEBUGGED:
        return []
    return {"linux": ["-Wl,-s"], "darwin": ["-Wl,-x"]}.get(sys.platform, [])


def headers(sources: Iterable[Path]) -> list[str]:
    """Return the headers of this package that the sources include, directly or indirectly."""
    found: set[Path] = set()
    while sources:
        named = re.findall(r'"(\w+\.h)"', "".join(source.read_text() for source in sources))
        sources = {NATIVE / name for name in named} & OURS - found
        found |= sources
    return sorted(map(str, found))


def extensions() -> list[Extension]:
    sources = sorted(NATIVE.glob("*.pyx"))
    if wanted("AIOKCLIENT_PURE"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        if wanted("AIOKCLIENT_NATIVE"):
            raise
        sys.stderr.write(PURE.format("Cython is not installed"))
        return []
    found = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            include_dirs=[str(NATIVE)],
            depends=headers(NATIVE.glob(f"{source.stem}*.p??")),
            define_macros=MACROS,
            extra_compile_args=OPTIMIZE,
            extra_link_args=link_options(),
        )
        for source in sources
    ]
    directives = {"language_level": 3, "binding": False}
    made: list[Extension] = cythonize(
        found, build_dir="build/cython", compiler_directives=directives
    )
    return made


class BuildAll(build_ext):
    """A build command that builds all native modules, or none if one of them cannot be built."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            if wanted("AIOKCLIENT_NATIVE"):
                raise
            sys.stderr.write(PURE.format(shorten(str(error) or type(error).__name__, 120)))
            self._give_up()

    def _give_up(self) -> None:
        """Remove all built modules, so that the wheel is for any platform."""
        for extension in self.extensions:
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
        self.extensions = []
        self.distribution.ext_modules = []
        wheel = self.distribution.command_obj.get("bdist_wheel")
        if wheel is not None:
            wheel.root_is_pure = True


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAll})
