"""Read a DTD, a shipped one by name or a file by path, with libxml2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, cast

from lxml import etree

from sapwood.workload.dtd import model
from sapwood.workload.dtd.model import Content, Default, Dtd, DtdError, Element, Occurs, Particle

_SHIPPED = resources.files("sapwood.workload") / "dtds"

_OCCURS = {"once": Occurs.ONE, "opt": Occurs.OPTIONAL, "mult": Occurs.ANY, "plus": Occurs.SOME}
_CONTENT = {
    "empty": Content.EMPTY,
    "any": Content.ANY,
    "mixed": Content.MIXED,
    "element": Content.CHILDREN,
}
_DEFAULT = {
    "required": Default.REQUIRED,
    "implied": Default.IMPLIED,
    "fixed": Default.FIXED,
    "none": Default.VALUE,
}


# What lxml hands out; its type stubs do not know these classes.
class _RawContent(Protocol):
    name: str | None
    type: str  # pcdata, element, seq, or
    occur: str
    left: _RawContent | None
    right: _RawContent | None


class _RawAttribute(Protocol):
    name: str
    prefix: str | None
    type: str
    default: str
    default_value: str | None

    def values(self) -> list[str]: ...


class _RawElement(Protocol):
    name: str
    prefix: str | None
    type: str
    content: _RawContent | None

    def attributes(self) -> list[_RawAttribute]: ...


def dtds() -> list[str]:
    """The names of the DTDs that Sapwood ships, sorted."""
    return sorted(Path(file.name).stem for file in _SHIPPED.iterdir() if file.name.endswith(".dtd"))


def load_dtd(name_or_path: str | Path, root: str | None = None) -> Dtd:
    """Read a shipped DTD ("news") or a file, which a path separator or the ending .dtd tells apart.

    Without `root` it is the element that no other contains, the first declared if several are so. Raises
    `DtdError` for an unknown name, a missing or broken file, a DTD without elements, an undeclared root.
    """
    name, raw = _parse(name_or_path)
    declared = list(cast(Iterable[_RawElement], cast(Any, raw).iterelements()))
    if not declared:
        raise DtdError(f"DTD {name!r} declares no elements")
    full = _qualified(declared)
    elements = {element.name: element for element in (_element(decl, full) for decl in declared)}
    return Dtd(name, root or model.infer_root(elements), elements)


def _parse(name_or_path: str | Path) -> tuple[str, etree.DTD]:
    path = Path(name_or_path)
    is_name = isinstance(name_or_path, str) and path.name == name_or_path and path.suffix != ".dtd"
    try:
        if is_name and name_or_path in dtds():
            return path.name, etree.DTD(BytesIO((_SHIPPED / f"{path.name}.dtd").read_bytes()))
        if path.is_file():
            return path.stem, etree.DTD(str(path))
    except etree.DTDParseError as error:
        entries = error.error_log
        where = f", line {entries[0].line}: {entries[0].message}" if len(entries) else ""
        raise DtdError(f"cannot read DTD {str(name_or_path)!r}{where}") from error
    hint = f"; shipped are {', '.join(dtds())}" if is_name else ""
    raise DtdError(f"no DTD {str(name_or_path)!r}{hint}")


def _qualified(declared: Sequence[_RawElement]) -> Mapping[str, str]:
    """Local name → name with prefix, for all local names that only one element has.

    lxml keeps the prefix of a declared element but loses it inside content models, so there the local name
    must do.
    """
    times = Counter(decl.name for decl in declared)
    return {decl.name: _name(decl) for decl in declared if times[decl.name] == 1}


def _name(decl: _RawElement | _RawAttribute) -> str:
    return f"{decl.prefix}:{decl.name}" if decl.prefix else decl.name


def _element(decl: _RawElement, full: Mapping[str, str]) -> Element:
    content = _CONTENT.get(decl.type)
    if content is None:
        raise DtdError(f"element {_name(decl)!r} has content of an unknown kind ({decl.type})")
    model = _particle(decl.content, full) if decl.content is not None else None
    return Element(_name(decl), content, model, tuple(_attribute(a) for a in decl.attributes()))


def _particle(raw: _RawContent, full: Mapping[str, str]) -> Particle | None:
    """The model without #PCDATA; None if nothing else is in it."""
    occurs = _OCCURS[raw.occur]
    if raw.type == "pcdata":
        return None
    if raw.type == "element":
        return model.Ref(full.get(raw.name or "", raw.name or ""), occurs)
    parts = tuple(part for part in (_particle(part, full) for part in _flat(raw)) if part is not None)
    if not parts:
        return None
    return model.Seq(parts, occurs) if raw.type == "seq" else model.Choice(parts, occurs)


def _flat(raw: _RawContent) -> Iterable[_RawContent]:
    """The parts of a group. libxml2 keeps (a, b, c) as a, (b, (c)): a list that leans to the right."""
    node: _RawContent | None = raw
    while node is not None and node.type == raw.type and (node is raw or node.occur == "once"):
        if node.left is not None:
            yield node.left
        node = node.right
    if node is not None:
        yield node


def _attribute(decl: _RawAttribute) -> model.Attribute:
    value = decl.default_value
    if value is not None:
        value = value.replace("&#38;", "&")  # libxml2 keeps an ampersand, and nothing else, as a reference
    return model.Attribute(
        _name(decl), decl.type.upper(), _DEFAULT[decl.default], value, tuple(decl.values())
    )
