"""A case for Saxon to decide, and the message of most cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """A query and a message; `xquery` where Saxon must be asked in other words."""

    about: str
    query: str
    message: str | bytes
    xquery: str = ""
    namespaces: Mapping[str, str] = field(default_factory=dict)
    delivered: bool = True


BOOK = """<book>
  <section id="s1" difficulty="easy" pages="10">
    <title>Pub-Sub</title>
    <section id="s2" pages="9"><title>Brokers</title><figure n="1"><title>One</title></figure></section>
    <figure n="2"><title lang="en">Two</title></figure>
  </section>
  <section id="s3" difficulty="hard" pages="many">
    <title>Joins</title><title>Pub-Sub</title><p>some <em>mixed</em> text<!-- and a comment --> here</p>
    <figure n="3"><title>Three</title></figure><figure n="4"/>
  </section>
</book>"""
