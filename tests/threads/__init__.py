"""The laboratory of threads: all public operations in random order, from eight threads, over few small logs.

    ledger      what was asked and acknowledged, and so what the logs must hold
    workers     the threads, and what they do
    __main__    rounds of it, each on a folder of its own, in a process of its own: a deadlock ends nothing else

Nobody waits for ever, nobody gets an error that is none of ours or does not fit, and what was acknowledged is read back
at its offset, once, in order: by everyone meanwhile, when all have stopped, and when the folder is opened again.

    python -m threads --seconds 600 --seed 7
"""
