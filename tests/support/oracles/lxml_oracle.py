"""Random documents and queries, and lxml's answers to compare with: an oracle that nobody here wrote."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from lxml import etree

NAMESPACES = {"p": "urn:p", "q": "urn:q"}
_VALUES = ["1", "2", "3", "10", "1.0", " 2 ", "x", "xy", "yx", "", "-1", "abc", "NaN", "1e1"]
# Names with a combining vowel, a combining accent and an extender, which are characters of XML's own tables.
_UNICODE_NAMES = ["กิ", "a\u0301", "a·b"]
_WEIGHTED_NAMES = [*["a"] * 16, *["b"] * 12, *["c"] * 4, *["d", "p:a", "p:b", "q:a"] * 2, *_UNICODE_NAMES]
_POSITIONS = ["1", "2", "3", "1.5", "last()", "last() - 1", "position() < 3", "position() >= 2"]
_POSITIONS += ["position() = last()", "position() != 1", "last() > 1", "2 > position()"]
_SELF_TESTS = ["self::a", "self::a or self::b", "self::*", "self::p:*", "local-name() = 'a'", "true()"]
_SELF_TESTS += ["namespace-uri() = 'urn:p'", "string(@x) = '1'", "descendant-or-self::b", "count(b) > 0"]
_RARE_AXES = ["parent", "ancestor", "ancestor-or-self", "following", "following-sibling", "preceding"]
_RARE_AXES += ["preceding-sibling", "self", "descendant-or-self"]


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


_DOCTYPES = [
    "<!DOCTYPE a>",
    "<!DOCTYPE a [<!ENTITY e 'v'><!ENTITY f '<b>&e;</b>'>]>",
    "<!DOCTYPE a [<!ATTLIST a x CDATA '1' y CDATA #IMPLIED><!ATTLIST b z CDATA 'x'>]>",
    "<!DOCTYPE a [<!ATTLIST p:a p:x CDATA '2'>]>",
]  # without comments and processing instructions, which libxml2 takes for nodes of the document


def random_message(rng: random.Random, document: str) -> bytes:
    """The document with a prolog, a DOCTYPE that adds attributes or entities to it, in some encoding."""
    doctype = rng.choice(["", *_DOCTYPES])
    if "ENTITY" in doctype:
        document = document.replace("&amp;", rng.choice(["&e;", "&f;"]))
    around = ["", "<!-- around -->", "<?pi around?>"]
    message = rng.choice(around) + doctype + rng.choice(around) + document + rng.choice(around)
    encodings = ["utf-8", "utf-8", "utf-16", "utf-8-sig"]
    encoding = rng.choice([*encodings, "iso-8859-1"] if _is_latin(message) else encodings)
    declared = {"utf-16": "UTF-16", "iso-8859-1": "ISO-8859-1"}.get(encoding)
    if declared is not None:
        message = f'<?xml version="1.0" encoding="{declared}"?>{message}'
    return message.encode(encoding)


def _is_latin(text: str) -> bool:
    return max(text, default="") <= "\xff"


# -- queries -------------------------------------------------------------------------------------------


def random_query(rng: random.Random, native: bool = True) -> str:
    """A query in the language that is evaluated natively, or anywhere in XPath 1.0."""
    if not native and rng.random() < 0.45:
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
    if rng.random() < 0.05:
        steps += _beyond_leaf(rng, depth, native)
    if not native and rng.random() < 0.2:
        steps += _slash(rng) + _rare_step(rng)
    return steps


def _beyond_leaf(rng: random.Random, depth: int, native: bool) -> str:
    """Steps to attributes or text, conditions on them, and steps that would go on from there."""
    leaf = rng.choice(["/@x", "//@*", "/text()", "//text()"])
    if rng.random() < 0.5:
        leaf += f"[{_predicate(rng, depth - 1, native)}]"
    return leaf + rng.choice(["", "", "//@x", "/@x", "//text()", "/a", "//*", "//a[@x]"])


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
    kinds: list[Callable[[], str]] = [
        lambda: f"@{rng.choice(['x', 'y', 'z', 'p:x', '*'])}",
        lambda: f"@{rng.choice(['x', 'y', 'z'])}",
        lambda: "text()",
        lambda: ".",
        lambda: _relative(rng, depth, native),
        lambda: f"{_relative(rng, depth, native)}/@x",
        lambda: f"{_relative(rng, depth, native)}/text()",
        lambda: f".//@{rng.choice(['x', 'y'])}",
    ]
    return rng.choice(kinds)()


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
        return rng.choice(_POSITIONS)
    if kind < 0.78:
        return rng.choice(_SELF_TESTS)
    if depth <= 0:
        return f"@{rng.choice(['x', 'y'])}"
    if kind < 0.86:
        return f"not({_predicate(rng, depth - 1, native)})"
    word = rng.choice(["and", "or"])
    return f"{_predicate(rng, depth - 1, native)} {word} {_predicate(rng, depth - 1, native)}"


def _rare_step(rng: random.Random) -> str:
    axis = rng.choice(_RARE_AXES)
    test = rng.choice([_name(rng), _name(rng), "node()", "text()", "comment()"])
    tail = rng.choice(["", "", f"/{_name(rng)}", "[1]", "[@x]", "/.."])
    return rng.choice([f"{axis}::{test}{tail}", "..", "node()", "comment()", "processing-instruction()", "."])


def _rare_predicate(rng: random.Random, depth: int) -> str:
    a, b = _operand(rng, depth, True), _operand(rng, depth, True)
    near = _relative(rng, 0, True)
    return rng.choice(
        [
            _first_node_test(rng, _parenthesised(rng, near)),
            _first_node_test(rng, f"{near}[{_rare_condition(rng)}]"),
            f"{_parenthesised(rng, near)} {_compare(rng)} {_constant(rng)}",
            _text_of_number(rng, a),
            f"{a} {_compare(rng)} {b}",
            f"{a} {_compare(rng)} {_computed(rng, b)}",
            f"{_computed(rng, a)} {_compare(rng)} {_constant(rng)}",
            f"{_computed(rng, a)} {_compare(rng)} {_computed(rng, b)}",
            f"count({near}) {_compare(rng)} {rng.choice('0123')}",
            f"{a} + 1 = {rng.choice('23')}",
            f"{_rare_step(rng)}",
            f"not({_rare_step(rng)})",
            f"({near} | {_rare_step(rng)})[{rng.choice(_POSITIONS)}]",
            f"({near})[{rng.choice(_POSITIONS)}]/{_name(rng)}",
            "position() mod 2 = 1",
            "position() + 1 = last()",
            "name() = 'p:a'",
            f"contains({a}, {b})",
            f"starts-with('{rng.choice(_VALUES)}', {b})",
            f"/{_name(rng)}[@x]",
            f"not(/{_name(rng)}) or {b}",
            f"boolean({a})",
            f"{a} | {b}",
        ]
    )


def _rare_condition(rng: random.Random) -> str:
    """A condition that has no pattern, so that it is left out of the necessary one."""
    conditions = ["string-length(.) > 1", "position() mod 2 = 0", "position() + 1 = last()", "sum(@*) > 1"]
    return rng.choice([*conditions, "not(../@x)", "@x = @y", "preceding-sibling::*", "count(*) = 0"])


def _parenthesised(rng: random.Random, path: str) -> str:
    """Conditions on a whole node-set, reached along any axis, and steps from it."""
    inside = path
    for _ in range(rng.choice([0, 1, 1, 2])):
        inside += rng.choice([f"/{_rare_step(rng)}", f"//{_rare_step(rng)}", "/..", "//.", "//node()"])
    if rng.random() < 0.2:
        inside += f" | {path}/{_rare_step(rng)}"
    whole = f"({inside})"
    for _ in range(rng.choice([0, 1, 1, 2])):
        kinds = [_rare_condition(rng), _predicate(rng, 0, True), _predicate(rng, 0, True)]
        whole += f"[{rng.choice([*kinds, rng.choice(_POSITIONS)])}]"
    if rng.random() < 0.1:
        whole = f"({whole}/{_rare_step(rng)})[{_predicate(rng, 0, True)}]"
    return whole + rng.choice(["", "", "", f"/{_name(rng)}", "//@x", f"/{_rare_step(rng)}"])


def _first_node_test(rng: random.Random, nodes: str) -> str:
    """A function that takes the first node of a set."""
    wanted = rng.choice(["1", "2", "x", "y", "xy"])
    return rng.choice(
        [
            f"contains({nodes}, '{wanted}')",
            f"starts-with({nodes}, '{wanted}')",
            f"contains(string({nodes}), '{wanted}')",
            f"string({nodes}) = '{wanted}'",
            f"normalize-space({nodes}) = '{wanted}'",
            f"number({nodes}) = {rng.choice('123')}",
            f"name({nodes}) = 'a'",
        ]
    )


def _text_of_number(rng: random.Random, of: str) -> str:
    """The text of a number, which is not empty even where there is no node."""
    number = rng.choice([f"-{of}", f"number({of})", f"{of} + 1", f"floor({of})", f"sum({of})"])
    return rng.choice(
        [
            f"contains(string({number}), 'NaN')",
            f"starts-with({number}, 'N')",
            f"contains({number}, '1')",
            f"string({number}) = 'NaN'",
            f"normalize-space({number}) = 'NaN'",
            f"translate({number}, 'Na', '12') = 121",
            f"string-length({number}) = 3",
            f"boolean({number})",
        ]
    )


def _compare(rng: random.Random) -> str:
    return rng.choice(["=", "=", "!=", "<", "<=", ">", ">="])


def _computed(rng: random.Random, of: str) -> str:
    """A value of any type computed from a node-set, true, zero or empty where the node-set is empty."""
    return rng.choice(
        [
            "true()",
            "false()",
            f"boolean({of})",
            f"not({of})",
            f"count({of})",
            f"sum({of})",
            f"number({of})",
            f"-{of}",
            f"({of} - 1)",
            f"({of} * 0)",
            f"({of} div 2)",
            f"string({of})",
            f"string-length({of})",
            f"normalize-space({of})",
            f"concat({of}, 'x')",
            f"substring({of}, 2)",
            f"substring-before({of}, 'y')",
            f"translate({of}, 'x', 'y')",
            f"local-name({of})",
            f"floor({of})",
            f"contains({of}, 'x')",
            f"starts-with({of}, '')",
            f"({of} = 1)",
            f"({of} and true())",
        ]
    )


def _expression(rng: random.Random) -> str:
    path, other = _path(rng, 2, True), _path(rng, 2, False)
    return rng.choice(
        [
            f"count({path}) {_compare(rng)} {rng.randint(0, 3)}",
            f"boolean({path}) and not({other})",
            f"{path} {_compare(rng)} {_constant(rng)}",
            f"{path} {_compare(rng)} {other}",
            f"{path} {_compare(rng)} {_computed(rng, other)}",
            f"{_computed(rng, path)} {_compare(rng)} {_constant(rng)}",
            f"{_computed(rng, path)} {_compare(rng)} {_computed(rng, other)}",
            f"{_computed(rng, path)}",
            f"not({_computed(rng, path)})",
            f"({path})[{rng.choice(['@x', *_POSITIONS])}]",
            _parenthesised(rng, path),
            _parenthesised(rng, rng.choice(["//a", "//b", "//*", "//@x", "//text()", "/a"])),
            f"not({_parenthesised(rng, path)})",
            f"{_parenthesised(rng, path)} {_compare(rng)} {_constant(rng)}",
            _first_node_test(rng, _parenthesised(rng, path)),
            _first_node_test(rng, f"{path}[{_rare_condition(rng)}]"),
            _text_of_number(rng, path),
            f"({path} | {other})/{_name(rng)}",
            f"({path} | {other})[{rng.choice(_POSITIONS)}]",
            f"not({path}) or {other}",
            f"{other} | {path}",
            "/",
            "//.",
            f"{path} > 1 and {other}",
        ]
    )


# -- lxml's answers ------------------------------------------------------------------------------------

Described = tuple[int, str, str]
_SCALARS: dict[type, str] = {bool: "boolean", float: "number"}


def parse(document: bytes | str, defaults: bool = False) -> Any:
    """The document as lxml reads it; with `defaults`, attributes that a DTD declares defaults for, too."""
    data = document.encode() if isinstance(document, str) else document
    parser = etree.XMLParser(
        resolve_entities=True, no_network=True, huge_tree=True, attribute_defaults=defaults
    )
    return etree.fromstring(data, parser).getroottree()


def compiled(query: str, namespaces: dict[str, str] | None = None) -> etree.XPath:
    return etree.XPath(query, namespaces=namespaces if namespaces is not None else NAMESPACES)


def matches(tree: Any, query: str, namespaces: dict[str, str] | None = None) -> bool:
    return bool(compiled(f"boolean({query})", namespaces)(tree))


def selected(tree: Any, query: str, namespaces: dict[str, str] | None = None) -> list[Described]:
    """(index, kind, value) of each node selected, as `Node` tells them; a scalar is one entry.

    lxml leaves the document node out.
    """
    value = compiled(query, namespaces)(tree)
    if not isinstance(value, list):
        return [(0, _SCALARS.get(type(value), "string"), "")]
    index = {element: i for i, element in enumerate(tree.getroot().iter("*"), 1)}
    return [_described(item, index) for item in value]


def _described(item: Any, index: dict[Any, int]) -> Described:
    if isinstance(item, tuple):
        return 0, "namespace", item[1]
    if isinstance(item, str):
        return _described_string(item, index)
    if item in index:
        return index[item], "element", str(item.xpath("string()"))
    kind = "comment" if item.tag is etree.Comment else "processing-instruction"
    owner = item.getparent()
    return 0 if owner is None else index[owner], kind, item.text or ""


def _described_string(item: Any, index: dict[Any, int]) -> Described:
    """An attribute or text node: lxml gives a str that knows its parent."""
    parent = item.getparent().getparent() if item.is_tail else item.getparent()
    return index[parent], "attribute" if item.is_attribute else "text", str(item)
