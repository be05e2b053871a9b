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

from sapwood.workload.dtd.dtd_reader import dtds, load_dtd
from sapwood.workload.dtd.model import (
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
from sapwood.workload.messages.message_generator import MessageGenerator
from sapwood.workload.queries.join_generator import (
    JoinGenerator,
    JoinSchema,
    feed_schema,
    flat_schema,
    levels_schema,
)
from sapwood.workload.queries.query_generator import QueryGenerator
from sapwood.workload.queries.query_sampling import QueriesExhausted
from sapwood.workload.queries.transformation_generator import TransformationGenerator
from sapwood.workload.studies.feed_generator import FeedGenerator
from sapwood.workload.studies.observation_workload import ObservationWorkload
from sapwood.workload.studies.stock_workload import StockWorkload

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
