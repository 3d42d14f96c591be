"""The laboratory of pipelines: a job forwards records of every kind while everything around it is killed or paused.

`tests/spark/test_chaos.py` runs it; `tests/spark/test_write_kills.py` does the same to tasks of `df.write`, and
`tests/spark/test_state_kills.py` to jobs with state. Two
kills with all offset stores, fifty of each kind, and the pauses are all by hand:

    ODRADEK_CHAOS_KILLS=50 ODRADEK_SEED=1 pytest -n 0 -s -m laboratory tests/spark/test_chaos.py -k all

Each offset store has a job. `-k redis` runs one of them; `-k all` has the four of them in one process, so each kill is
one for all four. There some records make the views fail and go to dead letters, jobs start again by themselves after
failures, and the columns of the Parquet files change between starts.

    ODRADEK_CHAOS_KILLS     how many times the driver, its whole group and the broker are killed each (the executor, a
                            worker and the stores' servers a fifth as often), or how many pauses there are
    ODRADEK_CHAOS_SECONDS   after how many seconds no more begin; what has happened by then is checked
    ODRADEK_SEED            which ones, at which moments, and which records (tests/peers/seeds.py)
    ODRADEK_CHAOS_BROKERS   the source and the target: `kafka` or `odradek` for both in one, or two with a comma

The kills come at moments of a real machine: a seed repeats what is done, not what it meets.
"""
