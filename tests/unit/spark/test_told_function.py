"""What a function of a job raises in a task is told so that Spark's worker can send it."""

from __future__ import annotations

import functools
import importlib
import json
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark import cloudpickle

from odradek.errors import JobError
from odradek.spark.pipeline.told_function import ToldFunction, own_error_of


def raising(value: str) -> None:
    raise ValueError(f"not {value}")


def adding(value: Any, *, more: int = 1) -> Any:
    return value + more


@pytest.mark.parametrize(
    ("function", "values", "named", "told"),
    [
        (adding, (), {}, "missing a required argument: 'value'"),
        (adding, (1, 2), {}, "too many positional arguments"),
        (adding, (1,), {"less": 1}, "got an unexpected keyword argument 'less'"),
        (lambda: None, (1,), {}, r"<lambda>\(\): too many positional arguments"),
    ],
)
def test_other_arguments_than_it_takes_are_a_mistake_of_the_job(
    function: Callable[..., Any], values: tuple[Any, ...], named: dict[str, Any], told: str
) -> None:
    with pytest.raises(JobError, match=told):
        ToldFunction(function)(*values, **named)


def test_what_a_function_itself_raises_stays() -> None:
    with pytest.raises(TypeError, match="can only concatenate str"):
        ToldFunction(adding)("text")
    with pytest.raises(ValueError, match=r"^not one$"):
        ToldFunction(raising)("one")
    # A function of C does not say what it takes.
    with pytest.raises(TypeError, match="expected at least"):
        ToldFunction(min)()
    told = pickle.loads(pickle.dumps(ToldFunction(adding)))
    assert (told.__name__, told(1, more=2)) == ("adding", 3)


def test_text_that_is_no_utf8_is_escaped() -> None:
    with pytest.raises(RuntimeError) as caught:
        ToldFunction(raising)("\ud800")
    text = "".join(traceback.format_exception(caught.value))
    assert text.encode().endswith(b"RuntimeError: ValueError: not \\ud800\n")
    assert "in raising" in text


@pytest.mark.parametrize(
    "text",
    ["odradek.errors.JobError: hostile", "x\nodradek.errors.JobError: hostile\n", "Traceback\nodradek.XError: x"],
)
def test_text_of_a_record_is_not_taken_for_an_error_of_this_library(text: str) -> None:
    for called in (lambda: ToldFunction(raising)(text), lambda: list(ToldFunction(raising_later)(text))):
        with pytest.raises((ValueError, RuntimeError), match=r"hostile|XError") as caught:
            called()
        assert own_error_of("".join(traceback.format_exception(caught.value))) is None


def test_a_second_line_is_not_taken_for_the_error() -> None:
    def failing(text: str) -> None:
        raise JobError(text)

    with pytest.raises(RuntimeError, match="the reason") as caught:
        ToldFunction(failing)("the reason\nodradek.errors.JobError: hostile")
    assert own_error_of("".join(traceback.format_exception(caught.value))) is None
    with pytest.raises(JobError, match="the reason"):
        ToldFunction(failing)("the reason\nand what to do")


def raising_later(value: str) -> Iterator[str]:
    yield "first"
    raising(value)


def test_an_iterator_is_told_of_as_well() -> None:
    told = ToldFunction(raising_later)("\ud800")
    assert next(told) == "first"
    with pytest.raises(RuntimeError, match=r"^ValueError: not \\ud800$"):
        next(told)


def test_a_decorator_may_give_a_function_more_than_it_takes_itself() -> None:
    @functools.wraps(adding)
    def with_more(value: Any) -> Any:
        return adding(value, more=int(value))

    @functools.wraps(adding)
    def passing(*values: Any, **named: Any) -> Any:
        return adding(*values, **named)

    @functools.wraps(dividing)
    def with_divisor(*values: Any, **named: Any) -> Any:
        return dividing(*values, 0, **named)  # type: ignore[call-arg]

    for function in (with_more, passing):
        with pytest.raises(TypeError, match=r"can only concatenate|int"):
            ToldFunction(function)([])
        with pytest.raises(JobError, match="too many positional"):
            ToldFunction(function)(1, 2)
    with pytest.raises(TypeError, match="unsupported operand"):
        ToldFunction(with_divisor)("text")


class Answering:
    """A proxy that answers to any name."""

    def __call__(self, *values: Any) -> Any:
        return adding(*values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__wrapped__":
            raise AttributeError(name)
        return Answering()


def test_a_function_that_decorates_itself() -> None:
    def looping(*values: Any, **named: Any) -> Any:
        return adding(*values, **named)

    looping.__wrapped__ = looping  # type: ignore[attr-defined]
    for function in (looping, Answering()):
        with pytest.raises(TypeError, match="missing 1 required"):
            ToldFunction(function)()


def test_a_type_error_of_a_record_is_not_one_of_the_call() -> None:
    @functools.wraps(dividing)
    def parsing(*values: Any, **named: Any) -> Any:
        return dividing(json.loads(values[0]), 0, **named)

    @functools.singledispatch
    def dispatching(value: Any, by: int) -> Any:
        return dividing(value, by)

    @dispatching.register
    def _(value: int) -> Any:
        raise TypeError("not whole")

    for function, told in ((parsing, "JSON object must be"), (dispatching, "not whole")):
        with pytest.raises(TypeError, match=told):
            ToldFunction(function)(1)


def test_a_type_error_that_cannot_be_told() -> None:
    class Untold:
        def __str__(self) -> str:
            raise ValueError("no text")

        __repr__ = __str__

    def failing() -> None:
        raise TypeError(Untold())

    with pytest.raises((TypeError, RuntimeError)):
        ToldFunction(failing)()


@pytest.mark.parametrize("function", [int, float, bytes, dict, Decimal, UUID, Path])
def test_a_class_can_be_sent(function: Callable[..., Any]) -> None:
    sent = cloudpickle.dumps(ToldFunction(function))  # type: ignore[no-untyped-call]
    assert pickle.loads(sent)._function is function


def test_an_error_whose_notes_fail() -> None:
    class NotedError(ValueError):
        @property
        def __notes__(self) -> list[str]:  # type: ignore[override]
            raise RuntimeError("no notes")

    def failing() -> None:
        raise NotedError

    with pytest.raises((ValueError, RuntimeError), match=r"^(NotedError)?$"):
        ToldFunction(failing)()


def dividing(value: Any, by: int) -> Any:
    return value / by


def test_a_module_whose_path_is_no_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)  # noqa: PTH102 - the name is bytes
    Path(os.fsdecode(folder), "told_helpers.py").write_text(
        "def failing(value):\n    return 1 // 0\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(os.fsdecode(folder))
    try:
        function = importlib.import_module("told_helpers").failing
    finally:
        sys.modules.pop("told_helpers", None)
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError: ") as caught:
        ToldFunction(function)(1)
    assert "".join(traceback.format_exception(caught.value)).encode()


def test_an_attribute_of_the_function_is_not_called_in_its_place() -> None:
    def double(value: int) -> int:
        return 2 * value

    double._function = lambda value: -value  # type: ignore[attr-defined]
    assert ToldFunction(double)(3) == 6
