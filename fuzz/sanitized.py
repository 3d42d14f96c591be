"""A copy of the package whose kernels are built with AddressSanitizer, UBSan and coverage; needs gcc.

<folder>/odradek/...        the package, kernels instrumented
<folder>/libtrace.so        what counts their branches
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FLAGS = (
    "-g1 -fno-omit-frame-pointer -fsanitize=address,undefined "
    "-fno-sanitize-recover=undefined -fsanitize-coverage=trace-pc"
)
_ACTIVE = "ODRADEK_FUZZ_SANITIZED"


def build(folder: Path) -> None:
    """Copy the sources to `folder` and compile there what has changed since the last time."""
    sources = folder / "src" / "odradek"
    shutil.copytree(ROOT / "src" / "odradek", sources, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.so", "*.c"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, folder / name)
    environment = {**os.environ, "CFLAGS": FLAGS, "LDFLAGS": "-fsanitize=address,undefined"}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    trace = Path(__file__).with_name("trace_pc.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", folder / "libtrace.so", trace], check=True)


def restart(folder: Path) -> None:
    """Start this program again, with the sanitized package; does nothing where that has happened."""
    if os.environ.get(_ACTIVE):
        return
    build(folder)
    libraries = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **os.environ,
        _ACTIVE: str(folder),
        "LD_PRELOAD": ":".join([*libraries, str(folder.resolve() / "libtrace.so")]),
        "PYTHONPATH": str(folder.resolve() / "src"),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_segv=1:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
    }
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def is_active() -> bool:
    """Say whether this is the sanitized package."""
    return bool(os.environ.get(_ACTIVE))


def edge_counter() -> ctypes._CFuncPtr | None:  # type: ignore[name-defined]
    """Return the function that counts new branches, where the kernels were built for it."""
    try:
        return ctypes.CDLL(None).fuzz_new_edges
    except AttributeError:
        return None
