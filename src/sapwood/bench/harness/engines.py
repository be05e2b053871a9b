"""The engines that are measured beside each other: Python or the compiled kernel, with parts switched off.

An engine is a combination of switches of `Tuning`. One that switches on what this installation does not have
is not measured, and the report says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

from sapwood import Tuning
from sapwood.bench.harness.benchmark_report import Role
from sapwood.bench.harness.experiments import Bench, Limit, at_most
from sapwood.engine import kernel

Value = TypeVar("Value")

_KNOWN = {field.name for field in fields(Tuning)}
_SKIPPED = "engines that are not measured"
_NOISE = 1.05
"""what counts as no slower"""


@dataclass(frozen=True, slots=True)
class Engine:
    """A combination of switches, off unless given."""

    label: str
    role: Role
    query_classes: bool = False
    kernel: bool = False
    tokenizer: bool = False

    @property
    def tuning(self) -> Tuning:
        """The switches of this engine; one that `Tuning` does not have is off."""
        return Tuning(**{name: on for name, on in self._switches.items() if name in _KNOWN})

    @property
    def missing(self) -> str:
        """The reason why this engine cannot be measured here; empty if it can."""
        unknown = [name for name, on in self._switches.items() if on and name not in _KNOWN]
        if unknown:
            return f"this version has no switch {', '.join(unknown)}"
        return kernel_missing() if self.kernel else ""

    @property
    def _switches(self) -> dict[str, bool]:
        return {
            "query_classes": self.query_classes,
            "kernel": self.kernel,
            "tokenizer": self.tokenizer,
        }


UNCLASSED = Engine("Python without query classes", Role.TWIN)
PYTHON = Engine("Python", Role.OTHER, query_classes=True)
KERNEL_EXPAT = Engine("kernel with expat", Role.FIRST, query_classes=True, kernel=True)
KERNEL = Engine("kernel", Role.SAPWOOD, query_classes=True, kernel=True, tokenizer=True)
ENGINES = (UNCLASSED, PYTHON, KERNEL_EXPAT, KERNEL)


def kernel_missing() -> str:
    """Return the reason why matchers do not use the compiled kernel by default; empty if they do."""
    if getattr(kernel, "KERNEL", None) is None:
        return str(getattr(kernel, "REASON", "the compiled kernel is not built"))
    return "" if "kernel" in _KNOWN else "this version has no switch kernel"


def by_engine(with_kernel: Value, in_python: Value) -> Value:
    """Return what is promised of matchers with the default tuning: those with the kernel, or in Python."""
    return in_python if kernel_missing() else with_kernel


def available_engines(bench: Bench) -> list[Engine]:
    """Return the engines that can be measured here; name the others in the report, once."""
    if _SKIPPED not in bench.cache:
        bench.cache[_SKIPPED] = True
        bench.report.skipped += [f"engine {each.label}: {each.missing}" for each in ENGINES if each.missing]
    return [each for each in ENGINES if not each.missing]


def limit_of(engine: Engine, limits: Mapping[Engine, float]) -> Limit | None:
    """Return the upper limit of an engine, if there is one."""
    return at_most(limits[engine]) if engine in limits else None


def report_classes(bench: Bench, measure: str, workload: str, costs: Mapping[Engine, float]) -> None:
    """Report what query classes cost or save in Python, if both ways were measured."""
    if PYTHON in costs and UNCLASSED in costs:
        measure = f"{measure}, Python with query classes against without"
        bench.ratio(measure, workload, at_most(_NOISE), classes=costs[PYTHON], unclassed=costs[UNCLASSED])
