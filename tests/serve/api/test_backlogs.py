"""Inboxes: overlapping subscriptions merged, and what happens at the limit."""

from __future__ import annotations

import httpx
import pytest

from tests.serve.api.calls import (
    acknowledge,
    bodies,
    check_problem,
    listen,
    open_client,
    publish,
    pull,
    subscribe,
    unique,
)
from tests.support.service.running_server import RunningServer

XMLL = {"Content-Type": "application/x-xmll"}


@pytest.fixture
def name(client: httpx.Client) -> str:
    """A subscriber that gets all messages of the stream of the same name."""
    found = unique("inbox")
    subscribe(client, found, streams=(found,), id=f"all-{found}")
    return found


def configure(client: httpx.Client, name: str, **settings: object) -> None:
    answer = client.put(f"/v1/subscribers/{name}", json=settings)
    assert answer.status_code == 200, answer.text


def publish_many(client: httpx.Client, stream: str, *numbers: int) -> list[dict[str, object]]:
    lines = "\n".join(f"<a>{number}</a>" for number in numbers)
    found: list[dict[str, object]] = publish(client, stream, lines, headers=XMLL).json()["messages"]
    return found


def expected(*numbers: int) -> list[str]:
    return [f"<a>{number}</a>" for number in numbers]


# -- merging -----------------------------------------------------------------------------------------------


def make_overlap(client: httpx.Client) -> str:
    """Return a subscriber with filters and transformations, of which some give the same."""
    name = unique("merged")
    element = "for $a in /a return <b>{$a/text()}</b>"
    for number, query in enumerate(("/a", element, "//a", element, "/a[. > 1]", "for $a in /a return <c/>")):
        subscribe(client, name, query, streams=(name,), id=f"{name}-{number}")
    return name


def test_equal_deliveries_are_one_that_names_all(client: httpx.Client) -> None:
    name = make_overlap(client)
    publish_many(client, name, 1, 2)
    assert len(pull(client, name)["deliveries"]) == 11
    configure(client, name, merge=True)
    found = pull(client, name)["deliveries"]
    named = [
        (delivery["body"], [id.rpartition("-")[2] for id in delivery["subscriptions"]]) for delivery in found
    ]
    assert sorted(named[:3]) == [("<a>1</a>", ["0", "2"]), ("<b>1</b>", ["1", "3"]), ("<c/>", ["5"])]
    assert sorted(named[3:]) == [("<a>2</a>", ["0", "2", "4"]), ("<b>2</b>", ["1", "3"]), ("<c/>", ["5"])]
    numbers = [delivery["number"] for delivery in found]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 11


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_merged_delivery_is_never_split(client: httpx.Client, limit: int) -> None:
    name = make_overlap(client)
    configure(client, name, merge=True)
    publish_many(client, name, 1, 2, 3)
    whole = pull(client, name)["deliveries"]
    assert len(whole) == 9
    after, found = 0, []
    while page := pull(client, name, limit=limit, after=after):
        if not page["deliveries"]:
            break
        assert len(page["deliveries"]) <= limit
        found += page["deliveries"]
        after = page["cursor"]
    assert found == whole
    with listen(client, name) as events:
        assert [events.delivery()["data"] for _ in whole] == whole
    for delivery in whole:  # each can be acknowledged by itself
        rest = acknowledge(client, name, delivery["id"])["backlog"]
    assert rest == 0


def test_merging_does_not_confuse_messages_with_equal_content(client: httpx.Client) -> None:
    name = make_overlap(client)
    configure(client, name, merge=True)
    publish_many(client, name, 1, 1)
    assert len(pull(client, name)["deliveries"]) == 6


# -- full inboxes ------------------------------------------------------------------------------------------


def test_publishers_wait(spare: RunningServer) -> None:
    with open_client(spare) as client:  # where no other test publishes meanwhile
        subscribe(client, "slow", streams=("s",))
        configure(client, "slow", limit=2, policy="wait")
        assert publish(client, "s", "<a>1</a>").status_code == 201
        assert publish(client, "s", "<a>2</a>").status_code == 201
        refused = publish(client, "s", "<a>3</a>", headers={"Idempotency-Key": "k"})
        found = check_problem(refused, 429, "backlog")
        assert int(refused.headers["retry-after"]) >= 1
        assert "slow" in found["detail"] and found["id"] == "k"
        many = publish_many(client, "s", 3, 4)
        assert [message["error"]["status"] for message in many] == [429, 429]  # type: ignore[index]
        acknowledge(client, "slow", 1)
        assert publish(client, "s", "<a>3</a>", headers={"Idempotency-Key": "k"}).status_code == 201
        check_problem(publish(client, "s", "<a>4</a>"), 429, "backlog")
        acknowledge(client, "slow", 3)
        assert publish(client, "s", "<a>4</a>").status_code == 201
        assert bodies(client, "slow") == expected(4)
        assert bodies(client, "slow", after=0) == expected(1, 2, 3, 4)
        assert client.get("/v1/subscribers/slow/gaps").json() == {"gaps": []}
        configure(client, "slow")
        assert publish(client, "s", "<a>5</a>\n<a>6</a>", headers=XMLL).json()["published"] == 2


