"""Query classes from the first message on, so that small tests use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sapwood.engine.automaton import query_classes


@contextmanager
def eager_classes(cost: int = 0) -> Iterator[pytest.MonkeyPatch]:
    """Class guide nodes when their lists were read so many times, however few queries there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_classes, "FREE_SLOTS", 0)
        patch.setattr(query_classes, "CLASSING_COST", cost)
        yield patch
