"""Runs every example of the documentation, and holds the list of commands against it.

`python` blocks of a page run one after the other in one namespace; `console` blocks run their `$ odradek` lines and
compare what is printed, where a line of `...` stands for any lines. A `toml` block whose first line is a comment with a
name becomes the file of that name. `data` is a log directory that Kafka 4.3.1 wrote.
A block whose first line says `python spark` is given a Spark session, and run where those are.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

import odradek.spark
from odradek.cli.app import COMMANDS, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<needs>\w+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    needs: str | None
    text: str


def blocks(page: Path) -> list[Block]:
    return [
        Block(*match.group("language", "needs", "text")) for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def run_console(text: str) -> None:
    commands = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    assert commands, f"nothing to run in:\n{text}"
    for command in commands:
        line, _, expected = command.partition("\n")
        program, *arguments = shlex.split(line)
        assert program == "odradek", line
        # As a shell would.
        paths = [str(path) for word in arguments for path in (sorted(Path().glob(word)) if "*" in word else [word])]
        result = CliRunner().invoke(main, paths)
        assert result.exit_code in (0, 1), result.output
        parts = (re.escape(part) for part in re.split(r"^\.\.\.\n", expected, flags=re.MULTILINE))
        assert re.fullmatch("(?:.*\n)*".join(parts), result.output), f"{line} prints:\n{result.output[:2000]}"


def run_page(page: Path, namespace: dict[str, object]) -> None:
    for block in blocks(page):
        if block.needs is not None and block.needs not in namespace:
            continue
        if block.language == "python":
            exec(compile(block.text, page.name, "exec"), namespace)
        elif block.language == "console":
            run_console(block.text)
        elif block.language == "toml":
            assert tomllib.loads(block.text)
            name = re.match(r"# (\w+\.toml)\n", block.text)
            if name:
                Path(name[1]).write_text(block.text, encoding="utf-8")


@pytest.fixture
def data(writable_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(writable_log_dir.rename(writable_log_dir.with_name("data")).parent)


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_examples(page: Path) -> None:
    run_page(page, {"__name__": "example"})


@pytest.mark.spark
@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.needs == "spark" for block in blocks(page))],
    ids=lambda page: page.name,
)
def test_examples_with_spark(page: Path) -> None:
    spark = odradek.spark.session(master="local[1]")
    try:
        run_page(page, {"__name__": "example", "spark": spark})
    finally:
        spark.stop()


def section(command: str) -> str:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    _, heading, rest = text.partition(f"\n## odradek {command}\n")
    assert heading, f"docs/cli.md has no section on odradek {command}"
    return rest.partition("\n## ")[0]


def options_of(name: str, command: click.Command, documented: str) -> set[str]:
    if isinstance(command, click.Group):
        found: set[str] = set()
        for word, part in command.commands.items():
            assert f"`odradek {name} {word}" in documented, f"docs/cli.md does not tell of odradek {name} {word}"
            found |= options_of(f"{name} {word}", part, documented)
        return found
    return {option for parameter in command.params for option in parameter.opts if option.startswith("--")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    documented = section(name)
    options = options_of(name, command, documented)
    assert {option for option in options if not re.search(rf"`{option}\b", documented)} == set()
    unknown = set(re.findall(r"`(--[a-z-]+)", documented)) - options - {"--help"}
    assert not unknown, f"documented, but not there: {unknown}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_is_theirs(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.get_short_help_str(200)
    assert COMMANDS[name].endswith(".")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target
