"""`python -m odradek.cli` is `odradek`, and the script of that name calls `run`, through `odradek.__main__`.

Ctrl-C never shows a traceback. While the program starts and while it exits, the signal itself ends it; in between, the
command handles it (exit code 130). SIGTERM is handled as Ctrl-C is, and then ends the program; a second one does so at
once.
"""

from __future__ import annotations

import signal

# A parent process may have had a signal ignored: then it stays so. `odradek.__main__` may have set SIGINT to SIG_DFL.
_is_ours = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL)
_is_end_ours = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
if __name__ == "__main__" and _is_ours:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from odradek.cli.app import main  # noqa: E402 - takes a tenth of a second, in which Ctrl-C may come


def run() -> None:
    """Run the command, and end the program."""
    ended = False

    def end(number: int, frame: object) -> None:
        nonlocal ended
        ended = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    try:
        if _is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if _is_end_ours:
            signal.signal(signal.SIGTERM, end)
        main(prog_name="odradek")
    finally:
        if _is_ours:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if _is_end_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if ended:
            signal.raise_signal(signal.SIGTERM)


if __name__ == "__main__":
    run()
