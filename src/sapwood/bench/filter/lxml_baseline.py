"""The baseline without a shared matcher: lxml evaluates one query at a time.

A message is parsed once, and every distinct query, compiled beforehand, is evaluated as `boolean(…)`, which
saves lxml the wrapping of nodes. With many queries that takes seconds for a message, so it is measured on a
sample of queries and messages and scaled up to all queries; the time of parsing is not scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from lxml import etree

from sapwood.bench.harness.timing import clock, time_rounds

LABEL = "lxml, one query at a time (a sample, scaled up)"


def cost_one_by_one(
    queries: Sequence[str], messages: Sequence[bytes], sampled_queries: int, sampled_messages: int
) -> float:
    """Return the cost of a message as a multiple of raw parsing; equal queries are evaluated once."""
    distinct = list(dict.fromkeys(queries))
    random = Random(1)
    chosen = random.sample(distinct, min(sampled_queries, len(distinct)))
    sample = random.sample(list(messages), min(sampled_messages, len(messages)))
    compiled = [etree.XPath(f"boolean({query})") for query in chosen]
    share = len(chosen) / len(distinct)

    def one_pass() -> float:
        parsing = evaluating = 0.0
        for message in sample:
            start = clock()
            tree = etree.fromstring(message).getroottree()
            middle = clock()
            for query in compiled:
                query(tree)
            parsing += middle - start
            evaluating += clock() - middle
        return parsing + evaluating / share

    return time_rounds(one_pass, sample, least=3).multiple


def compile_seconds(queries: Sequence[str]) -> float:
    """Return the seconds that lxml takes to compile all queries into objects that live together."""
    start = clock()
    compiled = [etree.XPath(query) for query in queries]
    seconds = clock() - start
    del compiled
    return seconds
