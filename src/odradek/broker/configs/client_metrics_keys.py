"""The settings of client metrics (KIP-714): which metrics clients are asked for, how often, and which clients are.

    metrics=org.apache.kafka.producer.,...   interval.ms=60000   match=client_software_name=librdkafka,client_id=a.*

This broker has no receiver of metrics, so it asks no client; the settings are kept, and Apache Kafka finds them. It
takes a regular expression that RE2 takes, too; Java's others, such as `(?=a)`, are refused.

Source in Kafka: `ClientMetricsConfigs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import re2
from kio.schema.errors import ErrorCode

from odradek.broker.configs.config_keys import ConfigKey, ConfigType, by_name
from odradek.broker.errors import ApiError
from odradek.coordination.patterns import check_pattern, pattern_options

_INTERVAL = "interval.ms"
_LOW_MS, _HIGH_MS = 100, 3_600_000
_MATCHED = frozenset(
    f"client_{one}"
    for one in ("instance_id", "id", "software_name", "software_version", "source_address", "source_port")
)


def _no_empty_word(name: str, value: Any) -> None:
    if "" in value:
        raise ApiError(ErrorCode.invalid_config, f"Configuration '{name}' values must not be empty.")


def _match(name: str, value: Any) -> None:
    _no_empty_word(name, value)
    try:
        check_pattern("".join(value), is_compiled=False)
    except re2.error as error:
        raise ApiError(ErrorCode.invalid_config, f"Illegal client matching pattern: {error}") from None
    # A set only parses them; to compile each one of a long list takes a second.
    patterns = re2.Set.SearchSet(pattern_options())
    for word in value:
        # As Java splits: empty parts at the end do not count.
        what, *parts = word.rstrip("=").split("=")
        try:
            if what.strip() not in _MATCHED or len(parts) != 1:
                raise ValueError
            patterns.Add(parts[0].strip())
        except (ValueError, re2.error):
            raise ApiError(ErrorCode.invalid_config, f"Illegal client matching pattern: {word}") from None


CLIENT_METRICS_KEYS: Mapping[str, ConfigKey] = by_name(
    [
        ConfigKey(_INTERVAL, ConfigType.INT, "300000", "How often a client sends its metrics."),
        ConfigKey("match", ConfigType.LIST, "", "Which clients send them: all that match each of these.", _match),
        ConfigKey("metrics", ConfigType.LIST, "", "How the names of the metrics begin; * for all.", _no_empty_word),
    ]
)
"""The settings by name."""


def check_client_metrics_config(name: str, config: Mapping[str, str]) -> None:
    """Check the settings of a subscription.

    Args:
        name: Its name.
        config: The settings.

    Raises:
        ApiError: It has no name, or a setting is unknown or not valid.
    """
    if not name:
        raise ApiError(ErrorCode.invalid_request, "Subscription name can't be empty")
    for one in config:
        if one not in CLIENT_METRICS_KEYS:
            raise ApiError(ErrorCode.invalid_request, f"Unknown client metrics configuration: {one}")
    parsed = {one: key.parse(config[one]) for one, key in CLIENT_METRICS_KEYS.items() if one in config}
    if not _LOW_MS <= parsed.get(_INTERVAL, _LOW_MS) <= _HIGH_MS:
        text = f"Invalid value {parsed[_INTERVAL]} for {_INTERVAL}, interval must be between 100 and 3600000 (1 hour)"
        raise ApiError(ErrorCode.invalid_request, text)
