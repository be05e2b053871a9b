"""Random documents and queries, and lxml's answers to compare with: an oracle that nobody here wrote."""

from __future__ import annotations

import random
from typing import Any

from lxml import etree

NAMESPACES = {"p": "urn:p", "q": "urn:q"}
_NAMES = ["a", "b", "c", "d", "p:a", "p:b", "q:a"]
_VALUES = ["1", "2", "3", "10", "1.0", " 2 ", "x", "xy", "yx", "", "-1", "abc", "NaN", "1e1"]
_WEIGHTED_NAMES = ["a"] * 8 + ["b"] * 6 + ["c"] * 2 + ["d", "p:a", "p:b", "q:a"]


# -- documents -----------------------------------------------------------------------------------------


def random_document(rng: random.Random, depth: int = 6, budget: int = 40) -> str:
    """A small document over few names, so that names nest and repeat; with comments, CDATA and PIs."""
    left = [budget]
    return _element(rng, depth, left, ' xmlns:p="urn:p" xmlns:q="urn:q"')


def _element(rng: random.Random, depth: int, left: list[int], extra: str = "") -> str:
    name = rng.choice(_WEIGHTED_NAMES)
    left[0] -= 1
    for attribute in rng.sample(["x", "y", "z", "p:x"], rng.choice([0, 0, 1, 1, 2, 3])):
        extra += f' {attribute}="{rng.choice(_VALUES)}"'
    if rng.random() < 0.15:
        return f"<{name}{extra}/>"
    content = ""
    for _ in range(rng.randint(0, 4) if depth > 1 else rng.randint(0, 1)):
        content += _content(rng, depth, left)
    return f"<{name}{extra}>{content}</{name}>"


def _content(rng: random.Random, depth: int, left: list[int]) -> str:
    kind = rng.random()
    if kind < 0.55 and depth > 1 and left[0] > 0:
        return _element(rng, depth - 1, left)
    if kind < 0.85:
        return rng.choice(_VALUES)
    if kind < 0.90:
        # Never empty: libxml2 makes an empty text node of <![CDATA[]]>, which XPath's data model rules out.
        return f"<![CDATA[{rng.choice(_VALUES) or 'x'}]]>"
    if kind < 0.95:
        return "<!-- note -->"
    return rng.choice(["<?pi data?>", "&amp;", "&#120;"])


# -- queries -------------------------------------------------------------------------------------------


def random_query(rng: random.Random, native: bool = True) -> str:
    """A query in the language that is evaluated natively, or anywhere in XPath 1.0."""
    if not native and rng.random() < 0.35:
        return _expression(rng)
    if rng.random() < 0.06:
        return f"{_path(rng, 2, native)} | {_path(rng, 2, native)}"
    return _path(rng, 3, native)


def _path(rng: random.Random, depth: int, native: bool) -> str:
    steps = "".join(_slash(rng) + _step(rng, depth, native) for _ in range(rng.randint(1, 4)))
    if rng.random() < 0.15:
        steps += rng.choice(
            ["/@x", "/@*", "/text()", "//text()", "//@y", "/@p:x", "/text()[2]", "/@x[.='1']"]
        )
    if not native and rng.random() < 0.2:
        steps += _slash(rng) + _rare_step(rng)
    return steps


def _slash(rng: random.Random) -> str:
    return "//" if rng.random() < 0.35 else "/"


def _name(rng: random.Random) -> str:
    return rng.choice([*_WEIGHTED_NAMES, *_WEIGHTED_NAMES, "*", "*", "*", "p:*"])


def _step(rng: random.Random, depth: int, native: bool) -> str:
    step = _name(rng)
    if rng.random() < 0.05:
        step = f"{rng.choice(['child', 'descendant'])}::{step}"
    for _ in range(rng.choice([0, 0, 0, 0, 1, 1, 2])):
        step += f"[{_predicate(rng, depth - 1, native)}]"
    return step


def _relative(rng: random.Random, depth: int, native: bool) -> str:
    start = rng.choice(["", "", "", ".//", "./"])
    steps = [start + (_step(rng, depth, native) if depth > 0 else _name(rng))]
    while rng.random() < 0.35:
        steps.append(_slash(rng) + (_step(rng, depth, native) if depth > 0 else _name(rng)))
    return "".join(steps)


def _operand(rng: random.Random, depth: int, native: bool) -> str:
    return rng.choice(
        [
            lambda: f"@{rng.choice(['x', 'y', 'z', 'p:x', '*'])}",
            lambda: f"@{rng.choice(['x', 'y', 'z'])}",
            lambda: "text()",
            lambda: ".",
            lambda: _relative(rng, depth, native),
            lambda: f"{_relative(rng, depth, native)}/@x",
            lambda: f"{_relative(rng, depth, native)}/text()",
            lambda: f".//@{rng.choice(['x', 'y'])}",
        ]
    )()


def _constant(rng: random.Random) -> str:
    if rng.random() < 0.4:
        return rng.choice(["1", "2", "3", "10", "-1", "1.5"])
    return f"'{rng.choice(_VALUES)}'"


