"""Builds the API reference from the docstrings of the public modules, with pdoc.

python docs/reference.py build/docs

A warning (a name that does not resolve, an annotation that cannot be evaluated) fails the build.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from pathlib import Path
from typing import Any, get_type_hints

import pdoc
import pdoc.render

MODULES = [
    "odradek",
    "odradek.errors",
    "odradek.columnar",
    "odradek.inspection",
    "odradek.notebook",
    "odradek.offsets.store",
    "odradek.places.place",
    "odradek.broker.running",
    "odradek.spark",
    "odradek.spark.pipeline",
    "odradek.spark.pipeline.job",
    "odradek.spark.pipeline.driver",
    "odradek.testing",
    "odradek.testing.offset_store_suite",
]
"""The modules in the reference; a submodule is included only if it is named."""


def specs() -> list[str]:
    """Return the modules as pdoc's patterns: each without its submodules."""
    # A pattern leaves out what came before it, so parents come first in the list.
    return [spec for name in MODULES for spec in (name, rf"!{re.escape(name)}\..+")]


def _describe_fields(kind: Any) -> None:
    """Give the fields of a NamedTuple the lines of its docstring; Python calls them "Alias for field number 0"."""
    for field in kind._fields:
        told = re.search(rf"^ +{field}: (.+?)(?=\n *(?:\w+: |\n|$)|\Z)", kind.__doc__ or "", re.DOTALL | re.MULTILINE)
        getattr(kind, field).__doc__ = " ".join(told[1].split()) if told else ""


def build(directory: Path) -> None:
    """Write the reference as HTML."""
    warnings.simplefilter("error")
    # By kafka-python, as it is imported.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    for name in MODULES:
        module = importlib.import_module(name)
        own = [public for public, value in vars(module).items() if getattr(value, "__module__", None) == name]
        for public in getattr(module, "__all__", own):
            # pdoc looks only at names that are loaded already, and some are loaded on first use.
            value = getattr(module, public)
            setattr(module, public, value)
            if isinstance(value, type) and issubclass(value, tuple):
                # pdoc evaluates the annotations of a NamedTuple's constructor in a module that lacks their names.
                value.__new__.__annotations__ = get_type_hints(value)
                _describe_fields(value)
    pdoc.render.configure(docformat="google", show_source=False, footer_text="Odradek")
    pdoc.pdoc(*specs(), output_directory=directory)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
