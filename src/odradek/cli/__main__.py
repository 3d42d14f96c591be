"""`python -m odradek.cli` is `odradek`, and the script of that name calls `run`, through `odradek.__main__`.

Ctrl-C never shows a traceback. While the program starts and while it exits, the signal itself ends it; in between, the
command handles it (exit code 130). SIGTERM and SIGHUP are handled as Ctrl-C is, and then end the program; a second one
does so at once.
"""

from __future__ import annotations

import signal

# A parent process may have had a signal ignored: then it stays so. `odradek.__main__` may have set SIGINT to SIG_DFL.
_is_ours = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL)
_ends = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
if __name__ == "__main__" and _is_ours:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from odradek.cli.app import SignalInterrupt, main  # noqa: E402 - takes a tenth of a second, in which Ctrl-C may come


def run() -> None:
    """Run the command, and end the program."""
    came: list[int] = []

    def end(number: int, frame: object) -> None:
        came.append(number)
        signal.signal(number, signal.SIG_DFL)
        raise SignalInterrupt

    try:
        if _is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in _ends:
            signal.signal(number, end)
        main(prog_name="odradek")
    finally:
        for number in (*_ends, *([signal.SIGINT] if _is_ours else [])):
            signal.signal(number, signal.SIG_DFL)
        if came:
            signal.raise_signal(came[0])


if __name__ == "__main__":
    run()
