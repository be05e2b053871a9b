"""The process that evaluates XPath with lxml for the fallback: it can be killed, which a thread cannot.

It is run by its path and imports lxml and the standard library alone, so that it starts in some 50 ms.

    request   (message in UTF-8, the budget of a query: CPU seconds, bytes of memory and of results; queries)
    replies   lists of results in the order of the queries, each a (status, value, nanoseconds)

Both are marshalled, with their length before them. The number of the query that is being evaluated is in
memory shared with the parent: the parent can attribute a crash to a query. A query that exceeds its CPU time
is ended by the kernel (SIGPROF), and the process with it.

libxml2 refuses messages that expat accepts, and reads more of a document type than XPath sees. So a message
with a document type is rewritten from expat's events; and what libxml2 rejects is read with recovery, if that
yields the nodes that expat sees.
"""

from __future__ import annotations

import marshal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from mmap import mmap
from signal import ITIMER_PROF, SIG_IGN, SIGINT, setitimer, signal
from time import perf_counter_ns
from typing import Any
from xml.parsers import expat

from lxml import etree

DONE, GAVE_UP, UNREADABLE, TOO_MUCH, TOO_MANY, BUG = range(6)
"""the status of a result; with all but DONE, the value says why"""
IDLE, READING = -2, -1
"""the progress of the process when it evaluates no query"""
LENGTH = 8
"""bytes of a length"""
MOST_GROUPS = 100_000
"""groups that a transformation may make of one message"""
_MAX_COMPILED = 20_000
_FLUSH = 2_000_000
"""nanoseconds after which collected results are sent"""
_COMPILED: dict[bytes, Callable[[Any, int], Any]] = {}

Request = tuple[bytes, float, int, int, list[bytes]]
Result = tuple[int, Any, int]


class Unreadable(Exception):
    """Raised when libxml2 does not read a message as expat does."""


class _ResultTooLarge(Exception):
    """Raised when a result is too large."""


class _TooManyGroups(Exception):
    """Raised when a transformation makes too many groups."""


# -- messages as trees -----------------------------------------------------------------------------------


def read_external_as_empty(
    parser: expat.XMLParserType, refuse: Callable[[str], object] | None = None
) -> None:
    """Have an expat parser read the internal subset, and everything external as if it were empty.

    `refuse` is called with the system identifier of an external entity that is referred to.
    """

    def external(context: str | None, base: str | None, system: str | None, public: str | None) -> int:
        if context is not None and refuse is not None:
            refuse(system or "")
        parser.ExternalEntityParserCreate(context).Parse(b"", True)
        return 1

    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_ALWAYS)
    parser.ExternalEntityRefHandler = external


def tree_of(data: bytes) -> Any:
    """Return the lxml tree of a message in UTF-8 that expat accepts, with the nodes that expat sees.

    Raise Unreadable if libxml2 sees others.
    """
    if b"<!DOCTYPE" in data:
        data = without_doctype(data)
    try:
        return _parse(data, recover=False)
    except etree.XMLSyntaxError as error:
        reason = error.msg or "not well-formed"
        try:
            tree = _parse(data, recover=True)
        except etree.XMLSyntaxError:
            raise Unreadable(reason) from None
        if tree is None or _digest_of_tree(tree) != _digest_of_events(data):
            raise Unreadable(reason) from None
        return tree


def _parse(data: bytes, recover: bool) -> Any:
    # the message has passed Sapwood's limits already, so libxml2's own may be lifted
    parser = etree.XMLParser(
        resolve_entities="internal",  # type: ignore[arg-type]  # so that nothing external is fetched
        no_network=True,
        huge_tree=True,
        recover=recover,
        encoding="utf-8",
    )
    root = etree.fromstring(data, parser)
    return root.getroottree() if root is not None else None


def _escape(text: str, references: Mapping[str, str]) -> str:
    """Return a text with some characters as references, `&` being the first of them.

    `str.translate` takes quadratic time where memory cannot be extended in place.
    """
    for character, reference in references.items():
        text = text.replace(character, reference)
    return text


