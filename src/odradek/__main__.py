"""`python -m odradek`; the script `odradek` calls `run`. Nothing else imports this module.

Importing the command takes a tenth of a second, in which Ctrl-C may come: the signal itself ends the program then, as
`odradek.cli.__main__` says.
"""

from __future__ import annotations

import signal
import sys

# A shell may have it ignored.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Without the command, whose import takes longer.
if sys.argv[1:] == ["--version"]:
    from odradek.version import VERSION

    try:
        sys.stdout.write(f"odradek {VERSION}\n")
        sys.stdout.flush()
    except (AttributeError, OSError):
        # The command says what is wrong with it.
        pass
    else:
        raise SystemExit

from odradek.cli.__main__ import run

if __name__ == "__main__":
    run()
