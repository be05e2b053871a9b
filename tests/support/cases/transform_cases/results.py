"""Cases of the return clause and of constructors."""

from __future__ import annotations

from tests.support.cases.transform_cases.case import BOOK, Case

RETURN = [
    Case("a variable", "for $s in //section[figure] return $s", BOOK),
    Case("a path without nodes", "<w>{for $s in //section return $s/nothing}</w>", BOOK),
    Case("strings, parted by spaces", "for $f in //figure return string($f/title)", BOOK),
    Case("strings in a wrapper", "<w>{for $f in //figure return string($f/@n)}</w>", BOOK),
    Case("numbers", "<w>{for $s in //section return count($s//figure)}</w>", BOOK),
    Case("text nodes, not parted", "<w>{for $f in //figure return $f/title/text()}</w>", BOOK),
    Case("a wrapper with more in it", '<w k="1">a <b>c</b>{ for $s in //p return $s }d</w>', BOOK),
    Case("a wrapper in a wrapper", "<w><v><u>{for $s in //section return <r/>}</u></v>end</w>", BOOK),
    Case(
        "holes keep their order, and stay when empty",
        "for $b in //b return <r>{$b/x}{$b/y}</r>",
        "<r><b><y/><x/></b><b/></r>",
    ),
    Case("what is under both, once for each", "for $s in //section return <r>{$s//figure}</r>", BOOK),
    Case(
        "`//` twice under recursion: each node once",
        "for $s in //s return <r>{$s//s//t}</r>",
        "<s><s><s><t>x</t></s></s></s>",
    ),
    Case("a union in document order", "for $s in //section return <r>{$s/figure | $s/title}</r>", BOOK),
    Case(
        "absolute paths",
        "for $s in //section return <r>{//p}{$doc/book/section/@id/..}{count($msg//title)}</r>",
        BOOK,
    ),
    Case("the whole document", "for $s in //b return <r>{$doc}</r>", "<!--x--><?y z?><a><b/></a><!--w-->"),
    Case(
        "the string of the first node",
        "for $s in //section return <r>{string($s/title)}</r>",
        BOOK,
        "for $s in //section return <r>{string($s/title[1])}</r>",
    ),
    Case("strings side by side", 'for $f in //figure return <r>{string($f/@n)}{count($f)}{"x"}{2}</r>', BOOK),
    Case("text of mixed content", "for $p in //p return <r>{$p/text()}|{$p//text()}</r>", BOOK),
    Case("elements between text", "for $p in //p return <r> a {$p/em} b {$p/em}</r>", BOOK),
    Case("comments and all", "for $p in //p return <r>{$p/node()}</r>", BOOK),
]

CONSTRUCTORS = [
    Case("nested ones", "for $f in //figure return <r><a><b>{$f/title}</b><c/></a><d>{$f/@n}</d></r>", BOOK),
    Case("empty ones", "for $f in //figure return <r><a></a><b/><c> </c></r>", BOOK),
    Case(
        "white space between tags and braces",
        "for $f in //p return <r>\n  <a> {$f/em} </a>\n  {$f/em}\n</r>",
        BOOK,
    ),
    Case("white space next to text", "for $f in //p return <r> a <b> c</b> {$f/em} d </r>", BOOK),
    Case(
        "white space as references", "for $f in //p return <r>&#32;<a>&#x20;&#9;</a> {$f/em}&#10; </r>", BOOK
    ),
    Case("white space as CDATA", "for $f in //p return <r> <![CDATA[ ]]> <a><![CDATA[]]> </a></r>", BOOK),
    Case("white space as a string", 'for $f in //p return <r>{" "}{$f/em} {" "}</r>', BOOK),
    Case("braces as text", "for $f in //p return <r>{{{$f/em}}} {{}} {{a}}</r>", BOOK),
    Case(
        "references", "for $f in //p return <r>&lt;&amp;&gt;&quot;&apos;&#38;&#x3C;&#13;&#x1F600;é</r>", BOOK
    ),
    Case("CDATA", "for $f in //p return <r>a<![CDATA[<b>&amp;{$f}]]]>{$f/em}<![CDATA[]]></r>", BOOK),
    Case(
        "constant attributes",
        """for $f in //p return <r a="1" b='2"' c="&lt;&#10;&amp;'" d="" e='x''y' f="x""y"/>""",
        BOOK,
    ),
    Case("line ends in an attribute", 'for $f in //p return <r a="1\n2\t3&#9;4"/>', BOOK),
    Case("braces in an attribute", 'for $f in //p return <r a="{{}} {{a}}{$f/em}}}"/>', BOOK),
    Case(
        "computed attributes",
        'for $s in //section return <r id="{$s/@id}" t="a{$s/title}b{count($s/*)}"/>',
        BOOK,
    ),
    Case(
        "several values in an attribute", 'for $s in //section return <r t="{$s//figure/@n} {$s/x}-"/>', BOOK
    ),
    Case(
        "quotes in the braces of an attribute",
        """for $s in //section return <r t="{$s/title[. = "Joins"]}" u='{$s/title[. = 'Joins']}'/>""",
        BOOK,
    ),
    Case("an attribute node", "for $s in //section return <r>{$s/@difficulty}</r>", BOOK),
    Case(
        "attribute nodes, then content",
        'for $s in //section return <r k="1">{$s/@id} {$s/@pages}{$s/title}</r>',
        BOOK,
    ),
    Case("all attributes", "for $s in //section return <r><a>{$s/@*}</a></r>", BOOK),
    Case("attributes from below", "for $s in //section return <r>{$s/figure/title/@lang}text</r>", BOOK),
    Case(
        "values that need escaping",
        'for $a in //a return <r k="{$a/@k}" t="{$a}">{$a/@j}{string($a)}{$a/text()}</r>',
        "<r><a j='\"&#10;&#9;' k='&lt;&amp;\"&#13;'>&lt;&amp;\"]]&gt;&#13;</a></r>",
    ),
]
