"""Records a first session in a terminal as an SVG picture: the commands, and their real output.

python examples/record_terminal.py docs/terminal.svg

The program is the first one of the README; it and the commands run in an empty directory. Another run gives the same
picture.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.terminal_theme import MONOKAI
from rich.text import Text

README = Path(__file__).parents[1] / "README.md"
WIDTH = 125
COMMANDS = [
    "cat first.py",
    "python first.py",
    "odradek topics data",
    "odradek dump data/events-0",
    "odradek verify data",
    "ls -A data data/events-0",
]

# rich's template, without its web fonts.
PICTURE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
  line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: Helvetica, Arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def first_program() -> str:
    """Return the first program of the README."""
    block = re.search(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1]


def run(command: str, directory: Path) -> str:
    """Run a command as a shell would, with the programs that are installed beside this Python."""
    program, *arguments = command.split()
    here = Path(sys.executable).parent
    interpreter = {"python": [sys.executable], "odradek": [sys.executable, str(here / "odradek")]}
    command_line = [*interpreter.get(program, [program]), *arguments]
    # On a terminal, messages on stderr appear among the output.
    ended = subprocess.run(
        command_line, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return ended.stdout


def record() -> str:
    """Run the session and return its picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "first.py").write_text(first_program(), encoding="utf-8")
        for command in COMMANDS:
            console.print(Text(f"$ {command}", "bold green"))
            if command == "cat first.py":
                console.print(Syntax(first_program().rstrip(), "python", theme="monokai", background_color="default"))
            else:
                console.print(Text(run(command, directory).rstrip("\n")))
    return console.export_svg(title="Odradek", theme=MONOKAI, code_format=PICTURE, unique_id="first")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(record(), encoding="utf-8")
