"""Small random documents, and for-where-return queries over them in two languages: Sapwood's, and Saxon's.

A piece of a query is a `Both`: its text for Sapwood, and for Saxon the XQuery that means the same (`saxon.py`
says where they differ). Documents and queries share few names and values, so that they often meet.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

NAMESPACES = {"p": "urn:p", "q": "urn:q", "d": "urn:d"}

_RANDOMS = st.randoms(use_true_random=False)  # every choice is hypothesis's, so that failures shrink


def documents() -> st.SearchStrategy[str]:
    return _RANDOMS.map(random_document)


def queries(beyond: bool = False) -> st.SearchStrategy[Query]:
    return _RANDOMS.map(lambda rng: random_query(rng, beyond))


# -- documents -------------------------------------------------------------------------------------------

_NAMES = [*["a"] * 6, *["b"] * 4, "c"]
_TEXTS = ["1", "2", "x", "xy", "10", "1.0", " 2 ", "1e1", "-1", "NaN", "\n  ", "{", "}}", "é"]
_TEXTS += ["&amp;", "&lt;x&gt;", "]]&gt;", "&#120;", "&#xE9;", "&#13;", "<![CDATA[x]]>", "<![CDATA[<&]]>"]
_VALUES = [
    "1",
    "2",
    "x",
    "xy",
    "10",
    "1.0",
    "",
    " 2 ",
    "x y",
    "&quot;",
    "'",
    "&lt;&amp;",
    "&#10;",
    "&#120;",
    "é",
]
_COMMON = ["1", "2", "x"]
_ASIDES = ["<!--x-->", "<!---->", "<?pi x?>"]
_BEFORE = ["<!--before-->", "<?pi before?>\n", '<?xml version="1.0"?>\n']
_AFTER = ["\n", "<!--after-->"]
# The default one comes and goes; p changes its meaning; x is another p.
_DECLARATIONS = [("", "urn:d"), ("", ""), ("p", "urn:p"), ("q", "urn:q"), ("p", "urn:q"), ("x", "urn:p")]
_CHILDREN = {4: (3, 5), 3: (1, 4), 2: (0, 4), 1: (0, 2)}
"""fewest and most children, by the levels left"""


def random_document(rng: random.Random) -> str:
    """A message of few levels: mixed content, comments, CDATA and entities; every third with namespaces."""
    with_namespaces = rng.random() < 0.35
    declared = rng.choices(_DECLARATIONS, k=rng.randint(1, 3)) if with_namespaces else []
    before = rng.choice(_BEFORE) if rng.random() < 0.2 else ""
    after = rng.choice(_AFTER) if rng.random() < 0.2 else ""
    return before + _element(rng, 4, {"": ""}, dict(declared), with_namespaces) + after


def _element(
    rng: random.Random,
    levels: int,
    outer: Mapping[str, str],
    declared: Mapping[str, str],
    with_namespaces: bool,
) -> str:
    scope = {**outer, **declared}
    prefix = rng.choice([*scope, "", ""])
    name = (f"{prefix}:" if prefix else "") + rng.choice(_NAMES)
    tag = name + "".join(_declaration(*pair) for pair in declared.items()) + _attributes(rng, scope)
    count = rng.randint(*_CHILDREN[levels])
    children = "".join(_child(rng, levels - 1, scope, with_namespaces) for _ in range(count))
    return f"<{tag}>{children}</{name}>" if children else f"<{tag}/>"


def _child(rng: random.Random, levels: int, scope: Mapping[str, str], with_namespaces: bool) -> str:
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(_ASIDES)
    if kind < 0.4 or not levels:
        return rng.choice(_COMMON if rng.random() < 0.5 else _TEXTS)
    declares = with_namespaces and rng.random() < 0.2
    declared = dict([rng.choice(_DECLARATIONS)]) if declares else {}
    return _element(rng, levels, scope, declared, with_namespaces)


def _attributes(rng: random.Random, scope: Mapping[str, str]) -> str:
    names = rng.sample(["k", "id"], rng.randint(0, 2))
    prefixes = [prefix for prefix in scope if prefix]
    if prefixes and rng.random() < 0.5:
        names.append(f"{rng.choice(prefixes)}:k")
    values = [rng.choice(_COMMON if rng.random() < 0.5 else _VALUES) for _ in names]
    return "".join(f' {name}="{value}"' for name, value in zip(names, values, strict=True))


def _declaration(prefix: str, uri: str) -> str:
    return f' xmlns:{prefix}="{uri}"' if prefix else f' xmlns="{uri}"'


# -- queries in two languages ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Both:
    """A piece of a query, in both languages."""

    sapwood: str
    xquery: str


def alike(text: str) -> Both:
    """What both languages write in the same way."""
    return Both(text, text)


def both(template: str, *parts: Both) -> Both:
    """The parts, in place of the `%s` of a template."""
    sapwood, xquery = (tuple(text) for text in zip(*((p.sapwood, p.xquery) for p in parts), strict=True))
    return Both(template % sapwood, template % xquery)


def joined(parts: Sequence[Both], separator: str = "") -> Both:
    return Both(separator.join(p.sapwood for p in parts), separator.join(p.xquery for p in parts))


@dataclass(frozen=True)
class Query:
    """A for-where-return query; `before` and `after` are its wrapper, if it has one."""

    clauses: Both
    result: Both
    before: str = ""
    after: str = ""

    @property
    def sapwood(self) -> str:
        return f"{self.before}{self.clauses.sapwood} return {self.result.sapwood}{self.after}"

    @property
    def xquery(self) -> str:
        return f"{self.before}{self.clauses.xquery} return {self.result.xquery}{self.after}"

    @property
    def bindings(self) -> str:
        """XQuery: how many groups there are."""
        return f"count({self.clauses.xquery} return 1)"

    @property
    def unwrapped(self) -> str:
        """XQuery: the groups alone."""
        return replace(self, before="", after="").xquery


# -- clauses -----------------------------------------------------------------------------------------------

_WRAPPERS = [
    ("<w>{", "}</w>"),
    ('<w n="1">\n  { ', " }\n</w>"),
    ("<p:w>{", "}</p:w>"),
    ('<w xmlns="urn:d">{', "}</w>"),
    ("<w>t<u/> {", "}<u>t</u></w>"),
    ("<w><u>{", "}</u></w>"),
]


@dataclass(frozen=True)
class _Scope:
    """What a piece of a query may use: variables of `for` and of `let`, and all of XPath 1.0 or not.

    A `let` variable of attributes is called `$k`, and is not for content: there it would be an error after
    other content.
    """

    bound: tuple[str, ...]
    let: tuple[str, ...]
    beyond: bool


def random_query(rng: random.Random, beyond: bool = False) -> Query:
    """A query of the engine's own language, or if `beyond` one with parts that only lxml can evaluate.

    Its prefixes are those of `NAMESPACES`.
    """
    return random_family(rng, 1, beyond)[0]


def random_family(rng: random.Random, count: int, beyond: bool = False) -> list[Query]:
    """Queries that bind the same and return other things, so that they have much to share."""
    clauses, scope = _bindings(rng, beyond)
    if rng.random() < 0.6:
        clauses = both("%s where %s", clauses, _condition(rng, _Paths(scope)))
    wrappers = [rng.choice(_WRAPPERS) if rng.random() < 0.4 else ("", "") for _ in range(count)]
    return [Query(clauses, _result(rng, scope), before, after) for before, after in wrappers]


def _bindings(rng: random.Random, beyond: bool) -> tuple[Both, _Scope]:
    """`for` and `let` clauses, and what they bind. Later variables mostly start from earlier ones."""
    clauses = [both("for $v in %s", _absolute(rng, beyond))]
    bound, let = ["$v"], list[str]()
    for name in ("$w", "$x")[: rng.choice([0, 0, 0, 1, 1, 2])]:
        if rng.random() < 0.2:
            let.append(f"$t{name[1:]}")
            clauses.append(
                both(f" let {let[-1]} := %s", _path(rng, _Scope(tuple(bound), (), beyond), _NODE_ENDS))
            )
        if name == "$w" and rng.random() < 0.25:
            path = _absolute(rng, beyond)
        else:
            path = both(f"{rng.choice(bound)}%s", _steps(rng, rng.choice([1, 1, 1, 2]), beyond))
        after_for = clauses[-1].sapwood.startswith(("for", ",", " for"))
        keyword = ", " if after_for and rng.random() < 0.6 else " for "
        clauses.append(both(f"{keyword}{name} in %s", path))
        bound.append(name)
    if rng.random() < 0.25:
        clauses.append(
            both(" let $t := %s", _path(rng, _Scope(tuple(bound), tuple(let), beyond), _NODE_ENDS))
        )
        let.append("$t")
    if rng.random() < 0.1:
        keyword = ", " if let[-1:] == ["$t"] else " let "
        clauses.append(
            both(f"{keyword}$k := {rng.choice(bound)}%s/@k", _steps(rng, rng.randint(0, 1), beyond))
        )
        let.append("$k")
    return joined(clauses), _Scope(tuple(bound), tuple(let), beyond)


# -- paths -------------------------------------------------------------------------------------------------

_TESTS = [Both(name, f"Q{{}}{name}") for name in _NAMES * 2]
_TESTS += [alike(test) for test in ("*", "*", "*", "p:a", "p:*", "d:a")]
_POSITIONS = ["[1]", "[2]", "[last()]", "[position() < 3]", "[position() != 1]"]
_ENDS = ["/@k", "/@k", "/@id", "//@k", "/@p:k", "/text()", "/text()", "//text()"]
_NODE_ENDS = ["/text()", "//text()"]  # for content, where attributes would be something else
_FAR_ENDS = [
    *map(alike, ("/parent::*", "/.", "/node()", "/comment()", "/ancestor::*[1]", "/*[last()]")),
    *map(alike, ("/following-sibling::*", "/preceding::text()")),
    Both("/ancestor-or-self::a", "/ancestor-or-self::Q{}a"),
    Both("/self::b", "/self::Q{}b"),
]
_HERE = [
    *map(alike, ("@k", "@id", "text()", ".", "*", ".//text()")),
    *(both(path, test) for path in ("%s", ".//%s", "%s/@k") for test in _TESTS[::9]),
]


@dataclass(frozen=True)
class _Paths:
    """Where a condition's paths come from: the variables in scope, or the context node of a predicate."""

    scope: _Scope
    in_predicate: bool = False

    def draw(self, rng: random.Random) -> Both:
        return rng.choice(_HERE) if self.in_predicate else _path(rng, self.scope)


