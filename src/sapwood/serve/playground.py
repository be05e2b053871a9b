"""Trying queries: how one is evaluated, and what it makes of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sapwood import Matcher, Node
from sapwood.broker import Broker
from sapwood.engine.limits import Limits
from sapwood.errors import ArgumentError, LateMessage
from sapwood.lang.languages import XPATH, XSCL, detect_language
from sapwood.serve.query_cost import estimate_cost

_MOST_NODES = 1_000
_MOST_RESULTS = 100
_QUERY = "query"


@dataclass(frozen=True, slots=True)
class Trial:
    """A message to try a query on."""

    body: bytes
    stream: str = ""
    time: float | None = None


def explain_query(query: str, namespaces: Mapping[str, str]) -> dict[str, Any]:
    """Return how a query is evaluated; raises QueryError."""
    with Broker(dict(namespaces)) as broker:
        broker.subscribe(_QUERY, query)
        return describe(broker.explain(_QUERY), query, namespaces)


def describe(explanation: Any, query: str, namespaces: Mapping[str, str]) -> dict[str, Any]:
    """Return an explanation as fields of JSON."""
    cost, refined = estimate_cost(query, namespaces)
    return {
        "query": query,
        "language": detect_language(query),
        "text": str(explanation),
        "native": not refined,
        "cost": cost,
        "refined": refined,
        "details": asdict(explanation),
    }


def try_query(
    query: str, trials: Sequence[Trial], namespaces: Mapping[str, str], limits: Limits
) -> dict[str, Any]:
    """Return what a query makes of messages, given in order; raises QueryError and MessageError."""
    if not trials:
        raise ArgumentError("there is no message to try the query on: give `message`, or `messages`")
    language = detect_language(query)
    if language == XPATH:
        return _try_filter(query, trials[-1].body, namespaces, limits) | {"language": language}
    with Broker(dict(namespaces), limits) as broker:
        broker.subscribe(_QUERY, query)
        made: list[bytes] = []
        for number, trial in enumerate(trials):
            try:
                name = f"message {number + 1}"
                found = broker.publish(trial.body, name, stream=trial.stream, time=trial.time)
            except LateMessage as late:
                return _result(language, False, str(late), [])
            if found.failures:
                return _result(language, False, found.failures[0].reason, [])
            made += [delivery.body for delivery in found]
        why = broker.why(_QUERY, trials[-1].body)
        matched = bool(made) if language == XSCL else why.matched
        return _result(language, matched, str(why), made)


def _try_filter(query: str, message: bytes, namespaces: Mapping[str, str], limits: Limits) -> dict[str, Any]:
    with Matcher(dict(namespaces), limits) as matcher:
        matcher.add(_QUERY, query)
        why = matcher.why(_QUERY, message)
        nodes = matcher.select(message).get(_QUERY, [])
    return {
        "matches": why.matched,
        "why": str(why),
        "nodes": [_describe_node(node) for node in nodes[:_MOST_NODES]],
        "results": [],
    }


def _describe_node(node: Node) -> dict[str, Any]:
    return {"index": node.index, "kind": node.kind, "value": node.value, "xml": node.xml}


def _result(language: str, matches: bool, why: str, made: list[bytes]) -> dict[str, Any]:
    results = [body.decode("utf-8", "replace") for body in made[:_MOST_RESULTS]]
    return {"language": language, "matches": matches, "why": why, "nodes": [], "results": results}
