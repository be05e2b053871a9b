"""The errors of a pipeline file name the key and the expected value."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood import Limits
from sapwood.config_file import ConfigError
from sapwood.spark.pipeline.config import (
    PipelineConfig,
    RelationalConfig,
    parse_config,
    read_config,
)

GOOD = """
name = "orders"
[source]
path = "inbox"
[subscriptions]
store = "subscriptions.db"
[deliveries]
path = "deliveries"
[rejects]
path = "rejects"
[run]
checkpoint = "checkpoint"
"""


def read(tmp_path: Path, text: str) -> PipelineConfig:
    path = tmp_path / "pipeline.toml"
    path.write_text(text, "utf-8")
    return read_config(path)


def problems(tmp_path: Path, text: str) -> str:
    """The error of a file, which names the file."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    said = str(caught.value)
    assert "pipeline.toml" in said
    return said


def with_source(text: str) -> str:
    return GOOD.replace('path = "inbox"', text)


# -- what is right ---------------------------------------------------------------------------------------


def test_omitted_keys_have_defaults(tmp_path: Path) -> None:
    given = read(tmp_path, GOOD)
    assert given.name == "orders"
    assert (given.source.format, given.deliveries.format, given.deliveries.shape) == (
        "files",
        "parquet",
        "pairs",
    )
    assert (given.run.trigger, given.run.master, given.run.partitions) == ("available-now", "local[*]", None)
    assert given.matcher_limits() == Limits()


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there" / "pipeline.toml").write_text(GOOD)
    given = read_config("there/pipeline.toml")
    there = tmp_path / "there"
    assert given.source.path == str(there / "inbox")
    assert given.subscriptions.store == str(there / "subscriptions.db")
    assert given.deliveries.path == str(there / "deliveries")
    assert given.rejects.path == str(there / "rejects")
    assert given.run.checkpoint == str(there / "checkpoint")


def test_a_file_of_queries_is_relative_too(tmp_path: Path) -> None:
    given = read(tmp_path, GOOD.replace('store = "subscriptions.db"', 'file = "queries.txt"'))
    assert given.subscriptions.file == str(tmp_path / "queries.txt")
    assert given.subscriptions.store is None


@pytest.mark.parametrize(
    "path", ["/data/inbox", "s3a://bucket/inbox", "hdfs:/inbox", "file:/data/inbox", "file:///data/inbox"]
)
def test_absolute_paths_and_uris_are_left_alone(tmp_path: Path, path: str) -> None:
    assert read(tmp_path, with_source(f'path = "{path}"')).source.path == path


@pytest.mark.parametrize("name", ["a:b", "über uns", "50%"])
def test_a_name_with_odd_characters_is_a_path(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, with_source(f'path = "{name}"')).source.path == str(tmp_path / name)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sqlite:///s.db", "sqlite:///{folder}/s.db"),
        ("sqlite:////data/s.db", "sqlite:////data/s.db"),
        ("sqlite+pysqlite:///s.db", "sqlite+pysqlite:///{folder}/s.db"),
        ("postgresql://me@there/db", "postgresql://me@there/db"),
        ("s.db", "{folder}/s.db"),
        ("/data/s.db", "/data/s.db"),
    ],
)
def test_stores_are_paths_or_urls(tmp_path: Path, written: str, meant: str) -> None:
    given = read(tmp_path, GOOD.replace("subscriptions.db", written))
    assert given.subscriptions.store == meant.format(folder=tmp_path)


@pytest.mark.parametrize(
    "trigger",
    [
        "available-now",
        "batch",
        "5 seconds",
        "1 second",
        "200 milliseconds",
        "10 minutes",
        "1 hour",
        "0 seconds",
        "0",
    ],
)
def test_triggers(tmp_path: Path, trigger: str) -> None:
    assert read(tmp_path, GOOD + f'trigger = "{trigger}"').run.trigger == trigger


def test_limits_are_those_of_the_matcher(tmp_path: Path) -> None:
    given = read(tmp_path, GOOD + "[limits]\nbytes = 1000\ndepth = 7")
    assert given.matcher_limits() == Limits(bytes=1000, depth=7)
    given = read(tmp_path, GOOD + "[limits]\nquery_seconds = 0.25\nquery_memory = 0")
    assert given.matcher_limits() == Limits(query_seconds=0.25, query_memory=0)


def test_options_of_any_simple_type_are_kept(tmp_path: Path) -> None:
    given = read(tmp_path, GOOD + '[deliveries.options]\na = "x"\nb = 3\nc = true\n[spark]\n"spark.x" = 1')
    assert given.deliveries.options == {"a": "x", "b": 3, "c": True}
    assert given.spark == {"spark.x": 1}


