"""`odradek pipeline`: Spark reads topics, SQL makes something of them, sinks keep it, and nothing is done twice."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.table import Table


@click.group()
def command() -> None:
    """Run Spark pipelines over topics."""


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def run(file: Path) -> None:
    """Run the job that FILE describes.

    Ctrl-C and SIGTERM finish the batch that is being done.
    """
    from odradek.spark.pipeline import BatchReport, Job, Pipeline
    from odradek.spark.pipeline.job import ParquetSinkSpec

    console = Console()
    job = Job.read(file)
    pipeline = Pipeline(job)

    def stop(number: int, frame: FrameType | None) -> None:
        console.print(f"{signal.Signals(number).name}: stopping after this batch")
        pipeline.stop()

    def report(batch: BatchReport) -> None:
        console.print(
            f"batch {batch.number}: {batch.offsets:,} offsets of {len(batch.ranges)} partition(s) "
            f"in {batch.seconds:.1f} s, {batch.lag:,} left"
        )

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    batches = pipeline.run(report)
    if not batches:
        console.print("nothing new: every partition is read up to its end")
    for sink in job.sinks:
        if isinstance(sink, ParquetSinkSpec):
            console.print(f"Parquet: {sink.path}", soft_wrap=True)
    table = Table(title="Offsets reached")
    for name in ("topic", "partition", "next offset"):
        table.add_column(name)
    for (topic, partition), position in sorted(pipeline.positions.items()):
        table.add_row(topic, str(partition), str(position.offset))
    console.print(table)
