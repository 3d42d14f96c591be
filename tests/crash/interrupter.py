"""Lets a signal arrive at any bytecode of an operation on a log, as the operating system might: see `interrupt.c`."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import odradek
from odradek.storage.files import FileSystem, WritableFile
from odradek.testing.faults import FaultyFile, FaultyFileSystem

SOURCE = Path(__file__).with_name("interrupt.c")
SIGNAL = signal.SIGUSR1
PACKAGE = Path(odradek.__file__).parent
LIBRARY = Path(os.__file__).parent


def folder_name(path: Path) -> str:
    return f"{path}{os.sep}"


@functools.cache
def extension() -> Any:
    """Return the compiled `interrupt.c`, compiled once a process."""
    target = Path(tempfile.mkdtemp(prefix="odradek-interrupt-")) / f"interrupt{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    include = sysconfig.get_path("include")
    command = [*compiler, "-O1", "-shared", "-fPIC", "-I", include, str(SOURCE), "-o", str(target)]
    subprocess.run(command, check=True)
    spec = importlib.util.spec_from_file_location("interrupt", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Once it is loaded nobody needs the file.
    target.unlink()
    target.parent.rmdir()
    return module


class Interrupted(BaseException):
    """What a host's own handler may raise: no `Exception`."""


EXCEPTIONS: tuple[type[BaseException], ...] = (KeyboardInterrupt, TimeoutError, Interrupted)
"""What a handler raises: Ctrl-C's, a time limit's (an `OSError`, of all things), and a host's own."""


class Place(NamedTuple):
    """Where an exception was raised.

    Attributes:
        place: The innermost place in the package: file, line and function.
        library: The function of the standard library that it was raised in; empty where it was in the package itself.
    """

    place: str
    library: str = ""

    def __str__(self) -> str:
        return f"{self.library} from {self.place}" if self.library else self.place


@dataclass(slots=True)
class Outcome:
    """How an operation under interrupts ended.

    Attributes:
        bytecodes: How many there were.
        raised: How many exceptions the handler raised.
        arrived: Whether the caller got one of them.
        is_ignored: Whether one was raised where nobody can get it: in a destructor, in a generator that is let go.
        error: What the caller got, as text; empty where the operation ended by itself.
        where: Where in the package the exceptions were raised.
        kind: The type of what the caller got.
    """

    bytecodes: int = 0
    raised: int = 0
    arrived: bool = False
    is_ignored: bool = False
    error: str = ""
    where: list[Place] = field(default_factory=list)
    kind: type[BaseException] | None = None


def _place(frame: FrameType | None) -> Place:
    library = ""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "testing"):
            return Place(f"{path.relative_to(PACKAGE)}:{frame.f_lineno} {frame.f_code.co_qualname}", library)
        if not library and path.is_relative_to(LIBRARY):
            library = frame.f_code.co_qualname
        frame = frame.f_back
    return Place("outside of the package")


def count(operation: Callable[[], object]) -> int:
    """Return how many bytecodes an operation has."""
    outcome = interrupted(operation, 0)
    assert not outcome.error, outcome.error
    return outcome.bytecodes


def interrupted(
    operation: Callable[[], object],
    bytecode: int,
    exceptions: Sequence[type[BaseException]] = EXCEPTIONS[:1],
    *,
    again: int = 0,
    in_library: bool = False,
) -> Outcome:
    """Run an operation in the main thread, and let a signal arrive at one of its bytecodes.

    Args:
        operation: What is run.
        bytecode: At which, from 1 on; 0 for none.
        exceptions: What the handler raises: at the first signal, at the second.
        again: How many bytecodes later a second signal arrives; 0 for none.
        in_library: Whether the bytecodes of the standard library count too. Not those of `logging`, whose locks are
            its own.
    """
    module, outcome = extension(), Outcome()
    raised: list[BaseException] = []
    caught: BaseException | None = None

    def handle(number: int, frame: FrameType | None) -> None:
        raised.append(exceptions[len(raised) % len(exceptions)](f"interrupt {len(raised) + 1}"))
        outcome.where.append(_place(frame))
        raise raised[-1]

    def ignore(unraisable: Any) -> None:
        if any(unraisable.exc_value is one for one in raised):
            outcome.is_ignored = True
        else:
            hook(unraisable)

    library = folder_name(LIBRARY) if in_library else ""
    hook, sys.unraisablehook = sys.unraisablehook, ignore
    tracing, handler = sys.gettrace(), signal.signal(SIGNAL, handle)
    try:
        try:
            module.start(
                SIGNAL,
                bytecode,
                bytecode + again if again else 0,
                folder_name(PACKAGE),
                folder_name(PACKAGE / "testing"),
                library,
                folder_name(LIBRARY / "logging"),
            )
            operation()
        finally:
            # What is pending still arrives, right after this.
            outcome.bytecodes = module.stop()
    except BaseException as error:
        caught = error
    finally:
        signal.signal(SIGNAL, handler)
        sys.settrace(tracing)
        sys.unraisablehook = hook
    outcome.raised = len(raised)
    if caught is not None:
        outcome.kind, outcome.arrived = type(caught), any(caught is one for one in raised)
        outcome.error = "".join(traceback.format_exception(caught))
        _let_go(caught)
    raised.clear()
    return outcome


def _let_go(error: BaseException | None) -> None:
    """Let go of what an exception holds: a host that has dealt with it keeps none of its frames."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__context__


@contextmanager
def _as_one_call() -> Iterator[None]:
    module = extension()
    before = module.mask(True)
    try:
        yield
    finally:
        module.mask(before)


def _atomic(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of the double one call of the operating system: interrupted before it or after it, never within."""

    @functools.wraps(method)
    def call(caller: Any, *arguments: Any, **options: Any) -> Any:
        size = caller.size if isinstance(caller, WritableFile) else None
        with _as_one_call():
            result = method(caller, *arguments, **options)
        try:
            extension().tick()
        except BaseException:
            if size is not None:
                # As where the interrupt comes between the call and what it returns being looked at.
                caller.size = size
            raise
        return result

    return call


class InterruptibleFile(FaultyFile):
    """A file whose changes are calls of the operating system."""

    def __init__(self, path: Path, descriptor: int, files: FaultyFileSystem, node: int) -> None:
        super().__init__(path, descriptor, files, node)
        if isinstance(files, InterruptibleFileSystem):
            files.opened.append(self)


class InterruptibleFileSystem(FaultyFileSystem):
    """A `FaultyFileSystem` whose operations are calls of the operating system, as seen by who is interrupted.

    Attributes:
        opened: Every file that was opened: who is interrupted may lose one, and thousands of cases run out of them.
    """

    file_type = InterruptibleFile

    def __init__(self, root: Path, seed: int = 0) -> None:
        super().__init__(root, seed)
        self.opened: list[InterruptibleFile] = []

    def close(self) -> None:
        """Close every file."""
        for file in self.opened:
            file.close()
        self.opened.clear()


for _double, _real, _kept in (
    (InterruptibleFileSystem, FileSystem, ()),
    (InterruptibleFile, WritableFile, ("close", "write")),
):
    # Those that are still to come as well.
    for _name in vars(_real):
        if not _name.startswith("_") and callable(getattr(_real, _name)) and _name not in _kept:
            setattr(_double, _name, _atomic(getattr(_double, _name)))
