"""Small random messages, queries that join them, and histories in which both come and go.

Few names and few values, so that messages often meet; elements nest in themselves, so that variables are
bound in many ways. A message that a query publishes is made of the same names, and meets others again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random

from hypothesis import strategies as st

from tests.support.generators.join_queries import (
    Block,
    Comparison,
    Condition,
    Filter,
    Hole,
    Link,
    Op,
    Operand,
    Query,
    Variable,
    written,
)

STREAMS = [*["S"] * 6, "T", ""]

CHOICES = st.randoms(use_true_random=False)
"""every choice is hypothesis's, so that failures shrink"""
SEEDS = st.integers(0, 2**32).map(Random)
"""fast, for what is larger"""

# -- messages --------------------------------------------------------------------------------------------

_NAMES = ["a", "a", "b", "b", "b", "c"]
_VALUES = [*["1", "2", "x"] * 4, "10", "1.0", " 2", "é", ""]
_BETWEEN = ["<!--x-->", "<?pi?>", "1", "x", " "]
_CHILDREN = {3: (2, 4), 2: (0, 3), 1: (0, 1)}
"""fewest and most children, by the levels left"""


def random_message(rng: Random) -> str:
    if rng.random() < 0.15:
        declared = rng.choice([' xmlns:p="urn:p"', ' xmlns:p="urn:p"', ' xmlns="urn:p"'])
        prefixes = ["p:", ""] if "xmlns:" in declared else [""]
    else:
        declared, prefixes = "", [""]
    return _element(rng, 3, declared, prefixes)


def _element(rng: Random, levels: int, declared: str, prefixes: Sequence[str]) -> str:
    name = rng.choice(prefixes) + rng.choice(_NAMES if levels < 3 else ["a", "a", "c"])
    names = [name for name in ("k", "id") if rng.random() < 0.3]
    attributes = "".join(f' {name}="{rng.choice(_VALUES)}"' for name in names)
    count = rng.randint(*_CHILDREN[levels]) if not name.endswith("b") or rng.random() < 0.2 else 0
    content = "".join(_child(rng, levels - 1, prefixes) for _ in range(count))
    if not content or rng.random() < 0.1:
        content += rng.choice(_VALUES)
    return f"<{name}{declared}{attributes}>{content}</{name}>"


def _child(rng: Random, levels: int, prefixes: Sequence[str]) -> str:
    if not levels or rng.random() < 0.1:
        return rng.choice(_BETWEEN)
    return _element(rng, levels, "", prefixes)


def random_tree(rng: Random, levels: int) -> str:
    """A message of one or two elements in each element, and text in the innermost."""
    name = rng.choice(_NAMES)
    attribute = ' k="1"' if rng.random() < 0.3 else ""
    children = [random_tree(rng, levels - 1) for _ in range(rng.choice([1, 1, 2]) if levels > 1 else 0)]
    return f"<{name}{attribute}>{''.join(children) or rng.choice('12x')}</{name}>"


# -- blocks ----------------------------------------------------------------------------------------------

_ROOTS = [*["//a", "/*", "//*"] * 8, "//b", "/a", "//a/b", "/a//b", "//a//a", "//p:a", "/*/*"]
_BRANCHES = [
    *["//b", "//b", "//b", "/b", "//*", "/*"] * 6,
    "//a",
    "/a",
    "/c",
    "//c",
    "/a/b",
    "//a/b",
    "//p:b",
]
_ENDS = [*["//*/@k", "//text()"] * 3, "/@k", "/@id", "//*/@*", "/text()", "/b/text()", "//a/@k"]
_CONSTANTS = ["= 'x'", "= '1'", "!= 'x'", "= 1", "> 1", "<= 2", "!= 2", "< 10"]
_CONDITIONS = [
    *("b", "@k", ".//a", "b/@k", "not(@id)", "@k = 1", "b = 'x'", ".//b > 1", ". != 'x'", "contains(., '1')"),
    *("b or @k", "a and b", "starts-with(@k, '1')", "not(c = '2')", "text() = 'x'", "*[2]", "b[@k]/text()"),
]
_POSITIONS = ["1", "2", "last()", "position() < 3"]
_FROM_VARIABLE = ["/b", "//b", "/a", "/@k", "//*/@k", "/text()", "//text()", "/*", "/a/b", "//a/@id"]
_TESTS = ["contains({}, '1')", "starts-with({}, 'x')", "'x' = {}", "1 <= {}"]
_TESTS_OF_PATHS = ["not({})", "{}", "({0} or {0} = 1)"]


