"""The machine and the library versions that figures were measured with."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.parsers import expat

from lxml import etree

from sapwood.bench.harness.timer import CLOCK


def describe_machine() -> dict[str, str]:
    """Return the processor, the system and the versions that matter for speed."""
    known = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(os.cpu_count() or ""),
        "clock": CLOCK,
        "expat": expat.EXPAT_VERSION.removeprefix("expat_"),
        "lxml": version("lxml"),
        "libxml2": ".".join(map(str, etree.LIBXML_VERSION)),
        "numpy": version("numpy"),
        "sapwood": version("sapwood"),
    }
    with suppress(PackageNotFoundError):  # only the relational engine needs it
        known["duckdb"] = version("duckdb")
    return known


def _processor() -> str:
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
