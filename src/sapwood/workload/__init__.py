"""DTDs, and generators of messages and queries that follow them.

    dtd = load_dtd("news")
    messages = MessageGenerator(dtd, seed=1).take(200)
    queries = QueryGenerator(dtd, seed=1, predicates=1).take(10_000)
    transformations = TransformationGenerator(dtd, seed=1).take(10_000)
    joins = JoinGenerator(feed_schema(), seed=1).take(10_000)
    items = FeedGenerator(seed=1).take(200)

The same seed gives the same bytes, in any process and on any machine. The parameters and their defaults are
those of the YFilter experiments: depth 6, three repeats, twenty values, P(*) = P(//) = 0.2; for
transformations, bindings down to level 3, one predicate, two return paths and ten values. Joins and what they
join are those of Hong et al., and need no DTD.
"""

from sapwood.workload.drawing import QueriesExhausted
from sapwood.workload.dtd import (
    Attribute,
    Choice,
    Content,
    Default,
    Dtd,
    DtdError,
    Element,
    Occurs,
    Particle,
    Ref,
    Seq,
)
from sapwood.workload.feeds import FeedGenerator
from sapwood.workload.joins import JoinGenerator, JoinSchema, feed_schema, flat_schema, levels_schema
from sapwood.workload.messages import MessageGenerator
from sapwood.workload.observations import ObservationWorkload
from sapwood.workload.queries import QueryGenerator
from sapwood.workload.reader import dtds, load_dtd
from sapwood.workload.stocks import StockWorkload
from sapwood.workload.transformations import TransformationGenerator

__all__ = [
    "Attribute",
    "Choice",
    "Content",
    "Default",
    "Dtd",
    "DtdError",
    "Element",
    "FeedGenerator",
    "JoinGenerator",
    "JoinSchema",
    "MessageGenerator",
    "ObservationWorkload",
    "Occurs",
    "Particle",
    "QueriesExhausted",
    "QueryGenerator",
    "Ref",
    "Seq",
    "StockWorkload",
    "TransformationGenerator",
    "dtds",
    "feed_schema",
    "flat_schema",
    "levels_schema",
    "load_dtd",
]
