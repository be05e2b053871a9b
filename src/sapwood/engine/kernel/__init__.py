"""The compiled kernel: the automaton in C, which reads a message and matches it in one pass.

It is optional: `KERNEL` is the extension module `_kernel`, or None, and then `REASON` says why. Modules that
are imported with a kernel only import `_kernel` itself, whose types are in `_kernel.pyi`.
"""

import os

from sapwood.engine.kernel.loader import SWITCH, load_kernel

KERNEL, REASON = load_kernel(os.environ.get(SWITCH))