def test_kafka_needs_neither_path_nor_id(tmp_path: Path) -> None:
    options = 'options = { "kafka.bootstrap.servers" = "broker:9092", subscribe = "orders" }'
    assert read(tmp_path, with_source(f'format = "kafka"\n{options}')).source.path is None


_SERVERS = '"kafka.bootstrap.servers" = "broker:9092"'


def _deliver_to_kafka(keys: str, options: str = _SERVERS) -> str:
    return GOOD.replace('path = "deliveries"', f'format = "kafka"\noptions = {{ {options} }}\n{keys}')


def test_deliveries_to_kafka_have_bodies(tmp_path: Path) -> None:
    given = read(tmp_path, _deliver_to_kafka('topic = "to-{subscriber}-{stream}"')).deliveries
    assert (given.body, given.path) == (True, None)
    given = read(tmp_path, _deliver_to_kafka('topic = "to"\nvalue = "json"')).deliveries
    assert given.body is False
    given = read(tmp_path, _deliver_to_kafka('topic = "to"\nvalue = "json"\nbody = true')).deliveries
    assert given.body is True


def test_packages_are_a_setting_of_spark(tmp_path: Path) -> None:
    given = read(tmp_path, GOOD + '[spark]\npackages = ["g:a_2.13:1.0", "h:b:2"]\n"spark.x" = 1')
    assert given.spark == {"spark.jars.packages": "g:a_2.13:1.0,h:b:2", "spark.x": 1}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (GOOD + '[spark]\npackages = ["g:a"]', "spark: 'packages': 'g:a' is not group:artifact:version"),
        (GOOD + '[spark]\npackages = ["g:a:1,h:b:2"]', "'g:a:1,h:b:2' is not group:artifact:version"),
        (GOOD + '[spark]\npackages = "g:a:1"', "spark: 'packages': a list of strings is expected"),
        (
            GOOD + '[spark]\npackages = ["g:a:1"]\n"spark.jars.packages" = "h:b:2"',
            "'packages' and 'spark.jars.packages' exclude each other",
        ),
        (with_source('format = "kafka"'), "source: 'options.\"kafka.bootstrap.servers\"' is missing"),
        (
            with_source(f'format = "kafka"\noptions = {{ {_SERVERS} }}'),
            "the topics are missing: give subscribe",
        ),
        (
            with_source(f'format = "kafka"\noptions = {{ {_SERVERS}, subscribe = "a", assign = "b" }}'),
            "subscribe and assign exclude each other",
        ),
        (
            with_source(f'format = "kafka"\noptions = {{ {_SERVERS}, assign = "orders" }}'),
            "'options.assign': JSON such as",
        ),
        (
            with_source(f'format = "kafka"\noptions = {{ {_SERVERS}, assign = \'{{"orders": 0}}\' }}'),
            "'options.assign': JSON such as",
        ),
        (
            _deliver_to_kafka('topic = "a"', _SERVERS + ', "kafka.max.request.size" = "1MB"'),
            "'options.\"kafka.max.request.size\"': a number of bytes is expected, not '1MB'",
        ),
        (with_source('path = "in"\nkeep = ["x AS Version"]'), "deliveries have a column 'Version' already"),
        (with_source('path = "in"\nkeep = ["x AS line"]'), "rejects have a column 'line' already"),
        (with_source('path = "in"\ntombstones = "skip"'), "source: 'tombstones' is for format = \"kafka\""),
        (_deliver_to_kafka(""), "deliveries: 'topic' is missing"),
        (_deliver_to_kafka('topic = "a"', "x = 1"), "'options.\"kafka.bootstrap.servers\"' is missing"),
        (
            _deliver_to_kafka('topic = "a"', _SERVERS + ', topic = "b"'),
            "the topic of records is the key 'topic'",
        ),
        (_deliver_to_kafka('topic = "a b"'), "'topic': ' ' cannot be in the name of a topic"),
        (
            _deliver_to_kafka('topic = "a-{user}"'),
            "there is no {user}; known are {subscriber}, {subscription}",
        ),
        (_deliver_to_kafka('topic = "{subscriber}"'), "'topic': a value can be missing"),
        (_deliver_to_kafka('topic = ".."'), "'topic': a name such as"),
        (_deliver_to_kafka(f'topic = "{"x" * 230}"'), "more than 216 characters"),
        (_deliver_to_kafka('topic = "a"\npath = "b"'), "'path' is for files"),
        (_deliver_to_kafka('topic = "a"\nbody = false'), "would have no value"),
        (_deliver_to_kafka('topic = "a"\nshape = "messages"'), "'shape': Kafka needs 'pairs'"),
        (GOOD.replace('path = "rejects"', 'path = "rejects"\ntopic = "a"'), "'topic' is for format"),
    ],
)
def test_kafka_that_would_fail_later_is_refused(tmp_path: Path, wrong: str, said: str) -> None:
    assert said in problems(tmp_path, wrong)


