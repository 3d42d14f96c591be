"""Settings of groups: IncrementalAlterConfigs, DescribeConfigs, ListConfigResources of the resource GROUP (32)."""

from __future__ import annotations

from odradek.testing.conformance.administration import (
    APPEND,
    DELETE,
    GROUP,
    SUBTRACT,
    alter,
    delete_group,
    set_group,
    settings,
)
from odradek.testing.conformance.consumer_members import Members, beat, joined, ready
from odradek.testing.conformance.target import Target, expect, expect_error

_OF_GROUP = 8
_INTERVAL, _SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
_ASSIGNMENT = "consumer.assignment.interval.ms"


def _value(target: Target, group: str, name: str) -> str:
    return str(settings(target, GROUP, group, name)[name].value)


def the_brokers_settings_are_the_defaults(target: Target) -> None:
    """A setting that a group does not have is the broker's `group.` and its name."""
    group = target.group()
    found = settings(target, GROUP, group)
    for name in (_INTERVAL, _SESSION, _ASSIGNMENT):
        expect(name, found[name].value, str(target.setting(f"group.{name}")))
        expect(f"source of {name}", found[name].config_source == _OF_GROUP, False)


def a_setting_is_told_as_the_groups(target: Target) -> None:
    """A group's setting is described with the group as its source, and the broker's among its synonyms."""
    group = target.group()
    set_group(target, group, consumer_assignment_interval_ms="1234")
    found = settings(target, GROUP, group, _ASSIGNMENT, include_synonyms=True)[_ASSIGNMENT]
    expect("source", (found.config_source, found.read_only, found.is_sensitive), (_OF_GROUP, False, False))
    first = found.synonyms[0]
    expect("first synonym", (first.name, first.value, first.source), (_ASSIGNMENT, "1234", _OF_GROUP))


def only_what_is_asked_for_is_told(target: Target) -> None:
    """DescribeConfigs describes only the settings that are named, and leaves out unknown ones."""
    group = target.group()
    expect("settings", [*settings(target, GROUP, group, _INTERVAL, "none")], [_INTERVAL])


def a_setting_is_removed(target: Target) -> None:
    """A setting that is removed is the broker's again."""
    group = target.group()
    set_group(target, group, consumer_assignment_interval_ms="1234")
    expect_error("error", alter(target, GROUP, group, {_ASSIGNMENT: None}, DELETE), "NONE")
    default = str(target.setting(f"group.{_ASSIGNMENT}"))
    target.until("the default", lambda: _value(target, group, _ASSIGNMENT) == default)


def settings_outlive_the_group(target: Target) -> None:
    """The settings of a group stay when it is deleted."""
    members = Members(target)
    members.join("m")
    members.leave("m")
    delete_group(target, members.group)
    expect("setting", _value(target, members.group, _ASSIGNMENT), "0")


def a_setting_of_no_group_is_unknown(target: Target) -> None:
    """A name that no group's setting has is INVALID_CONFIG."""
    group = target.group()
    for name in ("none", "retention.ms", "group.consumer.session.timeout.ms"):
        expect_error(name, alter(target, GROUP, group, {name: "1000"}), "INVALID_CONFIG")


def a_value_must_be_a_number(target: Target) -> None:
    """A value that is no number is INVALID_CONFIG."""
    group = target.group()
    for value in ("many", "", "1.5", "99999999999"):
        expect_error(f"value {value!r}", alter(target, GROUP, group, {_ASSIGNMENT: value}), "INVALID_CONFIG")


def the_broker_bounds_the_interval(target: Target) -> None:
    """A heartbeat interval beyond the broker's least and most is INVALID_CONFIG."""
    _is_bounded(target, _INTERVAL)


def the_broker_bounds_the_session(target: Target) -> None:
    """A session time-out beyond the broker's least and most is INVALID_CONFIG."""
    _is_bounded(target, _SESSION)


def the_broker_bounds_the_assignments(target: Target) -> None:
    """An assignment interval beyond the broker's least and most is INVALID_CONFIG."""
    _is_bounded(target, _ASSIGNMENT)


def _is_bounded(target: Target, name: str) -> None:
    group, kind = target.group(), name.removeprefix("consumer.")
    least, most = (target.setting(f"group.consumer.{bound}.{kind}") for bound in ("min", "max"))
    for value in (least - 1, most + 1):
        expect_error(f"{name}={value}", alter(target, GROUP, group, {name: str(value)}), "INVALID_CONFIG")
    # The interval has to be below the session time-out, too, which the most need not be.
    valid = least if name == _INTERVAL else most
    expect_error(f"{name}={valid}", alter(target, GROUP, group, {name: str(valid)}), "NONE")


def a_refused_setting_changes_nothing(target: Target) -> None:
    """If one setting of a group is refused, none is made."""
    group = target.group()
    wrong = {_ASSIGNMENT: "1234", "none": "1"}
    expect_error("error", alter(target, GROUP, group, wrong), "INVALID_CONFIG")
    expect("setting", _value(target, group, _ASSIGNMENT), str(target.setting(f"group.{_ASSIGNMENT}")))


def a_validation_changes_nothing(target: Target) -> None:
    """With `validate_only` a setting is checked, and not made."""
    group = target.group()
    for value, wanted in (("1234", "NONE"), ("many", "INVALID_CONFIG")):
        code = alter(target, GROUP, group, {_ASSIGNMENT: value}, validate_only=True)
        expect_error(f"value {value}", code, wanted)
    expect("setting", _value(target, group, _ASSIGNMENT), str(target.setting(f"group.{_ASSIGNMENT}")))


def numbers_are_no_lists(target: Target) -> None:
    """To append to a number, or to subtract from it, is INVALID_CONFIG."""
    group = target.group()
    for operation in (APPEND, SUBTRACT):
        code = alter(target, GROUP, group, {_ASSIGNMENT: "1"}, operation)
        expect_error(f"operation {operation}", code, "INVALID_CONFIG")


def a_group_must_have_an_id(target: Target) -> None:
    """Settings of the group without an id are INVALID_REQUEST."""
    target.group()
    expect_error("error", alter(target, GROUP, "", {_ASSIGNMENT: "1"}), "INVALID_REQUEST")


def groups_with_settings_are_listed(target: Target) -> None:
    """ListConfigResources v1 lists groups that have settings, of the type that is asked for."""
    group, without = target.group(), target.group()
    set_group(target, group, consumer_assignment_interval_ms="1234")

    def listed(*types: int) -> set[str]:
        found = target.call("ListConfigResources", 1, resource_types=list(types)).config_resources
        return {one.resource_name for one in found if one.resource_type == GROUP}

    expect("listed", (group in listed(GROUP), without in listed(GROUP)), (True, False))
    expect("among all", group in listed(), True)
    expect("among topics", group in listed(2), False)


def the_interval_of_a_group_is_answered(target: Target) -> None:
    """Heartbeats are answered the group's own interval, from the next one on."""
    group, topic = ready(target)
    epoch = joined(target, group, topic).member_epoch
    interval = target.setting(f"group.{_INTERVAL}") + 1
    set_group(target, group, consumer_heartbeat_interval_ms=str(interval))
    target.until(
        "the interval",
        lambda: round(beat(target, group, "m", epoch).heartbeat_interval.total_seconds() * 1000) == interval,
    )


def each_group_has_its_own(target: Target) -> None:
    """A setting of one group does not count for another."""
    first, second = target.group(), target.group()
    set_group(target, first, consumer_assignment_interval_ms="1234")
    expect("the other's", _value(target, second, _ASSIGNMENT), str(target.setting(f"group.{_ASSIGNMENT}")))
