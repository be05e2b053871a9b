"""Writing results, apart from finding what goes into them: templates filled with nodes found before.

It is done as the network does it: what several queries ask for is written once, and elements are cut out of
the message where they can be. The network does both by turns, so one cannot be told from the other there.
"""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.bench.contenders import Contender
from sapwood.bench.timing import clock
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.message.document import ContextNode, Document
from sapwood.engine.message.message_reader import Message
from sapwood.transform.result_groups import Group
from sapwood.transform.result_writer import ResultWriter
from sapwood.transform.shared_plan import SharedPlan, SharedTemplate
from sapwood.transform.source_fragments import SourceFragments

Bound = tuple[ContextNode, ...]
Asked = dict[tuple[int, tuple[Bound, ...]], list[Group]]
"""distinct results: a template's number and what is bound, with the groups to fill it with"""


def writing_pass(shared: Contender, messages: Sequence[bytes]) -> float:
    """The seconds that writing all results takes."""
    network = shared.plans
    assert isinstance(network, SharedPlan)
    seconds = 0.0
    for body in messages:
        message = Message(body)
        found = shared.index.find(message)
        asked = asked_for(network, message, found)
        start = clock()
        write(shared.index, network, message, found, asked)
        seconds += clock() - start
    return seconds


def asked_for(network: SharedPlan, message: Message, found: IndexMatches) -> Asked:
    """What is to be written."""
    asked: Asked = {}
    for number, groups in network.groups(message, found):
        asked.setdefault((network.entry(number).template, tuple(group.bound for group in groups)), groups)
    return asked


def write(
    index: Index, network: SharedPlan, message: Message, found: IndexMatches, asked: Asked
) -> list[bytes]:
    """The distinct results."""
    assert found.evaluator is not None
    document = found.evaluator.document
    sliced = found.joined and document.verbatim and not document.declarations
    writer = ResultWriter(document, SourceFragments(document))
    pieces: dict[tuple[int, Bound], bytes] = {}
    results: list[bytes] = []
    for (number, bounds), groups in asked.items():
        shared = network.templates[number]
        for group in groups:
            key = number, group.bound
            if key in pieces:
                continue
            if sliced and shared.copies is not None:
                pieces[key] = _copied(document, shared, group)
            else:
                pieces[key] = writer.group(shared.template, group.lists)
        results.append(shared.template.body([pieces[number, bound] for bound in bounds]))
    return results


def _copied(document: Document, shared: SharedTemplate, group: Group) -> bytes:
    pieces: list[bytes] = []
    source, (starts, stops) = document.source, document.spans
    filled = iter(group.lists)
    for part in shared.copies or ():
        if isinstance(part, bytes):
            pieces.append(part)
        else:
            pieces += [source[starts[node] : stops[node]] for node in next(filled) if isinstance(node, int)]
    return b"".join(pieces)