def _absolute(rng: random.Random, beyond: bool) -> Both:
    start = rng.choice(["", "", "", "$doc", "$msg"])
    first = "/" if rng.random() < 0.2 else "//"
    return both(f"{start}%s", _steps(rng, rng.choice([1, 1, 2]), beyond, first))


def _path(rng: random.Random, scope: _Scope, ends: Sequence[str] = _ENDS) -> Both:
    """Nodes from a variable or, at times, from the document."""
    if rng.random() < 0.1:
        path = _absolute(rng, scope.beyond)
    else:
        let = [name for name in scope.let if name != "$k" or ends is _ENDS]
        origin = rng.choice([*scope.bound, *scope.bound, *let])
        if origin == "$k":
            return alike(origin)
        path = joined([alike(origin), _steps(rng, rng.choice([0, 0, 1, 1, 2]), scope.beyond)])
    if scope.beyond and rng.random() < 0.3:
        return joined([path, rng.choice(_FAR_ENDS)])
    return joined([path, alike(rng.choice(ends) if rng.random() < 0.4 else "")])


def _steps(rng: random.Random, count: int, beyond: bool, first: str | None = None) -> Both:
    """Steps to elements, each with a slash before it."""
    steps: list[Both] = []
    for _ in range(count):
        axis = first or rng.choice(["/", "/", "//"])
        first = None
        steps.append(both(f"{axis}%s", rng.choice(_TESTS)))
        if rng.random() < 0.15:
            steps.append(_predicate(rng, beyond))
    return joined(steps)


