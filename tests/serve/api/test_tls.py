"""TLS by configuration."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from tests.support.service.certificate import make_certificate
from tests.support.service.running_server import RunningServer


def test_a_server_with_a_certificate_speaks_tls_alone(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "localhost")
    listen = f'tls_certificate = "{certificate}"\ntls_key = "{certificate}"\n'
    with RunningServer(tmp_path, listen=listen) as server:
        assert server.url.startswith("https://127.0.0.1:")
        url = server.url.replace("127.0.0.1", "localhost")
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=url, verify=trusted) as client:
            answer = client.post("/v1/streams/s/messages", content=b"<a/>")
            assert answer.status_code == 201
        plain = url.replace("https", "http")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{plain}/healthz")
