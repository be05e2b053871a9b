"""The configuration of a broker's tables: the table `[tables]` of a server's file."""

from __future__ import annotations

from typing import Literal

from pydantic import ByteSize

from sapwood.config_file import ConfigTable


class TablesConfig(ConfigTable):
    """What neighbours in a mesh are told of subscriptions."""

    budget: ByteSize = ByteSize(200 * 10**6)
    """bytes of conditions that a neighbour is told"""
    generalise: Literal["never", "budget"] = "never"
    """whether conditions are merged and weakened where they exceed the budget"""

    @property
    def most_bytes(self) -> int | None:
        """The bytes that a neighbour is told at most; None: there is no bound."""
        return self.budget if self.generalise == "budget" else None
