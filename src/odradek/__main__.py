"""`python -m odradek`; the script `odradek` calls `run`. Nothing else imports this module.

Importing the command takes a tenth of a second, in which Ctrl-C may come: the signal itself ends the program then, as
`odradek.cli.__main__` says.
"""

from __future__ import annotations

import signal

# A shell may have it ignored.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from odradek.cli.__main__ import run

if __name__ == "__main__":
    run()
