"""Numbers for the variable pairs that queries equate."""

from __future__ import annotations

from collections.abc import Mapping

_NO_PARTNERS: dict[int, int] = {}


class VariablePairs:
    """The numbers of variable pairs (variable of the left side, variable of the right side).

    They are looked up by either variable: few variables of a message have a value that earlier messages have,
    and each is equated with few others.
    """

    def __init__(self) -> None:
        self._of_left: dict[int, dict[int, int]] = {}  # left → right → number
        self._of_right: dict[int, dict[int, int]] = {}
        self._uses: list[int] = []
        self._unused: list[int] = []

    def __len__(self) -> int:
        """One more than the largest number."""
        return len(self._uses)

    def add(self, left: int, right: int) -> int:
        """Add one use of a pair, and return its number."""
        number = self._of_left.get(left, _NO_PARTNERS).get(right)
        if number is None:
            number = self._unused.pop() if self._unused else len(self._uses)
            if number == len(self._uses):
                self._uses.append(0)
            self._of_left.setdefault(left, {})[right] = number
            self._of_right.setdefault(right, {})[left] = number
        self._uses[number] += 1
        return number

    def remove(self, left: int, right: int) -> None:
        """Remove one use of a pair."""
        number = self._of_left[left][right]
        self._uses[number] -= 1
        if self._uses[number]:
            return
        self._unused.append(number)
        for partners, one, other in ((self._of_left, left, right), (self._of_right, right, left)):
            del partners[one][other]
            if not partners[one]:
                del partners[one]

    def partners(self, variable: int, is_left: bool) -> Mapping[int, int]:
        """Return the variables that one of the left or right side is equated with, and the pairs' numbers."""
        return (self._of_left if is_left else self._of_right).get(variable, _NO_PARTNERS)