def test_the_oldest_are_dropped(client: httpx.Client, name: str) -> None:
    configure(client, name, limit=3, policy="drop-oldest")
    publish_many(client, name, 1, 2, 3)
    with listen(client, name, params={"after": 3}) as live:
        publish_many(client, name, 4, 5)
        assert live.delivery()["data"]["body"] == "<a>4</a>"  # who keeps up misses nothing
    found = pull(client, name)
    assert [delivery["body"] for delivery in found["deliveries"]] == expected(3, 4, 5)
    assert found["backlog"] == 3
    assert [(gap["after"], gap["count"]) for gap in found["gaps"]] == [(0, 2)]
    [gap] = client.get(f"/v1/subscribers/{name}/gaps").json()["gaps"]
    assert (gap["after"], gap["count"], gap["reason"]) == (0, 2, "full")
    assert gap["since"] <= gap["until"]
    with listen(client, name) as events:
        event = events.delivery()
        assert event["event"] == "gap" and (event["data"]["after"], event["data"]["count"]) == (0, 2)
        assert events.delivery()["id"] == "3"
    state = client.get(f"/v1/subscribers/{name}").json()
    assert (state["last"], state["dropped"], state["acknowledged"]) == (5, 2, 0)


def test_more_in_one_request_than_the_limit(client: httpx.Client, name: str) -> None:
    configure(client, name, limit=2, policy="drop-oldest")
    publish_many(client, name, *range(1, 8))
    assert bodies(client, name) == expected(6, 7)
    assert pull(client, name)["gaps"][0]["count"] == 5


def test_a_slow_listener_is_told_of_the_gap(client: httpx.Client, name: str) -> None:
    configure(client, name, limit=2, policy="drop-oldest")
    with listen(client, name) as events:
        publish_many(client, name, 1)
        assert events.delivery()["id"] == "1"
        publish_many(client, name, *range(2, 7))
        seen = [events.delivery()]
        while seen[-1]["event"] == "gap" or seen[-1]["id"] != "6":
            seen.append(events.delivery())
    missed = sum(event["data"]["count"] for event in seen if event["event"] == "gap")
    assert missed + sum(1 for event in seen if event["event"] == "delivery") == 5


def test_suspended_and_resumed(client: httpx.Client, name: str) -> None:
    configure(client, name, limit=2, policy="suspend")
    with listen(client, name) as events:
        publish_many(client, name, 1, 2, 3, 4)
        seen = [events.delivery() for _ in range(3)]
        assert sorted(event["event"] for event in seen) == ["delivery", "delivery", "gap"]
    state = client.get(f"/v1/subscribers/{name}").json()
    assert state["suspended"] is True and state["backlog"] == 2
    publish_many(client, name, 5)
    acknowledge(client, name, 2)
    publish_many(client, name, 6)  # it stays suspended until it is resumed
    assert bodies(client, name) == []
    [gap] = client.get(f"/v1/subscribers/{name}/gaps").json()["gaps"]
    assert (gap["after"], gap["count"], gap["reason"]) == (2, 4, "suspended")
    resumed = client.post(f"/v1/subscribers/{name}/resume").json()
    assert resumed["suspended"] is False
    publish_many(client, name, 7, 8)
    assert bodies(client, name) == expected(7, 8)


def test_settings(client: httpx.Client) -> None:
    name = unique("settings")
    made = client.put(f"/v1/subscribers/{name}", json={"limit": 5, "policy": "suspend", "merge": True}).json()
    assert made["settings"] == {"limit": 5, "policy": "suspend", "merge": True}
    assert client.get(f"/v1/subscribers/{name}").json() == made
    wrong: object
    for wrong in ({"limit": 0}, {"policy": "x"}, {"limit": 10**13}, {"unknown": 1}, {"merge": "maybe"}, []):
        check_problem(client.put(f"/v1/subscribers/{name}", json=wrong), 422, "invalid")
    assert client.get(f"/v1/subscribers/{name}").json() == made
    assert client.delete(f"/v1/subscribers/{name}").status_code == 204
    check_problem(client.delete(f"/v1/subscribers/{name}"), 404, "not-found")


def test_the_list_of_subscribers(client: httpx.Client) -> None:
    prefix = unique("list")
    names = [f"{prefix}-{letter}" for letter in "abcde"]
    for name in reversed(names):
        client.put(f"/v1/subscribers/{name}", json={})
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        wanted = {"text": prefix.upper(), "limit": "2"}
        page = client.get("/v1/subscribers", params=wanted | after).json()
        found += [subscriber["name"] for subscriber in page["subscribers"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert found == names
