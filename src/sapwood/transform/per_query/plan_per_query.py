"""One operator plan per query: only the matching of paths is shared. The baseline of the shared plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from sapwood.engine.failures import QueryProblem
from sapwood.engine.fallback.xpath_fallback import XPathFallback
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.engine.registration import Needs
from sapwood.lang.fwr.model import Transformation
from sapwood.transform.execution import ResultBodies, contain_failure
from sapwood.transform.fallback_transformation import FallbackTransformation, groups_of
from sapwood.transform.per_query.operator_plan import OperatorPlan, Optimise, Sharing, plan
from sapwood.transform.per_query.path_streams import PathStreams
from sapwood.transform.per_query.stream_conditions import ElementGraph, conforms
from sapwood.transform.result_groups import Group
from sapwood.transform.result_writer import Item, ResultTemplate, ResultWriter
from sapwood.transform.source_fragments import SourceFragments

_NEEDS = Needs.TEXT | Needs.SOURCE


class PlanPerQuery:
    """Transformations, each with a plan of its own that runs on every message."""

    def __init__(
        self,
        index: Index,
        graph: ElementGraph | None = None,
        sharing: Sharing = "FWR",
        optimise: Optimise | None = None,
    ) -> None:
        self._index = index
        self._fallback = XPathFallback(Counter(), index.limits)  # whose slots are the numbers of plans
        self._graph = graph
        self._sharing = sharing
        self._optimise: Optimise = optimise or ("query" if graph is None else "dtd")
        self.plans: dict[int, OperatorPlan] = {}
        self._refined: dict[int, FallbackTransformation] = {}
        self._templates: dict[int, ResultTemplate] = {}
        self._next = 0
        self.alone: Mapping[int, int] = {}

    def __len__(self) -> int:
        return len(self._templates)

    def add(self, transformation: Transformation) -> int:
        """Add a plan, and return its number."""
        number = self._next
        template = ResultTemplate.of(transformation)
        if transformation.exact:
            self.plans[number] = plan(transformation, self._sharing, self._optimise, self._graph)
        else:
            self._refined[number] = FallbackTransformation(transformation)
        self._templates[number] = template
        self._next += 1
        self._index.require(_NEEDS)
        return number

    def remove(self, number: int) -> None:
        del self._templates[number]
        self.plans.pop(number, None)
        self._refined.pop(number, None)
        self._fallback.forget(number)
        self._index.release(_NEEDS)

    def resume(self, number: int) -> None:
        """Have lxml evaluate a suspended plan again."""
        self._fallback.resume(number)

    def close(self) -> None:
        """Release the processes that evaluate with lxml."""
        self._fallback.close()

    def groups(
        self, found: IndexMatches, costs: Counter[str] | None = None
    ) -> Iterator[tuple[int, list[Group]]]:
        """Yield the plans with a result on a message, and their groups."""
        for number, groups in self._run(found, costs):
            if not isinstance(groups, QueryProblem):
                yield number, groups

    def _run(
        self, found: IndexMatches, costs: Counter[str] | None
    ) -> Iterator[tuple[int, list[Group] | QueryProblem]]:
        """Yield the plans with a result on a message, and their groups or failures."""
        document = found.evaluator.document
        streams = PathStreams(document)
        conforming = self._graph is not None and conforms(document, self._graph)
        for number, own in self.plans.items():
            run = partial(own.run, streams, found.evaluator, conforming, costs)
            groups = contain_failure(run, own.transformation.text)
            if groups:
                yield number, groups

    def bodies(self, message: Message, found: IndexMatches) -> ResultBodies:
        """Return the results of all plans on a message."""
        document = found.evaluator.document
        writer = ResultWriter(document, SourceFragments(document))
        made = ResultBodies([], [])
        for number, groups in self._run(found, None):
            if isinstance(groups, QueryProblem):
                made.problems.append((number, groups))
            else:
                self._write(number, [group.lists for group in groups], writer, made)
        requests = {number: refined.request for number, refined in self._refined.items()}
        for number, answer in self._fallback.evaluate(message, requests).items():
            if isinstance(answer, QueryProblem):
                made.problems.append((number, answer))
            elif answer:
                self._write(number, groups_of(answer), writer, made)
        return made

    def _write(
        self,
        number: int,
        groups: Iterable[Sequence[Sequence[Item]]],
        writer: ResultWriter,
        made: ResultBodies,
    ) -> None:
        template = self._templates[number]
        made.append((number, template.body([writer.group(template, lists) for lists in groups])))
