"""How often what goes wrong in a simulated mesh, and how long what takes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities, and times in seconds."""

    loss: float = 0.0
    """of a frame, of what tells that it was accepted, and of a control"""
    repetition: float = 0.0
    reordering: float = 0.0
    crash: float = 0.0
    """before an action"""
    batching: float = 0.0
    """that a node gets what was received or matched only with its next event"""
    latency: float = 0.02
    delay: float = 0.0
    """added to the latency, at most"""
    tick: float = 0.2
    store: float = 0.01
    match: float = 0.002
    spread: float = 1.0
    """0: latency and times of storing and matching are as given; 1: from half of it to one and a half"""

    def _vary(self, seconds: float, random: Random) -> float:
        return seconds * (1.0 + self.spread * (random.random() - 0.5))

    def network_delay(self, random: Random) -> float:
        """Return the seconds that a frame or control takes."""
        return self._vary(self.latency, random) + self.delay * random.random() ** 4

    def store_delay(self, random: Random) -> float:
        """Return the seconds that storing takes."""
        return self._vary(self.store, random)

    def match_delay(self, random: Random) -> float:
        """Return the seconds that matching takes."""
        return self._vary(self.match, random)
