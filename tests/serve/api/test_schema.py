"""The OpenAPI document: requests that are made from it get only answers that it describes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.serve.api.calls import PROBLEM, open_client, publish, subscribe
from tests.serve.api.test_access import NEEDED, Endpoint
from tests.support.service.running_server import RunningServer

EXAMPLES = 8
EXCLUDED = {
    ("GET", "/v1/subscribers/{name}/events"),  # which has no end
    ("POST", "/v1/keys"),  # with the first key, all other requests would need one
}
NAMES = st.sampled_from(["desk", "other", "a/b", "nobody"])
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@schemathesis.serializer("application/x-ndjson", "application/x-xmll")
def serialize_lines(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Return a body in lines, which is a text already."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Any]]:
    """A server with some content, and the schema of its API."""
    with RunningServer(tmp_path_factory.mktemp("schema")) as server:
        with open_client(server) as client:
            for name in ("desk", "other", "a/b"):
                subscribe(client, name, id=name)
            publish(client, "s", "<a/>")
            publish(client, "s", "<broken")
            document = client.get("/openapi.json").json()
        # webhooks would send requests to addresses that are made up
        settings = document["components"]["schemas"]["SubscriberSettings"]["properties"]
        settings.pop("webhook")
        yield server, schemathesis.openapi.from_dict(copy.deepcopy(document))


def bound_waits(case: Any) -> None:
    """Let a request not wait, and let some find what is there."""
    query = case.query
    for name in ("wait", "timeout"):
        if isinstance(query, dict) and isinstance(query.get(name), int | float) and query[name] > 0.01:
            query[name] = 0.01
    if isinstance(case.body, dict) and isinstance(case.body.get("policy"), str):
        case.body["policy"] = "drop-oldest"  # one that lets publishers wait would refuse all messages


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("endpoint", sorted(set(NEEDED) - EXCLUDED), ids=" ".join)
def test_answers_are_described(
    api: tuple[RunningServer, Any], endpoint: Endpoint, mode: GenerationMode
) -> None:
    server, schema = api
    method, path = endpoint
    operation = schema[path][method]
    if mode is GenerationMode.NEGATIVE and not (list(operation.iter_parameters()) or operation.body):
        pytest.skip("there is nothing that could be wrong")

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), name=NAMES, is_known=st.booleans())
    def check(case: Any, name: str, is_known: bool) -> None:
        bound_waits(case)
        if is_known and mode is GenerationMode.POSITIVE:
            for parameter in ("name", "id"):
                if parameter in (case.path_parameters or {}):
                    case.path_parameters[parameter] = name.replace("/", "%2F")
        response = case.call(base_url=server.url, timeout=20)
        assert response.status_code < 500, (response.status_code, response.text)
        if response.status_code >= 400:
            assert response.headers["content-type"] == [PROBLEM]
            found = response.json()
            assert found["status"] == response.status_code and found["detail"]
        case.validate_response(response, checks=CHECKS)

    check()
