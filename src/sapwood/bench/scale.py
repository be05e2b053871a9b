"""How large the experiments are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of all experiments. The bars are promises about `FULL` on the published workload only."""

    # The bars.
    messages: int
    few: int
    """plain paths, where there are few"""
    distinct: int
    repeated: int
    predicates: int
    nested: int
    churned: int
    """queries that come and go must leave so many loaded"""
    loads: int
    """how often loading, and the first pass after it, is measured"""

    # Growth.
    growth_messages: int
    growth_distinct: tuple[int, ...]
    growth_repeated: tuple[int, ...]
    growth_queries: int
    """for depth and P(*)"""
    growth_deep_queries: int
    """for P(//)"""
    growth_branching: int
    """for predicates and nested paths"""
    depths: tuple[int, ...]
    wildcards: tuple[float, ...]
    descendants: tuple[float, ...]
    predicate_counts: tuple[int, ...]
    twin_predicate_counts: tuple[int, ...]
    """where the index of values is switched off as well"""
    ranges: tuple[int, ...]
    twin_ranges: int
    """up to so many with the index of values switched off"""
    nested_counts: tuple[int, ...]
    inserted: int
    insert_populations: tuple[int, ...]
    nestings: tuple[int, ...]
    recursive_queries: int

    # How carefully.
    rounds: int
    seconds: float
    """that the rounds of one measurement take at least"""
    sampled_queries: int
    sampled_messages: int


FULL = Scale(
    messages=500,
    few=1_000,
    distinct=153_928,
    repeated=500_000,
    predicates=100_000,
    nested=50_000,
    churned=150_000,
    loads=3,
    growth_messages=200,
    growth_distinct=(1_000, 5_000, 20_000, 50_000, 100_000, 153_928),
    growth_repeated=(1_000, 5_000, 20_000, 50_000, 100_000, 200_000, 350_000, 500_000),
    growth_queries=50_000,
    growth_deep_queries=10_000,
    growth_branching=20_000,
    depths=(6, 7, 8, 9, 10),
    wildcards=(0.0, 0.2, 0.4, 0.6, 0.8),
    descendants=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    predicate_counts=(0, 1, 2, 5, 10, 20),
    twin_predicate_counts=(1, 5, 10),
    ranges=(10, 100, 1_000, 10_000, 100_000),
    twin_ranges=10_000,
    nested_counts=(0, 1, 2, 3),
    inserted=1_000,
    insert_populations=(2_000, 5_000, 10_000, 20_000, 40_000, 80_000, 150_000),
    nestings=(25, 50, 100, 200),
    recursive_queries=500,
    rounds=7,
    seconds=1.0,
    sampled_queries=1_000,
    sampled_messages=20,
)

GENERATED = Scale(
    messages=300,
    few=1_000,
    distinct=20_000,
    repeated=50_000,
    predicates=20_000,
    nested=10_000,
    churned=19_000,
    loads=3,
    growth_messages=200,
    growth_distinct=(1_000, 2_000, 5_000, 10_000, 20_000, 50_000),
    growth_repeated=(1_000, 5_000, 20_000, 50_000, 100_000, 200_000, 500_000),
    growth_queries=20_000,
    growth_deep_queries=10_000,
    growth_branching=10_000,
    depths=FULL.depths,
    wildcards=FULL.wildcards,
    descendants=FULL.descendants,
    predicate_counts=FULL.predicate_counts,
    twin_predicate_counts=FULL.twin_predicate_counts,
    ranges=FULL.ranges,
    twin_ranges=FULL.twin_ranges,
    nested_counts=FULL.nested_counts,
    inserted=1_000,
    insert_populations=(2_000, 5_000, 10_000, 20_000, 40_000),
    nestings=FULL.nestings,
    recursive_queries=500,
    rounds=7,
    seconds=1.0,
    sampled_queries=1_000,
    sampled_messages=20,
)

QUICK = Scale(
    messages=100,
    few=1_000,
    distinct=10_000,
    repeated=20_000,
    predicates=4_000,
    nested=2_000,
    churned=9_000,
    loads=1,
    growth_messages=50,
    growth_distinct=(1_000, 3_000, 10_000, 20_000),
    growth_repeated=(1_000, 5_000, 20_000, 50_000),
    growth_queries=5_000,
    growth_deep_queries=2_000,
    growth_branching=1_500,
    depths=(6, 8, 10),
    wildcards=(0.0, 0.4, 0.8),
    descendants=(0.0, 0.5, 1.0),
    predicate_counts=(0, 1, 5, 20),
    twin_predicate_counts=(1, 5),
    ranges=(10, 100, 1_000, 10_000),
    twin_ranges=1_000,
    nested_counts=FULL.nested_counts,
    inserted=500,
    insert_populations=(1_000, 3_000, 10_000),
    nestings=FULL.nestings,
    recursive_queries=100,
    rounds=3,
    seconds=0.1,
    sampled_queries=300,
    sampled_messages=10,
)
