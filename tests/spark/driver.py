"""A pipeline in a process of its own, to be killed: python -m tests.spark.driver PIPELINE.toml MASTER"""

from __future__ import annotations

import sys

from sapwood.spark.pipeline import Pipeline
from sapwood.spark.session import session
from sapwood.spark.settings import read_settings


def main() -> None:
    settings = read_settings(sys.argv[1])
    config = {key: str(value) for key, value in settings.spark.items()}
    spark = session(sys.argv[2], config=config, log=f"{settings.run.checkpoint}/../spark.log")
    pipeline = Pipeline(spark, settings, lambda outcome: print(outcome.batch, outcome.version, flush=True))
    print("started", flush=True)
    pipeline.run()
    spark.stop()


if __name__ == "__main__":
    main()