class _Names:
    """Names for the variables of one query."""

    def __init__(self) -> None:
        self._given = 0

    def next(self) -> str:
        self._given += 1
        return f"x{self._given}"


def _is_element(variable: Variable) -> bool:
    last = variable.path.rpartition("/")[2]
    return last != "text()" and not last.startswith("@")


def _is_attribute(variable: Variable) -> bool:
    return variable.path.rpartition("/")[2].startswith("@")


def _block(rng: Random, stream: str, names: _Names, levels: int) -> Block:
    """At least one of its variables is written."""
    block = Block(stream, _variable(rng, rng.choice(_ROOTS), names, levels))
    if any(variable.written for variable in block.root.all()):
        return block
    return Block(stream, replace(block.root, written=True))


def _variable(rng: Random, path: str, names: _Names, levels: int) -> Variable:
    variable = Variable(names.next(), path, written=rng.random() < 0.85)
    if not _is_element(variable):
        conditions = (f". {rng.choice(_CONSTANTS)}",) if rng.random() < 0.1 else ()
        return replace(variable, written=True, conditions=conditions)
    branches = [
        _below(rng, names, levels - 1) for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 2]) if levels else 0)
    ]
    goes_on = levels and rng.random() < 0.15
    return replace(
        variable,
        position=rng.choice(_POSITIONS) if rng.random() < 0.04 else "",
        conditions=_conditions(rng),
        branches=tuple(branches),
        then=_below(rng, names, levels - 1) if goes_on else None,
    )


def _below(rng: Random, names: _Names, levels: int) -> Variable:
    path = rng.choice(_ENDS if rng.random() < 0.3 else _BRANCHES)
    return _variable(rng, path, names, levels if rng.random() < 0.25 else 0)


def _conditions(rng: Random) -> tuple[str, ...]:
    kind = rng.random()
    if kind < 0.9:
        return ()
    return (f". {rng.choice(_CONSTANTS)}",) if kind < 0.93 else (rng.choice(_CONDITIONS),)


# -- links -----------------------------------------------------------------------------------------------

_OPS: list[Op] = ["=", "=", "!=", "<", "<=", ">", ">="]
_MIRROR_OPS: list[Op] = ["=", "=", "=", "!=", "<=", ">="]


def _link(rng: Random, before: Sequence[Block], block: Block, scale: float) -> Link:
    earlier, later = [_written(before), _written([block])]
    comparisons = [_comparison(rng, earlier, "=", later)]
    comparisons += [
        _comparison(rng, earlier, rng.choice(_OPS), later)
        for _ in range(rng.choice([0, 0, 0, 0, 0, 1, 1, 2]))
    ]
    rng.shuffle(comparisons)
    return Link(
        op=rng.choice(["JOIN", "FOLLOWED BY"]),
        window=rng.choice([1, 2, 4, 10, 10, inf, inf] if len(before) < 2 else [2, 10, inf]) * scale,
        comparisons=tuple(comparisons),
        conditions=(_condition(rng, earlier + later),) if rng.random() < 0.15 else (),
    )


def _written(blocks: Sequence[Block]) -> list[Variable]:
    return [variable for block in blocks for variable in block.root.all() if variable.written]


def _comparison(rng: Random, earlier: Sequence[Variable], op: Op, later: Sequence[Variable]) -> Comparison:
    left, right = _operand(rng, earlier), _operand(rng, later)
    numeric = op == "=" and not left.path and not right.path and rng.random() < 0.2
    return Comparison(left, op, right, numeric)


def _operand(rng: Random, variables: Sequence[Variable]) -> Operand:
    """Mostly a variable without others below it, for its value is more likely that of another."""
    leaves = [variable for variable in variables if not variable.below]
    variable = rng.choice(leaves if leaves and rng.random() < 0.9 else variables)
    path = rng.choice(_FROM_VARIABLE) if _is_element(variable) and rng.random() < 0.15 else ""
    return Operand(variable.name, path)


def _condition(rng: Random, variables: Sequence[Variable]) -> Condition:
    operand = _operand(rng, variables)
    tests = [f"{{}} {constant}" for constant in _CONSTANTS] + _TESTS
    return Condition(operand, rng.choice(tests + _TESTS_OF_PATHS if operand.path else tests))


# -- output ----------------------------------------------------------------------------------------------

_OPENINGS = ["<a>", "<a>", "<b>", "<r>", '<a k="1">', '<p:r xmlns:p="urn:p">', '<r xmlns="urn:d">']
_COPIED = ["/b", "//b", "/a", "/*", "/text()", "//text()"]


