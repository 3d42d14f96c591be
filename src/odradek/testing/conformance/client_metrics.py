"""Subscriptions of client metrics (KIP-714): settings of the resource CLIENT_METRICS (16). No receiver is assumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.testing.conformance.administration import alter, described
from odradek.testing.conformance.target import Target, expect, expect_error

_CLIENT_METRICS = 16
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_OF_CLIENT_METRICS, _OF_KAFKA = 7, 5
_INT, _LIST = 3, 7
_DEFAULTS = {"interval.ms": "300000", "match": "", "metrics": ""}


def _alter(target: Target, name: str, settings: Mapping[str, str | None], operation: int = _SET, **fields: Any) -> int:
    return alter(target, _CLIENT_METRICS, name, settings, operation, **fields)


def _described(target: Target, name: str, *keys: str, **fields: Any) -> Any:
    return described(target, _CLIENT_METRICS, name, *keys, **fields)


def _values(target: Target, name: str) -> dict[str, str]:
    return {one.name: one.value for one in _described(target, name).configs}


def _listed(target: Target, version: int = 1, *types: int) -> set[str]:
    fields: dict[str, Any] = {"resource_types": list(types)} if version else {}
    found = target.call("ListConfigResources", version, **fields).config_resources
    return {one.resource_name for one in found if not version or one.resource_type == _CLIENT_METRICS}


def _subscription(target: Target, **settings: str) -> str:
    """Make a subscription, with underscores in the names of its settings, and wait until it is told."""
    target.needs("ListConfigResources", 1)
    name = target.name("subscription")
    named = {key.replace("_", "."): value for key, value in settings.items()}
    expect_error("settings", _alter(target, name, named), "NONE")
    target.until("the settings are told", lambda: True if _values(target, name) == {**_DEFAULTS, **named} else None)
    return name


def _removed(target: Target, name: str) -> None:
    expect_error("removal", _alter(target, name, dict.fromkeys(_DEFAULTS), _DELETE), "NONE")
    target.until("the settings are removed", lambda: True if name not in _listed(target) else None)


def telemetry_is_not_advertised(target: Target) -> None:
    """Without a receiver of metrics a broker advertises neither GetTelemetrySubscriptions nor PushTelemetry."""
    found = {one.api_key for one in target.call("ApiVersions", 3).api_keys}
    expect("advertised", found & {71, 72}, set())


def a_subscription_without_settings_has_the_defaults(target: Target) -> None:
    """Any name is described, with Kafka's defaults."""
    found = _described(target, target.name("none"))
    expect_error("error", found.error_code, "NONE")
    told = {one.name: (one.value, one.config_source, one.read_only, one.is_sensitive) for one in found.configs}
    expect("settings", told, {name: (value, _OF_KAFKA, False, False) for name, value in _DEFAULTS.items()})


def settings_have_types(target: Target) -> None:
    """The interval is an INT, the others are LISTs."""
    found = {one.name: one.config_type for one in _described(target, target.name("none")).configs}
    expect("types", found, {"interval.ms": _INT, "match": _LIST, "metrics": _LIST})


def only_what_is_asked_for_is_told(target: Target) -> None:
    """DescribeConfigs tells just the settings that are named, and none that there are not."""
    found = _described(target, target.name("none"), "match", "none")
    expect("settings", [one.name for one in found.configs], ["match"])


def settings_are_told_as_its_own(target: Target) -> None:
    """A setting that was made has the subscription as its source and only synonym."""
    name = _subscription(target, interval_ms="1000", metrics="org.apache.kafka.producer.,org.apache.kafka.consumer.")
    found = {one.name: one for one in _described(target, name, include_synonyms=True).configs}
    interval, match = found["interval.ms"], found["match"]
    expect("sources", (interval.config_source, match.config_source), (_OF_CLIENT_METRICS, _OF_KAFKA))
    told = [(one.name, one.value, one.source) for one in interval.synonyms]
    expect("synonyms", told, [("interval.ms", "1000", _OF_CLIENT_METRICS)])
    expect("synonyms of a default", list(match.synonyms), [])
    _removed(target, name)


def a_subscription_is_listed(target: Target) -> None:
    """ListConfigResources lists a subscription, of its type and among all; version 0 lists nothing else."""
    name, without = _subscription(target, metrics="*"), target.name("subscription")
    for found in (_listed(target), _listed(target, 1, _CLIENT_METRICS), _listed(target, 0)):
        expect("listed", (name in found, without in found), (True, False))
    expect("among groups", name in _listed(target, 1, 32), False)
    expect("others in version 0", _listed(target, 0) - _listed(target), set())
    _removed(target, name)


def a_subscription_ends_with_its_settings(target: Target) -> None:
    """A subscription is no longer listed when all of its settings are removed, and has the defaults again."""
    name = _subscription(target, interval_ms="1000", match="client_id=a.*")
    _removed(target, name)
    expect("settings", _values(target, name), _DEFAULTS)


