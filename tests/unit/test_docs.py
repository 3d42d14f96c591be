"""Runs every example of the documentation, and holds the list of commands against it.

Each page of docs/ runs alone, from its first line on, in an empty directory; the pages of docs/cli, say, run after
docs/cli.md, in the order in which it lists them. The word after a block's language says more:

    ```python              run, one block after the other in one namespace
    ```console             each `$ ` line is run and what it prints compared; a line of `...` stands for any lines,
                           `...` in a line for the rest of it
    ```python spark        as without the word, where Spark may be started; likewise `console spark`, `console kafka`
    ```text                neither

A block of any language whose first line is a comment like `# job.toml` is written to that file and not run.
`$ODRADEK` is the folder of this repository. Commands that are only named, in indented blocks, are there.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from odradek.broker.config_providers import resolved
from odradek.broker.running import BrokerThread
from odradek.cli.app import COMMANDS, main
from odradek.kafka_version import KAFKA_VERSION, OLDER_KAFKA_VERSION
from odradek.storage.formats.meta_properties import parse_properties
from peers.certificates import make_certificate
from peers.jars import KeptClasses
from peers.kafka import QUICK_START
from peers.kafka_tools import KafkaTools
from peers.process import PATIENCE, free_port

ROOT = Path(__file__).parents[2]
FIRST_PAGES = sorted(path for folder in (ROOT, ROOT / "docs") for path in folder.glob("*.md"))
PAGES = sorted({*FIRST_PAGES, *(ROOT / "docs").rglob("*.md")})
_BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<needs>\w+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w-]+\.\w+)\n")
_COMMAND_TIMEOUT_S = 300 * PATIENCE


class Block(NamedTuple):
    language: str
    needs: str | None
    text: str

    @property
    def file(self) -> str | None:
        named = _FILE.match(self.text)
        return named[1] if named else None


def chapter(page: Path) -> list[Path]:
    """Return a page and those of the folder of its name, which its table lists in this order."""
    listed = re.findall(rf"^\| \[.+?\]\(({page.stem}/.+?)\)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [page, *(page.parent / name for name in listed)]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a chapter."""
    return [block for part in chapter(page) for block in blocks_of_one(part)]


def blocks_of_one(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [Block(*match.group("language", "needs", "text")) for match in _BLOCK.finditer(text)]
    assert len(found) * 2 == len(re.findall(r"^```", text, re.MULTILINE)), "a block that would not be run"
    return found


def run_command(line: str, *, most: int = 1) -> str:
    """Run a line of the command line, whose exit status is `most` at most, and return what it prints."""
    if re.search(r"^odradek [^|<>&;$]*$", line):
        # As a shell would, in this process.
        words = shlex.split(line)[1:]
        paths = [str(path) for word in words for path in (sorted(Path().glob(word)) if "*" in word else [word])]
        result = CliRunner().invoke(main, paths)
        assert 0 <= result.exit_code <= most, result.output
        return result.output
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "ODRADEK": str(ROOT)}
    ended = subprocess.run(
        ["bash", "-c", line],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
        check=False,
    )
    assert 0 <= ended.returncode <= most, ended.stdout
    return ended.stdout


def run_console(text: str) -> None:
    commands = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    assert commands, f"nothing to run in:\n{text}"
    for command in commands:
        line, _, expected = command.partition("\n")
        # What fails says why in lines that the page shows.
        printed = run_command(line, most=1 if expected.strip() != "..." else 0)
        parts = re.split(r"^\.\.\.\n", expected, flags=re.MULTILINE)
        parts = [re.escape(part).replace(r"\.\.\.", ".*") for part in parts]
        assert re.fullmatch("(?:.*\n)*".join(parts), printed), f"{line} prints:\n{printed[:2000]}"


def run_page(page: Path, *, there: set[str | None], ports: Mapping[str, int] | None = None) -> None:
    """Run the blocks of a chapter in the current directory: those that need what is there, with other ports."""
    namespace: dict[str, object] = {"__name__": "example"}
    for block in blocks(page):
        for written, port in (ports or {}).items():
            block = block._replace(text=block.text.replace(written, str(port)))
        if block.language == "toml":
            assert tomllib.loads(block.text)
        if block.needs not in there:
            continue
        if block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, page.name, "exec"), namespace)
        elif block.language == "console":
            run_console(block.text)
        else:
            assert block.language in {"text", "toml", "properties"}, f"{page.name}: who runs {block.language}?"


def pages(needs: str | None) -> list[Path]:
    return [page for page in FIRST_PAGES if any(block.needs == needs for block in blocks(page))]


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "empty"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.mark.sampled
@pytest.mark.every_case
@pytest.mark.parametrize("page", pages(None), ids=lambda page: page.name)
def test_examples(page: Path) -> None:
    run_page(page, there={None})


SETTINGS = [block.text for block in blocks_of_one(ROOT / "docs" / "broker.md") if block.file == "server.properties"]


@pytest.mark.parametrize("text", SETTINGS, ids=range(len(SETTINGS)))
def test_a_broker_starts_with_settings_of_its_page(text: str, tmp_path: Path) -> None:
    certificate = make_certificate("server")
    (tmp_path / "server.pem").write_text(certificate.key_pem() + certificate.certificate_pem)
    (tmp_path / "clients.crt").write_text(certificate.certificate_pem)
    (tmp_path / "secrets.properties").write_text("tokens=a secret key\n")
    local = text.replace("/etc/odradek", str(tmp_path))
    settings = dict(parse_properties(re.sub(r"(?<=:)9\d{3}\b", "0", local)))
    # A block about something else leaves the certificate to that of its section.
    usual = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "server.pem")}
    with BrokerThread(tmp_path / "data", resolved({"listeners": "PLAINTEXT://127.0.0.1:0", **usual, **settings}, {})):
        pass


