"""`odradek pipeline`: checks, runs and watches Spark pipelines, from topics through SQL to sinks, exactly once."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from odradek.cli.app import ExitCode, describe, exit_code, fail, report
from odradek.cli.options import FORMAT, Existing
from odradek.cli.progress import progress
from odradek.errors import FormatError, JobError, OffsetStoreError
from odradek.inspection.record_json import to_json
from odradek.printable import printable

if TYPE_CHECKING:
    from odradek.spark.pipeline import BatchReport
    from odradek.spark.pipeline.job_file import JobFile

FOLLOW_INTERVAL_MS = 1000
_JAVA_TRACE = "spark.sql.pyspark.jvmStacktrace.enabled"
_JOB = click.option("--job", "name", metavar="NAME", help="Only this one of the jobs of FILE.")


@click.group()
def command() -> None:
    """Check, run and watch Spark pipelines over topics.

    Example: odradek pipeline check examples/wordcount.toml
    """


@command.command()
@click.argument("file", type=Existing(folder=False))
@FORMAT
def check(file: Path, form: str) -> int:
    """Check the jobs that FILE describes, in a second or two, without starting Spark.

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
            fields = {
                "file": str(finding.path),
                "line": finding.line,
                "job": finding.job,
                "key": finding.key,
                "reason": finding.reason,
            }
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
@_JOB
@click.option("--debug", is_flag=True, help="Print Spark's own trace of an error, too.")
@FORMAT
def run(file: Path, follow: int | None, name: str | None, debug: bool, form: str) -> int:
    """Run the jobs that FILE describes.

    Without a trigger interval in FILE a job ends when it has read what is there now; with --follow it continues with
    new records. Several jobs run one after another; if one has an interval, or with --follow, all at the same time.
    One that fails does not end the others. Ctrl-C and SIGTERM finish the current batch; a second one does not wait for
    it.

    Example: odradek pipeline run examples/wordcount.toml --follow 60
    """
    from odradek.cli.pipeline_report import RunReport

    found = _read(file, name)
    jobs = {}
    for job in found.jobs:
        if follow is not None:
            job = replace(job, trigger_interval_ms=job.trigger_interval_ms or FOLLOW_INTERVAL_MS)
        if debug:
            job = replace(job, spark_conf={_JAVA_TRACE: "true", **job.spark_conf})
        jobs[job.name] = job
    told = RunReport(list(jobs), jsonl=form == "jsonl")
    for each in told.jobs.values():
        each.step("loading Spark ...")
    failures: list[Exception] = []
    ended: list[str] = []
    with told:
        from odradek.spark.pipeline import Pipeline
        from odradek.spark.pipeline.job_runs import JobRuns, SharedSpark
        from odradek.spark.pipeline.session import silence_error_log

        silence_error_log()
        spark = SharedSpark(next(iter(jobs.values())), file.stem).session if len(jobs) > 1 else None
        pipelines = {
            job.name: Pipeline(job, spark, on_step=told.jobs[job.name].step, console=told.sink_console)
            for job in jobs.values()
        }
        runs = JobRuns(pipelines)

        def stop(number: int, frame: FrameType | None) -> None:
            runs.stop()
            signal.signal(number, signal.SIG_DFL)
            # Not by `print`: the signal may have interrupted one, whose text would then be printed twice.
            os.write(2, f"{signal.Signals(number).name}: stopping after this batch\n".encode())

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)

        def done(name: str, batch: BatchReport) -> None:
            told.jobs[name].batch(batch)

        def end(name: str, failure: Exception | None) -> None:
            if failure is None:
                ended.append(name)
                told.jobs[name].step("done")
                return
            if debug:
                told.jobs[name].trace(failure)
            if isinstance(failure, JobError) and (failure.key is not None or len(jobs) > 1):
                failure = found.located(list(jobs).index(name), failure)
                text = describe(failure)
            else:
                text = f"{file}: job {name}: {describe(failure)}"
            failures.append(failure)
            told.jobs[name].step("failed")
            if len(jobs) > 1:
                report(text)

        runs.run(done, end, follow_s=follow)
    if failures and len(jobs) == 1:
        raise failures[0]
    for job in jobs.values():
        if job.name in ended:
            told.jobs[job.name].end(job, pipelines[job.name].positions)
    return exit_code(failures[0]) if failures else ExitCode.CLEAN


def _read(file: Path, name: str | None) -> JobFile:
    """Read the jobs of a file, or one of them."""
    from odradek.spark.pipeline.job_file import JobFile

    found = JobFile.read(file)
    if name is None:
        return found
    try:
        return found.picked(name)
    except LookupError as error:
        raise click.UsageError(f"{file}: {error}") from error


@command.command()
@click.argument("file", type=Existing(folder=False))
@_JOB
@FORMAT
def status(file: Path, name: str | None, form: str) -> int:
    """Show how far the jobs that FILE describes are, whether they run or not: positions, lag, last batch, last error.

    The offset stores and the sources are asked; no Spark is started. The exit code is 1 if the last run of a job ended
    with an error, if its source does not answer, or if its next batch cannot be read.

    Example: odradek pipeline status examples/wordcount.toml
    """
    from odradek.cli.pipeline_report import show_status
    from odradek.spark.pipeline.status import job_status

    jobs = _read(file, name).jobs
    codes: list[ExitCode] = []
    for number, job in enumerate(jobs):
        try:
            with progress("status"):
                found = job_status(job)
        except OffsetStoreError as error:
            if len(jobs) == 1:
                raise
            report(f"job {job.name}: {describe(error)}")
            codes.append(exit_code(error))
            continue
        if number and form == "text":
            click.echo()
        show_status(found, jsonl=form == "jsonl")
        if not found.is_well:
            codes.append(ExitCode.FINDINGS)
    return codes[0] if codes else ExitCode.CLEAN


@command.command(short_help="Merge the small Parquet files of jobs.")
@click.argument("file", type=Existing(folder=False))
@click.option("--target-mb", type=click.IntRange(min=1), default=128, show_default=True, help="How large files become.")
@_JOB
@FORMAT
def compact(file: Path, target_mb: int, name: str | None, form: str) -> None:
    """Merge the small Parquet files of the jobs that FILE describes, while they do not run.

    Example: odradek pipeline compact examples/wordcount.toml --target-mb 256
    """
    from odradek.spark.pipeline.job import ParquetSinkSpec
    from odradek.spark.pipeline.merging import compact as merge

    for sink in (sink for job in _read(file, name).jobs for sink in job.sinks):
        if isinstance(sink, ParquetSinkSpec):
            merged, made = merge(sink.path, target_mb << 20)
            if form == "jsonl":
                fields = {"path": str(sink.path), "merged": merged, "made": made}
                click.echo(to_json(fields))
            else:
                click.echo(printable(f"{sink.path}: {merged} files merged into {made}"))
