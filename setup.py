"""Compiles the kernels; everything else about the build is in pyproject.toml."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Offsets and timestamps of damaged batches overflow, and must do so as in Java: -fwrapv.
# Symbols for debuggers are four fifths of what would be installed: -g0. Other symbols are not needed either: -s.
OPTIONS = ["-O3", "-fwrapv", "-g0"]
LINK_OPTIONS = ["-Wl,-s"]
KERNELS = Path("src/odradek/records/kernels")

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"odradek.records.kernels.{path.stem}",
                [str(path)],
                extra_compile_args=OPTIONS,
                extra_link_args=LINK_OPTIONS,
            )
            for path in sorted(KERNELS.glob("[!_]*.py"))
        ],
        include_path=["src"],
        compiler_directives={
            "language_level": "3",
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
        },
        show_all_warnings=False,
    )
)
