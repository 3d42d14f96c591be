"""The names of errors are Kafka's, not those of kafka-python."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

import odradek.errors
from odradek.kafka.client import error_name


def test_names_are_those_of_kafka() -> None:
    assert {code: error_name(code) for code in map(int, ErrorCode) if code} == {
        int(code): code.name.upper() for code in ErrorCode if code
    }


def test_an_unknown_code_has_a_name() -> None:
    assert error_name(9999) == "UNKNOWN"


def test_our_own_errors_have_the_same_names() -> None:
    kinds = [kind for kind in vars(odradek.errors).values() if getattr(kind, "error_code", -1) > 0]
    assert len(kinds) > 10
    assert {kind: error_name(kind.error_code) for kind in kinds} == {kind: kind.error_name for kind in kinds}
