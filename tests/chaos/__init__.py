"""The laboratory of pipelines: a job forwards records of every kind while everything around it is killed or paused.

`tests/spark/test_chaos.py` runs it, and `tests/spark/test_write_kills.py` does the same to tasks of `df.write`. Two
kills for each offset store are `slow`; fifty, and the pauses, are by hand:

    ODRADEK_CHAOS_KILLS=50 ODRADEK_CHAOS_SEED=1 pytest -n 0 -s -m laboratory tests/spark/test_chaos.py

    ODRADEK_CHAOS_KILLS     how many kills, or pauses, there are for each offset store
    ODRADEK_CHAOS_SEED      which ones, at which moments, and which records; printed, and random by default
    ODRADEK_CHAOS_BROKERS   the source and the target: `kafka` or `odradek` for both in one, or two with a comma

The kills come at moments of a real machine: a seed repeats what is done, not what it meets.
"""
