"""The lowest sequence of each producer whose transaction is verified in a partition, and not open there yet (KIP-890).

If the coordinator cannot tell, the client sends the refused batch again. The batches that it sent after that one must
not be appended before it: the refused one could never follow them.

Source in Kafka: `VerificationStateEntry`, `ProducerAppendInfo.checkSequence`.
"""

from __future__ import annotations

from odradek.coordination.transactions.rules import ProducerIdAndEpoch
from odradek.errors import OutOfOrderSequenceNumberError

_MOST_PRODUCERS = 10_000


class LowestSequences:
    """The lowest sequences of a partition, by producer. It is not thread-safe."""

    def __init__(self) -> None:
        self._lowest: dict[int, tuple[int, int]] = {}

    def note(self, producer: ProducerIdAndEpoch, sequence: int) -> None:
        """Remember that a batch is about to be verified; a new epoch replaces what was known of the old one."""
        epoch, lowest = self._lowest.pop(producer.producer_id, (producer.producer_epoch, sequence))
        if producer.producer_epoch > epoch:
            epoch, lowest = producer.producer_epoch, sequence
        elif producer.producer_epoch == epoch:
            lowest = min(lowest, sequence)
        self._lowest[producer.producer_id] = epoch, lowest
        if len(self._lowest) > _MOST_PRODUCERS:
            del self._lowest[next(iter(self._lowest))]

    def check(self, producer: ProducerIdAndEpoch, sequence: int) -> None:
        """Check that no batch before a verified one still has to be appended.

        Raises:
            OutOfOrderSequenceNumberError: One was refused.
        """
        _, lowest = self._lowest.get(producer.producer_id, (0, sequence))
        if sequence > lowest:
            raise OutOfOrderSequenceNumberError(
                f"Out of order sequence number for producer {producer.producer_id}: "
                f"{sequence} (incoming seq. number), {lowest} (earliest seen sequence)"
            )

    def forget(self, producer_id: int) -> None:
        """Forget a producer: its transaction is open now, or ended."""
        self._lowest.pop(producer_id, None)
