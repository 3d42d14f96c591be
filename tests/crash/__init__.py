"""The crash laboratory: logs are written at random, cut off anywhere, opened again, and compared with a model.

    workload     random work of a seed, through a file system that remembers every operation
    model        what was asked, and what was acknowledged as written and as durable
    case         one crash: a disk is made from the history, opened, compared (`checks`), gone on with, opened again
    interrupts   one interrupt: an exception out of a signal handler at a counted bytecode (`interrupter`,
                 `interrupt.c`); the log is as before or as after, goes on, crashes, and is recovered

Beside it are `threads` (all operations at once), `restarts` (a writer is killed under readers) and `flips` (every bit
of every file that is not a `.log`). By default there is little of each (of `threads` nothing), more with the marker
`slow`, and all with `laboratory`:

    pytest tests/crash tests/threads tests/restarts tests/flips -m laboratory -n 2 --dist load

    --interrupts N    how many interrupts there are       --interrupt ...   one alone, by the numbers that it prints
    --seconds S       how long the threads work           --seed N          from which round on
    --restarts N      how often the writer is killed; Apache Kafka a tenth of that
                                                          --damage ...      one alone, as it is printed

What is found goes into the list `FOUND_BEFORE` of the laboratory that found it, and stays there.
"""
