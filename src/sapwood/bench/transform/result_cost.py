"""The serialization of results apart from the evaluation: templates are filled with nodes found before.

It is done as the shared plan does it: a result that several queries have in common is written once, and
elements are copied from the message where possible. The shared plan interleaves evaluation and serialization,
so they cannot be timed separately there.
"""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.bench.harness.timer import clock
from sapwood.bench.transform.evaluators import Evaluator
from sapwood.engine.automaton.relative_paths import ReachedElements
from sapwood.engine.index import IndexMatches
from sapwood.engine.message.document import ContextNode
from sapwood.engine.message.message_reader import Message
from sapwood.transform.result_groups import Group
from sapwood.transform.result_writer import ResultWriter
from sapwood.transform.shared_plan import SharedPlan
from sapwood.transform.source_fragments import SourceFragments

Bound = tuple[ContextNode, ...]
DistinctResults = dict[tuple[int, tuple[Bound, ...]], list[Group]]
"""the number of a template and its bindings, with the groups to fill it with"""


def writing_pass(shared: Evaluator, messages: Sequence[bytes]) -> float:
    """Return the seconds of writing all results."""
    network = shared.plans
    assert isinstance(network, SharedPlan)
    seconds = 0.0
    for body in messages:
        message = Message(body)
        found = shared.index.find(message)
        results = collect_results(network, message, found)
        reached = find_reached(found)
        start = clock()
        write_results(network, found, reached, results)
        seconds += clock() - start
    return seconds


def collect_results(network: SharedPlan, message: Message, found: IndexMatches) -> DistinctResults:
    """Return the distinct results of a message, not yet written."""
    results: DistinctResults = {}
    for number, groups in network.groups(message, found):
        results.setdefault((network.entry(number).template, tuple(group.bound for group in groups)), groups)
    return results


def find_reached(found: IndexMatches) -> ReachedElements | None:
    """Return what relative paths reach from all bound elements."""
    return found.reached(sorted({node for _, nodes in found.bound_elements for node in nodes}))


def write_results(
    network: SharedPlan, found: IndexMatches, reached: ReachedElements | None, results: DistinctResults
) -> list[bytes]:
    """Write the distinct results."""
    document = found.evaluator.document
    sliced = found.joined and document.verbatim and not document.declarations
    writer = ResultWriter(document, SourceFragments(document))
    pieces: dict[tuple[int, Bound], bytes] = {}
    bodies: list[bytes] = []
    for (number, bounds), groups in results.items():
        shared = network.templates[number]
        for group in groups:
            key = number, group.bound
            if key in pieces:
                continue
            bound = group.bound[0]
            if sliced and shared.copies is not None and reached is not None and isinstance(bound, int):
                pieces[key] = reached.copy(shared.copies, bound)
            else:
                pieces[key] = writer.group(shared.template, group.lists)
        bodies.append(shared.template.body([pieces[number, bound] for bound in bounds]))
    return bodies
