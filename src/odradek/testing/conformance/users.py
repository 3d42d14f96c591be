"""The users of SCRAM: DescribeUserScramCredentials and AlterUserScramCredentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from odradek.testing.conformance.target import Target, expect, expect_error

Infos: TypeAlias = list[tuple[int, int]]

_SHA_256, _SHA_512, _UNKNOWN = 1, 2, 9


def _new(name: str, mechanism: int = _SHA_256, iterations: int = 4096, **other: Any) -> dict[str, Any]:
    fields = {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"salt"}
    return {**fields, "salted_password": b"p" * 32, **other}


def _removal(name: str, mechanism: int = _SHA_256) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def _alter(target: Target, *new: dict[str, Any], removed: tuple[dict[str, Any], ...] = ()) -> dict[str, str]:
    """Change credentials; return the errors by user."""
    answer = target.call("AlterUserScramCredentials", deletions=removed, upsertions=new)
    found = {one.user: ErrorCode(one.error_code).name.upper() for one in answer.results}
    expect("number of results", len(answer.results), len(found))
    return found


def _describe(target: Target, *names: str) -> dict[str, tuple[str, Infos]]:
    answer = target.call("DescribeUserScramCredentials", users=[{"name": name} for name in names] or None)
    expect_error("error", answer.error_code, "NONE")
    return {
        one.user: (
            ErrorCode(one.error_code).name.upper(),
            sorted((info.mechanism, info.iterations) for info in one.credential_infos),
        )
        for one in answer.results
    }


def _until_described(target: Target, name: str, wanted: Infos) -> None:
    """Wait until a user is described so: the broker that answers may get to know of a change after it was made."""
    found = ("NONE", wanted) if wanted else ("RESOURCE_NOT_FOUND", [])
    target.until(f"{name} has {wanted}", lambda: _describe(target, name)[name] == found or None)


@contextmanager
def _user(target: Target, *mechanisms: int) -> Iterator[str]:
    """Add a user, who is removed at the end."""
    target.needs("AlterUserScramCredentials")
    name = target.name("user")
    try:
        for mechanism in mechanisms:
            expect("errors", _alter(target, _new(name, mechanism)), {name: "NONE"})
        _until_described(target, name, [(mechanism, 4096) for mechanism in mechanisms])
        yield name
    finally:
        for mechanism in (_SHA_256, _SHA_512):
            _alter(target, removed=(_removal(name, mechanism),))


def _refuses(target: Target, wanted: str, **fields: Any) -> None:
    """Expect that a credential is refused, and another one in the same request is not."""
    with _user(target) as name:
        refused = {**_new(target.name("user")), **fields}
        found = _alter(target, refused, _new(name))
        expect("errors", found, {refused["name"]: wanted, name: "NONE"})


def a_user_may_have_both_mechanisms(target: Target) -> None:
    """A user may have a credential for each mechanism, and is described with both."""
    with _user(target, _SHA_256, _SHA_512) as name:
        expect("described", _describe(target, name), {name: ("NONE", [(_SHA_256, 4096), (_SHA_512, 4096)])})


def all_users_are_described(target: Target) -> None:
    """If no user is named, all are described."""
    with _user(target, _SHA_256) as name:
        expect("described", _describe(target).get(name), ("NONE", [(_SHA_256, 4096)]))


def a_credential_is_replaced(target: Target) -> None:
    """A credential replaces the one before it for the same mechanism."""
    with _user(target, _SHA_256, _SHA_512) as name:
        expect("errors", _alter(target, _new(name, iterations=8192)), {name: "NONE"})
        _until_described(target, name, [(_SHA_256, 8192), (_SHA_512, 4096)])


def a_credential_is_removed(target: Target) -> None:
    """A credential is removed, and that of the other mechanism stays."""
    with _user(target, _SHA_256, _SHA_512) as name:
        expect("errors", _alter(target, removed=(_removal(name),)), {name: "NONE"})
        _until_described(target, name, [(_SHA_512, 4096)])
        expect("errors", _alter(target, removed=(_removal(name),)), {name: "RESOURCE_NOT_FOUND"})


def a_user_that_does_not_exist_is_not_described(target: Target) -> None:
    """A user that does not exist is RESOURCE_NOT_FOUND, and others are described."""
    with _user(target, _SHA_256) as name:
        other = target.name("user")
        found = {name: ("NONE", [(_SHA_256, 4096)]), other: ("RESOURCE_NOT_FOUND", [])}
        expect("described", _describe(target, name, other), found)


def a_user_named_twice_is_not_described(target: Target) -> None:
    """A user that is named twice is DUPLICATE_RESOURCE."""
    with _user(target, _SHA_256) as name:
        expect("described", _describe(target, name, name), {name: ("DUPLICATE_RESOURCE", [])})


def iterations_have_limits(target: Target) -> None:
    """Fewer than 4,096 or more than 16,384 iterations are UNACCEPTABLE_CREDENTIAL."""
    for iterations in (-1, 0, 4095, 16385):
        _refuses(target, "UNACCEPTABLE_CREDENTIAL", iterations=iterations)


def a_user_has_a_name(target: Target) -> None:
    """An empty name is UNACCEPTABLE_CREDENTIAL."""
    _refuses(target, "UNACCEPTABLE_CREDENTIAL", name="")


def an_unknown_mechanism_is_refused(target: Target) -> None:
    """A mechanism that does not exist is UNSUPPORTED_SASL_MECHANISM."""
    _refuses(target, "UNSUPPORTED_SASL_MECHANISM", mechanism=_UNKNOWN)


def a_user_is_changed_once_in_a_request(target: Target) -> None:
    """A user that a request changes twice is DUPLICATE_RESOURCE, whatever the mechanisms, and is not changed."""
    with _user(target, _SHA_256) as name:
        twice = _alter(target, _new(name, iterations=8192), _new(name, _SHA_512))
        expect("errors", twice, {name: "DUPLICATE_RESOURCE"})
        twice = _alter(target, _new(name, _SHA_512), removed=(_removal(name),))
        expect("errors", twice, {name: "DUPLICATE_RESOURCE"})
        expect("described", _describe(target, name), {name: ("NONE", [(_SHA_256, 4096)])})


def a_password_is_not_empty(target: Target) -> None:
    """An empty salted password is an UNKNOWN_SERVER_ERROR, and no credential."""
    _refuses(target, "UNKNOWN_SERVER_ERROR", salted_password=b"")


def a_request_without_changes_is_answered(target: Target) -> None:
    """A request that changes no user has no results."""
    expect("errors", _alter(target), {})
