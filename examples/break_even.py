"""Measure from how many queries on Sapwood is faster than evaluating one XPath after the other with lxml.

    python examples/break_even.py

Messages and queries are generated from the DTD `news` that comes with Sapwood: 200 messages, and queries that
are either plain paths or paths with one predicate. Both sides start from the bytes of a message, so both
include parsing. lxml evaluates compiled `boolean(...)` expressions; Sapwood is warm, which means that it has
seen the messages once before. Rounds alternate between the two sides, and the fastest round of each counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from lxml import etree

from sapwood import Matcher
from sapwood.workload import MessageGenerator, QueryGenerator, load_dtd

COUNTS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100, 1000)


def measure(
    counts: Sequence[int] = COUNTS, predicates: int = 0, messages: int = 200, rounds: int = 7
) -> list[tuple[int, float, float]]:
    """Return (queries, microseconds per message with lxml, with Sapwood) for each number of queries."""
    dtd = load_dtd("news")
    bodies = list(MessageGenerator(dtd, seed=1).take(messages))
    generator = QueryGenerator(dtd, seed=1, predicates=predicates, distinct=True)
    queries = list(generator.take(max(counts)))
    return [(count, *_compare(queries[:count], bodies, rounds)) for count in counts]


def _compare(queries: Sequence[str], bodies: Sequence[bytes], rounds: int) -> tuple[float, float]:
    compiled = [etree.XPath(f"boolean({query})") for query in queries]
    matcher = Matcher()
    matcher.add_many(enumerate(queries))

    def with_lxml() -> int:
        found = 0
        for body in bodies:
            tree = etree.fromstring(body)
            found += sum(bool(query(tree)) for query in compiled)
        return found

    def with_sapwood() -> int:
        return sum(len(matcher.match(body)) for body in bodies)

    assert with_lxml() == with_sapwood()
    sides = (with_lxml, with_sapwood)
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for side, seen in zip(sides, times, strict=True):
            seen.append(_seconds(side))
    by_lxml, by_sapwood = (min(seen) / len(bodies) * 1e6 for seen in times)
    return by_lxml, by_sapwood


def _seconds(run: Callable[[], int]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def main() -> None:
    for predicates in (0, 1):
        print(f"queries with {predicates} predicates: microseconds per message")
        print("queries      lxml   Sapwood")
        for count, by_lxml, by_sapwood in measure(predicates=predicates):
            print(f"{count:7,} {by_lxml:9.1f} {by_sapwood:9.1f}")


if __name__ == "__main__":
    main()
