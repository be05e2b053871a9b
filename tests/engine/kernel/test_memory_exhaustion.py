"""Memory that runs out in the middle of a match: the kernel raises MemoryError, and then answers as before.

A library that is loaded before Python fails one allocation of the kernel, the nth after a mark.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compiled_kernel import compiled_kernel
from tests.support.requirements import SANITIZED

compiled_kernel()

FAILING_ALLOCATIONS = r"""
#include <stddef.h>
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
static const char *begin, *end;
static long left = -1;
void watch_code(const char *from, const char *to) { begin = from; end = to; }
void fail_after(long count) { left = count; }
static int fails(const char *caller) { return caller >= begin && caller < end && left >= 0 && left-- == 0; }
void *malloc(size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}
void *realloc(void *block, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(block, size);
}
"""

CHILD = """
import ctypes, sys
from sapwood import Matcher, Tuning
from sapwood.engine.kernel import _kernel

library = ctypes.CDLL(sys.argv[1])
library.watch_code.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
for line in open("/proc/self/maps"):
    span, rights, *_ = line.split()
    if "x" in rights and _kernel.__file__ in line:
        library.watch_code(*(int(part, 16) for part in span.split("-")))

QUERIES = (
    ["//*", "/r//a", "//a/b", "//a[@x = 1]/b", "//a[b]/c", "//a[b = 'v'][@x < 3]", "//b[contains(., 'v')]"]
    + [f"/r/a[@x {operator} {i}]" for i in range(8) for operator in ("<", ">=")]
    + [f"//a[b/c{i}]//b[@y = '{i}']" for i in range(8)]
)
MESSAGES = [
    f"<r><a x='{i}'><b y='{i}'>v{i}</b><c/><b><c{i}/></b></a><n{i}><a x='7'><b>v</b></a></n{i}></r>"
    for i in range(12)
]
python = Matcher(tuning=Tuning(kernel=False))
python.add_many(enumerate(QUERIES))
wanted = [list(python.match(message)) for message in MESSAGES]
raised = 0
for count in range(0, 260, 3):
    matcher = Matcher()
    matcher.add_many(enumerate(QUERIES))
    library.fail_after(count)
    for _ in range(12):  # the plan of the join is made after some messages
        try:
            for message in MESSAGES:
                list(matcher.match(message))
        except MemoryError:
            raised += 1
    library.fail_after(-1)
    assert [list(matcher.match(message)) for message in MESSAGES] == wanted, count
    assert [len(matcher.match(message)) for message in MESSAGES] == list(map(len, wanted)), count
print(raised)
"""


@pytest.mark.skipif(SANITIZED, reason="a sanitizer has allocation functions of its own")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the library needs glibc")
def test_answers_are_right_after_memory_ran_out(tmp_path: Path) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    assert compiler is not None, "the kernel was compiled here"
    source, library = tmp_path / "allocations.c", tmp_path / "allocations.so"
    source.write_text(FAILING_ALLOCATIONS)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, library],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    assert int(child.stdout) > 40
