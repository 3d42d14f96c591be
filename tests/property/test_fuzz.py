"""The fuzzers of `fuzz/`, each for a short while; run them by hand for longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in FUZZ.glob("*.py")))
def test_a_fuzzer_finds_nothing(name: str, tmp_path: Path) -> None:
    finds = tmp_path / "finds"
    command = [sys.executable, str(FUZZ / name), "--seconds", "20", "--seed", "7", "--finds", str(finds)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    errors = [path.read_text(encoding="utf-8") for path in sorted(finds.glob("*/error.txt"))]
    assert result.returncode == 0, result.stdout + result.stderr + "".join(errors)
