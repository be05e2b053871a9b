"""Orders of about a kilobyte, and queries with predicates on them: small messages, and few matches of many.

    <order number="10482" status="open" priority="2">
      <customer id="C-2093" segment="trade"><name>Okafor</name><country>DE</country><city>Leipzig</city>
        <street>…</street></customer>
      <shipping method="express"><carrier>Northwind</carrier><warehouse>W3</warehouse></shipping>
      <items><item sku="S-102" category="garden"><title>…</title><quantity>2</quantity><price>24.90</price>
        </item>…</items><payment method="invoice"><currency>EUR</currency><total>273.30</total></payment>
      <note>…</note></order>                                                                  (in one line)

Values are uniform and independent, except the total. One query in two hundred matches an order on average:
most name a customer or an article, the others bound a number.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

_STATUSES = ("open", "paid", "packed", "sent", "closed")
_COUNTRIES = ("AT", "BE", "CH", "CZ", "DE", "DK", "ES", "FI", "FR", "GR", "HU", "IE", "IT", "NL", "NO", "PL")
_CITIES = ("Leipzig", "Graz", "Ghent", "Basel", "Brno", "Aarhus", "Malaga", "Turku", "Nantes", "Patras")
_NAMES = ("Okafor", "Lindqvist", "Moreau", "Castellano", "Novak", "Haugen", "Papadakis", "Brandt")
_SEGMENTS = ("trade", "retail", "public")
_SHIPPING = ("express", "standard", "pickup", "freight")
_CARRIERS = ("Northwind", "Bluebird", "Polar Freight", "Swift & Sons")
_PAYMENTS = ("invoice", "card", "transfer", "cash")
_CATEGORIES = ("garden", "tools", "kitchen", "paper", "light", "textile", "sport", "travel", "toys", "audio")
_TITLES = ("Folding pruning saw", "Whetstone with two grits", "Enamel kettle, two litres", "Linen apron")
_NOTE = "Please leave the parcel with the neighbour on the second floor, and ring twice."
_CUSTOMERS, _ARTICLES = 5_000, 2_000
_ITEMS = range(3, 6)
_QUANTITIES = range(1, 10)
_HIGHEST = 20_000
"""cents that an article costs at most"""


def generate_orders(count: int) -> list[bytes]:
    """Generate orders, the same ones in every run."""
    random = Random(1)
    return [_write_order(random).encode() for _ in range(count)]


def generate_order_queries(count: int) -> list[str]:
    """Generate distinct queries with two predicates or three, the same ones in every run."""
    random = Random(2)
    found: dict[str, None] = {}
    while len(found) < count:
        found[random.choice(_QUERIES)(random)] = None
    return list(found)


def _write_order(random: Random) -> str:
    pick = random.choice
    items, total = "", 0
    for _ in range(pick(_ITEMS)):
        quantity, cents = pick(_QUANTITIES), random.randint(100, _HIGHEST)
        total += quantity * cents
        items += (
            f'<item sku="S-{random.randrange(_ARTICLES)}" category="{pick(_CATEGORIES)}">'
            f"<title>{pick(_TITLES)}</title><quantity>{quantity}</quantity>"
            f"<price>{cents / 100:.2f}</price></item>"
        )
    return (
        f'<order number="{random.randrange(10_000, 100_000)}" status="{pick(_STATUSES)}" '
        f'priority="{random.randint(1, 5)}"><customer id="C-{random.randrange(_CUSTOMERS)}" '
        f'segment="{pick(_SEGMENTS)}"><name>{pick(_NAMES)}</name><country>{pick(_COUNTRIES)}</country>'
        f"<city>{pick(_CITIES)}</city><street>{random.randint(1, 99)} Station Road, back yard</street>"
        f'</customer><shipping method="{pick(_SHIPPING)}">'
        f"<carrier>{pick(_CARRIERS).replace('&', '&amp;')}</carrier>"
        f"<warehouse>W{random.randint(1, 9)}</warehouse></shipping><items>{items}</items>"
        f'<payment method="{pick(_PAYMENTS)}"><currency>EUR</currency><total>{total / 100:.2f}</total>'
        f"</payment><note>{_NOTE}</note></order>"
    )


def _amount(random: Random, least: int, most: int) -> str:
    return f"{random.randint(least, most) / 100:.2f}"


_QUERIES: tuple[Callable[[Random], str], ...] = (
    lambda random: (
        f"/order[customer/@id = 'C-{random.randrange(_CUSTOMERS)}']"
        f"/items/item[price > {_amount(random, 100, _HIGHEST)}]"
    ),
    lambda random: (
        f"/order/items/item[@sku = 'S-{random.randrange(_ARTICLES)}']"
        f"[quantity > {random.choice(_QUANTITIES)}][price < {_amount(random, 100, _HIGHEST)}]"
    ),
    lambda random: (
        f"//item[@category = '{random.choice(_CATEGORIES)}' and price < {_amount(random, 100, 1_500)}]"
    ),
    lambda random: (
        f"/order[@status = '{random.choice(_STATUSES)}' and payment/total > "
        f"{_amount(random, 300_000, 500_000)}]"
    ),
    lambda random: (
        f"/order[customer/country = '{random.choice(_COUNTRIES)}']"
        f"/payment[@method = '{random.choice(_PAYMENTS)}'][total > {_amount(random, 100, 500_000)}]"
    ),
)
