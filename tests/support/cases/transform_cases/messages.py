"""Cases of namespaces, of the markup of messages, and of rare combinations."""

from __future__ import annotations

from tests.support.cases.transform_cases.case import Case

NAMESPACED = [
    Case(
        "a prefix declared above the slice",
        "for $b in //b return <r>{$b}</r>",
        '<a xmlns:p="urn:p" xmlns:q="urn:q"><b><p:c p:k="1"/></b><b q:k="2"/></a>',
    ),
    Case(
        "a default namespace at the root",
        "for $b in //p:b return <r>{$b}{$b/p:c}</r>",
        '<a xmlns="urn:p"><b><c/></b></a>',
        namespaces={"p": "urn:p"},
    ),
    Case(
        "a default namespace that is taken back",
        "for $b in //b return <r>{$b}{$b/p:c}</r>",
        '<a xmlns="urn:p"><b xmlns=""><c xmlns="urn:p"/></b></a>',
        namespaces={"p": "urn:p"},
    ),
    Case(
        "a prefix that changes its meaning",
        "for $b in //q:b return <p:r>{$b}{$b/p:c}</p:r>",
        '<a xmlns:p="urn:p"><p:b><p:c/></p:b>'
        '<x xmlns:p="urn:q"><p:b><z:c xmlns:z="urn:p"/><p:d/></p:b></x></a>',
        namespaces={"p": "urn:p", "q": "urn:q"},
    ),
    Case(
        "other prefixes in the message",
        "for $b in //p:b where $b/@p:k = 1 return <r>{$b/@p:k}{$b/p:*}</r>",
        '<x:a xmlns:x="urn:p"><x:b x:k="1"><x:c/><c/></x:b></x:a>',
        "for $b in //p:b where ($b/@p:k ! local:number(.)) = 1 return <r>{$b/@p:k}{$b/p:*}</r>",
        {"p": "urn:p"},
    ),
    Case(
        "a constructor in a default namespace: what has none keeps none",
        'for $b in //b return <r xmlns="urn:d"><s>{$b/c}</s>{$b}<t xmlns="">{$b/c}</t></r>',
        "<a><b>x<c><d/></c></b></a>",
        'for $b in //b return <r xmlns="urn:d"><s>{$b/Q{}c}</s>{$b}<t xmlns="">{$b/c}</t></r>',
    ),
    Case(
        "a wrapper in a default namespace",
        '<w xmlns="urn:d">{for $b in //b return <r>{$b/c}</r>}</w>',
        "<a><b>x<c><d/></c></b></a>",
        '<w xmlns="urn:d">{for $b in //Q{}b return <r>{$b/Q{}c}</r>}</w>',
    ),
    Case(
        "nodes straight into such a wrapper",
        '<w xmlns="urn:d">{for $b in //b return $b/c}</w>',
        "<a><b>x<c><d/></c></b></a>",
        '<w xmlns="urn:d">{for $b in //Q{}b return $b/Q{}c}</w>',
    ),
    Case(
        "a wrapper's prefix, used inside",
        '<o:w xmlns:o="urn:o">{for $b in //o:b return <o:r o:k="1">{$b}</o:r>}</o:w>',
        '<a><b/><x:b xmlns:x="urn:o"/></a>',
    ),
    Case(
        "prefixes of the broker in a constructor",
        'for $b in //b return <p:r p:k="{$b/@k}" j="1"><q:s/><p:t/></p:r>',
        '<a><b k="1"/></a>',
        namespaces={"p": "urn:p", "q": "urn:q"},
    ),
    Case(
        "a constructor's own prefix, used in its holes",
        'for $b in //b return <o:r xmlns:o="urn:o" o:k="1">{$b/o:c}<o:s>{$b/@o:k}</o:s></o:r>',
        '<a xmlns:x="urn:o"><b x:k="2"><x:c/><c/></b></a>',
    ),
    Case(
        "an attribute in a namespace",
        "for $b in //b return <r>{$b/@p:k}{$b/@k}<s>{$b/@*}</s></r>",
        '<a xmlns:p="urn:p"><b p:k="1" k="2" p:j="3"/></a>',
        namespaces={"p": "urn:p"},
    ),
    Case(
        "xml:lang",
        'for $b in //b where $b/@xml:lang = "en" return <r xml:lang="de">{$b}<s>{$b/@xml:lang}</s></r>',
        '<a xml:lang="fr"><b xml:lang="en"><c xml:space="preserve"> </c></b></a>',
    ),
    Case(
        "the empty namespace in a message's default one",
        "for $b in //* return <r>{$b/@*}</r>",
        '<a xmlns="urn:d" k="1"><b xmlns="" k="2"/></a>',
    ),
]

