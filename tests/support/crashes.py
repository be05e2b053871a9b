"""Failures of power, made on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock


class Crash(Exception):
    """What stands for a power failure: nothing after it happens."""


def after(owner: type, name: str, batch_of: Callable[..., int], batch: int) -> Any:
    """Crashes when a method has been called for a batch."""
    original = getattr(owner, name)

    def method(self: Any, *arguments: Any) -> Any:
        result = original(self, *arguments)
        if batch_of(*arguments) == batch:
            raise Crash
        return result

    return mock.patch.object(owner, name, method)
