"""What a broker tells of transactions, from a coordinator that takes its time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors

from odradek.kafka.client import BrokerClient
from odradek.kafka.settings import BrokerSettings
from odradek.kafka.transaction_states import producers_of, wait_until_visible


class SlowCoordinator(BrokerClient):
    """A coordinator that tells one state of each transaction after another, and then the last one again."""

    def __init__(self, timeout_ms: int = 60_000, **states: list[str | type[Exception]]) -> None:
        settings = {"bootstrap.servers": "localhost:1", "default.api.timeout.ms": str(timeout_ms)}
        super().__init__(BrokerSettings.parse(settings))
        self.states = states
        self.asked: list[list[str]] = []

    def by_coordinator(self, keys: Iterable[str], kind: Any) -> dict[int, list[str]]:
        return {0: list(keys)}

    def ask(self, request: Any, node_id: int | None = None, *, timeout_ms: float | None = None) -> Any:
        self.asked.append(request.transactional_ids)
        return SimpleNamespace(transaction_states=list(self._told(request.transactional_ids)))

    def _told(self, transactional_ids: list[str]) -> Iterator[Any]:
        for number, name in enumerate(transactional_ids):
            left = self.states.get(name, ["unknown"])
            state = left.pop(0) if len(left) > 1 else left[0]
            if not isinstance(state, str):
                raise state
            error_code = errors.TransactionalIdNotFoundError.errno if state == "unknown" else 0
            yield SimpleNamespace(
                error_code=error_code,
                transactional_id=name,
                transaction_state=state,
                producer_id=7 + number,
                producer_epoch=3,
            )


def test_waits_until_the_markers_of_all_are_written() -> None:
    slow: list[str | type[Exception]] = ["PrepareCommit", "PrepareCommit", "CompleteCommit"]
    client = SlowCoordinator(a=["CompleteCommit"], b=slow, c=["PrepareAbort", "CompleteAbort"], d=["Ongoing"])
    wait_until_visible(client, ["a", "b", "c", "d", "nobody"])
    assert client.asked == [["a", "b", "c", "d", "nobody"], ["b", "c"], ["b"]]
    wait_until_visible(client, [])
    assert len(client.asked) == 3


@pytest.mark.slow
@pytest.mark.parametrize("state", ["PrepareCommit", errors.NodeNotReadyError, errors.IncompatibleBrokerVersion])
def test_what_cannot_be_told_is_no_error(state: str | type[Exception]) -> None:
    client = SlowCoordinator(50, a=[state])
    wait_until_visible(client, ["a"])
    assert client.asked


def test_producers() -> None:
    client = SlowCoordinator(a=["Ongoing"], b=["Empty"])
    assert producers_of(client, ["a", "nobody", "b"]) == {"a": (7, 3), "b": (9, 3)}
    assert producers_of(SlowCoordinator(a=[errors.IncompatibleBrokerVersion]), ["a"]) is None
