"""The report: one page that needs nothing else, whatever strangers have put into it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lxml import html

from sapwood.spark.monitoring.chart_layout import format_compact, round_ticks
from sapwood.spark.monitoring.report import template_environment, write_report
from sapwood.spark.monitoring.report_data import Listed, ReportData, Unmatched
from sapwood.spark.monitoring.totals import count_matches, count_reasons, rank_slowest
from sapwood.spark.pipeline.batch import Outcome
from tests.support.spark.outcomes import outcome

HOSTILE = "<script>alert('1')</script>\"'&\x00\u202e\ud800" + "x" * 9_000


def report(tmp_path: Path, outcomes: list[Outcome], queries: dict[str, str] | None = None) -> str:
    file = tmp_path / "report.html"
    write_report(file, "news", ReportData(outcomes, queries or {}))
    return file.read_text("utf-8")


def parsed(page: str) -> Any:
    return html.fromstring(page)


def words(page: str) -> str:
    """What a reader sees."""
    return " ".join(" ".join(parsed(page).find("body").itertext()).split())


def test_the_headline_adds_up_all_batches(tmp_path: Path) -> None:
    text = words(report(tmp_path, [outcome(0), outcome(1, version=3, subscriptions=12)]))
    assert "messages 200 196 accepted" in text
    assert "deliveries 500 2.5 a message" in text
    assert "rejects 4 2.00% of all messages" in text
    assert "messages a second 200" in text
    assert "batches 2 in 1.0 s" in text
    assert "subscriptions 12 versions 1 to 3" in text


def test_queries_that_fail_are_named_with_the_reason(tmp_path: Path) -> None:
    failed = {"s1: over budget: it takes more than 1 s": 3}
    text = words(report(tmp_path, [outcome(0, failures=3, failed=failed), outcome(1)]))
    assert "Failures" in text
    assert "s1: over budget: it takes more than 1 s 3" in text
    assert "Failures" not in words(report(tmp_path, [outcome(0)]))


def test_every_chart_has_a_table_below(tmp_path: Path) -> None:
    page = parsed(report(tmp_path, [outcome(0), outcome(1)], {"slow-1": "//a[count(b) > 1]"}))
    for section in page.iter("section"):
        title = section.findtext("h2")
        if title == "Latest rejects":  # which is a table
            continue
        assert section.xpath(".//*[contains(@class, 'bar') or contains(@class, 'plot')]"), title
        assert section.xpath("./details//table//td"), title
    cells = [cell.text_content() for cell in page.iter("td")]
    assert "//a[count(b) > 1]" in cells
    assert "2–3" in cells
    assert "mismatched tag" in cells


def section_of(page: str, title: str) -> str:
    """What a reader sees of a section, or nothing."""
    found = [each for each in parsed(page).iter("section") if each.findtext("h2") == title]
    return " ".join(" ".join(found[0].itertext()).split()) if found else ""


def test_deliveries_by_subscription_and_rejects(tmp_path: Path) -> None:
    page = report(tmp_path, [outcome(0), outcome(1)], {"slow-1": "//a[count(b) > 1]"})
    assert "joined 20 4.0% of the deliveries" in words(page)
    assert "slow-1 300 //a[count(b) > 1] other 200" in section_of(page, "Deliveries by subscription")
    assert "desk 300 (no subscriber named) 200" in section_of(page, "Deliveries by subscriber")
    latest = section_of(page, "Latest rejects")
    assert "of 4 rejects" in latest
    assert "1.xml@0 mismatched tag 1 1.xml@9 mismatched tag 1 0.xml@0" in latest
    many = report(tmp_path, [outcome(0, matched=5_000)])
    assert "lower bounds" in section_of(many, "Deliveries by subscription")
    assert "lower bounds" not in page
    nobody = report(tmp_path, [outcome(0, by_subscriber={"": 9}, by_subscription={}, rejected=[])])
    assert section_of(nobody, "Deliveries by subscriber") == ""
    assert section_of(nobody, "Latest rejects") == ""
    assert "The batch log has no deliveries" in section_of(nobody, "Deliveries by subscription")


def test_latency_is_drawn_over_time(tmp_path: Path) -> None:
    text = section_of(report(tmp_path, [outcome(0), outcome(1, seconds=2.5)]), "Latency")
    assert "milliseconds" in text
    assert "10:00:00" in text
    assert "1 2026-01-05 10:01:00 2.5 s" in text
    many = [outcome(n, seconds=9.0 if n == 70 else 0.5) for n in range(120)]
    page = report(tmp_path, many)
    assert "Of 2 batches in a row, the slowest is drawn" in section_of(page, "Latency")
    assert "batch 70, finished 2026-01-05T10:10:00: 9.0 s" in page


def test_subscriptions_that_never_matched_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    some = [Listed("s1", "desk", "//nothing"), Listed("s2", "", "//never")]

    def told(unmatched: Unmatched | None) -> str:
        write_report(file, "news", ReportData([outcome(0)], {}, unmatched, pending=1))
        return section_of(file.read_text("utf-8"), "Never matched")

    assert "No message has matched these: 700 active subscriptions. The first 2 are" in told(
        Unmatched(700, 0, some)
    )
    assert "s1 desk //nothing" in told(Unmatched(2, 0, some))
    assert "since batch 40: 2 active" in told(Unmatched(2, 40, some))
    assert "Every active subscription has matched a message since batch 3." in told(Unmatched(0, 3))
    assert told(None) == ""
    assert "Batch 1 is planned and not committed yet." in file.read_text("utf-8")


def test_nothing_is_fetched_and_nothing_runs(tmp_path: Path) -> None:
    text = report(tmp_path, [outcome(0)])
    page = parsed(text)
    assert not page.xpath("//script | //link | //img | //iframe | //@src | //@href")
    assert "url(" not in text
    assert "@import" not in text
    assert "http://" not in text
    assert "https://" not in text
    assert "default-src 'none'" in text


def test_texts_are_escaped_and_truncated(tmp_path: Path) -> None:
    bad = outcome(
        0,
        reasons={HOSTILE: 2},
        slow={HOSTILE: 1.0},
        by_subscription={HOSTILE: 3},
        by_subscriber={HOSTILE: 3},
        rejected=[[HOSTILE, HOSTILE]],
        left_out={HOSTILE: HOSTILE},
        failures=1,
        failed={HOSTILE: 1},
        finished=HOSTILE,
    )
    file = tmp_path / "report.html"
    some = [Listed(HOSTILE, HOSTILE, HOSTILE)]
    write_report(file, HOSTILE, ReportData([bad], {HOSTILE: HOSTILE}, Unmatched(1, 0, some)))
    text = file.read_text("utf-8")
    assert "<script" not in text
    assert "\x00" not in text
    assert "\u202e" not in text
    assert "x" * 1_000 not in text
    assert not parsed(text).xpath("//script")


def test_quotes_do_not_end_an_attribute(tmp_path: Path) -> None:
    quote = '" onmouseover="alert(1)'
    tooltips = parsed(report(tmp_path, [outcome(0, finished=quote)])).xpath("//@title")
    assert any('finished " onmouseover="al' in tooltip for tooltip in tooltips)
    written = template_environment().from_string('<i title="{{ hint }}"></i>').render(hint=quote)
    assert written.count('"') == 2
    assert dict(parsed(written).attrib) == {"title": quote}


def test_every_value_of_a_template_is_cleaned() -> None:
    written = template_environment().from_string("{{ text }}").render(text=HOSTILE)
    assert written.startswith(
        "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&#34;&#39;&amp;\ufffd\ufffd\ufffdx"
    )
    assert len(parsed(f"<p>{written}</p>").text) == 401


def test_no_batch(tmp_path: Path) -> None:
    text = words(report(tmp_path, []))
    assert "No batch has been committed yet." in text
    assert "No message was rejected." in text
    assert "No subscription took time of its own." in text


def test_one_batch_in_which_nothing_happened(tmp_path: Path) -> None:
    quiet = outcome(
        0, messages=0, deliveries=0, rejects=0, seconds=0.0, matches=[0] * 24, reasons={}, slow={}
    )
    text = words(report(tmp_path, [quiet]))
    assert "Batch 0, finished 2026-01-05 10:00 UTC" in text
    assert "All batches used the same version of the subscriptions." in text
    assert "No message has been matched yet." in text


def test_changes_of_version_are_marked(tmp_path: Path) -> None:
    versions = [1, 1, 2, 2, 5]
    page = parsed(report(tmp_path, [outcome(n, version=v) for n, v in enumerate(versions)]))
    marks = page.xpath("//*[@class='plot small']//*[@class='mark']")
    assert [mark.text_content() for mark in marks] == ["v2", "v5"]
    assert [mark.get("style") for mark in marks] == ["left:40.00%", "left:80.00%"]


def test_very_many_batches_share_columns(tmp_path: Path) -> None:
    page = parsed(report(tmp_path, [outcome(n, version=n) for n in range(1_000)]))
    columns = page.xpath("(//*[@class='columns'])[1]/div")
    assert 20 <= len(columns) <= 60
    assert columns[0].get("title") == "batches 0–16: 200 messages a second, version 16"
    assert len(page.xpath("(//table)[1]//tr")) == 1_001
    assert not page.xpath("//*[@class='mark']")


def test_batches_are_shown_in_order(tmp_path: Path) -> None:
    page = parsed(report(tmp_path, [outcome(10), outcome(9)]))
    assert page.xpath("(//table)[1]//td[1]/text()") == ["9", "10"]


def test_reasons_that_are_not_on_record_are_counted() -> None:
    assert count_reasons([outcome(0, rejects=5), outcome(1)]) == [("mismatched tag", 4), (None, 3)]
    assert count_reasons([outcome(0, rejects=0, reasons={})]) == []


def test_matches_are_counted_by_powers_of_two() -> None:
    assert count_matches([outcome(0), outcome(1)]) == [("none", 16), ("1", 0), ("2–3", 120), ("4–7", 60)]
    assert count_matches([]) == []


def test_slow_subscriptions_are_added_up_over_batches() -> None:
    both = [outcome(0), outcome(1, slow={"slow-2": 3.0})]
    assert rank_slowest(both) == [("slow-2", 3.002), ("slow-1", 0.125)]
    assert rank_slowest(both, most=1) == [("slow-2", 3.002)]


@pytest.mark.parametrize("highest", [0, 0.3, 1, 3, 4, 7, 10, 99, 100, 101, 12_345, 1e9])
def test_ticks_are_round_and_reach_the_top(highest: float) -> None:
    ticks = round_ticks(highest)
    assert ticks[0] == 0
    assert ticks[-1] >= highest
    assert 2 <= len(ticks) <= 5
    assert all(re.fullmatch(r"\d+(\.\d+)?[kMG]?", format_compact(tick)) for tick in ticks)
    assert len({format_compact(tick) for tick in ticks}) == len(ticks)
