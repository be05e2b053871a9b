"""A pipeline in a process to be killed: `python -m tests.support.spark.spark_driver PIPELINE.toml MASTER`."""

from __future__ import annotations

import sys
from pathlib import Path

from sapwood.spark.io.delta_table import delta_settings
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.spark.spark_session import session


def main() -> None:
    settings = read_config(sys.argv[1])
    config = {key: str(value) for key, value in settings.spark.items()}
    if settings.uses_delta:
        config |= delta_settings(config, sys.argv[2])
    spark = session(sys.argv[2], config=config, log=Path(sys.argv[1]).with_name("spark.log"))
    pipeline = Pipeline(spark, settings, lambda outcome: print(outcome.batch, outcome.version, flush=True))
    print("started", flush=True)
    pipeline.run()
    spark.stop()


if __name__ == "__main__":
    main()
