"""The compiled form of a for-where-return query: bindings and holes as tree patterns, constants as text.

    for $s in //section where $s/title = "Pub-Sub" return <new>{$s/title}{$s//figure}</new>

    variables   $s   //section[title = 'Pub-Sub']          the where clause is part of the binding
    template    <new>  {$s/title}  {$s//figure}  </new>     constants and holes, in turn

Every combination of bindings (one of each variable, in the order of a nested loop) makes a *group*: the
template written once, each hole filled with the nodes its paths reach from its variable, in document order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from sapwood.lang.pattern import Condition, Path, canonical_text
from sapwood.lang.xpath.translator import Reason

DOCUMENT = -1
"""in place of a variable's number: paths start at the document node"""

Kind = Literal["nodes", "string", "count", "value"]
Standing = Literal["content", "attributes", "attribute value"]


@dataclass(frozen=True, slots=True)
class BoundVariable:
    """A variable of a `for` clause: the nodes that paths reach from an earlier variable or the document."""

    name: str
    origin: int
    """the number of the variable that the paths start from, or DOCUMENT"""
    paths: tuple[Path, ...]
    xpath: str = ""
    """for lxml, where it has to evaluate the query; without the where clause"""


@dataclass(frozen=True, slots=True)
class TemplateHole:
    """A gap in the template that every group fills.

    `nodes` copies the nodes, `string` writes the string-value of the first, `count` how many there are, and
    `value` what lxml computes. Where it stands: in the content of an element; in its start tag, as
    `attributes`; or inside an `attribute value`, where nodes become their string-values, parted by spaces.
    """

    kind: Kind
    standing: Standing
    origin: int
    paths: tuple[Path, ...]
    default_namespace: str = ""
    """that of the constructor around it, which nodes without a namespace must not fall into"""
    taken: tuple[str, ...] = ()
    """of `attributes`: the names that the start tag has already"""
    xpath: str = ""


@dataclass(frozen=True, slots=True)
class JointCondition:
    """A condition on several variables at once: `and`, `or` or `not` of others, or a condition on one."""

    op: Literal["and", "or", "not", "holds"]
    items: tuple[JointCondition, ...] = ()
    origin: int = DOCUMENT
    condition: Condition | None = None


Template = tuple[str | TemplateHole, ...]


@dataclass(frozen=True, slots=True)
class Transformation:
    """A compiled transformation.

    A message yields a result only if `condition` holds of its document node. If the query is `exact`, the
    patterns are sufficient; if not, lxml evaluates the `xpath`s of variables, `where` and holes.
    """

    text: str
    variables: tuple[BoundVariable, ...]
    template: Template
    condition: Condition
    joints: tuple[JointCondition, ...] = ()
    """conditions that could not become part of one variable's paths"""
    before: str = ""
    """the start of the wrapper: written once, before all groups, if there are any"""
    after: str = ""
    spaced: bool = False
    """whether groups are separated by a space, as successive strings and numbers are"""
    reasons: tuple[Reason, ...] = ()
    namespaces: Mapping[str, str] = field(default_factory=dict, compare=False)
    where: str = ""
    """the where clause, for lxml"""

    @property
    def exact(self) -> bool:
        return not self.reasons

    @property
    def holes(self) -> tuple[TemplateHole, ...]:
        return tuple(part for part in self.template if isinstance(part, TemplateHole))

    @property
    def binding_key(self) -> str:
        """A key that is equal for queries with the same bindings; with `template_key`, the same results."""
        if not self.exact:
            return f"lxml {sorted(self.namespaces.items())} {self.text}"
        variables = tuple((variable.origin, variable.paths) for variable in self.variables)
        return canonical_text(
            (variables, tuple(map(_joint_spelt, self.joints))) if self.joints else variables
        )

    @property
    def template_key(self) -> str:
        """A key that is equal for queries that produce the same from the same bindings."""
        made = (self.before, template_key(self.template), self.spaced, self.after)
        return blake2b(canonical_text(made).encode(), digest_size=16).hexdigest()


def template_key(template: Template, origins: Mapping[int, int] | None = None) -> tuple[object, ...]:
    """Return a key that is equal for templates with the same holes, whatever the variables' numbers."""
    return tuple([part if isinstance(part, str) else _spelt(part, origins) for part in template])


def _spelt(hole: TemplateHole, origins: Mapping[int, int] | None) -> object:
    origin = hole.origin if origins is None else origins[hole.origin]
    return (hole.kind, hole.standing, origin, hole.paths, hole.default_namespace, hole.taken)


def _joint_spelt(joint: JointCondition) -> object:
    return (joint.op, tuple(map(_joint_spelt, joint.items)), joint.origin, joint.condition)
