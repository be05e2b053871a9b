"""The same rows wherever Spark runs: on executors that are processes of their own, and on one core.

All other tests run on two cores; on one, only those of `make test-full` do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sapwood import Broker, MessageError
from sapwood.workload import MessageGenerator, QueryGenerator, TransformationGenerator, load_dtd
from tests.support.spark.driver_kills import CLUSTER, spark_home
from tests.support.spark.spark_stream import delivered_by

_JOB = """
import json, sys
from sapwood.spark import match, read_messages, session
master, folder, queries, log = sys.argv[1:]
spark = session(master, log=log)
subscriptions = spark.read.json(queries)
messages = read_messages(spark, folder, partitions=4)
rows = match(messages, subscriptions, shape="messages").collect()
answers = [
    [r["message_id"], sorted(zip(r["subscriptions"], r["bodies"])), r["error"] and r["error"]["reason"]]
    for r in rows
]
print(json.dumps(sorted(answers)))
spark.stop()
"""


@pytest.mark.parametrize("master", ["local[1]", CLUSTER])
@pytest.mark.long
def test_rows_are_those_of_one_process(java: None, tmp_path: Path, master: str) -> None:
    news = load_dtd("news")
    bodies = MessageGenerator(news, seed=21).take(40)
    bodies[7] = b"<broken"
    queries = [*QueryGenerator(news, seed=22, predicates=1).take(100), "count(//*) > 40", "//body"]
    queries += TransformationGenerator(news, seed=22).take(50)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "messages.xmll").write_bytes(b"\n".join(bodies))
    lines = [json.dumps({"id": f"s{i}", "query": query}) for i, query in enumerate(queries)]
    (tmp_path / "queries.json").write_text("\n".join(lines))

    broker = Broker()
    broker.subscribe_many((f"s{i}", query) for i, query in enumerate(queries))
    expected: list[list[object]] = []
    offset = 0
    for body in bodies:
        name = f"messages.xmll@{offset}"
        try:
            expected.append([name, sorted(map(list, delivered_by(broker, body))), None])
        except MessageError as error:
            expected.append([name, [], error.reason])
        offset += len(body) + 1

    log = tmp_path / "spark.log"
    command = [sys.executable, "-c", _JOB, master, str(tmp_path / "inbox"), str(tmp_path / "queries.json")]
    environment = {**os.environ, "SPARK_HOME": str(spark_home(tmp_path))}
    ran = subprocess.run([*command, str(log)], capture_output=True, text=True, timeout=180, env=environment)
    assert ran.returncode == 0, ran.stderr[-3_000:] + log.read_text()[-3_000:]
    assert json.loads(ran.stdout) == sorted(expected, key=lambda row: str(row[0]))
    bodies_made = [made for _, delivered, _ in json.loads(ran.stdout) for _, made in delivered]
    assert bodies_made.count(None) > 100
    assert len(bodies_made) - bodies_made.count(None) > 20