def _select(rng: Random, blocks: Sequence[Block]) -> tuple[str | Hole, ...]:
    variables = _written(blocks)
    opening = rng.choice(_OPENINGS)
    name = opening[1:].rstrip(">").partition(" ")[0]
    kind = rng.random()
    if kind < 0.1:
        return (f"{opening}</{name}>",)
    if kind < 0.3:
        variable = rng.choice(variables)
        value = Hole(Operand(variable.name, rng.choice(["", "/@k", "//b"]) if _is_element(variable) else ""))
        return f'{opening[:-1]} id="', value, '">', *_content(rng, variables), f"</{name}>"
    attributes = [variable for variable in variables if _is_attribute(variable) and variable.path != "//*/@*"]
    if kind < 0.5 and attributes:
        first = Hole(Operand(rng.choice(attributes).name))
        return "<a>", first, *_content(rng, variables), "</a>"
    return opening, *_content(rng, variables), f"</{name}>"


def _content(rng: Random, variables: Sequence[Variable]) -> list[str | Hole]:
    """One to three holes, with text or elements around them or not."""
    parts: list[str | Hole] = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        hole = _hole(rng, rng.choice(variables))
        parts += rng.choice([[hole], [hole], ["<b>", hole, "</b>"], ["n: ", hole], ["<c/>", hole]])
    return parts


def _hole(rng: Random, variable: Variable) -> Hole:
    if not _is_element(variable):
        return Hole(
            Operand(variable.name), "string" if _is_attribute(variable) else rng.choice(["", "string"])
        )
    operand = Operand(variable.name, rng.choice(_COPIED) if rng.random() < 0.4 else "")
    return Hole(operand, rng.choice(["", "", "", "string", "count"]))


# -- queries ---------------------------------------------------------------------------------------------


def random_query(rng: Random, scale: float = 1, published: Sequence[str] = (), publish: str = "") -> Query:
    """A query over one to three blocks, on streams that are always there or on those that others publish."""
    names = _Names()
    count = rng.choice([1, 2, 2, 2] if publish else [1, *[2] * 4, *[3] * 5])
    streams = [rng.choice(published if published and rng.random() < 0.4 else STREAMS) for _ in range(count)]
    blocks = [_block(rng, stream, names, levels=2 if count < 3 else 1) for stream in streams]
    links = [_link(rng, blocks[:i], blocks[i], scale) for i in range(1, count)]
    select = _select(rng, blocks) if rng.random() < (0.8 if publish else 0.5) else None
    return Query(tuple(blocks), tuple(links), select, publish)


def random_mirror(rng: Random, scale: float) -> Query:
    """A block joined with itself, once or twice: trees compared all over. A message meets its like."""
    count = rng.choice([2, 2, 3])
    names = _Names()
    twigs = _twigs(rng, names, 2) if count == 2 else _twigs(rng, names, 1)[:1]
    first = Variable(names.next(), rng.choice(["/*", "//*", "//a"]), branches=twigs)
    roots = [first, *(_renamed(first, names) for _ in range(count - 1))]
    blocks = [Block(rng.choice(STREAMS), root) for root in roots]
    links = [_mirror_link(rng, roots[:i], roots[i], scale) for i in range(1, count)]
    return Query(tuple(blocks), tuple(links), _select(rng, blocks) if rng.random() < 0.3 else None)


def _mirror_link(rng: Random, before: Sequence[Variable], root: Variable, scale: float) -> Link:
    pairs = list(zip(rng.choice(before).all(), root.all(), strict=True))
    compared = rng.sample(pairs, min(rng.choice([2, 3, 4, 5, 6]), len(pairs)))
    ops: list[Op] = ["=", *(rng.choice(_MIRROR_OPS) for _ in compared[1:])]
    comparisons = [
        Comparison(Operand(one.name), op, Operand(other.name), op == "=" and rng.random() < 0.2)
        for (one, other), op in zip(compared, ops, strict=True)
    ]
    return Link(rng.choice(["JOIN", "FOLLOWED BY"]), rng.choice([1, 2, 10, inf]) * scale, tuple(comparisons))


def _twigs(rng: Random, names: _Names, levels: int) -> tuple[Variable, ...]:
    """One or two branches, mostly with others below them."""
    twigs: list[Variable] = []
    for _ in range(rng.choice([1, 2, 2]) if levels else 0):
        variable = Variable(names.next(), rng.choice([*["//*", "/*"] * 3, "//a", "//b", "/*/@k"]))
        goes_on = _is_element(variable) and rng.random() < 0.8
        twigs.append(replace(variable, branches=_twigs(rng, names, levels - 1) if goes_on else ()))
    return tuple(twigs)


