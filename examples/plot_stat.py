"""Draws the JSON lines of `odradek stat` as a picture: bytes and records over time, and the largest partitions.

odradek stat kafka-data --topic events --format jsonl | python examples/plot_stat.py events.png

Needs Matplotlib, which draws files without a screen: `pip install matplotlib`.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

from matplotlib.figure import Figure

MOST_BARS = 12


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"usage: odradek stat SOURCE --format jsonl | {sys.argv[0]} FILE.png or FILE.svg")
    lines: list[dict[str, Any]] = [json.loads(line) for line in sys.stdin]
    # Without its partition a line is about a whole topic.
    topics = [line for line in lines if line["partition"] is None]
    partitions = sorted((line for line in lines if line["partition"] is not None), key=lambda line: -line["bytes"])
    figure = Figure(figsize=(10, 9), layout="constrained")
    sizes, counts, largest = figure.subplots(3)
    for axes, column, name in ((sizes, 1, "Bytes"), (counts, 2, "Records")):
        axes.set_title(f"{name} written per second, by topic")
        for topic in topics:
            width_ms = topic["stretch_ms"]
            times = [datetime.fromtimestamp(stretch[0] / 1000, UTC) for stretch in topic["stretches"]]
            rates = [stretch[column] * 1000 / width_ms for stretch in topic["stretches"]]
            axes.step(times, rates, where="post", label=topic["topic"])
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", frameon=False)
    shown = partitions[:MOST_BARS]
    largest.set_title(f"Bytes of the {len(shown)} largest of {len(partitions)} partitions")
    bars = largest.barh([f"{line['topic']}-{line['partition']}" for line in shown], [line["bytes"] for line in shown])
    largest.bar_label(bars, fmt="{:,.0f}")
    largest.invert_yaxis()
    figure.savefig(sys.argv[1])


if __name__ == "__main__":
    main()
