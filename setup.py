"""Builds the native modules, one for each .pyx file; everything else is in pyproject.toml.

All are optional: where there is no C compiler, what they speed up runs in Python. With
`AIOKCLIENT_PURE=1` in the environment none is built; with `AIOKCLIENT_NATIVE=1`, as for wheels that
are published, all must be.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

# What follows .pyx files into their C: the types stay static, as the slots that are put into them
# expect; no module is for interpreters without a GIL.
MACROS = [("CYTHON_USE_TYPE_SPECS", "0"), ("CYTHON_USE_MODULE_STATE", "0")]
OPTIMISE = ["/O2"] if sys.platform == "win32" else ["-O3"]


def wanted(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


def extensions() -> list[Extension]:
    sources = sorted(Path("aiokclient").rglob("*.pyx"))
    if wanted("AIOKCLIENT_PURE"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    found = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            include_dirs=["aiokclient", str(source.parent)],
            depends=[str(header) for header in Path("aiokclient").rglob("*.h")],
            define_macros=MACROS,
            extra_compile_args=OPTIMISE,
        )
        for source in sources
    ]
    directives = {"language_level": 3, "binding": False}
    made: list[Extension] = cythonize(
        found, build_dir="build/cython", compiler_directives=directives
    )
    for extension in made:
        extension.optional = not wanted("AIOKCLIENT_NATIVE")  # cythonize() forgets it
    return made


setup(ext_modules=extensions())
