"""Compares the relational engine with the automaton and lxml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sapwood import Limits, Matcher, MessageError
from sapwood.relational import Plan, RelationalMatcher
from tests.support.oracles import lxml_oracle

Answer = list[str] | str
"""the ids that match, or why the message is refused"""


def assert_alike(
    queries: Sequence[str],
    messages: Sequence[str | bytes],
    namespaces: Mapping[str, str] | None = None,
    *,
    plans: Iterable[Plan] = Plan,
    batch: int = 1_000,
    times: int = 1,
    with_lxml: bool = True,
) -> int:
    """Assert that every plan matches as the automaton does; return the number of matches.

    `times` tells how often each query is subscribed: from the second time on, it is compiled by its skeleton.
    """
    namespaces = namespaces or {}
    pairs = [(f"{number} {query}", query) for number in range(times) for query in queries]
    expected = automaton(pairs, messages, namespaces)
    if with_lxml:
        _assert_lxml_agrees(queries, messages, expected, namespaces)
    for plan in plans:
        with RelationalMatcher(namespaces=namespaces, plan=plan) as matcher:
            matcher.add_many(pairs)
            found = answers(matcher, messages, batch)
        for message, one, other in zip(messages, found, expected, strict=True):
            assert one == other, about(plan, message, one, other)
    return sum(len(answer) for answer in expected if isinstance(answer, list))


def about(plan: Plan | None, message: str | bytes, one: Answer, other: Answer) -> str:
    """Describe a difference in a line or two."""
    if isinstance(one, str) or isinstance(other, str):
        return f"{plan}: {one} or {other}, on {message[:2_000]!r}"
    extra, missing = [id for id in one if id not in other], [id for id in other if id not in one]
    return f"{plan}: matches {extra[:5]} in excess, {missing[:5]} are missing, on {message[:2_000]!r}"


def automaton(
    pairs: Iterable[tuple[str, str]],
    messages: Iterable[str | bytes],
    namespaces: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> list[Answer]:
    found: list[Answer] = []
    with Matcher(namespaces, limits) as matcher:
        matcher.add_many(pairs)
        for message in messages:
            try:
                found.append([str(id) for id in matcher.match(message)])
            except MessageError as error:
                found.append(str(error))
    return found


def answers(matcher: RelationalMatcher, messages: Iterable[str | bytes], batch: int = 1_000) -> list[Answer]:
    return [
        str(answer) if isinstance(answer, MessageError) else list(answer)
        for answer in matcher.match_each(messages, batch)
    ]


def _assert_lxml_agrees(
    queries: Sequence[str],
    messages: Sequence[str | bytes],
    expected: Sequence[Answer],
    namespaces: Mapping[str, str],
) -> None:
    truths = [lxml_oracle.compiled(f"boolean({query})", dict(namespaces)) for query in queries]
    for message, answer in zip(messages, expected, strict=True):
        if isinstance(answer, list):
            tree = lxml_oracle.parse(message, defaults=True)
            said = [f"0 {query}" for query, truth in zip(queries, truths, strict=True) if truth(tree)]
            assert said == [id for id in answer if id.startswith("0 ")], message