def without_doctype(data: bytes, ids: bool = True) -> bytes:
    """Rewrite a message in UTF-8 with its entities expanded and its default attributes supplied; of its
    document type only the declarations of ID attributes are left, if `ids`."""
    parser = expat.ParserCreate("utf-8")
    parser.ordered_attributes = True
    parser.buffer_text = True
    read_external_as_empty(parser)
    pieces: list[str] = []
    add = pieces.append
    kept: list[str] = []  # the root's name, and declarations of IDs
    state = {"in doctype": False}

    def start(name: str, attributes: list[str]) -> None:
        add(f"<{name}")
        for i in range(0, len(attributes), 2):
            add(f' {attributes[i]}="{_escape(attributes[i + 1], _IN_VALUE)}"')
        add(">")

    def end(name: str) -> None:
        if pieces[-1] == ">":  # right after the start tag: in text it is escaped
            pieces[-1] = "/>"
        else:
            add(f"</{name}>")

    def doctype(name: str, *_: object) -> None:
        state["in doctype"] = True
        kept.insert(0, name)

    def doctype_end() -> None:
        state["in doctype"] = False
        if ids and len(kept) > 1:
            add(f"<!DOCTYPE {kept[0]} [{''.join(kept[1:])}]>")

    def attribute(element: str, name: str, kind: str, *_: object) -> None:
        if kind == "ID":
            kept.append(f"<!ATTLIST {element} {name} ID #IMPLIED>")

    def outside(markup: str) -> None:
        if not state["in doctype"]:
            add(markup)

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = lambda text: add(_escape(text, _IN_TEXT))
    parser.CommentHandler = lambda text: outside(f"<!--{text}-->")
    parser.ProcessingInstructionHandler = lambda target, text: outside(f"<?{target} {text}?>")
    parser.StartDoctypeDeclHandler = doctype
    parser.EndDoctypeDeclHandler = doctype_end
    parser.AttlistDeclHandler = attribute
    parser.Parse(data, True)
    return "".join(pieces).encode()


_IN_TEXT = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_IN_VALUE = {**_IN_TEXT, '"': "&quot;", "\t": "&#9;", "\n": "&#10;"}


class _Digest:
    """A digest of a sequence of nodes; adjacent text is one node."""

    def __init__(self) -> None:
        self._hash = blake2b()
        self._text: list[str] = []

    def text(self, text: str | None) -> None:
        if text:
            self._text.append(text)

    def node(self, *node: object) -> None:
        if self._text:
            self._hash.update(repr("".join(self._text)).encode())
            self._text.clear()
        self._hash.update(repr(node).encode())

    def digest(self) -> bytes:
        return self._hash.digest()


def _digest_of_events(data: bytes) -> bytes:
    """Return the digest of the nodes that expat sees in a message without entities."""
    digest = _Digest()
    parser = expat.ParserCreate("utf-8", "}")

    def clark(name: str) -> str:
        return "{" + name if "}" in name else name

    def start(name: str, attributes: dict[str, str]) -> None:
        digest.node("<", clark(name), sorted((clark(key), value) for key, value in attributes.items()))

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: digest.node(">")
    parser.CharacterDataHandler = digest.text
    parser.CommentHandler = lambda text: digest.node("!", text)
    parser.ProcessingInstructionHandler = lambda target, text: digest.node("?", target, text)
    parser.Parse(data, True)
    return digest.digest()


def _digest_of_tree(tree: Any) -> bytes:
    digest = _Digest()
    before = list(tree.getroot().itersiblings(preceding=True))
    for node in reversed(before):
        _misc(digest, node)
    for event, node in etree.iterwalk(tree.getroot(), events=("start", "end", "comment", "pi")):
        if event == "start":
            digest.node("<", node.tag, sorted(node.attrib.items()))
            digest.text(node.text)
        elif event == "end":
            digest.node(">")
            digest.text(node.tail)
        else:
            _misc(digest, node)
            digest.text(node.tail)
    for node in tree.getroot().itersiblings():
        _misc(digest, node)
    return digest.digest()


def _misc(digest: _Digest, node: Any) -> None:
    if node.tag is etree.Comment:
        digest.node("!", node.text)
    else:
        digest.node("?", node.target, node.text or "")


# -- queries ---------------------------------------------------------------------------------------------
#
# A query is a marshalled tuple of its kind and the parameters of the function of that name. A compiled query
# is a function of a tree and of the number of characters that its result may have.


