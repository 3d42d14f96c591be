"""`odradek pipeline`: checks and runs Spark pipelines, from topics through SQL to sinks, exactly once."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from odradek.cli.app import ExitCode, describe, fail, printable, report
from odradek.cli.options import FORMAT, Existing
from odradek.cli.record_json import to_json
from odradek.errors import FormatError

if TYPE_CHECKING:
    from odradek.spark.pipeline import BatchReport

FOLLOW_INTERVAL_MS = 1000


@click.group()
def command() -> None:
    """Check and run Spark pipelines over topics.

    Example: odradek pipeline check examples/wordcount.toml
    """


@command.command()
@click.argument("file", type=Existing(folder=False))
@FORMAT
def check(file: Path, form: str) -> int:
    """Check the job that FILE describes, in a second or two, without starting Spark.

    The check covers keys, the offset store, topics, SQL, views and columns; it asks the store and brokers with a short
    timeout. Findings go to stdout, one line each; the exit code is 1 if there are any.

    Example: odradek pipeline check examples/wordcount.toml
    """
    from odradek.spark.pipeline.check import check_job

    try:
        findings = check_job(file)
    except FormatError as error:
        # A file that is not text is an input error, not a finding.
        fail(describe(error), ExitCode.INPUT_OUTPUT)
    for finding in findings:
        if form == "jsonl":
            fields = {"file": str(finding.path), "line": finding.line, "key": finding.key, "reason": finding.reason}
            click.echo(to_json(fields))
        else:
            click.echo(printable(str(finding)))
    if form == "text" and not findings:
        report(f"{file}: nothing wrong was found")
    return ExitCode.FINDINGS if findings else ExitCode.CLEAN


@command.command()
@click.argument("file", type=Existing(folder=False))
@click.option(
    "--follow", type=click.IntRange(min=1), metavar="SECONDS", help="Continue for this long after the first batch."
)
@FORMAT
def run(file: Path, follow: int | None, form: str) -> None:
    """Run the job that FILE describes.

    Without a trigger interval in FILE the job ends when it has read what is there now; with --follow it continues with
    new records. Ctrl-C and SIGTERM finish the current batch; a second one does not wait for it.

    Example: odradek pipeline run examples/wordcount.toml --follow 60
    """
    from odradek.cli.pipeline_report import RunReport
    from odradek.spark.pipeline import Job

    job = Job.read(file)
    if follow is not None:
        job = replace(job, trigger_interval_ms=job.trigger_interval_ms or FOLLOW_INTERVAL_MS)
    report = RunReport(job.name, jsonl=form == "jsonl")
    report.step("loading Spark ...")
    with report:
        from odradek.spark.pipeline import Pipeline

        pipeline = Pipeline(job, on_step=report.step, console=report.sink_console)
        end = threading.Timer(follow or 0, pipeline.stop)
        end.daemon = True

        def stop(number: int, frame: FrameType | None) -> None:
            pipeline.stop()
            signal.signal(number, signal.SIG_DFL)
            # The signal may interrupt a print of the console: another print from here would repeat it.
            os.write(2, f"{signal.Signals(number).name}: stopping after this batch\n".encode())

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)

        def on_batch(batch: BatchReport) -> None:
            report.batch(batch)
            if follow is not None and batch.number == 1:
                end.start()

        try:
            pipeline.run(on_batch)
        finally:
            end.cancel()
    report.end(job, pipeline.positions)


@command.command(short_help="Merge the small Parquet files of a job.")
@click.argument("file", type=Existing(folder=False))
@click.option("--target-mb", type=click.IntRange(min=1), default=128, show_default=True, help="How large files become.")
@FORMAT
def compact(file: Path, target_mb: int, form: str) -> None:
    """Merge the small Parquet files of the job that FILE describes, while it does not run.

    Example: odradek pipeline compact examples/wordcount.toml --target-mb 256
    """
    from odradek.spark.pipeline import Job
    from odradek.spark.pipeline.job import ParquetSinkSpec
    from odradek.spark.pipeline.merging import compact as merge

    for sink in Job.read(file).sinks:
        if isinstance(sink, ParquetSinkSpec):
            merged, made = merge(sink.path, target_mb << 20)
            if form == "jsonl":
                fields = {"path": str(sink.path), "merged": merged, "made": made}
                click.echo(to_json(fields))
            else:
                click.echo(printable(f"{sink.path}: {merged} files merged into {made}"))