def _predicate(rng: random.Random, beyond: bool) -> Both:
    if rng.random() < 0.5:
        return alike(rng.choice(_POSITIONS))
    return both("[%s]", _condition(rng, _Paths(_Scope((), (), beyond), in_predicate=True)))


# -- conditions --------------------------------------------------------------------------------------------

_CONDITIONS = ["exists", "exists", "equals", "equals", "number", "number", "contains", "starts-with"]
_FAR_CONDITIONS = ["count", "string", "paths", "order of paths"]
_COMBINED = ["not(%s)", "(%s and %s)", "(%s or %s)", "%s and %s", "(%s) or (%s)", "%s or %s and not(%s)"]
_LITERALS = [alike(f'"{text}"') for text in ("1", "1", "2", "2", "x", "x", "xy", "", "é", "1.0")]
_NUMBERS = [alike(number) for number in ("1", "2", "10", "1.0", "-1", "0.5")]
_ORDERS = ["<", "<=", ">", ">="]


def _condition(rng: random.Random, paths: _Paths, levels: int = 2) -> Both:
    """A condition on what the paths select."""
    if levels and not paths.in_predicate and rng.random() < 0.4:
        template = rng.choice(_COMBINED)
        return both(template, *(_condition(rng, paths, levels - 1) for _ in range(template.count("%s"))))
    path, literal = paths.draw(rng), rng.choice(_LITERALS)
    order, equality = rng.choice(_ORDERS), rng.choice(["=", "=", "!="])
    match rng.choice(_CONDITIONS + _FAR_CONDITIONS * paths.scope.beyond):
        case "exists":
            return path
        case "equals":
            return both(f"%s {equality} %s", path, literal)
        case "number":
            operator = rng.choice([order, equality])
            operands = [_numbers(path, operator), rng.choice(_NUMBERS)]
            rng.shuffle(operands)
            return joined(operands, f" {operator} ")
        case "contains" | "starts-with" as function:
            return both(f"{function}(%s, %s)", _first(path), literal)
        case "count":
            return both(f"count(%s) {order} {rng.randint(0, 3)}", path)
        case "string":
            return Both(
                f"string({path.sapwood}) = {literal.sapwood}", f"{_first(path).xquery} = {literal.xquery}"
            )
        case "paths":
            return both(f"%s {equality} %s", path, paths.draw(rng))
        case _:
            return both(f"%s {order} %s", _numbers(path, order), _numbers(paths.draw(rng), order))


