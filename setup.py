"""Build the native modules. Everything else is in pyproject.toml.

There is one for each .pyx file, and one for each module in Python whose classes are declared by a
.pxd file beside it: such a module is compiled from its own source.

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

PACKAGE = Path("aiokclient")
NATIVE = PACKAGE / "_native"
C_FILES = Path("build/cython")
OURS = set(NATIVE.glob("*.h"))
# Macros for the C code that Cython generates. Its extension types must be static, because our C
# code sets their slots. No module supports interpreters without a GIL.
MACROS = [("CYTHON_USE_TYPE_SPECS", "0"), ("CYTHON_USE_MODULE_STATE", "0")]
IS_DEBUGGED = "-g" in os.environ.get("CFLAGS", "").split()
# The options with which Python was built often ask for debug information, which takes a third of
# the compiler's time. The linker would strip it.
NO_DEBUG = [] if IS_DEBUGGED else ["-g0"]
OPTIMIZE = ["/O2"] if sys.platform == "win32" else ["-O3", *NO_DEBUG]
# At -O3 the compiler takes twice as long for a module in Python, whose work is mostly calls into
# the interpreter.
OPTIMIZE_PYTHON = ["/O1"] if sys.platform == "win32" else ["-O1", *NO_DEBUG]
# In modules in Python, annotations are for readers and mypy: only the types in a .pxd count. None
# in a typed attribute raises AttributeError, as in Python, and does not end the process.
AS_PYTHON = {"annotation_typing": False, "nonecheck": True, "auto_pickle": False}
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


def python_sources() -> list[Path]:
    """Return the modules in Python that are compiled: those with classes in a .pxd beside them."""
    declared = [path for path in sorted(PACKAGE.rglob("*.pxd")) if "cdef class" in path.read_text()]
    sources = (path.with_suffix(".py") for path in declared)
    return [source for source in sources if source.exists()]


def are_older_than_declarations(sources: Iterable[Path]) -> bool:
    """Return whether any of these modules was translated before the declarations of native classes.

    Cython does not see that a module needs them, if another .pxd file has only imported them.
    """
    changed = max(declared.stat().st_mtime for declared in NATIVE.glob("*.pxd"))
    found = filter(Path.exists, (C_FILES / source.with_suffix(".c") for source in sources))
    return any(path.stat().st_mtime < changed for path in found)


def extension(source: Path, options: list[str], depends: list[str]) -> Extension:
    return Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        include_dirs=[str(NATIVE)],
        depends=depends,
        define_macros=MACROS,
        extra_compile_args=options,
        extra_link_args=link_options(),
    )


def extensions() -> list[Extension]:
    if wanted("AIOKCLIENT_PURE"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        if wanted("AIOKCLIENT_NATIVE"):
            raise
        sys.stderr.write(PURE.format("Cython is not installed"))
        return []
    natives = [
        extension(source, OPTIMIZE, headers(NATIVE.glob(f"{source.stem}*.p??")))
        for source in sorted(NATIVE.glob("*.pyx"))
    ]
    # All are built again if these change, because `are_sources_newer` compares their times.
    base = sorted(map(str, NATIVE.glob("*.pxd")))
    compiled = [extension(source, OPTIMIZE_PYTHON, base) for source in python_sources()]
    directives = {"language_level": 3, "binding": False}
    made: list[Extension] = cythonize(
        natives, build_dir=str(C_FILES), compiler_directives=directives
    )
    made += cythonize(
        compiled,
        force=are_older_than_declarations(python_sources()),
        build_dir=str(C_FILES),
        compiler_directives={**directives, **AS_PYTHON},
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
