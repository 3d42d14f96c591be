"""The names of errors are Kafka's, not those of kafka-python."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.errors import RecordTooLargeError
from odradek.kafka.error_names import error_name


def test_names_are_those_of_kafka() -> None:
    named = {code: error_name(code) for code in map(int, ErrorCode) if code}
    assert named.pop(10) == RecordTooLargeError.error_name
    assert named == {int(code): code.name.upper() for code in ErrorCode if int(code) in named}


def test_an_unknown_code_has_a_name() -> None:
    assert error_name(9999) == "UNKNOWN"
