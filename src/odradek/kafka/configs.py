"""The settings of topics and brokers, as a broker describes them.

Source in Kafka: `KafkaAdminClient.describeConfigs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest

from odradek.kafka.client import BrokerClient

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


def describe_configs(
    client: BrokerClient,
    kind: int,
    names: Iterable[object],
    *,
    node_id: int | None = None,
    keys: Sequence[str] | None = None,
) -> list[Any]:
    """Return the answer for each topic or broker.

    Args:
        client: The connection.
        kind: `TOPIC_RESOURCE` or `BROKER_RESOURCE`.
        names: The names of the topics, or the ids of the brokers.
        node_id: The broker to ask; a broker knows only its own settings. None for any.
        keys: The names of the settings; None for all.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [resource(resource_type=kind, resource_name=str(name), configuration_keys=keys) for name in names]
    request = DescribeConfigsRequest(
        resources=asked, include_synonyms=False, include_documentation=False, min_version=1, max_version=4
    )
    found: list[Any] = client.ask(request, node_id).results
    return found
