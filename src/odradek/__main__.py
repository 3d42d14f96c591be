"""`python -m odradek`: the command `odradek`."""

from __future__ import annotations

from odradek.cli.app import main

if __name__ == "__main__":
    main(prog_name="odradek")
