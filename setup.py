"""Compiles the kernels; everything else about the build is in pyproject.toml."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = Path("src/odradek/records/kernels")

setup(
    ext_modules=cythonize(
        [
            Extension(f"odradek.records.kernels.{path.stem}", [str(path)], extra_compile_args=["-O3"])
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
