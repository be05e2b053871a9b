"""Cases of the clauses for, let and where."""

from __future__ import annotations

from tests.support.cases.transform_cases.case import BOOK, Case

WHERE = [
    Case(
        "the thesis's Query 3",
        'for $s in //section[@difficulty="easy"] where $s/title="Pub-Sub" '
        "return <new_section>{$s/title}{$s//figure}</new_section>",
        BOOK,
    ),
    Case("nothing bound", "for $s in //chapter return <r>{$s}</r>", BOOK, delivered=False),
    Case(
        "nothing bound, no wrapper either", "<w>{for $s in //chapter return <r/>}</w>", BOOK, delivered=False
    ),
    Case(
        "nothing left by where", 'for $s in //section where $s/@id = "s9" return <r/>', BOOK, delivered=False
    ),
    Case(
        "any of several nodes is equal",
        'for $s in //section where $s/title = "Pub-Sub" return $s/@id/..',
        BOOK,
    ),
    Case(
        "any of several is unequal",
        'for $s in //section where $s/title != "Pub-Sub" return <r>{$s/@id}</r>',
        BOOK,
    ),
    Case(
        "order, of text that is no number too",
        "for $s in //section where $s/@pages > 9 return <r>{$s/@id}</r>",
        BOOK,
        "for $s in //section where ($s/@pages ! local:number(.)) > 9 return <r>{$s/@id}</r>",
    ),
    Case(
        "text that is no number is unequal to all",
        "for $s in //section where 10 != $s/@pages return <r>{$s/@id}</r>",
        BOOK,
        "for $s in //section where 10 != ($s/@pages ! local:number(.)) return <r>{$s/@id}</r>",
    ),
    Case(
        "a number and a string are compared differently",
        'for $a in //a where $a = 1 and not($a = "1") return $a',
        "<r><a>1</a><a>1.0</a><a> 1 </a><a>1e0</a><a>+1</a><a>01</a></r>",
        'for $a in //a where ($a ! local:number(.)) = 1 and not($a = "1") return $a',
    ),
    Case("existence", "for $s in //section where $s/figure/title/@lang return <r>{$s/@id}</r>", BOOK),
    Case("absence", "for $s in //section where not($s//section) return <r>{$s/@id}</r>", BOOK),
    Case(
        "and binds tighter than or",
        'for $s in //section where $s/p or $s/title = "Brokers" and $s/figure return <r>{$s/@id}</r>',
        BOOK,
    ),
    Case(
        "parentheses",
        'for $s in //section where ($s/p or $s/title = "Brokers") and not($s/@id = "s3") return <r/>',
        BOOK,
    ),
    Case(
        "contains() looks at the first node",
        'for $s in //section where contains($s/title, "Pub") return <r>{$s/@id}</r>',
        BOOK,
        'for $s in //section where contains(string($s/title[1]), "Pub") return <r>{$s/@id}</r>',
    ),
    Case(
        "starts-with(), of no node too",
        'for $s in //section where starts-with($s/p, "") and starts-with($s/title, "J") '
        "return <r>{$s/@id}</r>",
        BOOK,
        'for $s in //section where starts-with($s/p, "") and starts-with(string($s/title[1]), "J") '
        "return <r>{$s/@id}</r>",
    ),
    Case(
        "the string-value of mixed content",
        'for $p in //p where $p = "some mixed text here" return <r/>',
        BOOK,
    ),
    Case(
        "where on the document",
        'for $s in //section where //p and /book/section/@id = "s1" return <r/>',
        BOOK,
    ),
    Case(
        "literals that look like syntax",
        """for $a in //a where $a/@k = '} return <x/>' and $a = "for $b in" return <r>{$a[. = "}"]}</r>""",
        """<r><a k="} return &lt;x/>">for $b in</a><a>x</a></r>""",
    ),
    Case(
        "words of the language as names",
        'for $for in //for where $for/where = "1" and $for/and or $for/not '
        "return <return>{$for/return}{$for/in/let}{$for/div}{$for/text}</return>",
        "<r><for><where>1</where><and/><return>x</return><in><let/></in><div/><text/></for><for/></r>",
    ),
    Case("no space that is not needed", "for$a in//a[b]where$a/b=1 return<r>{$a/b}</r>", "<a><b>1</b></a>"),
    Case(
        "space wherever it can be",
        'for\n$a\tin\n  // a [ b ]  where\n$a / b = "1"\nreturn\n<r  k = "1" >{ $a / b }</r >',
        "<a><b>1</b></a>",
    ),
]

