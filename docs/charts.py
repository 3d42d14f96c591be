"""Draws the charts of docs/benchmarks.md from the tables of that page and of docs/spark/reading.md.

python docs/charts.py

Nothing is measured; another run gives the same files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

DOCS = Path(__file__).parent
CHARTS = DOCS / "charts"

_COLORS = ("#2f6f9f", "#b8860b", "#7a9e7e", "#999999")
_WIDTH, _LEFT, _RIGHT = 760, 190, 70
_BAR, _GAP, _TOP = 15, 12, 66


class Chart(NamedTuple):
    """Bars side by side.

    Attributes:
        title: What is shown.
        unit: The unit, and whether more or less is better.
        series: The name of each bar of a group.
        groups: The name of each group, and its bars.
    """

    title: str
    unit: str
    series: Sequence[str]
    groups: Mapping[str, Sequence[float]]


def tables(page: str) -> Iterator[list[dict[str, str]]]:
    """Yield the tables of a page; each row is a dict by column."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        # A bar within a cell is escaped.
        lines = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])] for line in block.splitlines()]
        yield [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def rows(page: str, column: str) -> list[dict[str, str]]:
    """Return the rows of the one table that has a column."""
    found = [table for table in tables(page) if table and column in table[0]]
    assert len(found) == 1, f"{len(found)} tables of {page} have the column {column}"
    return found[0]


def number(text: str) -> float:
    """Return a figure of a table."""
    return float(text.replace(",", "").rstrip("%"))


def _decoding(batch: str, codec: str) -> dict[str, str]:
    found = rows("benchmarks.md", "copied GB/s")
    return next(row for row in found if (row["value x batch"], row["codec"]) == (batch, codec))


def charts() -> dict[str, Chart]:
    """Return the charts, by the names of their files."""
    plain = {f"values of {size}": _decoding(f"{size} x 1000", "none") for size in ("20 B", "200 B", "2000 B")}
    codecs = {codec: _decoding("200 B x 1000", codec) for codec in ("gzip", "snappy", "lz4", "zstd")}
    broker = {
        f"{row['value x batch'].split(' x')[0]}, {row['codec']}": row
        for row in rows("benchmarks.md", "confluent-kafka M/s")
    }
    appends = {
        row["append of ready batches"].split("of ")[1]: row
        for row in rows("benchmarks.md", "append of ready batches")
        if row["append of ready batches"].startswith("as a leader")
    }
    compaction = rows("benchmarks.md", "cleaned MB/s")
    spark = rows("spark/reading.md", "Apache Kafka, narrowed")
    connector = rows("spark/reading.md", "time, by the connector's")
    return {
        "decoding": Chart(
            "Plain batches of 1,000 records to Arrow, beside a copy of the same bytes",
            "GB/s, more is better",
            ("copied", "views", "memcpy"),
            {
                name: [number(row["copied GB/s"]), number(row["views GB/s"]), number(row["memcpy or codec GB/s"])]
                for name, row in plain.items()
            },
        ),
        "codecs": Chart(
            "Compressed batches of 1,000 records of 200 bytes to Arrow, beside the codec alone",
            "GB/s, more is better",
            ("copied", "views", "the codec alone"),
            {
                name: [number(row["copied GB/s"]), number(row["views GB/s"]), number(row["memcpy or codec GB/s"])]
                for name, row in codecs.items()
            },
        ),
        "broker": Chart(
            "Records from an Apache Kafka on the same machine",
            "million records a second, more is better",
            ("Odradek", "aiokafka", "confluent-kafka"),
            {
                name: [number(row[column]) for column in ("ours M/s", "aiokafka M/s", "confluent-kafka M/s")]
                for name, row in broker.items()
            },
        ),
        "append": Chart(
            "Append of ready batches, checked as a leader does, beside a plain write",
            "MB/s, more is better",
            ("append", "plain write"),
            {name: [number(row["MB/s"]), number(row["plain write, MB/s"])] for name, row in appends.items()},
        ),
        "compaction": Chart(
            "Compaction, beside Apache Kafka's own cleaner on the same segments",
            "MB/s, more is better",
            ("Odradek", "Apache Kafka"),
            {
                row["values, records a batch, codec"]: [number(row["cleaned MB/s"]), number(row["Kafka"])]
                for row in compaction
            },
        ),
        "spark": Chart(
            "Spark jobs over a topic, as time in relation to Parquet's",
            "times the time for Parquet, less is better",
            ("from a folder", "from Apache Kafka"),
            {
                row[""].strip("`"): [number(row["folder, narrowed"]), number(row["Apache Kafka, narrowed"])]
                for row in spark
            },
        ),
        "connector": Chart(
            "Spark jobs over an Apache Kafka, in relation to Spark's own connector",
            "1 is the connector, less is better",
            ("time", "processor time"),
            {
                row["job"].split(",")[0].strip("`"): [
                    number(row[f"{kind}, by the connector's"]) for kind in ("time", "processor time")
                ]
                for row in connector
            },
        ),
    }


def draw(chart: Chart) -> str:
    """Return a chart as SVG."""
    longest = max(value for values in chart.groups.values() for value in values)
    scale = (_WIDTH - _LEFT - _RIGHT) / longest
    parts = [
        f'<text x="16" y="24" font-size="15" font-weight="bold">{escape(chart.title)}</text>',
        f'<text x="16" y="46" fill="#555">{escape(chart.unit)}</text>',
    ]
    x = _LEFT + 120
    for name, color in zip(chart.series, _COLORS, strict=False):
        parts.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{x + 17}" y="46">{escape(name)}</text>')
        x += 40 + 8 * len(name)
    y = _TOP
    for name, values in chart.groups.items():
        middle = y + _BAR * len(values) / 2 + 4
        parts.append(f'<text x="{_LEFT - 10}" y="{middle:g}" text-anchor="end">{escape(name)}</text>')
        for value, color in zip(values, _COLORS, strict=False):
            width = max(1.0, value * scale)
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 2}" fill="{color}"/>')
            parts.append(f'<text x="{_LEFT + width + 5:.1f}" y="{y + 11}" fill="#555">{value:,g}</text>')
            y += _BAR
        y += _GAP
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" font-size="12" '
        "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
        f'<rect width="{_WIDTH}" height="{y}" rx="8" fill="#fff"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    """Write all charts."""
    CHARTS.mkdir(exist_ok=True)
    for name, chart in charts().items():
        (CHARTS / f"{name}.svg").write_text(draw(chart), encoding="utf-8")


if __name__ == "__main__":
    main()