def test_a_mapping_will_do(tmp_path: Path) -> None:
    content = {
        "source": {"path": "in", "stream": "s"},
        "subscriptions": {"file": "q", "namespaces": {"p": "urn:p"}},
        "deliveries": {"format": "console"},
        "rejects": {"path": "r", "format": "json"},
        "run": {"checkpoint": "c", "partitions": 3},
    }
    given = parse_config(content, folder=tmp_path)
    assert given.source.path == str(tmp_path / "in")
    assert given.deliveries.path is None
    assert given.subscriptions.namespaces == {"p": "urn:p"}


# -- what is wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (GOOD + "chekpoint = 'x'", "run.chekpoint: there is no such key; did you mean 'checkpoint'?"),
        (
            with_source('path = "in"\nrecrod = "r"'),
            "source.recrod: there is no such key; did you mean 'record'?",
        ),
        (
            with_source('path = "in"\nshema = "r"'),
            "source.shema: there is no such key; did you mean 'schema'?",
        ),
        (GOOD + "[delivery]\npath='x'", "delivery: there is no such key; did you mean 'deliveries'?"),
        (GOOD.replace("name =", "nme ="), "nme: there is no such key; did you mean 'name'?"),
        (
            GOOD + "zzz = 1",
            "run.zzz: there is no such key; known are checkpoint, trigger, master, partitions, log",
        ),
        (GOOD.replace("[rejects]\npath =", "[rejects]\nshape ="), "rejects.shape: there is no such key"),
    ],
)
def test_an_unknown_key_is_named_with_what_may_be_meant(tmp_path: Path, wrong: str, said: str) -> None:
    assert said in problems(tmp_path, wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("", "source: is missing"),
        (GOOD.replace('checkpoint = "checkpoint"', ""), "run.checkpoint: is missing"),
        (GOOD.partition("[rejects]")[0], "rejects: is missing"),
        (with_source(""), "source: 'path' is missing"),
        (GOOD.replace('path = "deliveries"', ""), "deliveries: 'path' is missing"),
        (GOOD.replace('path = "rejects"', 'format = "json"'), "rejects: 'path' is missing"),
        (
            with_source('format = "parquet"\npath = "x"'),
            "source: 'id' is missing: a column or SQL expression",
        ),
        (with_source('format = "json"\nid = "x"'), "source: 'path' is missing"),
    ],
)
def test_a_missing_key_is_named(tmp_path: Path, wrong: str, said: str) -> None:
    assert said in problems(tmp_path, wrong)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        (with_source("path = 5"), "source.path"),
        (with_source('path = "in"\nfiles_per_batch = 0'), "source.files_per_batch"),
        (with_source('path = "in"\nbytes_per_batch = -1'), "source.bytes_per_batch"),
        (with_source('path = "in"\nfiles_per_batch = "many"'), "source.files_per_batch"),
        (with_source('path = "in"\nkeep = "a"'), "source.keep"),
        (GOOD + "partitions = 0", "run.partitions"),
        (GOOD + "partitions = 1.5", "run.partitions"),
        (GOOD.replace("[rejects]", 'shape = "rows"\n[rejects]'), "deliveries.shape"),
        (GOOD + "[deliveries.options]\na = [1]", "deliveries.options.a"),
        (GOOD + '[limits]\nbytes = "much"', "limits.bytes"),
        ("source = 1" + GOOD.replace("[source]\npath", "[x]\npath"), "source"),
    ],
)
def test_a_key_of_the_wrong_type_is_named(tmp_path: Path, wrong: str, key: str) -> None:
    said = problems(tmp_path, wrong)
    assert any(line.startswith(f"  {key}") for line in said.splitlines()), said