def _numbers(path: Both, operator: str) -> Both:
    """What is compared with a number, or by order."""
    kept = "[. = .]" if operator in _ORDERS else ""  # all but NaN
    return Both(path.sapwood, f"({path.xquery} ! local:number(.){kept})")


def _first(path: Both) -> Both:
    """What is converted to a string."""
    return Both(path.sapwood, f"string(({path.xquery})[1])")


# -- what is returned --------------------------------------------------------------------------------------

_CONTENT = [
    "t",
    " t ",
    "\n ",
    " ",
    "{{",
    "}}",
    "&amp;",
    "&lt;",
    "&#32;",
    "&#13;",
    "é",
    "<![CDATA[<&{ ]]>",
    "<e/>",
]
_QUOTED = [alike(text) for text in ("t", " ", "\n", "&amp;", "&lt;", "&#10;", "&quot;", '""', "'", "é")]
_QUOTED += [Both("{{", "&#123;"), Both("}}", "&#125;")]
_ELEMENTS = ["r", "r", "s", "a", "p:r", "d:r"]
_DECLARED = [
    ' xmlns="urn:d"',
    ' xmlns="urn:e"',
    ' xmlns=""',
    ' xmlns:own="urn:own" own:n="1"',
    ' xmlns:p="urn:p"',
]
_CONSTANTS = [' n="1"', " n='x \"'", ' p:n="&lt;"', ' n = "{{ }}"']


def _result(rng: random.Random, scope: _Scope) -> Both:
    kind = rng.random()
    if kind < 0.75:
        return _constructor(rng, scope, 2)
    return _path(rng, scope, _NODE_ENDS) if kind < 0.9 else _value(rng, scope)


def _value(rng: random.Random, scope: _Scope) -> Both:
    """A string, a number or a truth, computed."""
    path = _path(rng, scope)
    options = [Both(f"string({path.sapwood})", _first(path).xquery), both("count(%s)", path)]
    if scope.beyond:
        options.append(both('concat(%s, "-", %s)', _first(path), _first(_path(rng, scope))))
        options.append(both("count(%s) + 1", path))
        options.append(both('%s = "x"', path))
    return rng.choice(options)


def _constructor(rng: random.Random, scope: _Scope, levels: int) -> Both:
    name = rng.choice(_ELEMENTS)
    tag = [alike(f"<{name}")]
    if rng.random() < 0.25:
        tag.append(alike(rng.choice(_DECLARED)))
    if rng.random() < 0.3:
        tag.append(alike(rng.choice(_CONSTANTS)))
    if rng.random() < 0.3:
        tag.append(both(' m="%s"', joined([_quoted(rng, scope) for _ in range(rng.randint(0, 3))])))
    content = _attribute_holes(rng, scope)
    content += [_item(rng, scope, levels) for _ in range(rng.randint(0, 3))]
    return both(f"%s>%s</{name}>", joined(tag), joined(content)) if content else both("%s/>", joined(tag))


def _quoted(rng: random.Random, scope: _Scope) -> Both:
    if rng.random() < 0.4:
        return rng.choice(_QUOTED)
    return both("{%s}", _path(rng, scope) if rng.random() < 0.6 else _value(rng, scope))


def _attribute_holes(rng: random.Random, scope: _Scope) -> list[Both]:
    """Attributes of one node, never the same twice: XQuery makes that an error."""
    if rng.random() < 0.7:
        return []
    owner = rng.choice(scope.bound)
    taken = ["@*"] if rng.random() < 0.3 else rng.sample(["@k", "@id", "@p:k"], rng.randint(1, 2))
    return [alike(f"{{{owner}/{attribute}}}") for attribute in taken]


def _item(rng: random.Random, scope: _Scope, levels: int) -> Both:
    kind = rng.random()
    if kind < 0.2:
        return alike(rng.choice(_CONTENT))
    if kind < 0.35 and levels > 1:
        return _constructor(rng, scope, levels - 1)
    if kind < 0.5:
        return both("{%s}", _value(rng, scope))
    return both("{%s}", _path(rng, scope, _NODE_ENDS))