def _compile(query: bytes) -> Callable[[Any, int], Any]:
    kind, *parts = marshal.loads(query)
    return _KINDS[kind](*parts)


def _xpath(text: str, namespaces: dict[str, str]) -> Any:
    return etree.XPath(text, namespaces=namespaces or None, smart_strings=True)


def truth(text: str, namespaces: dict[str, str]) -> Callable[[Any, int], bool]:
    """Compile an expression to its truth."""
    xpath = etree.XPath(text, namespaces=namespaces or None, smart_strings=False)
    return lambda tree, most: bool(xpath(tree))


def value(text: str, is_nodes: bool, namespaces: dict[str, str]) -> Callable[[Any, int], Any]:
    """Compile an expression to the list of items that it selects, or to its string, number or boolean."""
    xpath = _xpath(text, namespaces)
    count = _xpath(f"count({text})", namespaces) if is_nodes else None

    def evaluate(tree: Any, most: int) -> Any:
        return _Items(tree, most).to_list(xpath(tree), None if count is None else count(tree))

    return evaluate


def groups(
    bindings: list[str | None],
    where: str | None,
    holes: list[tuple[str, bool]],
    namespaces: dict[str, str],
) -> Callable[[Any, int], Any]:
    """Compile a transformation to the items that fill each hole of each group: a list of them, or a string,
    number or boolean. A binding of None is the document; a hole is an expression, and True if it is a
    node-set."""
    names = [f"v{number}" for number in range(len(bindings))]
    bound_by = [text if text is None else _xpath(text, namespaces) for text in bindings]
    condition = _xpath(f"boolean({where})", namespaces) if where else None
    filled_by = [
        (_xpath(text, namespaces), _xpath(f"count({text})", namespaces) if is_nodes else None)
        for text, is_nodes in holes
    ]

    def bind(tree: Any, bound: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield all combinations of bindings, in the order of nested loops."""
        if len(bound) == len(bound_by):
            yield bound
            return
        name, binding = names[len(bound)], bound_by[len(bound)]
        if binding is None:  # bound to the document, to which expressions refer by `/`
            yield from bind(tree, {**bound, name: []})
            return
        for node in binding(tree, **bound):
            yield from bind(tree, {**bound, name: [node]})

    def evaluate(tree: Any, most: int) -> Any:
        items = _Items(tree, most)
        found: list[list[Any]] = []
        for bound in bind(tree, {}):
            if condition is None or condition(tree, **bound):
                found.append(
                    [
                        items.to_list(hole(tree, **bound), None if count is None else count(tree, **bound))
                        for hole, count in filled_by
                    ]
                )
                if len(found) > MOST_GROUPS:
                    raise _TooManyGroups
        return found

    return evaluate


_KINDS: dict[str, Callable[..., Callable[[Any, int], Any]]] = {
    "truth": truth,
    "value": value,
    "groups": groups,
}


class _Items:
    """Nodes of a tree as tuples: a kind, the number of the element that it is or belongs to, and text.

    ("element", 3), where 0 is the document; ("attribute", 3, value, name); ("text", 3, value);
    ("comment", 3, text, markup), ("processing-instruction", …); ("namespace", 0, uri, prefix)
    """

    def __init__(self, tree: Any, most: int) -> None:
        self._tree = tree
        self._room = most
        self._numbers: dict[Any, int] | None = None

    def to_list(self, found: Any, count: float | None) -> Any:
        if not isinstance(found, list):
            if isinstance(found, str):
                self._take(len(found))
                return str(found)
            return found
        items = [self._item(item) for item in found]
        # lxml leaves the document node out of node-sets; counting them brings it back
        return [("element", 0), *items] if count is not None and count > len(items) else items

    def _take(self, characters: int) -> None:
        self._room -= characters
        if self._room < 0:
            raise _ResultTooLarge

    def _item(self, item: Any) -> tuple[Any, ...]:
        self._take(16)
        if isinstance(item, tuple):  # the namespace axis: (prefix, uri)
            return "namespace", 0, item[1] or "", item[0] or ""
        if isinstance(item, str):
            return self._string(item)
        number = self._number(item)
        if number is not None:
            return "element", number
        kind = "comment" if item.tag is etree.Comment else "processing-instruction"
        owner = item.getparent()
        markup = etree.tostring(item, encoding="unicode", with_tail=False)
        self._take(len(markup))
        return kind, 0 if owner is None else self._number(owner), item.text or "", markup

    def _string(self, item: Any) -> tuple[Any, ...]:
        self._take(len(item))
        owner = item.getparent()
        if item.is_attribute:
            return "attribute", self._number(owner), str(item), str(item.attrname)
        if item.is_tail:
            owner = owner.getparent()
        return "text", self._number(owner), str(item)

    def _number(self, element: Any) -> int | None:
        if self._numbers is None:
            self._numbers = {each: i for i, each in enumerate(self._tree.getroot().iter("*"), 1)}
        return self._numbers.get(element)


# -- serving ---------------------------------------------------------------------------------------------


def answer(request: Request, progress: memoryview, send: Callable[[list[Result]], None]) -> None:
    """Send the result of each query, several at a time; `progress` has the one that is being evaluated."""
    data, seconds, memory, most, queries = request
    progress[0] = READING
    try:
        tree = tree_of(data)
    except (Unreadable, MemoryError) as error:
        progress[0] = IDLE
        send([(UNREADABLE, _reason(error, memory), 0)] * len(queries))
        return
    waiting: list[Result] = []
    started = sent = perf_counter_ns()
    for number, query in enumerate(queries):
        progress[0] = number
        setitimer(ITIMER_PROF, seconds)
        status, value = _evaluate(query, tree, memory, most)
        now = perf_counter_ns()
        waiting.append((status, value, now - started))
        started = now
        # The last results are sent when idle: the parent may use the process again as soon as it has them.
        if now - sent > _FLUSH and number < len(queries) - 1:
            send(waiting)
            waiting, sent = [], now
    setitimer(ITIMER_PROF, 0)
    progress[0] = IDLE
    send(waiting)


def _evaluate(query: bytes, tree: Any, memory: int, most: int) -> tuple[int, Any]:
    try:
        compiled = _COMPILED.get(query)
        if compiled is None:
            if len(_COMPILED) >= _MAX_COMPILED:
                _COMPILED.clear()
            compiled = _COMPILED[query] = _compile(query)
        return DONE, compiled(tree, most)
    except etree.XPathError as error:
        return (TOO_MUCH if _is_memory(error) else GAVE_UP), _reason(error, memory)
    except MemoryError as error:
        return TOO_MUCH, _reason(error, memory)
    except _ResultTooLarge:
        return TOO_MUCH, f"its result has more than {most:,} characters"
    except _TooManyGroups:
        return TOO_MANY, f"more than {MOST_GROUPS:,} groups"
    except Exception:
        return BUG, traceback.format_exc()


def _is_memory(error: Exception) -> bool:
    """Return whether memory was exhausted: then libxml2 cannot report it, and lxml knows of no error."""
    return isinstance(error, MemoryError) or str(error) in ("", "unknown error") or "memory" in str(error)


def _reason(error: Exception, memory: int) -> str:
    return f"it takes more than {memory:,} bytes of memory" if _is_memory(error) else f"lxml gave up: {error}"


def _limit_memory(memory: int) -> None:
    """Bound the address space of this process; 0 leaves it unbounded."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    unbounded = resource.RLIM_INFINITY
    soft = memory or hard
    resource.setrlimit(resource.RLIMIT_AS, (soft if hard == unbounded else min(soft, hard), hard))


def main(shared: int) -> None:
    """Answer requests on the standard input until it ends."""
    signal(SIGINT, SIG_IGN)  # the parent handles Ctrl-C
    progress = memoryview(mmap(shared, LENGTH)).cast("q")
    given, out = sys.stdin.buffer, sys.stdout.buffer
    bound = 0

    def send(some: list[Result]) -> None:
        reply = marshal.dumps(some)
        out.write(len(reply).to_bytes(LENGTH, "little") + reply)
        out.flush()

    while True:
        length = given.read(LENGTH)
        if len(length) < LENGTH:
            return
        request: Request = marshal.loads(given.read(int.from_bytes(length, "little")))
        if request[2] != bound:
            bound = request[2]
            _limit_memory(bound)
        answer(request, progress, send)


if __name__ == "__main__":
    main(int(sys.argv[1]))
