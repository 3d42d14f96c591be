"""`python -m odradek.cli` is `odradek`."""

from odradek.cli.app import main

if __name__ == "__main__":
    main(prog_name="odradek")
