"""The matching of messages for a node: with the subscriptions of their tenant, and the routes of links."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from sapwood.errors import MessageError
from sapwood.mesh.core import actions
from sapwood.mesh.wire.message_content import Hits, MessageContent
from sapwood.mesh.wire.skeletons.skeleton import SkeletonError
from sapwood.serve.engine.message_ids import digest_of
from sapwood.serve.tenants.evaluation import Evaluation, Publication, QueryResult

if TYPE_CHECKING:
    from sapwood.mesh.wire.bodies.wire_dictionary import WireDictionary
    from sapwood.mesh.wire.skeletons.skeleton_router import SkeletonRouter
    from sapwood.serve.engine.message_ids import MessageIds
    from sapwood.serve.mesh.node.local_work import LocalWork
    from sapwood.serve.mesh.node.message_hits import MessageHits
    from sapwood.serve.tenants.tenant_engines import TenantEngines

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Matching:
    """A message that the node wants to be matched, and what came of it."""

    action: actions.Match
    publication: Publication
    is_received: bool
    """whether it came from another broker, or was stored before"""
    content: MessageContent | None = None
    """the message as it came from another broker"""
    evaluation: Evaluation | None = None
    error: MessageError | None = None
    is_deferred: bool = False
    """whether only links are decided now, and local subscriptions see it later"""
    hits: dict[str, Hits] = field(default_factory=dict)
    """by neighbour that forwards messages, which of its routes the message meets"""

    @property
    def is_deferrable(self) -> bool:
        """Whether nobody waits for its deliveries."""
        return (self.is_received and self.action.is_new) or isinstance(self.publication, QueryResult)


class MessageMatcher:
    """Matches messages, in order, as many as possible at a time."""

    def __init__(
        self,
        engines: TenantEngines,
        ids: MessageIds,
        counters: Counter[str],
        local_work: LocalWork,
        hits: MessageHits,
        skeletons: SkeletonRouter | None = None,
        dictionaries: Mapping[bytes, WireDictionary] | None = None,
    ) -> None:
        self._engines = engines
        self._skeletons = skeletons
        self._dictionaries = dictionaries if dictionaries is not None else {}
        self._ids = ids
        self._local_work = local_work
        self._hits = hits
        self._counters = counters

    def match(self, matches: Sequence[Matching]) -> None:
        """Match messages, each of which then has an evaluation or an error."""
        self._rename_known(matches)
        self._defer(matches)
        undecided = [matching for matching in matches if not self._decide_unread(matching)]
        for (tenant, is_local), run in groupby(undecided, _group):
            self._evaluate_run(tenant, is_local, list(run))
        for matching in undecided:  # as long as the tables are those that they were matched with
            self._find_hits(matching, None)

    def _defer(self, matches: Sequence[Matching]) -> None:
        """Choose the messages that local subscriptions see later; all of a tenant here, or none."""
        local = [matching for matching in matches if matching.action.is_local]
        urgent = {matching.publication.tenant for matching in local if not matching.is_deferrable}
        for tenant in urgent:
            self._local_work.drain(tenant)
        for matching in local:
            tenant = matching.publication.tenant
            matching.is_deferred = tenant not in urgent and self._local_work.defers(tenant)

    def _decide_unread(self, matching: Matching) -> bool:
        """Decide on a message without reading it; return whether that was possible."""
        if matching.content is None:
            return False
        for decide in (self._decide_by_hits, self._decide_by_skeleton):
            if decide(matching, matching.action.is_local):
                matching.is_deferred = False  # no local subscription wants it
                return True
            if matching.is_deferred and decide(matching, False):
                return True
        return False

    def _decide_by_hits(self, matching: Matching, is_local: bool) -> bool:
        """Decide on the routes that a message meets by its sender; return whether that was possible."""
        content = matching.content
        if content is None or content.hits is None:
            return False
        links = self._hits.decide(content, matching.action.link, is_local)
        if links is None:
            return False
        self._counters["decided by hits"] += 1
        matching.evaluation = Evaluation(matching.publication.time, links=links)
        self._find_hits(matching, content.hits)
        return True

    def _find_hits(self, matching: Matching, used: Hits | None) -> None:
        evaluation = matching.evaluation
        if evaluation is not None and evaluation.links:
            matching.hits = self._hits.find(matching.publication, evaluation, matching.action.link, used)
            evaluation.slots = None

    def _decide_by_skeleton(self, matching: Matching, is_local: bool) -> bool:
        """Decide on the skeleton of a message; return whether that was possible.

        Joins see every message, because their time goes on with it.
        """
        content, publication = matching.content, matching.publication
        if self._skeletons is None or content is None or content.skeleton is None:
            return False
        dictionary = self._dictionaries.get(content.skeleton.dictionary)
        if dictionary is None or (is_local and self._engines.of(publication.tenant).broker.joins):
            return False
        try:
            links = self._skeletons.decide(
                publication.tenant, publication.stream, content.skeleton, dictionary, is_local
            )
        except SkeletonError as error:
            _log.error("message %s is matched, since its skeleton cannot be read: %s", publication.id, error)
            self._counters["refused skeletons"] += 1
            return False
        if links is None:
            return False
        self._counters["decided by skeleton"] += 1
        matching.evaluation = Evaluation(publication.time, links=links)
        return True

    def _rename_known(self, matches: Sequence[Matching]) -> None:
        """Find messages of other brokers whose id is known here.

        The same message, published at two brokers, is delivered once; another one gets a name of its own
        here, and goes on by the one that it was published with, for other brokers to find the same.
        """
        new = [m for m in matches if m.is_received and m.action.is_new and m.action.is_local]
        known = self._ids.find([m.publication for m in new])
        taken: dict[tuple[str, str, str], bytes] = {}
        for matching in new:
            publication, key = matching.publication, matching.action.key
            assert key is not None
            name = publication.tenant, publication.stream, publication.id
            mark = digest_of(publication)
            found = known[name].digest if name in known else taken.get(name)
            if found is not None:
                publication.published_id = publication.id
                publication.id = f"{publication.id}@{key.source}/{key.number}"
                if found == mark:
                    matching.action = replace(matching.action, content=None, is_local=False)
                    self._counters["repeated ids"] += 1
            taken[publication.tenant, publication.stream, publication.id] = mark

    def _evaluate_run(self, tenant: str, is_local: bool, run: Sequence[Matching]) -> None:
        if is_local:
            evaluations = self._local_work.evaluate(tenant, [matching.publication for matching in run])
            for matching, evaluation in zip(run, evaluations, strict=True):
                if isinstance(evaluation, MessageError):
                    matching.error = evaluation
                else:
                    matching.evaluation = evaluation
            return
        for matching in run:
            try:
                matching.evaluation = self._local_work.evaluate_links(matching.publication)
            except MessageError as error:
                matching.error = error


def _group(matching: Matching) -> tuple[str, bool]:
    return matching.publication.tenant, matching.action.is_local and not matching.is_deferred
