"""Access keys of subscriptions: values that every message must have which a subscription matches.

    /story[@topic = 'a' and p]//author[. = 'b']     story/@topic = a,  author = b

Subscriptions with one key can be hosted together: a message without that value need not go there. A
subscription has the key that the fewest messages of a sample have. Without any equality, its first named
steps are its key, and without those it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sapwood.engine.matcher import Matcher
from sapwood.engine.message.message_reader import Message
from sapwood.engine.registration import Owner
from sapwood.errors import MessageError
from sapwood.lang.pattern import TEXT, And, Axis, Condition, Has, Path, Step, Test
from sapwood.lang.query import Query
from sapwood.mesh.planning.planned_subscription import PlannedSubscription

AccessKey = tuple[str, ...]
"""names, and for an equality, `=` and the value"""
_EQUALS = "="
_TARGET_STEPS = 2
"""names of a target: an attribute and its element, or an element and its parent"""
_PREFIX_STEPS = 3
_MOST_MESSAGES = 200
"""of the sample, for selectivities"""


def choose_access_keys(
    subscriptions: Sequence[PlannedSubscription], sample: Sequence[bytes]
) -> list[AccessKey | None]:
    """Return the access key of each subscription; None where there is none."""
    candidates = [_find_candidates(each) for each in subscriptions]
    rivals = {key for keys in candidates if len(keys) > 1 for key in keys}
    shares = _count_messages(sorted(rivals), sample[:_MOST_MESSAGES])

    def choose(keys: list[AccessKey], subscription: PlannedSubscription) -> AccessKey | None:
        if not keys:
            return _find_prefix(subscription)
        return min(keys, key=lambda key: (shares.get(key, 0), key))

    return [choose(keys, each) for keys, each in zip(candidates, subscriptions, strict=True)]


def _find_candidates(subscription: PlannedSubscription) -> list[AccessKey]:
    if len(subscription.routes) != 1:
        return []  # any one of its conditions is enough for a message, so none is necessary
    return list(dict.fromkeys(find_equalities(subscription.routes[0].condition)))


def find_equalities(condition: Condition, context: tuple[str, ...] = ()) -> Iterator[AccessKey]:
    """Yield the equalities that hold of every message that meets a condition."""
    if isinstance(condition, And):
        for item in condition.items:
            yield from find_equalities(item, context)
    elif isinstance(condition, Has):
        names = context
        for step in condition.path.steps:
            names = _extend(names, step)
            for inner in step.conditions:
                yield from find_equalities(inner, names)
        test = condition.test
        if test is not None and test.op == _EQUALS and names and "*" not in names[-1]:
            yield (*names[-_TARGET_STEPS:], _EQUALS, _normalize(test.value))


def _extend(names: tuple[str, ...], step: Step) -> tuple[str, ...]:
    if step.test == TEXT:
        return names
    return (*names, f"@{step.test}" if step.axis is Axis.ATTRIBUTE else step.test)


def _normalize(value: str | float) -> str:
    """Return one text for values that compare alike, as 2007 and '2007' may."""
    try:
        return f"{float(value):g}"
    except ValueError:
        return str(value)


def _find_prefix(subscription: PlannedSubscription) -> AccessKey | None:
    """Return the first named steps of the first path of a subscription."""
    waiting: list[Condition] = [route.condition for route in subscription.routes[:1]]
    while waiting:
        condition = waiting.pop()
        if isinstance(condition, And):
            waiting += reversed(condition.items)
        elif isinstance(condition, Has):
            names = [step.test for step in condition.path.steps if "*" not in step.test and step.test != TEXT]
            if names:
                return tuple(names[:_PREFIX_STEPS])
    return None


def _count_messages(keys: Sequence[AccessKey], sample: Sequence[bytes]) -> dict[AccessKey, int]:
    """Return how many messages of a sample have each value."""
    if not keys:
        return {}
    matcher = Matcher()
    slots = [
        matcher.index.register(Query("an access key", "boolean", _to_condition(key)), Owner.LINK)
        for key in keys
    ]
    counts = np.zeros(max(slots) + 1, np.int64)
    with matcher:
        for body in sample:
            try:
                counts[matcher.index.find(Message(body), owner=Owner.LINK).slots] += 1
            except MessageError:
                continue  # refused where it is published
    return {key: int(counts[slot]) for key, slot in zip(keys, slots, strict=True)}


def _to_condition(key: AccessKey) -> Condition:
    *names, _, value = key
    steps = [
        Step(Axis.ATTRIBUTE, name[1:]) if name.startswith("@") else Step(Axis.DESCENDANT, name)
        for name in names
    ]
    if steps[0].axis is Axis.ATTRIBUTE:  # of any element
        steps.insert(0, Step(Axis.DESCENDANT, "*"))
    return Has(Path(tuple(steps)), Test(_EQUALS, value))
