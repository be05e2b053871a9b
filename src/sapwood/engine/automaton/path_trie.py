"""The path trie: all root-to-leaf paths of all queries as one prefix tree.

A path is a sequence of symbols, `("nitf", "//", "a", "*")` for `/nitf//a/*`: a name test enters a state,
`//` enters a state that stays active all the way down. That state of its own is what keeps `/r//a` from
turning its sibling `/r/b` into `/r//b`.

The trie is kept in parallel lists, so that half a million states cost what half a million ints cost:

    edges[s]    symbol → state, or None
    parent[s]   the state it hangs from
    symbol[s]   the symbol that enters it
    uses[s]     how many paths end here or edges leave; a state with none is pruned at once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

DESCENDANT = "//"
ROOT = 0


class PathTrie:
    """The prefix tree of query paths. Numbers of pruned states are reused."""

    def __init__(self) -> None:
        self.edges: list[dict[str, int] | None] = [None]
        self.parent: list[int] = [-1]
        self.symbol: list[str] = [""]
        self.uses: list[int] = [1]
        self.symbols: Counter[str] = Counter()  # how many edges carry each symbol
        self.deep: set[int] = set()  # the states entered by `//`
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.edges) - len(self._free)

    def insert(self, path: Iterable[str]) -> tuple[int, int | None]:
        """Add one use of a path: return its last state, and the state that got a new edge if any did."""
        state, grown = ROOT, None
        edges = self.edges
        for symbol in path:
            row = edges[state]
            target = row.get(symbol) if row is not None else None
            if target is None:
                target = self._grow(state, symbol)
                if grown is None:
                    grown = state
            state = target
        self.uses[state] += 1
        return state, grown

    def find(self, path: Iterable[str]) -> int | None:
        """Return the last state of a path, if the path is there."""
        state = ROOT
        for symbol in path:
            target = (self.edges[state] or {}).get(symbol)
            if target is None:
                return None
            state = target
        return state

    def path(self, state: int) -> tuple[str, ...]:
        """Return the symbols from the root to a state."""
        symbols: list[str] = []
        while state != ROOT:
            symbols.append(self.symbol[state])
            state = self.parent[state]
        return tuple(reversed(symbols))

    def release(self, state: int) -> list[int]:
        """Take back one use of a path that ends at a state: return the states pruned by it, deepest first."""
        pruned: list[int] = []
        self.uses[state] -= 1
        while self.uses[state] == 0 and state != ROOT:
            parent = self.parent[state]
            row = self.edges[parent]
            assert row is not None
            symbol = self.symbol[state]
            del row[symbol]
            self.symbols[symbol] -= 1
            if not self.symbols[symbol]:
                del self.symbols[symbol]
            if not row:
                self.edges[parent] = None
            self.deep.discard(state)
            self._free.append(state)
            pruned.append(state)
            self.uses[parent] -= 1
            state = parent
        return pruned

    def _grow(self, state: int, symbol: str) -> int:
        row = self.edges[state]
        if row is None:
            row = self.edges[state] = {}
        if self._free:
            target = self._free.pop()
            self.edges[target] = None
            self.parent[target], self.symbol[target], self.uses[target] = state, symbol, 0
        else:
            target = len(self.edges)
            self.edges.append(None)
            self.parent.append(state)
            self.symbol.append(symbol)
            self.uses.append(0)
        row[symbol] = target
        if symbol == DESCENDANT:
            self.deep.add(target)
        self.symbols[symbol] += 1
        self.uses[state] += 1
        return target
