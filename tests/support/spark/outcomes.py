"""Outcomes of batches made by hand, for tests of displays and reports."""

from __future__ import annotations

from typing import Any

from sapwood.spark.pipeline.batch import Outcome


def outcome(batch: int = 0, **given: Any) -> Outcome:
    """A batch of 100 messages, 250 deliveries and 2 rejects in half a second, but for what is given."""
    values: dict[str, Any] = {
        "version": 1,
        "subscriptions": 10,
        "messages": 100,
        "deliveries": 250,
        "rejects": 2,
        "seconds": 0.5,
        "finished": f"2026-01-05T10:{batch % 60:02}:00.000+00:00",
        "matches": [8, 0, 60, 30] + [0] * 20,
        "reasons": {"mismatched tag": 2},
        "slow": {"slow-1": 0.125, "slow-2": 0.002},
        "joined": 10,
        "matched": 2,
        "by_subscription": {"slow-1": 150, "other": 100},
        "by_subscriber": {"desk": 150, "": 100},
        "rejected": [[f"{batch}.xml@0", "mismatched tag"], [f"{batch}.xml@9", "mismatched tag"]],
    }
    return Outcome(batch=batch, **(values | given))
