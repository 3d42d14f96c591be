"""The `odradek` command: one module for each command, imported only when it is used.

    exit code    0 clean    1 findings (damage, gaps)    2 usage    3 input or output    130 interrupted

A command returns its exit code (None is 0) and raises errors. Only this module turns an error into one line on stderr
and an exit code. No input ends in a traceback.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from odradek.cli.streams import OutputError, ReaderGoneError, drop_output, flush_output, open_output
from odradek.errors import FormatError, OdradekError, OptionError, TimestampWarning
from odradek.extras import missing_package
from odradek.printable import printable
from odradek.version import VERSION

if TYPE_CHECKING:
    from odradek.inspection.finding import Finding

COMMANDS = {
    "backup": "Copy a log directory while a broker goes on writing it.",
    "conformance": "Check that a broker answers as Apache Kafka does.",
    "dump": "Show what the files of a log hold.",
    "explain": "Say where the record of an offset lies, and who is given it.",
    "export": "Write records into Parquet, Arrow, JSON lines or CSV.",
    "grep": "Find records by a pattern or a condition.",
    "groups": "List, describe and delete groups: members, offsets, lag.",
    "import": "Write what was exported, or JSON lines, into a folder or a broker.",
    "mcp": "Serve tools for agents that look at a log directory or a broker.",
    "offsets": "Show and set where readers keep their place.",
    "pipeline": "Check, run and watch Spark pipelines over topics.",
    "produce": "Append records from stdin to a topic.",
    "replay": "Write the records of a folder or a broker into another.",
    "restore": "Write a backup into a new log directory.",
    "salvage": "Write what is sound in a damaged log into a new one.",
    "serve": "Run a broker over a log directory.",
    "sql": "Query the topics of a log directory in SQL.",
    "stat": "Say how much there is in logs, of what kind, and when it was written.",
    "tail": "Show the last records of each partition, and those that come.",
    "topics": "List, describe, create, alter and delete topics.",
    "ui": "Look at a log directory or a broker in the browser.",
    "users": "List, add and remove users who log in by SCRAM.",
    "verify": "Verify the files of a log.",
}
"""The commands and their lines in `odradek --help`; the module of that name in this package defines `command`."""

_MODULES = {"import": "import_"}
"""The modules of commands whose names are keywords of Python."""


TOKEN_VARIABLE = "ODRADEK_CONTROL_TOKEN"  # noqa: S105 - the variable's name
"""Names what the control of a broker asks for."""

MCP_TOKEN_VARIABLE = "ODRADEK_MCP_TOKEN"  # noqa: S105 - the variable's name
"""Names what tools over HTTP ask their callers for."""

UI_PASSWORD_VARIABLE = "ODRADEK_UI_PASSWORD"  # noqa: S105 - the variable's name
"""Names what the console asks its readers for."""


class ExitCode(IntEnum):
    """How a command ended."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    INPUT_OUTPUT = 3
    INTERRUPTED = 130


class SignalInterrupt(KeyboardInterrupt):
    """SIGTERM or SIGHUP, which end also what Ctrl-C only takes back to a prompt."""


def fail(message: str, code: ExitCode) -> NoReturn:
    """Print one line on stderr and leave with `code`."""
    report(message)
    sys.exit(code)


def report(message: str) -> None:
    """Print the message on stderr, as one line."""
    click.echo(f"odradek: {printable(message)}", err=True)


