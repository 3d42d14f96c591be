"""The settings of a broker as a caller passes them: names checked against Kafka's, values turned into text.

Kafka's broker ignores settings that it does not know, and so does this: a `server.properties` may hold anything. But a
name that is almost one of Kafka's, or a topic's setting in place of a broker's, is a mistake that would go unnoticed.

Source in Kafka: `KafkaConfig`, `AbstractKafkaConfig`, `ServerTopicConfigSynonyms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from odradek.errors import InvalidConfigError
from odradek.kafka_version import KAFKA_VERSION
from odradek.printable import logger
from odradek.storage.config_def import ConfigValue, as_texts
from odradek.storage.topic_config import BROKER_SYNONYMS

_logger = logger(__name__)

_OF_AUTHORIZER = ("super.users", "allow.everyone.if.no.acl.found")
"""Settings that `StandardAuthorizer` reads from those of the broker."""

_RANGE = re.compile(r"\[(-?[0-9]+),\.\.\.(?:,([0-9]+))?\]")
_LIKENESS = 0.9
"""From this similarity on, a name is a misspelt one: `log.retention.hour` is, a setting of another version is not."""


def broker_config_text(config: Mapping[str, ConfigValue] | None) -> dict[str, str]:
    """Return a broker's settings as text.

    Raises:
        TypeError: The settings are not a mapping, or a name is not a str.
        InvalidConfigError: A name is misspelt, or is the name of a topic's setting; or a value is not valid.
    """
    texts = as_texts(config)
    for name in texts:
        if name not in BROKER_CONFIGS:
            _check_unknown(name)
    return texts


def nearest_setting(name: str) -> str | None:
    """Return the setting of a broker, of its authorizer or of a topic that a name is, or is a misspelling of."""
    from difflib import get_close_matches  # takes 10 ms, needed only for a mistake

    # As an attribute of `TopicConfig` or an environment variable is written.
    spelt = name.lower().replace("_", ".").replace("-", ".")
    known = {*BROKER_CONFIGS, *BROKER_SYNONYMS, *_OF_AUTHORIZER}
    return next(iter(get_close_matches(spelt, known, 1, _LIKENESS)), None)


def _check_unknown(name: str) -> None:
    nearest = nearest_setting(name)
    if nearest in BROKER_CONFIGS or (nearest in _OF_AUTHORIZER and nearest != name):
        raise InvalidConfigError(name, f"no such setting of a broker; did you mean {nearest}?")
    if nearest in BROKER_SYNONYMS:
        of_broker = BROKER_SYNONYMS[nearest][0][0]
        which = "this" if nearest == name else nearest
        raise InvalidConfigError(name, f"{which} is a setting of a topic; the broker's for all topics is {of_broker}")
    if name not in _OF_AUTHORIZER:
        _logger.warning("%s is not a setting of Kafka %s's broker, and has no effect", name, KAFKA_VERSION)


class BrokerSetting(NamedTuple):
    """A setting of Apache Kafka's broker.

    Attributes:
        type: Its type, in capitals.
        default: Its default, as text, or None.
        mode: Who may change it while the broker runs: `cluster-wide` is for all brokers or for one, `per-broker` only
            for one; `read-only` and `internal` are not changed, and an `internal` one is not shown to clients.
        valid: Its valid values, as `ConfigDef` writes them: `[0,...,100]`; empty if there is nothing to say.
    """

    type: str
    default: str | None
    mode: str
    valid: str

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The lowest and the highest valid number; None if there is no bound."""
        found = _RANGE.fullmatch(self.valid)
        low, high = (None, None) if found is None else found.groups()
        return None if low is None else int(low), None if high is None else int(high)


_ABSENT, _EMPTY = "-", '""'


def _broker_settings() -> Iterator[tuple[str, BrokerSetting]]:
    for line in Path(__file__).with_name("broker_configs.tsv").read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            name, kind, default, mode, *valid = line.split("\t")
            given = None if default == _ABSENT else default.replace(_EMPTY, "")
            yield name, BrokerSetting(kind, given, mode, "".join(valid))


BROKER_CONFIGS: Mapping[str, BrokerSetting] = dict(_broker_settings())
"""All settings of Kafka's broker by name, in the order in which it describes them."""
