"""The configuration of the documentation's site. `make docs` builds it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]
# The pure modules are documented, because the native ones have no signatures.
os.environ["AIOKCLIENT_PURE"] = "1"

import inventories  # noqa: E402

import aiokclient.types  # noqa: E402

# autodoc reads the docstrings and the order of attributes from the module that defines a class.
aiokclient.types.public_in = lambda package: lambda owner: owner

project = "aiokclient"
author = "The aiokclient authors"
copyright = "the aiokclient authors"
version = release = aiokclient.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_design",
    "sphinxcontrib.mermaid",
    "docstrings",
    "generated",
    "site_search",
]
exclude_patterns = ["_build", "_ext", "inventories"]
html_theme = "furo"
html_title = "aiokclient"
# The search is our own (`_static/search.js`): that of Sphinx finds only pages with all words.
html_static_path = ["_static"]
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4

nitpicky = True
# Sphinx refers to these classes by their private modules, which Python's inventory does not list.
nitpick_ignore = [
    ("py:class", "_asyncio.Task"),
    ("py:class", "asyncio.events.AbstractEventLoop"),
    ("py:class", "concurrent.futures._base.Future"),
]
nitpick_ignore_regex = [
    # Signatures contain names that the site does not document: internal modules, type variables,
    # and names that are imported for type checkers only.
    (r"py:.*", r"aiokclient\.\w+\.\w+(\.\w+)*"),
    (r"py:.*", r"[A-Z]\w*"),
    # prometheus_client publishes no inventory for intersphinx.
    (r"py:.*", r"prometheus_client\..*"),
    # Strings that autodoc could not evaluate are cut at their brackets.
    (r"py:.*", r"(.*[.~])?(Mapping|Sequence)\[.*"),
]
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
smartquotes = False
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True

# External addresses are checked only if DOCS_EXTERNAL is set, as in CI.
external = bool(os.environ.get("DOCS_EXTERNAL"))
intersphinx_mapping = inventories.mapping(
    HERE / "inventories", HERE.parent / "build" / "inventories", external
)
linkcheck_anchors = False
