"""How much memory an object holds on to."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType


def held_by(root: object) -> int:
    """The bytes of everything that can be reached from an object, but for code, types and modules."""
    gc.collect()
    seen = {id(root)}
    stack = [root]
    total = 0
    while stack:
        found = stack.pop()
        total += sys.getsizeof(found)
        for part in gc.get_referents(found):
            if id(part) not in seen and not isinstance(
                part, type | ModuleType | FunctionType | BuiltinFunctionType
            ):
                seen.add(id(part))
                stack.append(part)
    return total