@pytest.mark.parametrize("trigger", ["", "now", "5", "5 parsecs", "seconds", "-5 seconds", "5 seconds ago"])
def test_the_error_of_an_unknown_trigger_lists_all_triggers(tmp_path: Path, trigger: str) -> None:
    said = problems(tmp_path, GOOD + f'trigger = "{trigger}"')
    triggers = "'available-now', 'batch', 'real-time', or an interval such as '5 seconds'"
    assert f"run.trigger: {triggers} is expected" in said
    assert repr(trigger) in said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            GOOD.replace("store =", "file = 'q'\nstore ="),
            "subscriptions: 'store' and 'file' exclude each other",
        ),
        (GOOD.replace('store = "subscriptions.db"', ""), "subscriptions: either 'store' or 'file' is needed"),
        (
            GOOD.replace("store =", "namespaces = {p = 'urn:p'}\nstore ="),
            "subscriptions: 'namespaces' belong to the store",
        ),
        (
            GOOD.replace('store = "subscriptions.db"', 'file = "q"\ntenant = "acme"'),
            "subscriptions: 'tenant' is one of a store",
        ),
        (with_source('path = "in"\nid = "a"'), "source: 'id' is for other formats than files"),
        (with_source('path = "in"\nschema = "a INT"'), "source: 'schema' is for other formats than files"),
        (with_source('path = "in"\npublished_at = "a"'), "source: 'published_at' is for other formats"),
        (with_source('format = "orc"\nid = "a"\nrecord = "r"\npath = "x"'), "source: 'record' is for"),
        (GOOD + "[limits]\nbites = 5", "'limits.bites': there is no such limit; there are bytes, depth"),
        (GOOD + "[limits]\nbytes = -5", "Limits.bytes must not be negative"),
        (GOOD + "[limits]\nbytes = 1.5", "'limits.bytes': a whole number is expected, not 1.5"),
        (GOOD + "[limits]\ndepth = 5000", "Limits.depth must not exceed 2000"),
    ],
)
def test_keys_that_do_not_go_together_are_named(tmp_path: Path, wrong: str, said: str) -> None:
    assert said in problems(tmp_path, wrong)


def test_all_errors_are_reported_together(tmp_path: Path) -> None:
    said = problems(tmp_path, GOOD.replace("checkpoint =", "chekpoint =") + "trigger = 'x'\nfoo = 1")
    for key in ("run.checkpoint", "run.chekpoint", "run.trigger", "run.foo"):
        assert f"\n  {key}: " in said


@pytest.mark.parametrize("text", ["[source", "path = inbox", "a = 1\na = 2", "\x00"])
def test_invalid_toml_is_reported_with_its_line(tmp_path: Path, text: str) -> None:
    said = problems(tmp_path, text)
    assert "is not TOML" in said
    assert "line" in said


