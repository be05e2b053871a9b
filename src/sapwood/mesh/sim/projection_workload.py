"""A workload of transformations, most of which read little of a message, so that links cut much from it.

Joins read whole messages of their streams, and two queries those of all: where these are wanted, messages of
some streams, or all, stay whole.
"""

from __future__ import annotations

from functools import cache

from sapwood.mesh.sim.broker_workload import DOCUMENTS, QUERIES, BrokerWorkload, SimDocument, SimQuery

TRANSFORMATIONS: tuple[SimQuery, ...] = (
    # elements with their attributes, or with all that is inside of them
    SimQuery("for $o in //order return <order>{$o/@id}{$o/@currency}</order>"),
    SimQuery("for $i in //item return <item sku='{$i/@sku}' gift='{$i/@gift}'/>"),
    SimQuery("for $p in //payment return <paid>{$p/@for}{$p/amount}</paid>"),
    SimQuery("for $b in //a//b return <b x='{$b/@x}'>{$b/c}</b>"),
    SimQuery("for $x in /batch/* return <part>{$x/@id}</part>"),
    SimQuery("for $n in //note return $n"),
    # conditions, of which some are on what is not delivered
    SimQuery("for $n in /nitf where $n/body return <has>{$n/@urgent}</has>"),
    SimQuery("for $t in //title where contains($t, 'merger') return <news>{$t}</news>"),
    SimQuery("for $y in /feed/year where $y = 2007 return $y"),
    SimQuery("for $o in /order[item/@sku = 'A1'] return <a1>{$o/@id}</a1>"),
    SimQuery("for $q in //f:quote where $q/f:bid > 10 return <best>{$q/@f:venue}{$q/f:bid}</best>"),
    # conditions that hold if something is not there
    SimQuery("for $o in //order where not($o/item) return <bare>{$o/@id}</bare>"),
    SimQuery("for $o in /order where not($o/total > 100) return <small>{$o/@id}{$o/total}</small>"),
    SimQuery("for $i in //item where not($i/@qty = 2) return <other sku='{$i/@sku}'/>"),
    SimQuery("for $a in //a where not($a/b/c = 1) return <none>{$a/b/c}</none>"),
    SimQuery("for $o in //order where not($o/note/item) return <plain>{$o/@id}</plain>"),
    # equal conditions, and other reads
    SimQuery("for $o in //order return <total>{$o/total}</total>"),
    SimQuery("for $o in //order return <all>{$o}</all>"),
    # the whole message
    SimQuery("for $o in /order/*[2] return <second>{$o/@sku}</second>"),
    SimQuery("//order[@currency = 'CHF']/total"),
)
NOTED: tuple[SimDocument, ...] = (
    SimDocument(
        "<?xml version='1.0'?><order id='20'><note>first<b/>second</note><item sku='A1'><note>n</note></item>"
        "<total>1<!-- split -->11</total></order>",
        "orders",
    ),
    SimDocument(
        "<order  id = '21' ><!-- <item sku='A1'/> --><total><![CDATA[200]]></total>\n"
        "<note> <item sku='B2'/> </note ><?pi <item/>?></order >",
        "orders",
    ),
    SimDocument(
        "<!DOCTYPE order [<!ENTITY e 'A1'>]><order><item sku='&e;'/><note>x</note></order>", "orders"
    ),
    SimDocument("<order id='ü'><note>&lt;item/&gt; ü</note><item sku='ä' qty='2'/></order>"),
    SimDocument(
        "<batch id='1'><note/><order id='22' currency='CHF'/>text<order currency='CHF'><total>7</total>"
        "<item><item sku='A1'><item/></item></item></order></batch>"
    ),
)


@cache
def projection_workload() -> BrokerWorkload:
    """Return the workload, made once in a process."""
    transformations = [query for query in QUERIES if query.text.startswith("for ") or query.blocks]
    return BrokerWorkload((*transformations, *TRANSFORMATIONS), (*DOCUMENTS, *NOTED))
