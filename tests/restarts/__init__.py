"""The laboratory of restarts: a writer is killed again and again, and started again, under readers of the same folder.

    writer       a program that appends as fast as it can, for as long as it is left alive
    reader       a program that looks up, reads and scans what is there, and keeps hold of what it was given
    processes    starts them, kills the writers, and counts the readers that died
    told         what the writers were told, in a file that the readers look into

No reader dies (a mapped file that is made shorter kills with SIGBUS whoever looks at what is gone), none gets an error
but those that are documented, and none sees anything else at an offset that was acknowledged, before a restart or
after it.
"""
