"""Checks an installed wheel: run by `make wheel` and cibuildwheel with the Python that it is installed in.

It stands alone, since neither the source tree nor the libraries of the tests are there.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import sapwood
from sapwood import Matcher

INSTALLED = Path(sysconfig.get_path("platlib"))

MESSAGE = b'<order id="7"><item price="12.5">caf\xc3\xa9</item></order>'
QUERIES = {
    "path": "/order/item",
    "predicate": "//item[@price > 12]",
    "nested": "/order[item = 'caf\u00e9']/@id",
    "fallback": "count(//item) = 1",
    "none": "/order/item[2]",
}


def main() -> None:
    """Fail unless the installed package has a compiled kernel, and matches."""
    package = Path(sapwood.__file__)
    assert INSTALLED in package.parents, f"{package} is not the installed package"
    assert not list(package.parent.rglob("*.[ch]")), "C files are installed"
    command = Path(sysconfig.get_path("scripts")) / "sapwood"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    version = done.stdout.strip()
    assert version == f"sapwood {sapwood.__version__} (compiled kernel)", version
    matcher = Matcher()
    for name, query in QUERIES.items():
        matcher.add(name, query)
    matches = sorted(str(name) for name in matcher.match(MESSAGE))
    assert matches == ["fallback", "nested", "path", "predicate"], matches
    print(f"{version} matches on Python {sys.version.split()[0]}, {sysconfig.get_platform()}")


if __name__ == "__main__":
    main()
