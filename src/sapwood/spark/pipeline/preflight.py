"""Checks of a pipeline before Spark is started, which takes seconds, and sometimes a minute to fail."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from sapwood.broker import Broker
from sapwood.config_file import ConfigError
from sapwood.spark.distribution.pipeline_subscriptions import compile_file
from sapwood.spark.io.file_system import local_path
from sapwood.spark.io.unread_files import is_hidden
from sapwood.spark.joins.join_plan import check_times
from sapwood.spark.kafka.kafka_options import KAFKA, SERVERS, find_option
from sapwood.spark.pipeline.checkpoint_lock import lock_checkpoint
from sapwood.spark.pipeline.config import PipelineConfig
from sapwood.spark.pipeline.endpoint_config import SinkConfig, SourceConfig
from sapwood.store import SubscriptionStore

_log = logging.getLogger(__name__)
_LOCAL = re.compile(
    r"local(?:\[(?:\*|[1-9]\d*)(?:\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*(?:,\s*\d+\s*){2}\]"
)
_STANDALONE = re.compile(r"spark://([^/\s]+)/?")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):(\d{1,5})")
_KUBERNETES = re.compile(r"k8s://(?:(https?)://)?([^/\s:]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?(?:/\S*)?")
_KNOWN = "local, local[4], local[*], spark://host:7077, yarn or k8s://https://host:port"
_CONNECT_SECONDS = 3.0
"""The timeout of a connection to a master or Kafka; Spark itself tries for a minute, and then again."""


def check_pipeline(config: PipelineConfig, master: str, file: Path | None = None) -> Broker | None:
    """Check the master, the sources, the checkpoint and the subscriptions; raise the error of the first that
    is wrong. Return a broker with the compiled queries of `subscriptions.file`, or None with a store. `file`
    is the pipeline file, which errors name."""
    check_master(master)
    _check_sources(config)
    _check_kafka(config)
    with lock_checkpoint(config.run.checkpoint):
        """No other run is using it."""
    compiled = _check_subscriptions(config, file)
    _log.info("preflight: master %s, sources, checkpoint and subscriptions checked", master)
    return compiled


def _check_sources(config: PipelineConfig) -> None:
    """Raise ConfigError if the local path of a source does not exist, or Spark does not read it."""
    for number, source in enumerate(config.sources, 1):
        path = local_path(source.path) if source.path is not None else None
        pattern = source.format != "files" and any(char in str(path) for char in "*?[{")
        key = "source.path" if len(config.sources) == 1 else f"source #{number}.path"
        if path is not None and not pattern and not path.exists():
            raise ConfigError(f"{key}: there is no file or folder {path}")
        if path is not None and path.is_file() and is_hidden(path.name):
            raise ConfigError(f"{key}: Spark does not read {path}, a name that begins with _ or .; rename it")


def _check_kafka(config: PipelineConfig) -> None:
    """Raise ConfigError if none of the servers of a source or sink can be reached; Spark would try for a
    minute."""
    tables: dict[str, SourceConfig | SinkConfig] = {
        "deliveries": config.deliveries,
        "rejects": config.rejects,
    }
    for number, source in enumerate(config.sources, 1):
        tables["source" if len(config.sources) == 1 else f"source #{number}"] = source
    checked: set[str] = set()
    for key, table in tables.items():
        servers = find_option(table.options, SERVERS) if table.format == KAFKA else None
        if servers is None or servers in checked:
            continue
        checked.add(servers)
        place = f'{key}.options."{SERVERS}"'
        hosts = []
        for address in servers.split(","):
            found = _HOST.fullmatch(address.strip().rpartition("://")[2])
            if found is None or int(found[2]) > 65_535:
                raise ConfigError(
                    f"{place}: a host and a port are expected, such as broker:9092, not {address!r}"
                )
            hosts.append((found[1].strip("[]"), int(found[2])))
        if failures := _find_failures(hosts):
            raise ConfigError(f"{place}: Kafka cannot be reached ({failures})")


def _check_subscriptions(config: PipelineConfig, file: Path | None) -> Broker | None:
    """Open the store, or compile the file of queries, and check the event-time paths of the sources."""
    given = config.subscriptions
    namespaces = given.namespaces
    if given.store is not None:
        with SubscriptionStore(given.store, create=False, tenant=given.tenant) as store:
            namespaces = store.namespaces
            if restricted := store.restricted(store.version):
                _log.warning(
                    "%d subscriptions of %s are restricted to streams: `sapwood serve` evaluates them, "
                    "pipelines do not",
                    restricted,
                    store.name,
                )
    check_times(config.sources, namespaces, file)
    if given.store is not None:
        return None
    assert given.file is not None
    return compile_file(given.file, namespaces, config.matcher_limits())


def check_master(master: str) -> None:
    """Raise ConfigError if the URL of a master is not valid, or the master cannot be reached."""
    if _LOCAL.fullmatch(master):
        return
    if master == "yarn":
        if not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
            raise ConfigError("master: yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR, and neither is set")
        return
    if failures := _find_failures(list(_parse_hosts(master))):
        raise ConfigError(f"master: {master} cannot be reached ({failures})")


def _find_failures(hosts: Sequence[tuple[str, int]]) -> str | None:
    """Return why no host accepts connections, or None if one does."""
    failures = []
    for host, port in hosts:
        try:
            socket.create_connection((host, port), _CONNECT_SECONDS).close()
        except OSError as error:
            failures.append(f"{host}:{port}: {error.strerror or error}")
        else:
            _log.debug("%s:%s accepts connections", host, port)
            return None  # one of several is enough
    return "; ".join(failures)


def _parse_hosts(master: str) -> Iterator[tuple[str, int]]:
    """Yield host and port of each master in a URL."""
    standalone = _STANDALONE.fullmatch(master)
    if standalone is not None:
        for address in standalone[1].split(","):
            found = _HOST.fullmatch(address)
            if found is None or int(found[2]) > 65_535:
                raise ConfigError(
                    f"master: {master!r}: a host and a port are expected, as in spark://host:7077"
                )
            yield found[1].strip("[]"), int(found[2])
        return
    kubernetes = _KUBERNETES.fullmatch(master)
    if kubernetes is None:
        raise ConfigError(f"master: {master!r} is not a master of Spark; use {_KNOWN}")
    yield kubernetes[2].strip("[]"), int(kubernetes[3] or (80 if kubernetes[1] == "http" else 443))