def _predicate(rng: random.Random, depth: int, native: bool) -> str:
    if not native and rng.random() < 0.3:
        return _rare_predicate(rng, depth)
    kind = rng.random()
    if kind < 0.2:
        return _operand(rng, depth, native)
    if kind < 0.5:
        op = rng.choice(["=", "=", "=", "!=", "<", "<=", ">", ">="])
        sides = [_operand(rng, depth, native), _constant(rng)]
        if rng.random() < 0.15:
            sides.reverse()
        return f"{sides[0]} {op} {sides[1]}"
    if kind < 0.6:
        function = rng.choice(["contains", "starts-with"])
        return f"{function}({_operand(rng, depth, native)}, '{rng.choice(['x', 'y', '1', 'ab', ''])}')"
    if kind < 0.72:
        return rng.choice(
            [
                "1",
                "2",
                "3",
                "last()",
                "position() < 3",
                "position() >= 2",
                "last() - 1",
                "position() = last()",
            ]
            + ["position() != 1", "last() > 1", "1.5", "2 > position()"]
        )
    if kind < 0.78:
        return rng.choice(
            ["self::a", "self::a or self::b", "self::*", "local-name() = 'a'", "self::p:*", "true()"]
            + ["namespace-uri() = 'urn:p'", "string(@x) = '1'", "descendant-or-self::b", "count(b) > 0"]
        )
    if depth <= 0:
        return f"@{rng.choice(['x', 'y'])}"
    if kind < 0.86:
        return f"not({_predicate(rng, depth - 1, native)})"
    word = rng.choice(["and", "or"])
    return f"{_predicate(rng, depth - 1, native)} {word} {_predicate(rng, depth - 1, native)}"


def _rare_step(rng: random.Random) -> str:
    axis = rng.choice(
        ["parent", "ancestor", "ancestor-or-self", "following-sibling", "preceding-sibling", "following"]
        + ["preceding", "self", "descendant-or-self"]
    )
    test = rng.choice([_name(rng), _name(rng), "node()", "text()", "comment()"])
    tail = rng.choice(["", "", f"/{_name(rng)}", "[1]", "[@x]", "/.."])
    return rng.choice([f"{axis}::{test}{tail}", "..", "node()", "comment()", "processing-instruction()", "."])


def _rare_predicate(rng: random.Random, depth: int) -> str:
    a, b = _operand(rng, depth, True), _operand(rng, depth, True)
    return rng.choice(
        [
            f"{a} {rng.choice(['=', '!=', '<', '>='])} {b}",
            f"count({_relative(rng, 0, True)}) {rng.choice(['=', '>', '<', '!='])} {rng.choice('0123')}",
            f"{a} + 1 = {rng.choice('23')}",
            f"string-length({a}) > 1",
            f"normalize-space({a}) = '2'",
            f"{_rare_step(rng)}",
            f"not({_rare_step(rng)})",
            "position() mod 2 = 1",
            f"sum({_relative(rng, 0, True)}) > 2",
            "name() = 'p:a'",
            f"translate({a}, 'x', 'y') = 'y'",
            f"contains({a}, {b})",
            f"/{_name(rng)}[@x]",
            f"not(/{_name(rng)}) or {b}",
            f"concat({a}, 'x') = '1x'",
            f"boolean({a})",
            f"{a} = true()",
            f"{a} | {b}",
        ]
    )


def _expression(rng: random.Random) -> str:
    path, other = _path(rng, 2, True), _path(rng, 2, False)
    return rng.choice(
        [
            f"count({path}) {rng.choice(['>', '=', '<'])} {rng.randint(0, 3)}",
            f"boolean({path}) and not({other})",
            f"{path} = {_constant(rng)}",
            f"{path} = {other}",
            f"string({path})",
            f"sum({path})",
            f"({path})[{rng.choice(['1', 'last()', '@x'])}]",
            f"({path} | {other})/{_name(rng)}",
            f"not({path}) or {other}",
            f"string-length({path}) - 1",
            f"{other} | {path}",
            "/",
            "//.",
            f"contains({path}, 'x')",
            f"{path} > 1 and {other}",
            f"number({path})",
            f"concat({path}, '')",
        ]
    )


# -- lxml's answers ------------------------------------------------------------------------------------


def parse(document: bytes | str) -> Any:
    data = document.encode() if isinstance(document, str) else document
    return etree.fromstring(data, etree.XMLParser(resolve_entities=True, no_network=True)).getroottree()


def compiled(query: str, namespaces: dict[str, str] | None = None) -> etree.XPath:
    return etree.XPath(query, namespaces=namespaces if namespaces is not None else NAMESPACES)


def matches(tree: Any, query: str, namespaces: dict[str, str] | None = None) -> bool:
    return bool(compiled(f"boolean({query})", namespaces)(tree))


def selected(tree: Any, query: str) -> list[tuple[int, str, str]]:
    """(index, kind, value) of each node selected, as `Node` tells them; a scalar is one entry.

    lxml leaves the document node out.
    """
    value = compiled(query)(tree)
    if not isinstance(value, list):
        return [(0, {bool: "boolean", float: "number"}.get(type(value), "string"), "")]
    index = {element: i for i, element in enumerate(tree.getroot().iter("*"), 1)}
    return [_described(item, index) for item in value]


def _described(item: Any, index: dict[Any, int]) -> tuple[int, str, str]:
    if isinstance(item, tuple):
        return 0, "namespace", item[1]
    if isinstance(item, str):
        parent = item.getparent()  # type: ignore[attr-defined]
        if item.is_tail:  # type: ignore[attr-defined]
            parent = parent.getparent()
        return index[parent], "attribute" if item.is_attribute else "text", str(item)  # type: ignore[attr-defined]
    if item in index:
        return index[item], "element", str(item.xpath("string()"))
    kind = "comment" if item.tag is etree.Comment else "processing-instruction"
    owner = item.getparent()
    return 0 if owner is None else index[owner], kind, item.text or ""
