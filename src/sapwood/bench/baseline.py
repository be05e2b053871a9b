"""One query at a time, with lxml: what one does without a shared matcher.

A message is parsed once and every distinct query, compiled beforehand, is asked for its truth (`boolean(…)`,
which spares lxml the wrapping of nodes). With many queries that takes seconds for a message, so it is
measured on a sample of queries and messages and scaled up to all queries; parsing is not scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from lxml import etree

from sapwood.bench.scale import Scale
from sapwood.bench.timing import clock, rounds

LABEL = "lxml, one query at a time (a sample, scaled up)"


def one_by_one(queries: Sequence[str], messages: Sequence[bytes], scale: Scale) -> float:
    """The cost of a message with lxml as a multiple of raw parsing; equal queries are asked once."""
    distinct = list(dict.fromkeys(queries))
    random = Random(1)
    asked = random.sample(distinct, min(scale.sampled_queries, len(distinct)))
    parsed = random.sample(list(messages), min(scale.sampled_messages, len(messages)))
    compiled = [etree.XPath(f"boolean({query})") for query in asked]
    share = len(asked) / len(distinct)

    def one_pass() -> float:
        parsing = asking = 0.0
        for message in parsed:
            start = clock()
            tree = etree.fromstring(message).getroottree()
            middle = clock()
            for query in compiled:
                query(tree)
            parsing += middle - start
            asking += clock() - middle
        return parsing + asking / share

    return rounds(one_pass, parsed, least=3).multiple


def compile_all(queries: Sequence[str]) -> float:
    """The seconds that lxml takes to compile all queries into objects that live together."""
    start = clock()
    compiled = [etree.XPath(query) for query in queries]
    seconds = clock() - start
    del compiled
    return seconds
