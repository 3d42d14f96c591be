"""What is known of the APIs before their modules are imported, and the modules."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

import odradek.broker.api
from odradek.broker.api import ADVERTISED, APIS
from odradek.broker.failures import failure
from odradek.broker.protocol import (
    RequestHeader,
    decode_header,
    decode_response,
    encode_request,
    encode_response,
    request_class,
)
from odradek.broker.request_body import decode_request
from odradek.testing.plain_fields import plain_fields
from peers.request_examples import example

PRODUCE = 0
REFUSED = range(3)
"""Versions of Produce that are advertised for old clients, and refused (KIP-896)."""


def test_every_api_is_advertised_as_it_is_registered() -> None:
    for key, (module, advertised) in ADVERTISED.items():
        found = APIS[key]
        assert found is not None
        assert (found.key, found.handle.__module__) == (key, f"odradek.broker.api.{module}")
        taken = {*advertised} - ({*REFUSED} if key == PRODUCE else set())
        assert {*found.versions} == taken, found.name


def test_every_module_is_advertised() -> None:
    folder = Path(odradek.broker.api.__file__).parent
    assert sorted(path.stem for path in folder.glob("k*.py")) == [module for module, _ in ADVERTISED.values()]


@pytest.mark.slow
def test_all_modules_can_be_imported_before_they_are_asked_for() -> None:
    code = "from odradek.broker.api import *; load_apis(); raise SystemExit(set(APIS) != set(ADVERTISED))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_number_is_no_api() -> None:
    assert APIS[-1] is None
    assert -1 not in APIS


VERSIONS = [(key, version) for key, (_, versions) in ADVERTISED.items() for version in versions if key or version > 2]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", ADVERTISED)
def test_what_an_answer_does_not_say_is_nothing_or_the_default_of_the_schema(key: int) -> None:
    for version in [version for one, version in VERSIONS if one == key]:
        header = RequestHeader(key, version, 1, None, 0)
        _, found = decode_response(key, version, bytes(encode_response(header, {}))[4:])
        for field in fields(found):
            value = getattr(found, field.name)
            if field.default is not MISSING:
                assert value == field.default, field.name
            else:
                assert not value or value in (-1, ErrorCode.none) or not value.total_seconds(), field.name


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", ADVERTISED)
def test_a_request_that_failed_is_answered_once_at_the_top_or_at_its_item(key: int) -> None:
    for version in [version for one, version in VERSIONS if one == key]:
        frame = bytearray(encode_request(key, version, 1, "test", example(request_class(key, version)))[4:])
        header = decode_header(frame)
        answer = failure(header, decode_request(frame, header), 42, "why")
        _, found = decode_response(key, version, bytes(encode_response(header, answer))[4:])
        assert str(plain_fields(found)).count(": 42") == 1, f"version {version}: {found}"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("count", [None, 0, 2])
def test_a_description_of_folders_that_failed_tells_so_once_whatever_topics_were_asked_for(
    version: int, count: int | None
) -> None:
    topics = None if count is None else [{"topic": "t", "partitions": [0]}] * count
    frame = bytearray(encode_request(35, version, 1, "test", {"topics": topics})[4:])
    header = decode_header(frame)
    answer = failure(header, decode_request(frame, header), 42, "why")
    _, found = decode_response(35, version, bytes(encode_response(header, answer))[4:])
    assert [(int(one.error_code), one.log_dir) for one in found.results] == [(42, "")]
