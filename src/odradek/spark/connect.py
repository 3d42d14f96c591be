"""Spark Connect (`sc://HOST:PORT`): the source and the sink work over it, sessions and pipelines of Odradek do not.

A pipeline analyses plans in Spark's driver, and follows its streams and tasks there; a client of Spark Connect has no
driver in its process.
"""

from __future__ import annotations

from collections.abc import Mapping

NOT_BY_CONNECT = (
    "a pipeline needs Spark's driver in its own process, and Spark Connect has none there: give local[*], yarn, "
    'spark://HOST:PORT or k8s://HOST:PORT; over Spark Connect there is spark.read.format("odradek")'
)


def connect_key(master: str | None, conf: Mapping[str, str]) -> str | None:
    """Return what asks for Spark Connect, `spark.master` or `spark.conf`; None if nothing does.

    Args:
        master: Spark's master; None if it is not set.
        conf: Spark's settings.
    """
    if master is not None and master.startswith("sc://"):
        return "spark.master"
    by_mode = conf.get("spark.api.mode", "").lower() == "connect"
    by_url = "spark.remote" in conf or conf.get("spark.master", "").startswith("sc://")
    return "spark.conf" if by_mode or by_url else None
