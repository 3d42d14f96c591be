"""What a client is called by its certificate; the names on the right are Java's."""

from __future__ import annotations

import pytest

from odradek.broker.distinguished_names import distinguished_name
from odradek.broker.principal_rules import PrincipalRules
from peers.subjects import (
    BMP,
    COMMON_NAME,
    EMAIL,
    GIVEN_NAME,
    IA5,
    NUMERIC,
    ORGANIZATION,
    SERIAL_NUMBER,
    UNIT,
    attribute,
    certificate,
    der,
    subject,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ([], ""),
        ([[attribute(ORGANIZATION, "Example, Inc")], [attribute(COMMON_NAME, "eve")]], "CN=eve,O=Example\\, Inc"),
        ([[attribute(COMMON_NAME, 'a=b+c"d\\e<f>g;h#i')]], 'CN=a\\=b\\+c\\"d\\\\e\\<f\\>g\\;h\\#i'),
        ([[attribute(COMMON_NAME, "  eve ")]], "CN=\\ \\ eve\\ "),
        ([[attribute(COMMON_NAME, " \r")]], "CN=\\ \\\r"),
        ([[attribute(COMMON_NAME, "")]], "CN="),
        ([[attribute(COMMON_NAME, "admin\0.evil")]], "CN=admin\\00.evil"),
        ([[attribute(COMMON_NAME, "Müller\n")]], "CN=Müller\n"),
        ([[attribute(COMMON_NAME, b"\xff")]], "CN=\N{REPLACEMENT CHARACTER}"),
        ([[attribute(COMMON_NAME, "ab".encode("utf-16-be"), BMP)]], "CN=\\00a\\00b"),
        ([[attribute(COMMON_NAME, "12", NUMERIC)]], "CN=#12023132"),
        ([[attribute(EMAIL, "a@b.c", IA5)]], "1.2.840.113549.1.9.1=#16056140622e63"),
        ([[attribute(SERIAL_NUMBER, "12")]], "2.5.4.5=#0c023132"),
        ([[attribute(COMMON_NAME, "eve"), attribute(UNIT, "x")]], "CN=eve+OU=x"),
        ([[attribute("2.999.1", "x" * 200)]], "2.999.1=#0c81c8" + "78" * 200),
    ],
)
def test_a_name_is_written_as_java_writes_it(name: list[list[bytes]], expected: str) -> None:
    assert distinguished_name(certificate(subject(*name))) == expected


@pytest.mark.parametrize("kind", [UNIT, GIVEN_NAME, EMAIL])
def test_no_other_part_of_a_name_passes_for_the_one_that_a_rule_takes(kind: str) -> None:
    # The rule of Kafka's documentation.
    rules = PrincipalRules("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L")
    name = subject([attribute(kind, "CN=admin")], [attribute(COMMON_NAME, "eve")])
    assert rules.name(distinguished_name(certificate(name))) == "eve"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x30",
        der(0x30, der(0x30)),
        # Elements that only their ends mark.
        b"\x30\x80" + der(0x30) + bytes(2),
        certificate(subject([attribute(COMMON_NAME, "eve")]))[:-4],
        certificate(der(0x30, der(0x31, der(0x30)))),
        certificate(subject([der(0x30, der(0x06), der(0x0C))])),
        certificate(subject([der(0x30, der(0x06, b"\x81" * 5000 + b"\1"), der(0x0C))])),
        certificate(subject([der(0x30, der(0x06, b"\xff" * 4000 + b"\1"), der(0x0C))])),
    ],
)
def test_what_is_not_in_der_has_no_name(sent: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        distinguished_name(sent)