def one_setting_is_removed(target: Target) -> None:
    """A setting that is removed has its default again; the others stay."""
    name = _subscription(target, interval_ms="1000", metrics="a")
    expect_error("error", _alter(target, name, {"interval.ms": None}, _DELETE), "NONE")
    wanted = {**_DEFAULTS, "metrics": "a"}
    target.until("the default", lambda: True if _values(target, name) == wanted else None)
    _removed(target, name)


def nothing_is_appended(target: Target) -> None:
    """To append to a setting, or to subtract from it, is INVALID_CONFIG, even of a list."""
    name = target.name("subscription")
    for key in ("interval.ms", "metrics", "match"):
        for operation in (_APPEND, _SUBTRACT):
            expect_error(f"{key}: {operation}", _alter(target, name, {key: "1"}, operation), "INVALID_CONFIG")


def an_unknown_setting_is_refused(target: Target) -> None:
    """A name that no subscription's setting has is INVALID_REQUEST, and then no setting is made."""
    name = target.name("subscription")
    for key in ("none", "retention.ms", "push.interval.ms"):
        expect_error(key, _alter(target, name, {key: "1000", "metrics": "a"}), "INVALID_REQUEST")
    expect("settings", _values(target, name), _DEFAULTS)


def the_interval_must_be_a_number(target: Target) -> None:
    """An interval that is no number is INVALID_CONFIG."""
    name = target.name("subscription")
    for value in ("often", "", "1.5", "99999999999"):
        expect_error(f"value {value!r}", _alter(target, name, {"interval.ms": value}), "INVALID_CONFIG")


def the_interval_has_bounds(target: Target) -> None:
    """An interval below 100 ms or above an hour is INVALID_REQUEST."""
    name = target.name("subscription")
    for value in ("99", "3600001", "0", "-1"):
        expect_error(f"value {value}", _alter(target, name, {"interval.ms": value}), "INVALID_REQUEST")
    for value in ("100", "3600000"):
        expect_error(f"value {value}", _alter(target, name, {"interval.ms": value}, validate_only=True), "NONE")


def a_match_names_what_clients_tell(target: Target) -> None:
    """A match is a name of KIP-714 and a regular expression; anything else is INVALID_CONFIG."""
    name = target.name("subscription")
    names = ("instance_id", "id", "software_name", "software_version", "source_address", "source_port")
    for value in (*(f"client_{one}=a.*" for one in names), " client_id = a , client_source_port=1", ""):
        expect_error(f"match {value!r}", _alter(target, name, {"match": value}, validate_only=True), "NONE")
    for value in ("client_id", "client_id=", "=a", "client_id=a=b", "none=a", "client_id=(", "client_id=[a", "a,"):
        expect_error(f"match {value!r}", _alter(target, name, {"match": value}), "INVALID_CONFIG")


def words_of_a_list_are_not_empty(target: Target) -> None:
    """An empty word in a list is INVALID_CONFIG."""
    name = target.name("subscription")
    for key, value in (("metrics", "a,,b"), ("metrics", "a,"), ("match", "client_id=a,,client_source_port=1")):
        expect_error(f"{key}={value!r}", _alter(target, name, {key: value}), "INVALID_CONFIG")


def a_word_counts_once(target: Target) -> None:
    """A word that is in a list twice is taken, and told once."""
    name = target.name("subscription")
    expect_error("error", _alter(target, name, {"metrics": "a,b,a"}), "NONE")
    target.until("the words", lambda: True if _values(target, name)["metrics"] == "a,b" else None)
    _removed(target, name)


def a_subscription_must_have_a_name(target: Target) -> None:
    """The subscription without a name can be neither altered nor described: INVALID_REQUEST."""
    expect_error("IncrementalAlterConfigs", _alter(target, "", {"metrics": "a"}), "INVALID_REQUEST")
    expect_error("DescribeConfigs", _described(target, "").error_code, "INVALID_REQUEST")


def a_validation_changes_nothing(target: Target) -> None:
    """With `validate_only` settings are checked, and not made."""
    name = target.name("subscription")
    expect_error("error", _alter(target, name, {"metrics": "a"}, validate_only=True), "NONE")
    expect_error("error", _alter(target, name, {"interval.ms": "1"}, validate_only=True), "INVALID_REQUEST")
    expect("settings", _values(target, name), _DEFAULTS)


def settings_are_replaced(target: Target) -> None:
    """AlterConfigs replaces all settings of a subscription."""
    name = _subscription(target, interval_ms="1000", match="client_id=a")
    configs = [{"name": "metrics", "value": "a"}]
    resource = {"resource_type": _CLIENT_METRICS, "resource_name": name, "configs": configs}
    (answer,) = target.call("AlterConfigs", 2, resources=[resource]).responses
    expect_error("error", answer.error_code, "NONE")
    wanted = {**_DEFAULTS, "metrics": "a"}
    target.until("the settings", lambda: True if _values(target, name) == wanted else None)
    _removed(target, name)
