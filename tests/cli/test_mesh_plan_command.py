"""`sapwood mesh plan`: what it reads, what it shows, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sapwood.mesh.planning.memory_forecast import NodePart
from sapwood.serve.mesh import memory_probe
from sapwood.store import SubscriptionStore
from tests.support.in_process import Run, sapwood

MESSAGES = "<x t='1'/>\n<x t='2'/>\n<y/>\n<z/>\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sample and queries, and memory that is 10 MB for each part."""

    def measure(parts: Sequence[NodePart]) -> list[int]:
        return [10_000_000] * len(parts)

    monkeypatch.setattr(memory_probe, "measure_parts", measure)
    monkeypatch.chdir(tmp_path)
    Path("sample.xmll").write_text(MESSAGES)
    Path("x.txt").write_text("/x\n")
    Path("y.txt").write_text("/y\n")
    lines = [{"id": n, "query": f"/x[@t = '{n % 3}']", "subscriber": f"u{n % 2}"} for n in range(12)]
    Path("all.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def plan(*arguments: str) -> Run:
    return sapwood("mesh", "plan", *arguments)


def read(*arguments: str) -> dict[str, Any]:
    run = plan(*arguments, "--json")
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def links(found: dict[str, Any], number: int = 0) -> dict[str, float]:
    return {
        f"{link['sender']}>{link['receiver']}": link["messages"]
        for link in found["placements"][number]["links"]
    }


def test_sites_with_their_own_queries(folder: Path) -> None:
    run = plan("sample.xmll", "--site", "rome=x.txt", "--site", "basel=y.txt", "--published-at", "rome")
    assert run.returncode == 0, run.stderr
    assert "4 messages of 7 B on average, 2 subscriptions, 2 sites" in run.stdout
    assert "routing saves 75 % of the messages on links" in run.stdout
    assert "rome → basel" in run.stdout
    assert "20.0 MB" in run.stdout  # both halves of the sample; there are no repetitions


def test_json_has_all_figures(folder: Path) -> None:
    found = read("sample.xmll", "--site", "rome=x.txt", "--site", "basel=y.txt", "--published-at", "rome=2")
    assert found["parents"] == {"rome": None, "basel": "rome"}
    assert found["published_at"] == {"rome": 1.0}
    assert links(found) == {"rome>basel": 0.25, "basel>rome": 0.0}
    [placement] = found["placements"]
    assert placement["placement"] == "as it is"
    assert placement["helps"] is True
    assert [(each["site"], each["subscriptions"], each["routes"]) for each in placement["sites"]] == [
        ("rome", 1, 1),
        ("basel", 1, 1),
    ]


def test_messages_of_a_site(folder: Path) -> None:
    Path("basel.xmll").write_text("<x/>\n")
    sites = ("--site", "rome=x.txt", "--site", "basel=y.txt")
    found = read("rome=sample.xmll", "basel=basel.xmll", *sites)
    assert links(found) == {"rome>basel": 0.2, "basel>rome": 0.2}


def test_parents_by_site_and_by_file(folder: Path) -> None:
    sites = ("--site", "a=x.txt", "--site", "b:a=x.txt", "--site", "c:b=y.txt")
    by_site = read("sample.xmll", *sites, "--published-at", "a", "--no-memory")
    assert links(by_site) == {"a>b": 0.75, "b>c": 0.25, "b>a": 0.0, "c>b": 0.0}
    assert by_site["placements"][0]["sites"][0]["bytes"] is None
    Path("tree").write_text("a\nb:a  # in the middle\nc:b\n")
    sites = ("--site", "a=x.txt", "--site", "b=x.txt", "--site", "c=y.txt")
    by_file = read("sample.xmll", *sites, "--tree", "tree", "--published-at", "a", "--no-memory")
    assert links(by_file) == links(by_site)


def test_the_tree_of_a_mesh_that_was_set_up(folder: Path) -> None:
    assert sapwood("mesh", "init", "news", "a", "b:a", "c:b", "--out", "mesh").returncode == 0
    found = read("sample.xmll", "--tree", "mesh", "--site", "c=y.txt", "--published-at", "a")
    assert links(found) == {"a>b": 0.25, "b>c": 0.25, "b>a": 0.0, "c>b": 0.0}


def test_placements_of_one_store(folder: Path) -> None:
    with SubscriptionStore("subscriptions.db") as store:
        for n in range(12):
            store.add(f"s{n}", f"/x[@t = '{n % 3}']", f"u{n % 2}")
        store.deactivate("s0")
    found = read("sample.xmll", "--store", "subscriptions.db", "--brokers", "3", "--no-memory")
    assert [each["placement"] for each in found["placements"]] == ["local", "exclusive", "least"]
    assert found["subscriptions"] == 11
    assert found["best"] == "exclusive"
    site = read("sample.xmll", "--site", "a=subscriptions.db", "--site", "b=x.txt", "--no-memory")
    assert [each["subscriptions"] for each in site["placements"][0]["sites"]] == [11, 1]


def test_placements_are_compared_and_written(folder: Path) -> None:
    arguments = ("sample.xmll", "--queries", "all.jsonl", "--brokers", "3", "--no-memory", "--write", "out")
    run = plan(*arguments)
    assert run.returncode == 0, run.stderr
    for name in ("local", "exclusive", "least"):
        assert name in run.stdout
        written = [
            line for path in (folder / "out" / name).iterdir() for line in path.read_text().splitlines()
        ]
        assert {json.loads(line)["id"] for line in written} == {str(n) for n in range(12)}
    assert "fewest messages on links: exclusive" in run.stdout
    sites = [f"--site=b{n}=out/exclusive/b{n}.jsonl" for n in (1, 2, 3)]
    again = read("sample.xmll", *sites, "--no-memory")
    planned = read("sample.xmll", "--queries", "all.jsonl", "--brokers", "3", "--placement", "exclusive")
    assert links(again) == links(planned)
    assert "is there already" in plan(*arguments).stderr


def test_without_subscribers_local_is_left_out(folder: Path) -> None:
    Path("plain.txt").write_text("/x\n/y\n/z\n")
    run = plan("sample.xmll", "--queries", "plain.txt", "--brokers", "2", "--no-memory", "--json")
    assert [each["placement"] for each in json.loads(run.stdout)["placements"]] == ["exclusive", "least"]
    assert "no placement 'local'" in run.stderr


def test_it_says_when_routing_will_not_help(folder: Path) -> None:
    Path("any.txt").write_text("/*\n")
    run = plan("sample.xmll", "--site", "a=any.txt", "--site", "b=any.txt")
    assert "routing will not help: 100 % of messages are wanted at every site" in run.stdout


def test_a_part_of_a_large_sample_is_used(folder: Path) -> None:
    Path("many.xmll").write_text("".join(f"<{'xy'[n % 2]}/>\n" for n in range(1_000)))
    run = plan("many.xmll", "--site", "a=x.txt", "--site", "b=y.txt", "--limit", "200", "--no-memory")
    assert "200 of 1,000 messages" in run.stdout
    found = read("many.xmll", "--site", "a=x.txt", "--site", "b=y.txt", "--limit", "200", "--no-memory")
    assert links(found)["a>b"] == pytest.approx(0.25, abs=0.05)


def test_what_is_refused_is_reported(folder: Path) -> None:
    Path("bad.txt").write_text("/x\n/y[\n{\n")
    Path("bad.xmll").write_text("<x/>\n<broken>\n")
    run = plan("bad.xmll", "--site", "a=x.txt", "--site", "b=bad.txt", "--no-memory")
    assert run.returncode == 1
    assert "bad.txt:2" in run.stderr
    assert "bad.txt:3" in run.stderr
    assert "bad.xmll:2" in run.stderr
    assert "1 message of 4 B" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "--site NAME=SOURCE for each site"),
        (("--site", "a=x.txt", "--queries", "y.txt"), "several of these"),
        (("--queries", "x.txt"), "--brokers N or --tree FILE is missing"),
        (("--site", "a=x.txt"), "two sites at least"),
        (("--site", "a=x.txt", "--site", "b=x.txt", "--brokers", "2"), "sites have their own"),
        (("--site", "a"), "--site takes NAME=SOURCE"),
        (("--site", "a=x.txt", "--site", "a=y.txt"), "there twice"),
        (("--site", "a=x.txt", "--site", "b=none.txt"), "there is no file or folder 'none.txt'"),
        (("--site", "a=x.txt", "--site", "b=x.txt", "--published-at", "rome"), "which is no site"),
        (("--site", "a=x.txt", "--site", "b=x.txt", "--published-at", "a=much"), "such as basel=3"),
        (("--site", "a=x.txt", "--site", "b=x.txt", "--tree", "none"), "the tree cannot be read"),
        (("--site", "a=x.txt", "--site", "b=x.txt", "--tree", "."), "no settings of brokers"),
        (("--site", "a=x.txt", "--tree", "tree"), "which is not in the tree"),
        (("--queries", "empty.txt", "--brokers", "2"), "no active subscriptions"),
        (("--queries", "x.txt", "--brokers", "2", "--placement", "local"), "choose 'exclusive' or 'least'"),
        (("--queries", "x.txt", "--brokers", "2", "--tree", "tree"), "omit --brokers"),
    ],
)
def test_what_cannot_be_planned(folder: Path, arguments: tuple[str, ...], reason: str) -> None:
    Path("empty.txt").write_text("# none\n")
    Path("tree").write_text("b\nc:b\n")
    run = plan("sample.xmll", *arguments)
    assert run.returncode == 2
    assert reason in run.stderr
