"""Errors of joins that do not compile: reason, position and hint; no other exception is raised."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sapwood import QueryError
from sapwood.lang.languages import is_join
from sapwood.lang.xscl.compiler import compile_join
from tests.lang.test_xscl import BLOCKS, JOINS, OUTPUT, PUSHED, SPELLINGS

NAMESPACES = {"p": "urn:p"}


def refused(text: str) -> QueryError:
    with pytest.raises(QueryError) as caught:
        compile_join(text, NAMESPACES)
    return caught.value


def linked(predicate: str) -> str:
    return f"S//a->x[b->z] JOIN{{{predicate}, 1 s}} S//c->y"


# The query with ^ before the place that is told, the reason, and the hint.
BLOCKS_REFUSED = [
    ("^", "expected a block, but the query ends", "stream//element"),
    ("FROM^", "expected a block, but the query ends", "stream//element"),
    ("FROM ^JOIN{x=y, 1 s} S//a->y", "expected a block, but found 'JOIN'", "stream//element"),
    ("S//a->x JOIN{x=y, 1 s} ^", "expected a block, but the query ends", "stream//element"),
    ("S//a->x JOIN{x=y, 1 s} ^.//b->y", "expected a block, but found '.'", "stream//element"),
    ("S//a->x JOIN{x=y, 1 s} ^5", "expected a block, but found '5'", "stream//element"),
    ("^count(//a->x) > 3", "'count' is no stream", "a path"),
    ("^p:a->x", "'p' is no stream", "stream//p:element"),
    ("S^/->x", "not the document", "write /*"),
    ("S//^->x", "but found '->x'", None),
    ("S//a->^", "a variable's name after '->', but the query ends", "//book->b"),
    ("S//a->^5", "a variable's name after '->', but found '5'", "a space before the >"),
    ("S//a->^$x", "a variable's name after '->', but found '$'", "write ->x"),
    ("S//a->^JOIN{x=y, 1 s} S//b->y", "a variable's name after '->', but found 'JOIN'", None),
    ("S//a->^and", "a variable's name after '->', but found 'and'", None),
    ("S//a ^AS and b", "expected JOIN, FOLLOWED BY or PUBLISH, but found 'AS'", None),
    ("S//a->x^->y", "bound to x already", "twice"),
    ("S//a->x[b] ^AS y", "bound to x already", "twice"),
    ("S//a->x[b->^x]", "the variable x is bound already", "another name"),
    ("S//a->x' JOIN{x'=y, 1 s} S//b->y[c->^x']", "the variable x' is bound already", "another name"),
    ("S//a[.^->x]", "'.' cannot be bound", "bind the step itself"),
    ("S//a[b/.. ^AS x]", "'..' cannot be bound", "bind the step itself"),
    ("S//a[self::node()^->x]", "goes nowhere", "bind the step itself"),
    ("S//a[b or c^->x]", "bound under 'or'", "a predicate of its own"),
    ("S//a[not(b^->x)]", "bound inside not()", "a predicate of its own"),
    ("S//a[contains(b^->x, 'c')]", "bound inside contains()", "a predicate of its own"),
    ("S//a[b = c^->x]", "in a comparison with anything but a constant", "a predicate of its own"),
    ("S//a[b^->x = c->y]", "in a comparison with anything but a constant", "a predicate of its own"),
    ("S//a[b^->x = true()]", "in a comparison with anything but a constant", "a predicate of its own"),
    ("S//a[b^->x + 1]", "inside arithmetic", "a predicate of its own"),
    ("S//a[-b^->x]", "inside arithmetic", "a predicate of its own"),
    ("S//a[b^->x | c]", "in a union", "a predicate of its own"),
    ("S//a[//b^->x]", "on a path from the root", "a predicate of its own"),
    ("S//a[(b^->x)[1]]", "inside parentheses", "a predicate of its own"),
    ("S//a[b[not(c^->x)]]", "bound inside not()", "a predicate of its own"),
    ("S//a[(b)^->x]", "cannot be bound here", "bind a step"),
    ("^->x S//a", "cannot be bound here", "bind a step"),
    ("S//a->x JOIN ^->x {x=y, 1 s} S//b->y", "cannot be bound here", "bind a step"),
    ("S//a[b->x][^2]", "a position among what predicates with variables leave", "before"),
    ("S//a[b->x][^position() = 2]", "a position among", "before"),
    ("S//a[b->x][c][^last() and d->y]", "a position among", "before"),
    ("S//a->x[^b = c]", "this condition cannot be part of a join: a comparison between paths", "a pattern"),
    ("S//a->x[^count(b) = 2]", "this condition cannot be part of a join: count()", "a pattern"),
    ("S//a->x[b[^count(c) = 2]->y]", "this condition cannot be part of a join: count()", "a pattern"),
    ("S//a->x[^/b]", "this condition cannot be part of a join: an absolute path", "a pattern"),
    ("S//a->x/^../b", "this path cannot be part of a join: the parent axis", "a pattern"),
    ("S//a[^following-sibling::b->x]", "this path cannot be part of a join: the following", "a pattern"),
    ("S//a[^.//@id->x]", "leads to a variable in two ways", ".//*/@id"),
    ("S//a[^text()/b->x]", "never reaches anything", None),
    ("S//a[@b->x[^c->y]]", "nothing below an attribute or text", None),
    ("S//a[^q:b->x]", "the prefix 'q' is not declared", "declared: p"),
    ("S//a->x[b = ^'c]", "a string that is never closed", "add the missing '"),
    ("S//a->x[b^", "to close '['", None),
    ("S//a->x[b ^JOIN{x=y, 1 s} S//c->y", "to close '['", None),
    ("S//a->x[^conatins(b, 'c')]", "no function 'conatins'", "did you mean 'contains'?"),
    ("S//a->x^]", "but found ']'", "a ']' too many"),
    ("S//a->x^}", "but found '}'", "a '}' too many"),
    ("S//a->x ^(: b :)", "comments", None),
    ("S//a->x[b <^> 5]", "but found '>'", "write != instead of <>"),
    ("S//a->x[b = ^$y]", "a variable in a condition of a block", "in the braces"),
    ("S//a->x JOIN{x=y, 1 s} ^NOT S//b->y", "NOT before a block", "not(…) may stand in the brackets"),
    ("^not S", "not before a block", "not(…) may stand in the brackets"),
    ("S//a->x[b ^like 'c']", "to close '['", None),
]  # fmt: skip
LINKS_REFUSED = [
    ("S//a->x ^FOLOWED BY{x=y, 1 s} S//b->y", "but found 'FOLOWED'", "did you mean 'FOLLOWED BY'?"),
    ("S//a->x ^jion{x=y, 1 s} S//b->y", "but found 'jion'", "did you mean 'JOIN'?"),
    ("S//a->x FOLLOWED^{x=y, 1 s} S//b->y", "expected BY after FOLLOWED, but found '{'", "FOLLOWED BY{"),
    ("S//a->x followed ^bye{x=y, 1 s} S//b->y", "expected BY after FOLLOWED, but found 'bye'", "write"),
    ("S//a->x ^BY{x=y, 1 s} S//b->y", "but found 'BY'", "FOLLOWED BY{"),
    ("S//a->x ^{x=y, 1 s} S//b->y", "but found '{'", "write JOIN{"),
    ("S//a->x ^WHERE x = 5", "but found 'WHERE'", "in brackets"),
    ("S//a->x ^FROM S", "but found 'FROM'", "FROM comes first"),
    ("S//a->x ^= 5", "but found '='", "conditions on it stand in brackets"),
    ("S//a->x ^+ 5", "but found '+'", "a block is one path"),
    ("S//a->x^, S//b->y", "but found ','", "link blocks by JOIN{x = y, 1 day} or FOLLOWED BY{"),
    ("S//a->x ^S//b->y", "but found 'S'", "link blocks by JOIN{"),
    ("S//a->x JOIN{x=y, 1 s} S//b->y^;", "but found ';'", "drop the ;"),
    ("S//a->x JOIN{x=y, 1 s} S//b ^=> y", "but found '='", "write ->"),
    ("S//a->x ^INNER JOIN{x=y, 1 s} S//b->y", "but found 'INNER'", "inner ones: write JOIN{…}"),
    ("S//a->x ^left JOIN{x=y, 1 s} S//b->y", "but found 'left'", "no outer joins: write JOIN{…}"),
    ("S//a->x ^FULL OUTER JOIN{x=y, 1 s} S//b->y", "but found 'FULL'", "no outer joins: write JOIN{…}"),
    ("S//a->x ^PRECEDED BY{x=y, 1 s} S//b->y", "but found 'PRECEDED'", "exchange the blocks"),
    ("S//a->x JOIN{x=y, 1 s} S//b->y ^WHERE x = 5", "but found 'WHERE'", "in the braces of JOIN"),
    ("S//a->x JOIN{x=y, 1 s} S//b->y ^group by x", "but found 'group'", "there is no GROUP BY"),
    ("S//a->x JOIN{x=y, 1 s} S//b->y ^ORDER BY x", "but found 'ORDER'", "there is no ORDER BY"),
    ("S//a->x JOIN{x=y, 1 s} S//b->y ^INTO alerts", "but found 'INTO'", "write PUBLISH"),
    ("S//a->x JOIN^", "expected '{', but the query ends", "in braces"),
    ("S//a->x JOIN ^S//b->y", "expected '{', but found 'S'", "in braces"),
    ("S//a->x JOIN{^", "but the query ends", None),
    ("S//a->x JOIN{^, 1 s} S//b->y", "a link without a predicate", "x = y, 1 day"),
    ("S//a->x JOIN{^} S//b->y", "a link without a predicate", "x = y, 1 day"),
    ("S//a->x JOIN{^1 day, x=y} S//b->y", "a number is no predicate", "after the predicate"),
    ("S//a->x JOIN{x=y^} S//b->y", "a link without a window", "INF for no bound"),
    ("S//a->x JOIN{x=y, ^} S//b->y", "expected a window, but found '}'", "1 day"),
    ("S//a->x JOIN{x=y, ^x=y/b, 1 s} S//b->y", "expected a window, but found 'x'", "joined by AND"),
    ("S//a->x JOIN{x=y, ^forever} S//b->y", "expected a window, but found 'forever'", "write INF for no"),
    ("S//a->x JOIN{x=y, ^INFINITY} S//b->y", "expected a window, but found 'INFINITY'", "write INF for no"),
    ("S//a->x JOIN{x=y, ^infinite} S//b->y", "expected a window, but found 'infinite'", "write INF for no"),
    ("S//a->x JOIN{x=y, ^∞} S//b->y", "expected a window, but found '∞'", "write INF for no bound"),
    ("S//a->x JOIN{x=y, ^info=y, 1 s} S//b->y", "expected a window, but found 'info'", "joined by AND"),
    ("S//a->x JOIN{x=y, 1 h ^30 min} S//b->y", "one number and one unit", "90 min, not 1 h 30 min"),
    ("S//a->x JOIN{x=y, 1h^30m} S//b->y", "one number and one unit", "90 min, not 1 h 30 min"),
    ("S//a->x JOIN{x=y, 1m^30s} S//b->y", "one number and one unit", "90 min, not 1 h 30 min"),
    ("S//a->x JOIN{x=y, 1^e3 s} S//b->y", "no unit 'e3'", "there are ms, s"),
    ("S//a->x JOIN{x=y, 1 s^, strict} S//b->y", "expected '}' after the window", "comes last"),
    ("S//a->x JOIN{x=y, 5^} S//b->y", "a window without a unit", "write 5 s"),
    ("S//a->x JOIN{x=y, 1 ^m} S//b->y", "no unit 'm'", "write min"),
    ("S//a->x JOIN{x=y, 1 ^month} S//b->y", "no unit 'month'", "write days"),
    ("S//a->x JOIN{x=y, 1 ^year} S//b->y", "no unit 'year'", "weeks"),
    ("S//a->x JOIN{x=y, 1 ^dya} S//b->y", "no unit 'dya'", "did you mean 'day'?"),
    ("S//a->x JOIN{x=y, 1 ^fortnight} S//b->y", "no unit 'fortnight'", "there are ms, s"),
    ("S//a->x JOIN{x=y, ^0 s} S//b->y", "longer than 0", "write 1 ms for messages of the same time"),
    ("S//a->x JOIN{x=y, ^-1 s} S//b->y", "longer than 0", "write FOLLOWED BY{…}"),
    ("S//a->x JOIN{x=y, ^9999999999999 s} S//b->y", "thousands of years", "INF"),
    ("S//a->x JOIN{x=y, 1 s^", "expected '}' after the window, but the query ends", None),
    ("S//a->x JOIN{x=y, 1 s ^S//b->y", "expected '}' after the window, but found 'S'", None),
    ("S//a->x JOIN{x ^eq y, 1 s} S//b->y", "but found 'eq'", "write = instead of eq"),
    ("S//a->x JOIN{x=y ^& x=y, 1 s} S//b->y", "but found '&'", "'and'"),
    ("S//a->x JOIN{x =^= y, 1 s} S//b->y", "but found '='", "a single ="),
    ("S//a->x JOIN{x = ^, 1 s} S//b->y", "but found ','", None),
    ("S//a->x JOIN{x <^> y, 1 s} S//b->y", "but found '>'", "write != instead of <>"),
    ("S//a->x JOIN{x ^like y, 1 s} S//b->y", "but found 'like'", "contains(x, 'text') for a constant"),
    ("S//a->x JOIN{x ^IS y, 1 s} S//b->y", "but found 'IS'", "write ="),
    ("S//a->x JOIN{x = y^; 1 s} S//b->y", "but found ';'", "a comma before the window"),
    ("S//a->x JOIN{x = y ^WITHIN 1 s} S//b->y", "but found 'WITHIN'", "a comma before the window"),
    ("S//a->x JOIN{^AND x = y, 1 s} S//b->y", "expected a condition before AND", "x = y AND z = w"),
    ("S//a->x JOIN{x = y AND ^or x = y, 1 s} S//b->y", "expected a condition before OR", "x = y AND z = w"),
    ("S//a->x JOIN{x = y AND^, 1 s} S//b->y", "expected a condition after AND, but found ','", None),
    ("S//a->x JOIN{x^->z = y, 1 s} S//b->y", "cannot be bound here", "bind a step"),
    ("S//a->x JOIN{x=y, 1 s} S//b->y ^z", "expected JOIN, FOLLOWED BY or PUBLISH, but found 'z'", None),
    ("S" + "".join(f"//a->x{n} JOIN{{x0=x{n + 1}, 1 s}} " for n in range(9)) + "//a->x9 JOIN^{x=y, 1 s} S",
     "more than 10 blocks", None),
    ("S//a->x" + "".join(f"[b->x{n}]" for n in range(99)) + "[^b->y]", "more than 100 variables", None),
]  # fmt: skip
PREDICATES_REFUSED = [
    ("x = ^w", "there is no variable w", "there are x, z, y"),
    ("x = y and ^title = y", "there is no variable title", "there are x, z, y; for an element write x/title"),
    ("^title = title", "there is no variable title", "for an element write x/title"),
    ("^x.title = y", "there is no variable x.title", "write x/title"),
    ("x = ^y.a.b", "there is no variable y.a.b", "write y/a.b"),
    ("x = ^y'", "there is no variable y'", "did you mean 'y'? There are"),
    ("x = ^$w", "there is no variable w", "there are x"),
    ("^x < y", "needs an equality", "x = y"),
    ("^x = 'a'", "needs an equality", "x = y"),
    ("x = y and ^x = z", "x and z are of the same block", "of a block before"),
    ("^x = z", "x and z are of the same block", "of a block before"),
    ("^x = x", "both sides are of one variable, and so of one block", "of a block before"),
    ("x = y and ^x/b = x/c", "both sides are of one variable, and so of one block", "of a block before"),
    ("^x = y or x = y/b", "'or' between variables", "joined by AND"),
    ("^not(x = y)", "not() of several variables", "joined by AND"),
    ("^contains(x, y)", "contains() of several variables", "joined by AND"),
    ("^x + 1 = y", "only variables and paths from them can be compared", "joined by AND"),
    ("^x = -y", "can be compared between blocks, not arithmetic", "joined by AND"),
    ("^x | z = y", "can be compared between blocks, not a union of variables", "joined by AND"),
    ("(^x or z) = y", "can be compared between blocks, not conditions", "joined by AND"),
    ("^string(x) = string(y)", "between blocks, not string()", "write x = y: = compares strings anyway"),
    ("^x/b != string(y)", "between blocks, not string()", "write x/b != y: != compares strings anyway"),
    ("^number(x) < y/@c", "between blocks, not number()", "write x < y/@c: < compares numbers anyway"),
    ("^number(x) != y", "between blocks, not number()", "joined by AND"),
    ("number(^x/b) = y", "number() of a path is that of its first node", "bind the node to a variable"),
    ("^normalize-space(x) = normalize-space(y)", "between blocks, not normalize-space()", "joined by AND"),
    ("^x = translate(y, 'A', 'a')", "between blocks, not translate()", "joined by AND"),
    ("^x + y", "arithmetic with several variables", "joined by AND"),
    ("x = y and ^1 = 1", "a condition on no variable", None),
    ("x = y and ^.//b", "a path that starts nowhere", "start it with a variable"),
    ("x = y and ^/a/b", "from which?", "start it with a variable"),
    ("x = y and (x or ^name() = 'a')", "name() of what?", None),
    ("x = y and ^position() = 1", "position() counts in a predicate", None),
    ("x = y and ^p:b = 5", "a path that starts nowhere", "start it with a variable"),
    ("x = y and x/^../b", "this condition cannot be part of a join: the parent axis", "a pattern"),
    ("x/^.. = y", "this path cannot be part of a join: the parent axis", "a pattern"),
    ("x = y and ^x//@id = y", "leads to a variable in two ways", ".//*/@id"),
    ("x = y and ^x/text()/b = y", "never reaches anything", None),
    ("x = y and x[^b = $y]", "a comparison between paths", "a pattern"),
    ("x = y and ^concta(x, 'a')", "no function 'concta'", "did you mean 'concat'?"),
]
OTHERS_REFUSED = [
    ("S//a->x JOIN{x=^z, 1 s} S//b->y JOIN{y=z, 1 s} S//c->z", "z is of a later block", "before that block"),
    ("S//a->x JOIN{x=y, 1 s} S//b->y JOIN{^x=y, 1 s} S//c->z", "x and y are both of earlier", "the later of"),
    ("S//a JOIN{^x=y, 1 s} S//b", "there is no variable x", "bind one in a block"),
    ("SELECT ^$x FROM S//a->x", "expected '*' or an element after SELECT, but found '$'", "into an element"),
    ("SELECT ^x/b FROM S//a->x", "expected '*' or an element after SELECT, but found 'x'", "into an element"),
    ("SELECT ^FROM S//a->x", "expected '*' or an element after SELECT, but found 'FROM'", None),
    ("SELECT <r>{$x}</r>^", "expected FROM after what is selected, but the query ends", "SELECT … FROM"),
    ("SELECT <r>{$x}</r> ^S//a->x", "expected FROM after what is selected, but found 'S'", "SELECT … FROM"),
    ("SELECT <r/>^<s/> FROM S//a->x", "expected FROM after what is selected, but found '<'", None),
    ("SELECT <r>{^$y}</r> FROM S//a->x", "there is no variable y", "there are $x; for an element write $x/y"),
    ("SELECT <r>{^$y/b}</r> FROM S//a->x", "there is no variable y", "there are $x"),
    ("SELECT <r>{$x[b = ^$y]}</r> FROM S//a->x", "there is no variable y", "there are $x"),
    ("SELECT <r k='{^$y}'/> FROM S//a->x", "there is no variable y", "there are $x"),
    ("SELECT <r>it's {^$y} isn't</r> FROM S//a->x", "there is no variable y", "there are $x"),
    ("SELECT <r>{^$x.title}</r> FROM S//a->x", "there is no variable x.title", "write $x/title"),
    ("SELECT <r>{^$p:y}</r> FROM S//a->x", "there is no variable p:y", "$x/p:y"),
    ("SELECT <r>{^$x}</r> FROM S//a", "there is no variable x", "bind one in a block"),
    ("SELECT <r>{^$boko}</r> FROM S//a->book", "there is no variable boko", "did you mean '$book'?"),
    ("SELECT <r>{^$x''}</r> FROM S//a->x'", "there is no variable x''", "There are $x'"),
    ('SELECT <r>{"$y"}{^concat("$y", $x)}</r> FROM S//a->x', "a join writes paths", "{string($x1)}"),
    ("SELECT <r>{^concat($x, 'a')}</r> FROM S//a->x", "a join writes paths", "{string($x1)}"),
    ("SELECT <r>{^$x + 1}</r> FROM S//a->x", "a join writes paths", "{string($x1)}"),
    ("SELECT <r>{^x}</r> FROM S//a->x", "a path that starts nowhere", "$x1/title"),
    ("SELECT <r>{^//b}</r> FROM S//a->x", "from which?", "$x1/title"),
    ("SELECT <r>{$x/^../b}</r> FROM S//a->x", "this expression cannot be part of a join", "a pattern"),
    ("SELECT <r>{^$x | $y}</r> FROM S//a->x[b->y]", "paths from several variables", "a pattern"),
    ("SELECT <r>{^for $y in $x return $y}</r> FROM S//a->x", "XQuery allows a 'for'", None),
    ("SELECT <r>^{$x FROM S//a->x", "a '{' that is never closed", "add the missing }"),
    ("SELECT <r>{$x ^$y}</r> FROM S//a->x[b->y]", "expected '}' to close '{', but found '$'", None),
    ("SELECT ^<r>{$x} FROM S//a->x", "<r> is never closed", "add </r>"),
    ("SELECT <r>{$x}^{$x/@b}</r> FROM S//a->x", "an attribute after other content", "string("),
    ("SELECT <^q:r/> FROM S//a->x", "the prefix 'q' is not declared", "xmlns:q"),
    ("S//a->x PUBLISH^", "expected the name of a stream after PUBLISH, but the query ends", "the name"),
    ("S//a->x PUBLISH ^TO alerts", "after PUBLISH, but found 'TO'", "write PUBLISH alerts"),
    ("S//a->x publish ^into alerts", "after PUBLISH, but found 'into'", "write PUBLISH alerts"),
    ("S//a->x PUBLISH ^'b'", "after PUBLISH, but found \"'\"", "without quotes"),
    ("S//a->x PUBLISH b^;", "expected the end of the query, but found ';'", "drop the ;"),
    ("S//a->x PUBLISH b ^PUBLISH c", "expected the end of the query", "one stream"),
    ("S//a->x PUBLISH b^, c", "expected the end of the query", "one stream"),
    ("S//a->x PUBLISH b ^WHERE x = 5", "expected the end of the query", "in brackets"),
    ("^<r>{$x}</r> FROM S//a->x", "an element before FROM, but no SELECT", "write SELECT before the"),
    ("\n^<p:r k='5'/>from S//a->x", "an element before FROM, but no SELECT", "write SELECT before the"),
    ("S//a->x PUBLISH ^5", "expected the name of a stream after PUBLISH, but found '5'", "the name"),
    ("S//a->x PUBLISH ^from", "expected the name of a stream after PUBLISH, but found 'from'", "the name"),
    ("S//a->x JOIN{x=y, 1 s} T//a->y PUBLISH ^T", "a cycle", "another name"),
    ("S//a->x PUBLISH b ^c", "expected the end of the query, but found 'c'", None),
    ("S//a->x PUBLISH b ^JOIN{x=y, 1 s} S//b->y", "expected the end of the query", "PUBLISH comes last"),
    ("S//a->x\n[b = 'é'][\n  c->^x]", "the variable x is bound already", "another name"),
    ("SELECT <r>it's</r> FROM S//a->x'[b->^x']", "the variable x' is bound already", "another name"),
    ("S//a[. = '^\x01']->x", "a character that joins do not have", None),
]  # fmt: skip


def pointed_at(error: QueryError) -> str:
    """What stands in the shown query from the caret on."""
    shown, caret = str(error).split("\n")[1:3]
    assert caret.strip() == "^"
    return shown[caret.index("^") :]


@pytest.mark.parametrize(
    ("marked", "reason", "hint"),
    [
        *BLOCKS_REFUSED,
        *LINKS_REFUSED,
        *((linked(p), r, h) for p, r, h in PREDICATES_REFUSED),
        *OTHERS_REFUSED,
    ],
    ids=lambda part: str(part)[:50],
)
def test_errors_have_reason_position_and_hint(marked: str, reason: str, hint: str | None) -> None:
    text = marked.replace("^", "", 1)
    error = refused(text)
    assert reason in error.reason, str(error)
    assert error.query == text
    assert f"{text[: error.position]}^{text[error.position :]}" == marked, str(error)
    line_end = f"{text}\n".index("\n", error.position)
    assert text[error.position : line_end].startswith(pointed_at(error).removesuffix("…"))
    if hint is not None:
        assert error.hint is not None, str(error)
        assert hint in error.hint


def test_reads_as_a_whole_like_this() -> None:
    error = refused("S//book->b[title->t'] JOIN{t' = hed, 1 day} S//blog->w[.//head->head]")
    assert str(error) == (
        "there is no variable hed\n"
        "  S//book->b[title->t'] JOIN{t' = hed, 1 day} S//blog->w[.//head->head]\n"
        "                                  ^\n"
        "  hint: did you mean 'head'? There are b, t', w, head"
    )


# -- what is no mistake ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["not//a->x", "not", "NOT AS x JOIN{x=y, 1 s} S//a->y", "S//a->x PUBLISH to", "where//a->x"],
)
def test_words_of_other_languages_may_be_names(text: str) -> None:
    assert compile_join(text).blocks


def test_a_missing_select_is_distinguished_from_for_where_return() -> None:
    assert is_join("<r>{$x}</r> FROM S//a->x")
    assert is_join("<r k='{$x}'/> from S//a->x JOIN{x=y, 1 s} S//b->y")
    assert not is_join("<r><r>a</r> from {for $x in //a return $x}</r>\n")
    assert not is_join("<r><b/> from {for $x in //a return <b/>}</r>")
    assert not is_join("for $x in //a return <r><b/> from {$x}</r>")


# -- nothing else is raised ------------------------------------------------------------------------------

VALID = [
    *(text for group in SPELLINGS for text in group),
    *(text for text, *_ in BLOCKS),
    *(linked(f"x = y and {condition}") for condition, _ in PUSHED),
    *(f"SELECT {constructor} FROM S//a->x[@i->i] JOIN{{x=y, 1 s}} S//b->y" for constructor, _ in OUTPUT),
]
PIECES = [
    "->", " AS ", "x", "y", "'", '"', "[", "]", "{", "}", "(", ")", " JOIN", "FOLLOWED ", " BY", ",", "1 day",
    "INF", "/", "//", "@", ".", "..", "*", "=", "<", ">", " and ", " OR ", "not(", "$", ":", "p:",
    " PUBLISH ", "SELECT ", " FROM ", "<r>", "</r>", "{$x}", "\n", "|", "-", "+", "5", "position()", "last()",
    "self::a", "parent::", "descendant-or-self::", "text()", "node()", "\0", "é", "(:", "&", "count(",
    "string(", "\r", "\U00010600", "\ud800",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(start + draw(st.sampled_from([0, 0, 1, 2, 6])), len(text))
        text = text[:start] + draw(st.sampled_from(["", *PIECES])) + text[end:]
    return text


JUNK = st.one_of(mutated(), st.lists(st.sampled_from(PIECES), max_size=20).map("".join), st.text())


@given(JUNK)
@example("S//a->x" + "[b->x" * 2_000)
@example("S//a->x JOIN{" + "(" * 2_000)
@example("SELECT " + "<a>" * 2_000)
@example("->" * 2_000)
@example("S//a->x" + "'" * 2_000)
def test_junk_is_refused_in_good_order(text: str) -> None:
    is_join(text)
    try:
        compile_join(text, NAMESPACES)
    except QueryError as error:
        assert error.query == text.replace("\r\n", "\n").replace("\r", "\n")
        assert 0 <= error.position <= len(error.query)
        if "\U00010600" not in text:
            assert "\U00010600" not in str(error)


@pytest.mark.parametrize("text", JOINS)
def test_texts_that_look_like_joins_compile_or_are_refused_with_a_hint(text: str) -> None:
    try:
        compile_join(text)
    except QueryError as error:
        assert error.hint is not None, str(error)


def test_long_queries_do_not_hit_the_recursion_limit() -> None:
    long = " and ".join(["b"] * 3_000)
    assert len(compile_join(f"S//a->x[{long}]").variables) == 1
    conditions = " and ".join(f"x = '{n}'" for n in range(1_000))
    (link,) = compile_join(f"S//a->x JOIN{{x = y and {conditions}, 1 s}} S//b->y").links
    assert len(link.comparisons) == 1
    assert len(compile_join("S" + "/a" * 3_000).variables) == 1
