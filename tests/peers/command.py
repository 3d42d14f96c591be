"""The command `odradek`, run in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from odradek.cli.app import main


def run(*arguments: str | Path, code: int | None = None, given: bytes | None = None) -> Result:
    """Run it; unless `code` is None, it ends with this exit code."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=given, prog_name="odradek")
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert code is None or result.exit_code == code, result.output
    return result


def told(*arguments: str | Path, code: int = 0, given: bytes | None = None) -> str:
    """Run it; return what it prints, or what it says of an error."""
    result = run(*arguments, code=code, given=given)
    return result.stderr if code else result.stdout


def rows(*arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    """Run it, and return the JSON lines that it prints."""
    lines = run(*arguments, "--format", "jsonl", code=code).stdout_bytes.decode().split("\n")
    return [json.loads(line) for line in lines[:-1]]
