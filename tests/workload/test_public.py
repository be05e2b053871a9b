from __future__ import annotations

import re
from types import ModuleType

from sapwood import workload
from tests.workload.support import SHIPPED


def test_all_is_what_is_visible() -> None:
    visible = {
        name
        for name, value in vars(workload).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(workload.__all__) == visible


def test_the_package_imports_no_other() -> None:
    """Messages and queries must not be made by the code they are to test."""
    source = "".join(path.read_text() for path in SHIPPED.parent.rglob("*.py"))
    imported = re.findall(r"^\s*(?:from|import) (sapwood\S*)", source, flags=re.MULTILINE)
    assert imported
    assert all(module.startswith(("sapwood.workload", "sapwood.errors")) for module in imported)
