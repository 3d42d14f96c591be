"""Progress is for terminals: on one it moves and leaves nothing, and anywhere else there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# Draws as soon as there is something to draw, and ends when it has been drawn.
PROGRAM = """
    import sys, threading
    from odradek.cli import progress
    progress.DELAY_S = 0
    drawn = threading.Event()
    def done():
        drawn.set()
        return 50_000
    with progress.progress("verify", lambda: 100_000, done):
        if progress.is_shown():
            assert drawn.wait(30)
            print("a finding", flush=True)
            print("a message", file=sys.stderr, flush=True)
    print("the end")
"""


def run_on_terminal(arguments: list[str], stdout: int | None = None, columns: int = 80) -> tuple[str, bytes]:
    """Run with a terminal as stderr, and as stdout if nothing else is given; return what came there, and the pipe's."""
    master, slave = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    with subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=slave if stdout is None else stdout, stderr=slave, env=environment
    ) as process:
        os.close(slave)
        shown = bytearray()
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        piped = b"" if process.stdout is None else process.stdout.read()
        assert process.wait(60) == 0, shown.decode()
    os.close(master)
    return shown.decode(), piped


def program(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 20, 1])
def test_a_terminal_is_shown_a_bar_and_what_is_printed(columns: int) -> None:
    shown, _ = run_on_terminal(program(PROGRAM), columns=columns)
    assert "a finding" in shown
    assert "a message" in shown
    assert shown.endswith("the end\r\n")
    assert "Traceback" not in shown
    if columns == 80:
        assert "verify" in shown
        assert "50.0/100.0 kB" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('"import", lambda: 0, done, "records"', ["50000/?", "0:00:00"]),
        ('"sql"', ["sql", "0:00:00"]),
        ('"backup", lambda: 100_000, done', ["50.0/100.0 kB", "-:--:--"]),
    ],
)
def test_what_is_shown_without_a_total(arguments: str, expected: list[str]) -> None:
    shown, _ = run_on_terminal(
        program(f"""
            import threading
            from odradek.cli import progress, progress_bar
            progress.DELAY_S = 0
            drawn = threading.Event()
            draw = progress_bar.ProgressBar.get_renderables
            def drawing(bar):
                drawn.set()
                return draw(bar)
            progress_bar.ProgressBar.get_renderables = drawing
            def done():
                return 50_000
            with progress.progress({arguments}):
                assert drawn.wait(30)
        """)
    )
    for part in expected:
        assert part in shown


@pytest.mark.slow
def test_the_rate_is_shown() -> None:
    shown, _ = run_on_terminal(
        program("""
            import itertools, threading
            from odradek.cli import progress
            progress.DELAY_S = 0
            drawn = threading.Event()
            count = itertools.count()
            def done():
                number = next(count)
                if number > 10:
                    drawn.set()
                return number * 1000
            with progress.progress("replay", lambda: 1_000_000, done, "records"):
                assert drawn.wait(30)
        """)
    )
    assert "records/s" in shown


@pytest.mark.slow
def test_stdout_in_a_file_gets_no_bar(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        shown, _ = run_on_terminal(program(PROGRAM), stdout=file.fileno())
    assert "50.0/100.0 kB" in shown
    assert (tmp_path / "out").read_text() == "a finding\nthe end\n"


def test_a_pipe_gets_no_bar_and_neither_does_the_terminal() -> None:
    shown, piped = run_on_terminal(program(PROGRAM), stdout=subprocess.PIPE)
    assert (shown, piped) == ("", b"the end\n")


def test_no_terminal_no_bar() -> None:
    result = subprocess.run(program(PROGRAM), capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "the end\n", "")


@pytest.mark.slow
def test_without_the_package_that_draws_it_nothing_is_shown() -> None:
    shown, _ = run_on_terminal(
        program("""
            import sys, threading
            sys.modules["rich"] = None
            from odradek.cli import progress
            progress.DELAY_S = 0
            with progress.progress("verify"):
                for thread in threading.enumerate():
                    if isinstance(thread, threading.Timer):
                        thread.join()
            print("the end")
        """)
    )
    assert shown == "the end\r\n"
