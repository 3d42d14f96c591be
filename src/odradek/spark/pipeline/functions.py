"""The views and functions of a job: queries, and Python functions of a module beside its file or of an installed one.

    python = "words:split"               # "module:function"

Tasks run elsewhere, where there is no module from beside the job's file. So what such a module defines is sent along
with the work, by value.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from odradek.errors import JobError
from odradek.spark.options import nearest
from odradek.spark.pipeline.told_function import refused_call
from odradek.spark.pipeline.value_format import RECORDS_VIEW

_FOLDERS: set[Path] = set()
"""The folders of the jobs of this process."""
_FORM = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")


@dataclass(frozen=True)
class FunctionName:
    """The name of a function.

    Attributes:
        module: Its module.
        name: Its name there.
        folder: The folder of the job's file, where modules are looked for first.
    """

    module: str
    name: str
    folder: Path

    @classmethod
    def parse(cls, text: str, key: str, folder: Path) -> FunctionName:
        """Read `module:function`.

        Raises:
            JobError: The text has another form.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise JobError(f'"module:function", not {text!r}', key)
        return cls(match["module"], match["name"], folder)

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def load(self, key: str, takes: int | None = None) -> Callable[..., Any]:
        """Import the module and return the function.

        Args:
            key: The key of the job's file that names it, for errors.
            takes: With how many arguments it will be called; None if it is not known.

        Raises:
            JobError: There is no such function, it cannot be called like that, or the module cannot be imported.
        """
        self._search_folder()
        try:
            module = importlib.import_module(self.module)
        except (Exception, SystemExit) as error:
            raise failed(error, key) from error
        if (other := self._other(getattr(module, "__file__", None))) is not None:
            raise JobError(other, key)
        function = getattr(module, self.name, None)
        if not callable(function):
            raise JobError(self._missing(vars(module)), key)
        if _only_begins(function) or _only_begins(type(function).__call__):
            raise JobError(f"{self} must be a plain function: nothing awaits it, or asks it for more", key)
        if takes is not None and (wrong := refused_call(function, (None,) * takes, {})) is not None:
            raise JobError(f"{self} is called with {takes} arguments: {wrong}", key)
        self._send_by_value()
        loaded: Callable[..., Any] = function
        return loaded

    def problem(self) -> str | None:
        """Say what is wrong with the name, without running any of the module's code; None if nothing is."""
        self._search_folder()
        found = _found(self.module, self.folder)
        if found is None:
            return f"there is no module {self.module}, neither in {self.folder} nor installed"
        if (other := self._other(found.origin)) is not None:
            return other
        if found.origin is None or not found.origin.endswith(".py"):
            return None
        try:
            tree = ast.parse(Path(found.origin).read_bytes(), found.origin)
        except OSError as error:
            return f"{found.origin}: {error.strerror}"
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"{found.origin}: {error}"
        if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in tree.body):
            return None
        names = {name for node in ast.walk(tree) for name in _bound(node)}
        return None if self.name in names else self._missing(names)

    def _other(self, origin: str | None) -> str | None:
        """Say that Python has taken another module for the one beside the job's file; None if it has not."""
        beside = self.folder.joinpath(*self.module.split(".")).with_suffix(".py")
        if not beside.is_file() or (origin is not None and Path(origin).exists() and beside.samefile(origin)):
            return None
        return f"Python takes {origin or 'a module of its own'} for {self.module}, not {beside}: give it another name"

    def _missing(self, names: Any) -> str:
        near = nearest(self.name, [name for name in names if name != self.name])
        return f"the module {self.module} has no function {self.name}{near}"

    def _search_folder(self) -> None:
        _FOLDERS.add(self.folder)
        if str(self.folder) not in sys.path:
            sys.path.insert(0, str(self.folder))

    def _send_by_value(self) -> None:
        from pyspark import cloudpickle

        for name, module in list(sys.modules.items()):
            if _is_beside(module, name, self.folder):
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Transform:
    """A view: a name for what a query, or a Python function, gives.

    Attributes:
        view: The name.
        sql: The query; None if there is a function.
        python: The function: it takes a DataFrame, and returns one.
        input: The view that the function is given.
    """

    view: str
    sql: str | None = None
    python: FunctionName | None = None
    input: str = RECORDS_VIEW

    @property
    def kind(self) -> str:
        """The key that says what it gives."""
        return "sql" if self.python is None else "python"


@dataclass(frozen=True)
class Udf:
    """A Python function for SQL.

    Attributes:
        name: Its name in SQL.
        function: The function: a plain one, or one that is decorated with `udf`, `pandas_udf` or `arrow_udf`.
        returns: What it returns, as Spark's SQL writes types; None if the function says so itself.
    """

    name: str
    function: FunctionName
    returns: str | None = None


def _only_begins(function: Any) -> bool:
    """Whether a call only begins what is to be awaited, or asked for more."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_one(function) for is_one in kinds)


def is_built_in(name: str) -> str:
    """Say that SQL has a function of this name: Spark looks for its own first, and says nothing."""
    return f"SQL has a function {name}, and Spark would take that: give yours another name"


def failed(error: BaseException, key: str) -> JobError:
    """Return in one line what a function, or the import of its module, raised, and where."""
    # Those of Python's import say nothing.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen ")]
    place = ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}, line {error.lineno})" if error.filename else ""
    elif frames:
        place = f" ({frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name})"
    text = " ".join(_text(error).split())
    return JobError(f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}", key)


def _text(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return error.msg
    try:
        return str(error)
    except Exception as other:
        # The user's own class may fail at that, too.
        return f"no text: its __str__ fails with {type(other).__name__}"


def _is_beside(module: ModuleType, name: str, folder: Path) -> bool:
    """Whether a loaded module is of a folder of a job."""
    file = getattr(module, "__file__", None)
    beside = folder / name.partition(".")[0]
    return file is not None and (Path(file) == beside.with_suffix(".py") or Path(file).is_relative_to(beside))


def _found(name: str, folder: Path) -> ModuleSpec | None:
    """Find a module as a process that runs this job alone would, but without importing the packages around it."""
    module = sys.modules.get(name)
    if module is not None and not any(_is_beside(module, name, other) for other in _FOLDERS - {folder}):
        return module.__spec__
    path = [str(folder), *sys.path]
    above, _, _ = name.rpartition(".")
    if above:
        package = _found(above, folder)
        if package is None or package.submodule_search_locations is None:
            return None
        path = list(package.submodule_search_locations)
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


def _bound(node: ast.AST) -> list[str]:
    """Return the names that a statement gives to something."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Name(ctx=ast.Store()):
            return [node.id]
        case ast.alias():
            return [node.asname or node.name]
    return []