VARIABLES = [
    Case(
        "from an earlier one", "for $s in //section, $f in $s/figure return <r>{$s/@id}{$f/title}</r>", BOOK
    ),
    Case(
        "two for clauses", "for $s in //section for $f in $s//figure return <r>{$s/@id}{$f/title}</r>", BOOK
    ),
    Case(
        "independent ones: a nested loop",
        "for $s in //section, $f in //figure return <r>{$s/@id}{$f/@n}</r>",
        BOOK,
    ),
    Case(
        "the second outlives the first's absence",
        "for $s in //x, $f in //figure return $f",
        BOOK,
        delivered=False,
    ),
    Case(
        "three levels, with a condition on each",
        'for $s in //section, $f in $s/figure, $t in $f/title where $s/@pages and $f/@n and $t != "Two" '
        'return <r s="{$s/@id}" f="{$f/@n}">{$t}</r>',
        BOOK,
    ),
    Case(
        "a condition on either of two",
        'for $s in //section, $f in $s//figure where $s/@id = "s2" or $f/@n = "2" '
        "return <r>{$s/@id}{$f/@n}</r>",
        BOOK,
    ),
    Case(
        "a negated condition on two",
        'for $s in //section, $f in $s//figure where not($s/@id = "s1" and $f/@n = "2") '
        "return <r>{$s/@id}{$f/@n}</r>",
        BOOK,
    ),
    Case(
        "a comparison of two variables",
        "for $a in //a, $b in //b where $a/@k = $b/@k return <r>{$a}{$b}</r>",
        '<r><a k="1">x</a><b k="2"/><a k="2">y</a><b k="1">z</b><b k="1"/></r>',
    ),
    Case(
        "a variable in a predicate",
        "for $a in //a, $b in //b[@k = $a/@k] return <r>{$a}{$b}</r>",
        '<r><a k="1">x</a><b k="2"/><a k="2">y</a><b k="1">z</b><b k="1"/></r>',
    ),
    Case("let", 'for $s in //section let $t := $s/title return <r n="{count($t)}">{$t}</r>', BOOK),
    Case(
        "let in where", 'for $s in //section let $t := $s/title where $t = "Joins" return <r>{$t}</r>', BOOK
    ),
    Case(
        "several lets, one from the other",
        "for $s in //section let $f := $s//figure, $t := $f/title return <r>{$t}{count($f)}</r>",
        BOOK,
    ),
    Case(
        "let between for clauses",
        "for $s in //section let $f := $s/figure for $t in $f/title return $t",
        BOOK,
    ),
    Case(
        "the first of a let",
        "for $s in //section let $t := $s/title return <r>{string($t)}</r>",
        BOOK,
        "for $s in //section let $t := $s/title return <r>{string($t[1])}</r>",
    ),
    Case("bound to attributes", 'for $i in //section/@id where $i != "s2" return <r>{$i}</r>', BOOK),
    Case("attributes as text", 'for $i in //@n return <r v="{$i}">{string($i)}</r>', BOOK),
    Case("bound to text", "for $t in //title/text() return <r>{$t}</r>", BOOK),
    Case("bound to a union", "for $x in //p | //figure | //p return <r>{$x}</r>", BOOK),
    Case("names with points and hyphens", "for $my-s.1 in //section return <r>{$my-s.1/@id}</r>", BOOK),
    Case(
        "each node once, however many ways lead to it",
        "for $f in //section//figure return <r>{$f/@n}</r>",
        BOOK,
    ),
    Case(
        "the document by its names",
        "for $f in $doc//figure, $s in $msg/book/section return <r>{$f/@n}</r>",
        BOOK,
    ),
    Case("the first of each parent", "for $f in //section/figure[1] return <r>{$f}</r>", BOOK),
    Case("the last, and a position among the filtered", "for $f in //figure[@n > 1][last()] return $f", BOOK),
    Case("position()", "for $s in /book/section[position() = 2]/*[position() < 3] return $s", BOOK),
]

BEYOND = [
    Case("a parent", 'for $f in //figure where $f/../@id = "s3" return <r>{$f/../title}</r>', BOOK),
    Case(
        "other axes",
        "for $f in //figure return <r>{$f/ancestor::section/@id/..}{$f/preceding-sibling::title}</r>",
        BOOK,
    ),
    Case("a count", "for $s in //section where count($s/figure) > 1 return <r>{$s/@id}</r>", BOOK),
    Case("arithmetic", "for $s in //section return <r>{count($s/*) * 2 + 1}</r>", BOOK),
    Case("truth", 'for $s in //section return <r>{$s/title = "Joins"}</r>', BOOK),
    Case(
        "functions",
        'for $f in //figure return <r k="{concat($f/@n, "-", name($f))}">{normalize-space($f)}</r>',
        BOOK,
    ),
    Case(
        "two paths compared",
        "for $a in //a where $a/b = $a/c or $a/@k < $a/@j return $a",
        '<r><a><b>1</b><b>2</b><c>2</c></a><a k="9" j="10"/><a k="10" j="9"/><a><b/></a></r>',
        "for $a in //a where $a/b = $a/c or ($a/@k ! local:number(.)) < ($a/@j ! local:number(.)) return $a",
    ),
]

NESTED = (
    '<s k="1"><s k="2"><f>a</f><s k="1"><f>b</f><g/></s></s><f>c</f>'
    '<s><f>d<t>x</t></f><s k="1"><f>e</f></s></s></s>'
)
ON_THE_WAY = [
    Case(about, f"<w>{{for $f in {path} return <r>{{$f}}{{count($f/t)}}{{$f//t}}</r>}}</w>", NESTED)
    for about, path in (
        ("a condition on the way", "//s[@k = 1]//f"),
        ("a condition on the way, a child", "//s[@k = 1]/f"),
        ("a condition at the root", "/s[@k = 1]/s/f"),
        ("a negation on the way", "//s[not(@k)]//f"),
        ("a path on the way", "//s[s/s]//f"),
        ("a position on the way", "//s[2]//f"),
        ("two conditions on the way", "//s[@k = 1]//s[@k = 2]//f"),
        ("a condition on the way and one at the end", "//s[@k = 1]//f[t or . = 'b']"),
        ("a wildcard on the way", "//*[@k = 1]/*/f"),
    )
]
