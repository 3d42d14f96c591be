"""Finds the checks and runs them against a broker."""

from __future__ import annotations

import fnmatch
import importlib
import inspect
import pkgutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import odradek.testing.conformance
from odradek.errors import OdradekError
from odradek.testing.conformance.means import Means
from odradek.testing.conformance.target import NotAdvertisedError, Target, UnexpectedError

Function: TypeAlias = Callable[[Target], None]
Outcome: TypeAlias = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check.

    Attributes:
        name: Its area and what it checks: `produce.acks_0_has_no_answer`.
        about: What the broker should do.
        run: Does it; raises what is wrong.
    """

    name: str
    about: str
    run: Function


@dataclass(frozen=True, slots=True)
class Result:
    """How a check ended.

    Attributes:
        name: The check.
        outcome: `ok`, `failed` or `skipped`.
        reason: Why it failed or was skipped; empty if it is ok.
        time_ms: How long it took, in ms.
    """

    name: str
    outcome: Outcome
    reason: str
    time_ms: float


_checks: dict[str, Check] = {}


def add(name: str, about: str, run: Function) -> None:
    """Register a check that is made for each of several cases."""
    assert name not in _checks
    _checks[name] = Check(name, about, run)


@cache
def _find_all() -> None:
    """Register the checks of all areas: a module's public functions that take the broker, and nothing else."""
    package = odradek.testing.conformance
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{found.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            is_own = function.__module__ == module.__name__ and not name.startswith("_")
            if is_own and [*inspect.signature(function).parameters] == ["target"]:
                add(f"{found.name}.{name}", (function.__doc__ or "").partition("\n")[0], function)


def checks(pattern: str = "*") -> list[Check]:
    """Return the checks whose name matches a pattern such as `fetch.*`, by their areas."""
    _find_all()
    return [one for name, one in sorted(_checks.items()) if fnmatch.fnmatchcase(name, pattern)]


def run(host: str, port: int, chosen: Sequence[Check], means: Means | None = None) -> Iterator[Result]:
    """Run checks against a broker, one after the other.

    Args:
        host: Its host.
        port: Its port.
        chosen: The checks.
        means: What can be done with it besides sending requests.

    Raises:
        OSError: The broker cannot be reached.
    """
    with Target(host, port, means) as target:
        for one in chosen:
            started = time.monotonic()
            outcome, reason = _outcome(one, target)
            target.clean_up()
            yield Result(one.name, outcome, reason, (time.monotonic() - started) * 1000)


def _outcome(one: Check, target: Target) -> tuple[Outcome, str]:
    try:
        one.run(target)
    except NotAdvertisedError as error:
        return "skipped", str(error)
    except UnexpectedError as error:
        return "failed", str(error)
    except (OdradekError, OSError, LookupError, AttributeError, TypeError, ValueError) as error:
        # A check takes the answer apart, and an answer of another shape does not fit.
        return "failed", f"{type(error).__name__}: {error}"
    return "ok", ""