MESSAGES = [
    Case(
        "comments, instructions and CDATA",
        "for $b in //b return <r>{$b}</r>",
        "<a><b><!--x--><?y z?><![CDATA[<&]]></b></a>",
    ),
    Case(
        "text in pieces",
        "for $b in //b return <r>{$b/text()}</r>",
        "<a><b>1<![CDATA[2]]>3<!---->4&amp;5&#54;</b></a>",
    ),
    Case(
        "text nodes in pieces are compared whole",
        'for $b in //b where $b/text() = "123" return <r/>',
        "<a><b>1<![CDATA[2]]>&#51;<!---->4</b></a>",
    ),
    Case(
        "line ends",
        'for $b in //b return <r t="{$b}">{$b}{string($b)}</r>',
        "<a><b k='1\r\n2'>x\r\ny\rz&#13;\n</b></a>",
    ),
    Case(
        "entities of a DOCTYPE",
        'for $b in //b return <r t="{$b/@k}">{$b}{$b/text()}</r>',
        '<!DOCTYPE a [<!ENTITY e "x&#38;#60;y"><!ENTITY f "<c>&e;</c>">]><a><b k="&e;">&e;&f;</b></a>',
    ),
    Case(
        "attributes that a DOCTYPE supplies",
        "for $b in //b return <r>{$b/@k}{$b}{$b/c/..}</r>",
        '<!DOCTYPE a [<!ATTLIST b k CDATA "d" j NMTOKENS #IMPLIED><!ATTLIST c m CDATA "&#38;amp;&#10;">]>'
        '<a><b j=" x  y "><c/></b></a>',
    ),
    Case(
        "Latin-1",
        "for $b in //b return <r é='1'>{$b/@k}{$b}</r>",
        '<?xml version="1.0" encoding="ISO-8859-1"?><a><b k="é">é<ü/></b></a>'.encode("latin-1"),
    ),
    Case(
        "UTF-16",
        "for $b in //b return <r>{$b}</r>",
        '<?xml version="1.0" encoding="UTF-16"?><a><b k="é">😀</b></a>'.encode("utf-16"),
    ),
    Case("a byte order mark", "for $b in //b return <r>{$b}</r>", "<a><b>é</b></a>".encode("utf-8-sig")),
    Case(
        "characters beyond the first plane",
        'for $b in //b where $b/@k = "😀" return <r>😀{$b}</r>',
        '<a>é<b k="😀">日本</b></a>',
    ),
    Case("space in tags", "for $b in //b return <r>{$b}</r>", "<a ><b\n k = '1'\n><c\t/></b\n></a >"),
    Case(
        "angle brackets in attributes", "for $b in //b return <r>{$b}</r>", "<a><b k='/>' j=\"'>\">x</b></a>"
    ),
    Case(
        "tags in comments and CDATA",
        "for $b in //b return <r>{$b}</r>",
        "<a><!--<b>--><b><![CDATA[</b>]]></b><b/></a>",
    ),
    Case(
        "the root itself",
        "for $a in /a return <r>{$a}</r>",
        "<?xml version='1.0'?>\n<!--x-->\n<a k='1'>\n<b/></a>\n<!--y-->",
    ),
]

EDGES = [
    Case(
        "a prefix of the constructor, for lxml",
        '<w>{for $x in //a return <o:r xmlns:o="urn:o">{count($x/o:b) + 1}</o:r>}</w>',
        '<z><a><b xmlns="urn:o"/></a></z>',
    ),
    Case(
        "a prefix with another meaning inside",
        'for $x in //a return <p:r xmlns:p="urn:q">{count($x/p:b) + 1}</p:r>',
        '<r><a><b xmlns="urn:q"/></a></r>',
        namespaces={"p": "urn:p"},
    ),
    Case(
        "a wrapper's prefix, for lxml",
        '<p:w xmlns:p="urn:q">{for $x in //p:a where count($x/p:b) > 1 return <r/>}</p:w>',
        '<a xmlns="urn:q"><b/><b/></a>',
    ),
    Case(
        "the document, filtered, for lxml",
        "for $x in $doc[r]/r where count($x/a) = 2 return <s/>",
        "<r><a/><a/></r>",
    ),
    Case(
        "the document in brackets, for lxml",
        "for $x in (/) where count($x//a) > 1 return <r/>",
        "<r><a/><a/></r>",
    ),
    Case(
        "the document and more, for lxml",
        "for $x in //a where $doc and count(//a) > 1 return <r/>",
        "<r><a/><a/></r>",
    ),
    Case("an attribute, then itself", "for $x in //a return <r>{$x/@k/.}</r>", '<a k="1"/>'),
    Case("bound to an attribute, then itself", "for $x in //a/@k/. return <r>{$x}</r>", '<a k="1"/>'),
    Case(
        "line ends of a query",
        'for $x in //a\r\nreturn <r a="x\r\ny">a\r\nb</r>',
        "<a/>",
        'for $x in //a return <r a="x&#32;y">a&#10;b</r>',
    ),
    Case(
        "a number in many digits",
        "for $x in //a return <r>{0.00001} {1000000}</r>",
        "<a/>",
        "for $x in //a return <r>0.00001{1000000}</r>",
    ),
    Case(
        "a constant with a line end in an attribute",
        'for $x in //a return <r a="{"x&#10;y"}"/>'.replace("&#10;", "\n"),
        "<a/>",
        'for $x in //a return <r a="{"x&#10;y"}"/>',
    ),
    Case(
        "an undeclared default where entities are",
        'for $x in //b return <r xmlns="urn:x">{$x}</r>',
        '<!DOCTYPE a [<!ENTITY e "x">]><a xmlns="urn:d"><b xmlns="">&e;</b></a>',
        'for $x in //Q{}b return <r xmlns="urn:x">{$x}</r>',
    ),
    Case(
        "an inherited one",
        'for $x in //b return <r xmlns="urn:x">{$x}</r>',
        '<!DOCTYPE a [<!ENTITY e "x">]><a xmlns="urn:d"><c xmlns=""><b>&e;</b></c></a>',
        'for $x in //Q{}b return <r xmlns="urn:x">{$x}</r>',
    ),
    *(
        Case(f"the document with markup around, {n}", "for $x in //b return <r>{$doc}</r>", message)
        for n, message in enumerate(
            (
                "<!DOCTYPE a [<!ELEMENT a ANY>]><!-- ]> --><a><b/></a>",
                "<!-- <!DOCTYPE x> --><a><b/></a><?p q?>",
                "<!DOCTYPE a [<!-- c --><?p d?>]><a><b/><!--in--></a><!-- e -->",
            )
        )
    ),
]
