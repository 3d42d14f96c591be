"""Which cases of a test the gate has, and which are for the laboratory.

A fault in a table of cases nearly always shows in the first one; the others cost half of the gate's time. So of each
test that is not quick the gate has the first case with each kind of broker and each fixture. Of a test with the marker
`every_case`, where each one is another command or page, it has all of them, but those of the older fixture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

KINDS = frozenset({"kafka", "odradek", "4.3.1", "2.8.2"})
"""The brokers that a test is given in turn, and the versions of Apache Kafka that wrote the fixtures."""
OLDER = "2.8.2"


def other_cases(tests: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases that the gate does without, in the order of the tests."""
    seen: set[tuple[str, ...]] = set()
    for test in tests:
        if test.get_closest_marker("laboratory") is not None:
            continue
        kind = _kind(test)
        is_quick = not any(map(test.get_closest_marker, ("interop", "spark", "slow")))
        has_every_case = test.get_closest_marker("every_case") is not None and OLDER not in kind
        if kind in seen and not is_quick and not has_every_case:
            yield test
        seen.add(kind)


def _kind(test: pytest.Item) -> tuple[str, ...]:
    """Return a test's function, and which kinds of brokers and fixtures it is given."""
    callspec = getattr(test, "callspec", None)
    given = callspec.params.values() if callspec is not None else ()
    return (test.nodeid.partition("[")[0], *(value for value in given if isinstance(value, str) and value in KINDS))