def _showing_ours(show_other: Callable[..., None]) -> Callable[..., None]:
    """Return a `warnings.showwarning` that prints our warnings as one line, and passes on all others."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, TimestampWarning):
            report(str(message))
        else:
            show_other(message, category, *place, **more)

    return show


def describe(error: BaseException) -> str:
    """Return what went wrong as one line."""
    if isinstance(error, OSError) and error.strerror:
        # `io.FileIO` puts the `Path` itself into the error, not its text.
        name = str(error.filename) if isinstance(error.filename, str | os.PathLike) else None
        if isinstance(error, FileNotFoundError) and name is None:
            # This is the system's error when the working directory is gone.
            name = "the working directory"
        return f"{name}: {error.strerror}" if name else error.strerror
    if isinstance(error, ModuleNotFoundError):
        return missing_package(error)
    if isinstance(error, RecursionError):
        return "the input is nested too deeply to be read"
    return str(error) or type(error).__name__


def exit_code(error: Exception) -> ExitCode:
    """Return the exit code of a command that an error ended."""
    if isinstance(error, FormatError):
        return ExitCode.FINDINGS
    return ExitCode.USAGE if isinstance(error, OptionError) else ExitCode.INPUT_OUTPUT


def code_of(findings: Iterable[Finding]) -> ExitCode:
    """Return the exit code that findings make."""
    from odradek.inspection.finding import FindingKind

    codes = (ExitCode.INPUT_OUTPUT if found.kind is FindingKind.UNREADABLE else ExitCode.FINDINGS for found in findings)
    return max(codes, default=ExitCode.CLEAN)


class Application(click.Group):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"odradek.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named; a misspelt one is an error that names the nearest."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches  # takes 10 ms, needed only for a mistake

            near = get_close_matches(name, COMMANDS, n=1)
            ctx.fail(f"No such command {name!r}.{f' Did you mean {near[0]!r}?' if near else ''}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in sorted(COMMANDS)])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the options; `--help` and its like are done here."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except KeyboardInterrupt as error:
            raise click.Abort from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would turn it into exit code 1, which means findings here.
            raise ReaderGoneError from error
        except KeyboardInterrupt as error:
            # click would print an empty line first.
            raise click.Abort from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run, and turn every error into a line and an exit code; the program ends with it."""
        if sys.stderr is None:
            sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (until the program ends)
        if sys.stdout is None:
            fail("stdout is closed", ExitCode.INPUT_OUTPUT)
        open_output()
        if not logging.getLogger().handlers:
            # Client libraries log every attempt; we print the outcome in one line.
            logging.getLogger().addHandler(logging.NullHandler())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default", TimestampWarning)
                warnings.showwarning = _showing_ours(warnings.showwarning)
                code = self._run(args, prog_name, complete_var, windows_expand_args, extra)
            flush_output()
        except (KeyboardInterrupt, click.Abort):
            # The rest of the output may have no reader.
            drop_output()
            fail("interrupted", ExitCode.INTERRUPTED)
        except ReaderGoneError:
            # The reader of our output has disconnected.
            drop_output()
            code = ExitCode.INPUT_OUTPUT
        except OutputError as error:
            drop_output()
            fail(str(error), ExitCode.INPUT_OUTPUT)
        sys.exit(code)

    def _run(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        windows_expand_args: bool,
        extra: dict[str, Any],
    ) -> int:
        """Run the command, say what went wrong, and return the exit code."""
        try:
            code = super().main(
                args, prog_name, complete_var, standalone_mode=False, windows_expand_args=windows_expand_args, **extra
            )
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            return ExitCode.USAGE
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "odradek"
            told = printable(error.format_message())
            stop = "" if told.endswith((".", "?", "?)")) else "."
            click.echo(f"{path}: {told}{stop} See {path} --help", err=True)
            return ExitCode.USAGE
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        except UnicodeError as error:
            # An argument has bytes that are not UTF-8, which only a path may have.
            report(f"{error.object[:100]!r} is not UTF-8" if isinstance(error, UnicodeEncodeError) else str(error))
            return ExitCode.USAGE
        except (OdradekError, OSError, ImportError, RecursionError) as error:
            report(describe(error))
            return exit_code(error)
        return code if isinstance(code, int) else ExitCode.CLEAN


@click.group(cls=Application, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="odradek", message="%(prog)s %(version)s")
def main() -> None:
    """Odradek reads, verifies, repairs and serves the log directories of Apache Kafka.

    Exit codes: 0 clean, 1 findings (damage, gaps), 2 usage, 3 input or output, 130 interrupted.

    Example: odradek topics /var/lib/kafka/data
    """
