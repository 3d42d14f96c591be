"""`python -m odradek`: the command `odradek`."""

from __future__ import annotations

from odradek.cli.__main__ import run

if __name__ == "__main__":
    run()
