"""The matching of messages for a node: with the subscriptions of their tenant, and the routes of links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from sapwood.errors import MessageError
from sapwood.mesh.core import actions
from sapwood.serve.engine.message_ids import digest
from sapwood.serve.tenants.evaluation import Evaluation, Publication

if TYPE_CHECKING:
    from sapwood.serve.engine.message_ids import MessageIds
    from sapwood.serve.tenants.tenant_engines import TenantEngines


@dataclass(slots=True)
class Matching:
    """A message that the node wants to be matched, and what came of it."""

    action: actions.Match
    publication: Publication
    is_received: bool
    """whether it came from another broker, or was stored before"""
    evaluation: Evaluation | None = None
    error: MessageError | None = None


class MessageMatcher:
    """Matches messages, in order, as many as possible at a time."""

    def __init__(self, engines: TenantEngines, ids: MessageIds, counters: Counter[str]) -> None:
        self._engines = engines
        self._ids = ids
        self._counters = counters

    def match(self, matches: Sequence[Matching]) -> None:
        """Match messages, each of which then has an evaluation or an error."""
        self._rename_known(matches)
        for (tenant, is_local), run in groupby(matches, _group):
            self._evaluate_run(tenant, is_local, list(run))

    def _rename_known(self, matches: Sequence[Matching]) -> None:
        """Find messages of other brokers whose id is known here.

        The same message, published at two brokers, is delivered once; another one gets a name of its own.
        """
        new = [m for m in matches if m.is_received and m.action.is_new and m.action.is_local]
        known = self._ids.find([m.publication for m in new])
        taken: set[tuple[str, str, str]] = set()
        for matching in new:
            publication, key = matching.publication, matching.action.key
            assert key is not None
            name = publication.tenant, publication.stream, publication.id
            found = known.get(name)
            if found is not None or name in taken:
                publication.id = f"{publication.id}@{key.source}/{key.number}"
                if found is not None and found.digest == digest(publication.body):
                    matching.action = actions.Match(matching.action.token, None, key, True, is_local=False)
                    self._counters["repeated ids"] += 1
            taken.add((publication.tenant, publication.stream, publication.id))

    def _evaluate_run(self, tenant: str, is_local: bool, run: Sequence[Matching]) -> None:
        engine = self._engines.of(tenant)
        if is_local:
            evaluations = engine.evaluate([matching.publication for matching in run])
            for matching, evaluation in zip(run, evaluations, strict=True):
                if isinstance(evaluation, MessageError):
                    matching.error = evaluation
                else:
                    matching.evaluation = evaluation
            return
        for matching in run:
            evaluation = Evaluation(matching.publication.time)
            try:
                evaluation.links = engine.find_links(matching.publication)
                matching.evaluation = evaluation
            except MessageError as error:
                matching.error = error


def _group(matching: Matching) -> tuple[str, bool]:
    return matching.publication.tenant, matching.action.is_local