def test_a_file_in_another_encoding_is_not_toml(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_bytes('name = "Bücher"'.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"pipeline.toml is not TOML: .*utf-8"):
        read_config(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.toml cannot be read: No such file"):
        read_config(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_config(tmp_path)


def test_an_interval_is_one_for_spark(tmp_path: Path) -> None:
    for trigger, interval in {
        "5 seconds": "5000 milliseconds",
        "1.5 min": "90000 milliseconds",
        "0 seconds": "0 milliseconds",  # as fast as possible
        "0": "0 milliseconds",
        "available-now": None,
        "batch": None,
    }.items():
        assert read(tmp_path, GOOD + f'trigger = "{trigger}"').run.interval == interval


def test_a_file_that_is_nested_too_deeply(tmp_path: Path) -> None:
    assert "nested too deeply" in problems(tmp_path, "x = " + "[" * 5_000 + "]" * 5_000)
    assert "nested too deeply" in problems(tmp_path, "x = " + "{a = " * 5_000 + "1" + "}" * 5_000)
    assert "a" in problems(tmp_path, ".".join("a" * 5_000) + " = 1")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"deliveries"', '"checkpoint"', "deliveries.path is also run.checkpoint"),
        ('"deliveries"', '"./x/../checkpoint/"', "deliveries.path is also run.checkpoint"),
        ('"deliveries"', '"checkpoint/out"', "deliveries.path is in run.checkpoint"),
        ('"rejects"', '"checkpoint/out"', "rejects.path is in run.checkpoint"),
        ('"deliveries"', '"rejects"', "deliveries.path is also rejects.path"),
        ('"rejects"', '"deliveries/batch=1"', "rejects.path is in deliveries.path"),
        ('"checkpoint"', '"deliveries/checkpoint"', "run.checkpoint is in deliveries.path"),
        ('"deliveries"', '"inbox"', "deliveries.path is also source.path"),
        ('"checkpoint"', '"inbox/"', "run.checkpoint is also source.path"),
    ],
)
def test_conflicting_folders_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in problems(tmp_path, GOOD.replace(old, new))


@pytest.mark.parametrize(
    ("topics", "conflicts"),
    [
        ('subscribe = "a, orders"', True),
        ("assign = '{\"orders\": [0]}'", True),
        ('subscribePattern = ".*"', True),
        ('subscribe = "orders-1"', False),
        ('subscribePattern = "\\\\p{Alpha}+"', False),  # a pattern of Java, which is known later
    ],
)
def test_a_topic_that_feeds_itself_is_refused(tmp_path: Path, topics: str, conflicts: bool) -> None:
    source = f'format = "kafka"\noptions = {{ {_SERVERS}, {topics} }}'
    text = _deliver_to_kafka('topic = "orders"').replace('path = "inbox"', source)
    if conflicts:
        assert "deliveries.topic: 'orders' is a topic that source reads" in problems(tmp_path, text)
    else:
        read(tmp_path, text)


def test_sinks_in_the_folder_of_a_table_are_refused(tmp_path: Path) -> None:
    text = GOOD.replace('path = "inbox"', 'path = "data"\nformat = "json"\nid = "id"')
    inside = problems(tmp_path, text.replace('"deliveries"', '"data/out"'))
    assert "deliveries.path is in source.path" in inside


def test_conflicting_remote_and_linked_folders_are_refused(tmp_path: Path) -> None:
    both = GOOD.replace('"deliveries"', '"s3a://b/out/x"').replace('"checkpoint"', '"s3a://b/out/"')
    assert "deliveries.path is in run.checkpoint" in problems(tmp_path, both)
    (tmp_path / "link").symlink_to(tmp_path / "checkpoint")
    assert "is also run.checkpoint" in problems(tmp_path, GOOD.replace('"deliveries"', '"link"'))
    read(tmp_path, GOOD.replace('"deliveries"', '"checkpoint-2"'))


# -- sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1000", 1_000), ('"64MB"', 64_000_000), ('"1.5 GiB"', 3 << 29), ('"10kib"', 10_240)],
)
def test_sizes_are_bytes_or_have_a_unit(tmp_path: Path, size: str, expected: int) -> None:
    given = read(tmp_path, with_source(f'path = "in"\nbytes_per_batch = {size}'))
    assert given.source.bytes_per_batch == expected


@pytest.mark.parametrize("size", ["0", "-1", '"much"', '"5 apples"', '"0MB"'])
def test_invalid_sizes_are_refused(tmp_path: Path, size: str) -> None:
    found = problems(tmp_path, with_source(f'path = "in"\nbytes_per_batch = {size}'))
    assert "source.bytes_per_batch: " in found
    if "apples" in size:
        assert "a size such as '512MB' or '2GB' is expected, not '5 apples'" in found


@pytest.mark.parametrize("size", ["0", "1_000_000", '"15.9MB"', '"15MiB"'])
def test_a_memory_limit_that_is_too_small_for_duckdb(tmp_path: Path, size: str) -> None:
    found = problems(tmp_path, f'engine = "relational"\n{GOOD}[relational]\nmemory = {size}')
    assert "relational.memory: the memory limit of " in found
    assert " bytes is too small for DuckDB; give at least 16MB" in found
    read(tmp_path, f'engine = "relational"\n{GOOD}[relational]\nmemory = "16MB"')


def test_a_memory_limit_is_reported_together_with_other_errors(tmp_path: Path) -> None:
    text = f'engine = "relational"\ncolour = 1\n{GOOD}[relational]\nmemory = "500KB"'
    found = problems(tmp_path, text)
    assert "colour" in found and "relational.memory: the memory limit of 500,000 bytes" in found


@pytest.mark.parametrize("prefix", ["1x", "xmlns", "xml"])
def test_prefixes_that_xml_forbids_are_refused(tmp_path: Path, prefix: str) -> None:
    text = GOOD.replace('store = "subscriptions.db"', f'file = "q"\nnamespaces = {{ {prefix} = "urn:x" }}')
    assert f"subscriptions.namespaces: {'' if prefix == '1x' else 'the prefix '}'{prefix}' " in problems(
        tmp_path, text
    )


def test_the_relational_engine_has_its_own_default_memory() -> None:
    assert RelationalConfig().matcher_options() == {"plan": None}
    given = RelationalConfig.model_validate({"memory": "1.5GB", "plan": "shared"})
    assert given.matcher_options() == {"plan": "shared", "memory": "1500000KB"}
