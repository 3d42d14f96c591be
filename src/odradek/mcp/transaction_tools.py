"""The tool that shows writers: transactions that are open, hang or were aborted, and the ids of their producers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.coordination.transactions.metadata import TransactionMetadata
from odradek.mcp.answer import Answer, place_number
from odradek.mcp.tool import COUNT, TEXT, Call, several, shape, tool, untrusted
from odradek.mcp.untrusted import visible_id
from odradek.places.place import Place
from odradek.records.timestamps import iso_text, now_ms
from odradek.sources.transactions import is_hanging, open_transactions, transaction_states
from odradek.storage.names import TopicPartition

_MOST_PARTITIONS = 20
_HEADER_BYTES = 1 << 16


@tool(
    "transactions",
    "Show transactions: those that are open in a log (and whether they hang), those that were aborted, and the state "
    "of each transactional id.",
    {"topic": TEXT, "partition": COUNT, "transactional_id": TEXT},
    shape(
        "kind:kind topic:text? partition:count? producer_id:int producer_epoch:int|null first_offset:count? "
        "marker_offset:count? marker_epoch:int|null? is_hanging:flag? is_fenced:flag|null? state:text? timeout_ms:int? "
        "last_update:text? began:text|null? partitions:texts? untrusted:id",
        kind={"enum": ["open", "aborted", "id"]},
        texts=several(TEXT),
        id=untrusted("transactional_id:text|null"),
    ),
)
def _transactions(call: Call, arguments: dict[str, Any], answer: Answer) -> None:
    first, wanted = place_number(arguments.get("cursor")), arguments.get("transactional_id")
    with call.place() as place:
        names = place.choose(arguments.get("topic"), arguments.get("partition"))
        look = _Look(call, place, answer)
        items = (item for item in look.items(names) if wanted in (None, item["untrusted"]["transactional_id"]))
        # Those before the first one are found again: their number is all that a cursor knows.
        answer.add_all((item for number, item in enumerate(items) if number >= first), first, "transactions")
    if not answer.items and not first:
        answer.note("no open or aborted transaction, and no transactional id")


class _Look:
    """What one call finds."""

    def __init__(self, call: Call, place: Place, answer: Answer) -> None:
        self._call = call
        self._place = place
        self._answer = answer
        self._states: dict[str, TransactionMetadata] = {}
        self._ids: dict[int, str] = {}

    def items(self, names: list[TopicPartition]) -> Iterator[dict[str, Any]]:
        """Yield the transactions of partitions, and then the transactional ids."""
        self._states = transaction_states(self._place, self._answer.note, self._call.check)
        self._ids = {state.producer_id: name for name, state in self._states.items()}
        for name in names:
            self._call.check()
            yield from self._open(name)
            yield from self._aborted(name)
        for transactional_id, state in self._states.items():
            yield {
                "kind": "id",
                "producer_id": state.producer_id,
                "producer_epoch": state.producer_epoch,
                "state": state.state.name,
                "timeout_ms": state.timeout_ms,
                "last_update": iso_text(state.last_update_ms),
                "began": iso_text(state.start_ms) if state.start_ms > 0 else None,
                "partitions": [str(one) for one in sorted(state.partitions)[:_MOST_PARTITIONS]],
                "untrusted": {"transactional_id": visible_id(transactional_id)},
            }

    def _item(self, kind: str, name: TopicPartition, producer_id: int, offset: int, **more: Any) -> dict[str, Any]:
        return {
            "kind": kind,
            "topic": name.topic,
            "partition": name.partition,
            "producer_id": producer_id,
            "first_offset": offset,
            "untrusted": {"transactional_id": visible_id(self._ids.get(producer_id))},
            **more,
        }

    def _open(self, name: TopicPartition) -> Iterator[dict[str, Any]]:
        for _, producer_id, epoch, offset in open_transactions(self._place, name, self._call.check):
            state = self._states.get(self._ids.get(producer_id, ""))
            hangs = is_hanging(name, state, now_ms())
            if hangs:
                why = "no transactional id has its producer"
                if state is not None:
                    why = f"its id is {state.state.name} since {iso_text(state.last_update_ms)}"
                start = f"--topic {name.topic} --partition {name.partition} --start-offset {offset}"
                self._answer.note(f"{name}: the one since {offset} hangs, nobody ends it: {why}")
                self._answer.note(f"kafka-transactions.sh abort {start} ends it")
            yield self._item("open", name, producer_id, offset, producer_epoch=epoch, is_hanging=hangs)
            where = {"topic": name.topic, "partition": name.partition}
            self._answer.hint("get", "its first records", **where, offset=offset, limit=2)
            self._answer.hint("groups_and_lag", "which groups wait for it", topic=name.topic)

    def _aborted(self, name: TopicPartition) -> Iterator[dict[str, Any]]:
        spans: set[tuple[int, int, int]] = set()
        bounds = self._place.bounds(name, "read_committed")
        if bounds.start_offset < bounds.end_offset:
            for part in self._place.slices(name, isolation="read_committed"):
                self._call.check()
                spans.update((one[0], one[1], one[2]) for one in part.aborted)
        for producer_id, offset, marker in sorted(spans, key=lambda span: span[1]):
            self._call.check()
            data = None if offset < bounds.start_offset else self._epoch(name, offset)
            end = self._epoch(name, marker)
            fenced = self._is_fenced(producer_id, data, end)
            yield self._item(
                "aborted", name, producer_id, offset,
                marker_offset=marker, producer_epoch=data, marker_epoch=end, is_fenced=fenced,
            )  # fmt: skip
            if fenced:
                self._answer.note(
                    f"{name}: the marker at {marker} has a newer epoch than its records: the producer was fenced (a "
                    "zombie), by another one with its transactional id, or timed out"
                )
            where = {"topic": name.topic, "partition": name.partition}
            self._answer.hint("get", "what was aborted", **where, offset=offset, limit=2)

    def _epoch(self, name: TopicPartition, offset: int) -> int | None:
        """Return the epoch of the producer of an offset."""
        for part in self._place.slices(name, offset, offset + 1, slice_bytes=_HEADER_BYTES):
            for table, _ in part.tables(lambda damage: None):
                for header in table.headers():
                    if header.base_offset <= offset <= header.last_offset:
                        return header.producer_epoch
        return None

    def _is_fenced(self, producer_id: int, data: int | None, end: int | None) -> bool | None:
        """Whether a marker has a newer epoch than its records; None if that says nothing, or is not known."""
        state = self._states.get(self._ids.get(producer_id, ""))
        # From transaction.version 2 on, every end of a transaction has a new epoch.
        if data is None or end is None or (state is not None and state.client_version >= 2):
            return None
        return end > data