@pytest.mark.spark
@pytest.mark.needs("java")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", pages("spark"), ids=lambda page: page.name)
def test_examples_with_spark(page: Path) -> None:
    """In a process of its own: Spark keeps its Java, and with it the directory that it was started in."""
    paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    # The examples set it themselves.
    environment.pop("PYSPARK_PYTHON", None)
    ended = subprocess.run(
        [sys.executable, __file__, page],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * _COMMAND_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.interop
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", pages("kafka"), ids=lambda page: page.name)
def test_examples_with_kafka(
    page: Path, kafka_tools: KafkaTools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scripts of Kafka's distribution, which do no more than this, are not in its jars."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, main_class in {
        "kafka-server-start.sh": "kafka.Kafka",
        "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    }.items():
        options = ["-Xmx512m", *QUICK_START, *KeptClasses(kafka_tools.classpath).options_to_use()]
        java = shlex.join(["java", *options, "-cp", kafka_tools.classpath, main_class])
        (programs / name).write_text(f'#!/bin/sh\nexec {java} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    process = Path("kafka.pid")
    try:
        run_page(page, there={None, "kafka"}, ports={"19092": free_port(), "19093": free_port()})
    finally:
        if process.exists():
            with suppress(ProcessLookupError):
                os.kill(int(process.read_text(encoding="utf-8")), signal.SIGKILL)


def named_commands() -> list[tuple[str, str]]:
    """Return the commands in indented blocks and in backquotes: those of make, and programs of this repository."""
    found = []
    for page in PAGES:
        text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
        found += [(page.name, command) for command in re.findall(r"^    (\w.*)$", text, re.MULTILINE)]
        found += [(page.name, command) for command in re.findall(r"`((?:make|python|pytest) [^`\n]+)`", text)]
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("page", "command"), named_commands())
def test_commands_that_are_named_are_there(page: str, command: str) -> None:
    program, *arguments = shlex.split(command, comments=True)
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert {word for word in arguments if "=" not in word} <= set(targets)
    elif program == "pytest":
        folders = [word for word in arguments if word.startswith("tests")]
        assert all((ROOT / folder).exists() for folder in folders)
    elif program == "python":
        assert (ROOT / arguments[0]).is_file()
    else:
        assert "odradek" in command, f"{page} names a command that nobody looks for: {command}"


def section(command: str) -> str:
    for page in chapter(ROOT / "docs" / "cli.md"):
        _, heading, rest = page.read_text(encoding="utf-8").partition(f"\n## odradek {command}\n")
        if heading:
            return rest.partition("\n## ")[0]
    pytest.fail(f"no page of docs/cli has a section on odradek {command}")


def options_of(name: str, command: click.Command, documented: str) -> set[str]:
    if isinstance(command, click.Group):
        found: set[str] = set()
        for word, part in command.commands.items():
            assert f"`odradek {name} {word}" in documented, f"docs/cli does not tell of odradek {name} {word}"
            found |= options_of(f"{name} {word}", part, documented)
        return found
    return {option for parameter in command.params for option in parameter.opts if option.startswith("--")}


@pytest.mark.sampled(4)
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


def anchors(page: Path) -> set[str]:
    """Return what a link may point to in a page, as GitHub names it."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_each_page_is_listed_once() -> None:
    assert sorted(part for page in FIRST_PAGES for part in chapter(page)) == PAGES


@pytest.mark.sampled(4)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target
        if anchor and "://" not in target:
            assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def run_script(script: str, *arguments: Path) -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.slow
def test_the_reference_is_built_without_a_warning(tmp_path: Path) -> None:
    run_script("docs/reference.py", tmp_path / "out")
    built = {path.relative_to(tmp_path / "out"): path.read_text("utf-8") for path in (tmp_path / "out").rglob("*.html")}
    assert "offset_for_time" in built[Path("odradek.html")]
    # The first example is code, and not a paragraph.
    assert not [name for name, text in built.items() if re.search(r"<p>(with|from|import) ", text)]
    assert "create_topic" in built[Path("odradek/testing.html")]
    assert Path("odradek/places/place.html") in built
    assert "serving" in built[Path("odradek/broker/running.html")]
    assert not [name for name, text in built.items() if "Alias for field number" in text]


@pytest.mark.slow
def test_the_charts_are_those_of_the_tables(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("charts"))
    run_script(str(tmp_path / "docs" / "charts.py"))
    drawn = {path.name: path.read_bytes() for path in (tmp_path / "docs" / "charts").iterdir()}
    assert drawn == {path.name: path.read_bytes() for path in (ROOT / "docs" / "charts").iterdir()}, (
        "draw them again: python docs/charts.py"
    )


@pytest.mark.slow
def test_the_recording_of_the_terminal_is_what_is_printed_now(tmp_path: Path) -> None:
    run_script("examples/record_terminal.py", tmp_path / "terminal.svg")
    assert (tmp_path / "terminal.svg").read_bytes() == (ROOT / "docs" / "terminal.svg").read_bytes(), (
        "record it again: python examples/record_terminal.py docs/terminal.svg"
    )


if __name__ == "__main__":
    run_page(Path(sys.argv[1]), there={None, "spark"})


def test_the_pages_name_the_versions_of_kafka_that_are_followed() -> None:
    versions = f"{KAFKA_VERSION} and {OLDER_KAFKA_VERSION}"
    for page in ("formats.md", "cli/serve.md"):
        assert versions in (ROOT / "docs" / page).read_text(encoding="utf-8")
