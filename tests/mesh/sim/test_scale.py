"""The scale experiment, at a size for tests."""

from __future__ import annotations

from random import Random

import pytest

from sapwood.mesh.sim.scale import make_tree, run_scale


@pytest.mark.slow
def test_exact_routes_reach_the_optimum() -> None:
    report = run_scale(brokers=60, subscriptions=2_000, messages=60, seed=3)
    assert report.frames == pytest.approx(report.optimum)
    assert 0 < report.optimum < 0.5 * report.flooding
    assert report.deliveries > 500
    assert report.table_frames < 10 * 2 * 59  # a few for each direction of a link, not one for each broker
    again = run_scale(brokers=60, subscriptions=2_000, messages=60, seed=3)
    assert again.trace == report.trace
    assert again.to_dict().keys() == report.to_dict().keys()
    assert run_scale(brokers=60, subscriptions=2_000, messages=60, seed=4).trace != report.trace


@pytest.mark.parametrize(("brokers", "depth"), [(3, 1), (21, 10), (300, 10), (50, 4)])
def test_trees_have_two_branches_of_full_depth(brokers: int, depth: int) -> None:
    tree = make_tree(brokers, depth, Random(2))
    depths = []
    for name in tree.parents:
        steps, parent = 0, tree.parents[name]
        while parent is not None:
            steps, parent = steps + 1, tree.parents[parent]
        depths.append(steps)
    assert len(tree) == brokers
    assert max(depths) == depth
    assert depths.count(depth) >= 2


@pytest.mark.slow
@pytest.mark.long
def test_30_a_thousand_brokers() -> None:
    report = run_scale()
    assert report.wall_seconds < 600
    assert report.megabytes < 8_000
    assert report.frames == pytest.approx(report.optimum)
