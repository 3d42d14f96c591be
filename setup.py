"""Compiles the kernels; everything else about the build is in pyproject.toml."""

import os
import sys
from pathlib import Path
from sysconfig import get_platform

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Offsets and timestamps of damaged batches overflow, and must do so as in Java: -fwrapv.
# Symbols for debuggers are four fifths of what would be installed: -g0. Other symbols are not needed either: -s, or -x
# with Apple's linker.
OPTIONS = ["-O3", "-fwrapv", "-g0"]
LINK_OPTIONS = ["-Wl,-x" if sys.platform == "darwin" else "-Wl,-s"]
KERNELS = Path("src/odradek/records/kernels")
PACKAGE = "odradek.records.kernels"
# Cython's own code for memory views and functions, compiled once: within each kernel it takes two thirds of the time.
SHARED = f"{PACKAGE}._shared"
JOBS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


class BuildKernels(build_ext):
    """Compiles several kernels at a time; in a clone, only those that changed."""

    def finalize_options(self) -> None:
        """Complete the options."""
        if self.editable_mode:
            # pip's own folder is empty each time; this one is that of `build_ext --inplace`.
            self.build_lib = f"build/lib.{get_platform()}-{sys.implementation.cache_tag}"
        super().finalize_options()
        self.parallel = self.parallel or JOBS


# Processes that are not forked import this module.
if __name__ == "__main__":
    setup(
        cmdclass={"build_ext": BuildKernels},
        ext_modules=cythonize(
            [
                Extension(name, [str(source)], extra_compile_args=OPTIONS, extra_link_args=LINK_OPTIONS)
                for name, source in [
                    (SHARED, KERNELS / "_shared.c"),
                    *((f"{PACKAGE}.{path.stem}", path) for path in sorted(KERNELS.glob("[!_]*.py"))),
                ]
            ],
            shared_utility_qualified_name=SHARED,
            nthreads=JOBS,
            include_path=["src"],
            compiler_directives={
                "language_level": "3",
                "boundscheck": False,
                "wraparound": False,
                "cdivision": True,
                "initializedcheck": False,
            },
            show_all_warnings=False,
        ),
    )
