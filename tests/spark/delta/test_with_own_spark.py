"""Runs the tests of this folder with the PySpark that Delta is made for, and the error without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sapwood.bench.harness import maven_jars
from tests.support.requirements import missing
from tests.support.spark.pyspark_versions import DELTA_VERSION, InstallError, install_pyspark

_ROOT = Path(__file__).parents[3]
_SECONDS = 1_800
"""the tests that run without `make test-full`: a sink that crashes, one that merges, and a source"""


@pytest.mark.long
def test_all_others_of_this_folder(java: None) -> None:
    try:
        maven_jars.DELTA.fetch()
        pyspark = install_pyspark(DELTA_VERSION)
    except (maven_jars.JarError, InstallError, subprocess.TimeoutExpired) as error:
        missing(str(error))
    path = os.pathsep.join([str(pyspark), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), "-p", "no:cacheprovider", "-rs"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    result = subprocess.run(
        command,
        cwd=_ROOT,
        env=environment | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
    )
    if result.returncode:
        pytest.fail(f"with PySpark {DELTA_VERSION}:\n{result.stdout[-20_000:]}", pytrace=False)
    assert " passed" in result.stdout
