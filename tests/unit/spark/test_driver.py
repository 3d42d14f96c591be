"""What a pipeline does before its first batch, where sinks hold records that the offset store knows nothing of."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from odradek.errors import SinkError
from odradek.offsets.store import Position
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.driver import Pipeline, _check_held
from odradek.spark.pipeline.sink import Sink
from odradek.spark.spark_session import session
from odradek.storage.names import TopicPartition

NAME = TopicPartition("events", 0)


class MemorySink(Sink):
    """A sink that holds one partition up to offset 5, and can forget it."""

    def __init__(self, on_held: str, topic_id: str | None = None) -> None:
        self.description = "a sink"
        self.on_held = on_held
        self._positions = {NAME: Position(5, topic_id=topic_id)}

    def positions(self) -> Mapping[TopicPartition, Position]:
        return self._positions

    def replay(self, starts: Mapping[TopicPartition, Position]) -> None:
        for name in starts:
            del self._positions[name]

    def write(self, batch: Batch) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


@pytest.mark.parametrize("wrong", [MemorySink("error"), MemorySink("skip", "another")])
def test_no_sink_forgets_anything_where_another_is_wrong(wrong: MemorySink) -> None:
    first = {NAME: Position(0, topic_id="this")}
    sinks = [MemorySink("replay"), wrong, MemorySink("replay")]
    with pytest.raises(SinkError):
        _check_held(sinks, first)
    assert all(sink.held(first) for sink in sinks)
    _check_held([sinks[0], sinks[2]], first)
    assert not any(sink.held(first) for sink in (sinks[0], sinks[2]))


def test_an_argument_of_a_wrong_type_is_named_before_spark_starts() -> None:
    with pytest.raises(TypeError, match=r"job must be a Job, .*not None \(NoneType\)"):
        Pipeline(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"master must be a str, not 5 \(int\)"):
        session(master=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="conf must be a mapping"):
        session(conf=["x"])  # type: ignore[arg-type]