def random_likes(rng: Random) -> History:
    """Queries that join blocks with themselves, and few messages, each several times."""
    queries = [random_mirror(rng, 1) for _ in range(6)]
    bodies = [random_tree(rng, levels=4) for _ in range(2)]
    return History(
        lateness=0,
        events=(
            *(Subscribe(id, query, written(query, rng)) for id, query in enumerate(queries)),
            *(Publish(f"m{n}", rng.choice(STREAMS), n // 2, rng.choice(bodies)) for n in range(8)),
        ),
    )


def _renamed(variable: Variable, names: _Names) -> Variable:
    name = names.next()
    return replace(variable, name=name, branches=tuple(_renamed(b, names) for b in variable.branches))


def random_sibling(rng: Random, query: Query, scale: float) -> Query:
    """The same blocks, linked by other comparisons in other windows: much to share, and much to mix up."""
    links = [_link(rng, query.blocks[:i], query.blocks[i], scale) for i in range(1, len(query.blocks))]
    select = rng.choice([query.select, None, _select(rng, query.blocks)])
    return Query(query.blocks, tuple(links), select)


# -- histories -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subscribe:
    """Or, if there is such a subscription, replace its query."""

    id: int
    query: Query | Filter
    text: str


@dataclass(frozen=True)
class Unsubscribe:
    id: int


@dataclass(frozen=True)
class Publish:
    id: str
    stream: str
    time: float
    body: str


@dataclass(frozen=True)
class History:
    lateness: float
    events: tuple[Subscribe | Unsubscribe | Publish, ...]


def histories(
    messages: int = 8, queries: int = 4, by: st.SearchStrategy[Random] = CHOICES
) -> st.SearchStrategy[History]:
    return by.map(lambda rng: random_history(rng, messages, queries))


def random_history(rng: Random, messages: int, queries: int) -> History:
    """Queries come first, mostly; then messages, while some queries come, go and change."""
    scale = rng.choice([1, 1, 60, 3_600])
    lateness = rng.choice([0, 0, 1, 3]) * scale
    drawn = _queries(rng, queries, scale)
    bodies = [random_message(rng) for _ in range(max(messages // 2, 2))]
    first = [Subscribe(id, query, written(query, rng)) for id, query in enumerate(drawn)]
    events: list[Subscribe | Unsubscribe | Publish] = list(first)
    held = dict.fromkeys(range(len(drawn)))
    latest = 0.0
    for number in range(messages):
        if rng.random() < 0.15:
            id = rng.randrange(len(drawn) + 2)
            if id in held and rng.random() < 0.5:
                del held[id]
                events.append(Unsubscribe(id))
            else:
                held[id] = None
                query = rng.choice(drawn) if id >= len(drawn) else drawn[id]
                query = replace(query, publish="") if id >= len(drawn) and isinstance(query, Query) else query
                events.append(Subscribe(id, query, written(query, rng)))
        latest += rng.choice([0, 0.5, 1, 1, 2]) * scale
        late = rng.choice([0, 0, 1, 2, 3, 3.5]) * scale if lateness and rng.random() < 0.5 else 0
        late = scale if rng.random() < 0.03 else late
        body = rng.choice(bodies) if rng.random() < 0.5 else random_message(rng)
        events.append(Publish(f"m{number}", rng.choice(STREAMS), max(latest - late, 0), body))
    return History(lateness, tuple(events))


def _queries(rng: Random, count: int, scale: float) -> list[Query | Filter]:
    """Some read what others publish; no stream is read by the query that makes it, or by one before."""
    drawn: list[Query | Filter] = []
    published: list[str] = []
    for number in range(count):
        kind = rng.random()
        earlier = [query for query in drawn if isinstance(query, Query) and not query.publish]
        if kind < 0.05:
            drawn.append(Filter(rng.choice(_ROOTS)))
        elif kind < 0.3 and len(published) < 3:
            drawn.append(random_query(rng, scale, published, f"P{number}"))
            published.append(f"P{number}")
        elif kind < 0.5 and earlier:
            drawn.append(random_sibling(rng, rng.choice(earlier), scale))
        elif kind < 0.6 and earlier:
            drawn.append(rng.choice(earlier))  # in another spelling
        elif kind < 0.7:
            drawn.append(random_mirror(rng, scale))
        else:
            drawn.append(random_query(rng, scale, published))
    return drawn
