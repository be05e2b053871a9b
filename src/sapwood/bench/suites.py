"""The suites of `sapwood bench`, with the modules of their experiments in the order in which they run."""

from __future__ import annotations

from sapwood.bench.harness.runner import Options, Suite, run_suite

__all__ = [
    "FILTER",
    "JOIN",
    "MESH",
    "RELATIONAL",
    "SERVE",
    "SPARK",
    "TRANSFORM",
    "Options",
    "Suite",
    "run_suite",
]

_FILTER_BARS = (
    "matching_cost",
    "small_messages",
    "value_ranges",
    "thread_scaling",
    "matcher_memory",
    "recursive_messages",
    "fallback_cost",
)
_FILTER_GROWTH = ("population_growth", "query_parameters", "compile_growth")

FILTER = Suite(
    "filter",
    (*_FILTER_BARS, *_FILTER_GROWTH),
    published=True,
    groups={"bars": _FILTER_BARS, "growth": _FILTER_GROWTH},
)
TRANSFORM = Suite(
    "transform",
    ("shared_plan_cost", "broker_cost", "plan_optimisation", "plan_growth"),
    "generated from the DTDs 'book' and 'bibliography'",
)
JOIN = Suite(
    "join",
    ("message_pairs", "feed_items", "feed_on_spark"),
    "joins of generated messages, as in Hong et al. (2007)",
)
RELATIONAL = Suite(
    "relational",
    ("stock_quotes", "observation_queries", "engine_comparison", "spark_sql"),
    "subscriptions in tables, as in Tian et al. (2004)",
)
SPARK = Suite(
    "spark",
    ("worker_startup", "match_throughput", "batch_latency", "real_time_latency", "stream_memory"),
    published=True,
)
SERVE = Suite(
    "serve",
    ("publish_throughput", "live_listeners", "server_start"),
    published=True,
)
MESH = Suite(
    "mesh",
    (
        "chain_throughput",
        "broker_parts",
        "confirmation",
        "slow_subscriber",
        "recovery",
        "link_traffic",
        "table_budgets",
        "simulated_scale",
        "format_sizes",
        "format_cost",
        "inner_broker",
        "projection_cost",
        "exclusiveness",
        "hop_latency",
        "routing_latency",
    ),
    published=True,
)
