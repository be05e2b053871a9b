"""The serialization of results apart from the evaluation: templates are filled with nodes found before.

It is done as the shared plan does it: a result that several queries have in common is written once, and
elements are copied from the message where possible. The shared plan interleaves evaluation and serialization,
so they cannot be timed separately there.
"""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.bench.harness.timer import clock
from sapwood.bench.transform.evaluators import Evaluator
from sapwood.engine.index import IndexMatches
from sapwood.engine.message.document import ContextNode, Document
from sapwood.engine.message.message_reader import Message
from sapwood.transform.result_groups import Group
from sapwood.transform.result_writer import ResultWriter
from sapwood.transform.shared_plan import SharedPlan, SharedTemplate
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
        start = clock()
        write_results(network, found, results)
        seconds += clock() - start
    return seconds


def collect_results(network: SharedPlan, message: Message, found: IndexMatches) -> DistinctResults:
    """Return the distinct results of a message, not yet written."""
    results: DistinctResults = {}
    for number, groups in network.groups(message, found):
        results.setdefault((network.entry(number).template, tuple(group.bound for group in groups)), groups)
    return results


def write_results(network: SharedPlan, found: IndexMatches, results: DistinctResults) -> list[bytes]:
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
            if sliced and shared.copies is not None:
                pieces[key] = _copy_elements(document, shared, group)
            else:
                pieces[key] = writer.group(shared.template, group.lists)
        bodies.append(shared.template.body([pieces[number, bound] for bound in bounds]))
    return bodies


def _copy_elements(document: Document, shared: SharedTemplate, group: Group) -> bytes:
    pieces: list[bytes] = []
    source, (starts, stops) = document.source, document.spans
    lists = iter(group.lists)
    for part in shared.copies or ():
        if isinstance(part, bytes):
            pieces.append(part)
        else:
            pieces += [source[starts[node] : stops[node]] for node in next(lists) if isinstance(node, int)]
    return b"".join(pieces)
