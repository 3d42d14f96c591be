"""Patterns that clients send: compiling one takes no longer than some milliseconds, however it is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import re2

from odradek.broker.turns import whole
from odradek.coordination.groups.topics import matches, regex_error
from odradek.coordination.patterns import MOST_CLASSES, MOST_NAMES, compiled
from odradek.errors import OptionError
from odradek.sources.condition import compiled as compiled_condition

HOSTILE = [
    r"\pL" * 200_000,
    r"\pL" * (MOST_CLASSES + 1),
    "x{2}" * 3_001,
    "x{0,999}" * 101,
    "a?" * 3_001,
    "a" * 32_769,
]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", HOSTILE, ids=lambda pattern: f"{pattern[:8]}...{len(pattern)}")
def test_what_costs_too_much_is_refused_unread(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(re2, "compile", lambda *_: pytest.fail("it was compiled"))
    with pytest.raises(re2.error, match="more than"):
        compiled(pattern)
    assert "more than" in str(regex_error(pattern))
    # Those that it had before are not lost, but for one that was deleted.
    assert whole(matches([pattern], ["t", "u"], {pattern: ("t", "v")})) == {pattern: ("t",)}


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [r"\pL" * 100, "(?:" + "a" * 4_000 + "){999}"], ids=lambda pattern: pattern[:12])
@pytest.mark.parametrize("compiled", [compiled, compiled_condition], ids=["of a client", "of a condition"])
def test_what_becomes_too_large_is_refused_by_its_memory(compiled: Callable[[str], Any], pattern: str) -> None:
    if compiled is compiled_condition and "pL" in pattern:
        # It may be larger.
        assert compiled(pattern) is not None
        return
    with pytest.raises((re2.error, OptionError), match=r"too large - compile failed$"):
        compiled(pattern)


# These would fit, and take seconds: the square of how often there is a choice.
@pytest.mark.parametrize(
    "pattern",
    [
        *("x{0,999}" * 64, r"\C{0,999}" * 33, "a{0,999}" * 20, "[^a]{0,99}" * 99, "(a?b?){0,99}" * 90),
        *(r"(?:(x|)(x|)(x|)(x|))\Q\E{900}", r"((x?y?z?a?)\Q\E{30})(?i){30}", "(a|)" * 7_900),
        *("(?P<n>x?){100}" * 31, "[]?]?" * 100 + "(?s:.?.?.?){999}", r"\Q(\E?" * 4 + r"(\p{L}?y?){0,999}"),
        # A class of Unicode is as costly as many parts: this one took 0.3 s and 70 MB.
        *(r"(?:.*(?:^|x)[\pL(]x*){441}", r"(?i:[\PN\p{Greek}]){60}", r"(?:\pL{0,9}){49}$"),
    ],
    ids=lambda pattern: pattern[:12],
)
@pytest.mark.parametrize("compiled", [compiled, compiled_condition], ids=["of a client", "of a condition"])
def test_what_has_too_many_choices_is_refused(compiled: Callable[[str], Any], pattern: str) -> None:
    with pytest.raises((re2.error, OptionError), match=r"choices, more than 3000"):
        compiled(pattern)


@pytest.mark.parametrize("pattern", HOSTILE[1:])
def test_a_condition_is_refused_as_a_clients_pattern_is(pattern: str) -> None:
    with pytest.raises(OptionError, match="more than"):
        compiled_condition(pattern)


def test_no_pattern_is_kept() -> None:
    re2.purge()
    for number in range(3):
        compiled(f"orders{number}")
        compiled_condition(f"orders{number}")
    assert re2._Regexp._make.cache_info().currsize == 0


@pytest.mark.parametrize("compiled", [compiled, compiled_condition], ids=["of a client", "of a condition"])
def test_groups_cost_nothing(compiled: Callable[[str], Any]) -> None:
    pattern = compiled("(" * 500 + "." + ")*" * 500)
    # RE2 copies what each group has matched at each character: half a minute for one id of 30 KB.
    assert (pattern.groups, bool(pattern.fullmatch("orders"))) == (0, True)
    # Those with a name it remembers whatever is asked for.
    named = "".join(f"(?P<n{number}>.?)" for number in range(MOST_NAMES))
    assert compiled(named).fullmatch("orders") is not None
    with pytest.raises((re2.error, OptionError), match="11 named groups, more than 10"):
        compiled(f"{named}(?<another>.*)")


def test_what_people_write_is_taken() -> None:
    names = "|".join(rf"orders\.{number}\.eu-[0-9]+" for number in range(300))
    assert compiled(names).fullmatch("orders.7.eu-12") is not None
    assert compiled(r"(?i)[\w.-]{1,249}").fullmatch("Orders") is not None
    assert compiled("error.{0,990}time-?out").search("error: a time-out") is not None


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"([^.]{1,249}\.){4}.*", r"([^.]{1,100}\.){9}.*", r"\p{L}{1,50}\.(prod|dev){1}", r"\p{L}{1,50}(\.[0-9]+){2}"),
        *(r"(\p{L}|[0-9]){1,20}", r"x\){1}", "([a-z]|[0-9]|-|_){1,249}", r"([\p{L}\p{N}_-]+\.){10}.*"),
        "(" + "|".join(f"service-{number:04}.events.v1" for number in range(1300)) + ")(-v[0-9]){0,1}",
        *("|".join(rf"tenant{number}-[0-9]{{4}}" for number in range(300)), "[0-9a-f]{8}-" * 400),
        *("x{0}{1", "x{999999999999999999999}", r"\Q(((\E" * 30, "[[:alpha:]?*+(|]{2}"),
    ],
    ids=lambda pattern: pattern[:16],
)
def test_repetitions_of_names_are_taken(pattern: str) -> None:
    assert compiled(pattern) is not None
