"""Starts lxml processes without the sanitizer, in every Python process of `make test-sanitize`.

They bound their own address space, of which AddressSanitizer reserves terabytes; and they load no kernel.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

_start = subprocess.Popen.__init__


def _start_without_sanitizer(self: Any, args: Any, *rest: Any, **options: Any) -> None:
    if isinstance(args, list) and any(str(argument).endswith("lxml_process.py") for argument in args):
        environment = options.get("env") or os.environ
        options["env"] = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
    _start(self, args, *rest, **options)


subprocess.Popen.__init__ = _start_without_sanitizer  # type: ignore[method-assign]
