"""What Apache Kafka holds against the present settings of a broker, and against each other, before one changes.

A setting that it would refuse must not get into the metadata: Kafka on the same folder could not apply any of the
dynamic settings then, and those that restrict would be gone.

Source in Kafka: `DynamicThreadPool`, `LogCleaner.validateReconfiguration`, `KafkaConfig.validateValues`,
`GroupCoordinatorConfig`, `DynamicMetricsReporters`, `QuotaConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

Value = Callable[[str], str]
"""Returns the text of a setting."""

_POOLS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
_CLEANERS, _BUFFER = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
_LEAST_BUFFER_BYTES = 1 << 20
_GROUPS = ("consumer", "share", "streams")
_REPORTERS, _REPORTER = "metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"
_RATES = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


def contradiction(named: Set[str], after: Mapping[str, str], before: Value, value: Value) -> str | None:
    """Return what is wrong with changed settings; None if nothing is.

    Args:
        named: Those that the change names.
        after: Those that are set then, at the level that is changed.
        before: The settings of the broker before the change.
        value: After it.
    """
    for name in named & {*_POOLS, _CLEANERS}:
        old, new = int(before(name)), int(value(name))
        if not old // 2 <= new <= old * 2:
            return _of_config(_pool_text(name, old, new))
    if named & {_CLEANERS, _BUFFER} and int(value(_BUFFER)) // int(value(_CLEANERS)) <= _LEAST_BUFFER_BYTES:
        return f"requirement failed: {_BUFFER} must be at least 1MB per cleaner thread."
    for kind in _GROUPS:
        name = f"group.{kind}.assignment.interval.ms"
        low, high = (f"group.{kind}.{which}.assignment.interval.ms" for which in ("min", "max"))
        if name in named and int(value(name)) < int(value(low)):
            return f"{name} must be greater than or equal to {low}"
        if name in named and int(value(name)) > int(value(high)):
            return f"{name} must be less than or equal to {high}"
    reporters = after.get(_REPORTERS, "").split(",") if _REPORTERS in named else []
    if any(word.strip() not in ("", _REPORTER) for word in reporters):
        validator = "class kafka.server.DynamicMetricsReporters"
        return _of_config(f"Validation of dynamic config update of Set({_REPORTERS}) failed with class {validator}")
    for name in named & after.keys() & set(_RATES):
        try:
            wrong = "" if int(after[name]) >= 0 else "Value must be at least 0"
        except ValueError:
            wrong = "Not a number of type LONG"
        if wrong:
            return f"Invalid value {after[name]} for configuration {name}: {wrong}"
    return None


def _pool_text(name: str, old: int, new: int) -> str:
    if name == _CLEANERS:
        bound = "increased to more than double" if new > old else "reduced to less than half"
        return f"Log cleaner threads cannot be {bound} the current value {old}"
    bound = "not be greater than double" if new > old else "be at least half"
    text = f"Dynamic thread count update validation failed for {name}={new}, value should {bound}"
    return f"{text} the current value {old}"


def _of_config(text: str) -> str:
    """Return the text of an exception as that of the one that Kafka puts it into."""
    kind = "org.apache.kafka.common.config.ConfigException"
    return f"Invalid value {kind}: {text} for configuration Invalid dynamic configuration"
