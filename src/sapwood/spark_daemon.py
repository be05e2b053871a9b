"""The process that Spark forks its Python workers from, with the modules of the broker loaded.

Spark's own daemon loads nothing, so that every worker imports everything anew, which takes a second of
processor time. No thread may run before a fork: PyArrow and the packages that import it are left to the
workers, which is why this module is not in `sapwood.spark`.
"""

from __future__ import annotations

import gc
import importlib
import os

MODULES = ("pyspark.worker", "sapwood.broker.distributed_broker", "sapwood.records")


def preload() -> None:
    """Import the modules that workers need and that start no thread."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's, whose pool starts when it is imported
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()  # so that workers share the memory of all this


if __name__ == "__main__":
    from pyspark import daemon

    preload()
    daemon.manager()
