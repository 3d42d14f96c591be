"""`python -m odradek.cli` is `odradek`.

Ctrl-C never shows a traceback. While the program starts and while it exits, the signal itself ends it; in between, the
command handles it (exit code 130).
"""

from __future__ import annotations

import signal

_is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell may have it ignored
if __name__ == "__main__" and _is_ours:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from odradek.cli.app import main  # noqa: E402 - takes a tenth of a second, in which Ctrl-C may come


def run() -> None:
    """Run the command, and end the program."""
    try:
        if _is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main(prog_name="odradek")
    finally:
        if _is_ours:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    run()
