"""What a Python worker of Spark keeps between its tasks."""

from __future__ import annotations

import functools
import gc
import sys


@functools.cache
def keep_modules() -> None:
    """Let the garbage collector ignore the objects that this worker has now, mostly modules. Elsewhere do nothing.

    Spark's daemon lets a worker collect garbage after each task, which takes 20 to 40 ms for the modules of PySpark,
    Arrow and Odradek alone: more than a small task does. Called at the end of a task, when its modules are there.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name == "pyspark.daemon":
        gc.freeze()
