"""Compiles the kernels; everything else about the build is in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

kernels = Extension("odradek.records.kernels", ["src/odradek/records/kernels.py"], extra_compile_args=["-O3"])

setup(
    ext_modules=cythonize(
        [kernels],
        compiler_directives={"language_level": "3", "boundscheck": False, "wraparound": False, "cdivision": True},
    )
)
