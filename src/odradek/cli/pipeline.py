"""`odradek pipeline`: checks, runs and watches Spark pipelines, from topics through SQL to sinks, exactly once."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import FrameType

import click

from odradek.cli.app import ExitCode, describe, fail, printable, report
from odradek.cli.options import FORMAT, Existing
from odradek.cli.progress import progress
from odradek.errors import FormatError, JobError, OdradekError
from odradek.inspection.record_json import to_json

FOLLOW_INTERVAL_MS = 1000
_JAVA_TRACE = "spark.sql.pyspark.jvmStacktrace.enabled"


@click.group()
def command() -> None:
    """Check, run and watch Spark pipelines over topics.

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
    "--follow", type=click.IntRange(min=1), metavar="SECONDS", help="Continue for this long after what is there now."
)
@click.option("--debug", is_flag=True, help="Print Spark's own trace of an error, too.")
@FORMAT
def run(file: Path, follow: int | None, debug: bool, form: str) -> None:
    """Run the job that FILE describes.

    Without a trigger interval in FILE the job ends when it has read what is there now; with --follow it continues with
    new records. Ctrl-C and SIGTERM finish the current batch; a second one does not wait for it.

    Example: odradek pipeline run examples/wordcount.toml --follow 60
    """
    from odradek.cli.pipeline_report import RunReport
    from odradek.spark.pipeline import Job
    from odradek.spark.pipeline.job import located, read_job

    job = Job.read(file)
    text = read_job(file)
    if follow is not None:
        job = replace(job, trigger_interval_ms=job.trigger_interval_ms or FOLLOW_INTERVAL_MS)
    if debug:
        job = replace(job, spark_conf={_JAVA_TRACE: "true", **job.spark_conf})
    report = RunReport(job.name, jsonl=form == "jsonl")
    report.step("loading Spark ...")
    with report:
        from odradek.spark.pipeline import Pipeline
        from odradek.spark.pipeline.session import silence_error_log

        silence_error_log()
        pipeline = Pipeline(job, on_step=report.step, console=report.sink_console)

        def stop(number: int, frame: FrameType | None) -> None:
            pipeline.stop()
            signal.signal(number, signal.SIG_DFL)
            # The signal may interrupt a print of the console: another print from here would repeat it.
            os.write(2, f"{signal.Signals(number).name}: stopping after this batch\n".encode())

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)

        try:
            pipeline.run(report.batch, follow_s=follow)
        except OdradekError as error:
            if debug:
                report.trace(error)
            if isinstance(error, JobError) and error.key is not None:
                raise located(file, text, error) from error
            raise
    report.end(job, pipeline.positions)


@command.command()
@click.argument("file", type=Existing(folder=False))
@FORMAT
def status(file: Path, form: str) -> int:
    """Show how far the job that FILE describes is, whether it runs or not: positions, lag, last batch, last error.

    The offset store and the source are asked; no Spark is started. The exit code is 1 if the last run ended with an
    error, if the source does not answer, or if the next batch cannot be read.

    Example: odradek pipeline status examples/wordcount.toml
    """
    from odradek.cli.pipeline_report import show_status
    from odradek.spark.pipeline import Job
    from odradek.spark.pipeline.status import job_status

    with progress("status"):
        found = job_status(Job.read(file))
    show_status(found, jsonl=form == "jsonl")
    return ExitCode.CLEAN if found.is_well else ExitCode.FINDINGS


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
