"""The provider of spans: OpenTelemetry's SDK with its OTLP/HTTP exporter (extra `otel`).

The SDK reads the sampler, headers and batch sizes from its own variables (OTEL_TRACES_SAMPLER, …).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from typing import Any, cast

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from memory_api.core.errors import HanseiError
from memory_api.core.outgoing import OutgoingCall, send_call

FLUSH_SECONDS = 3.0
"""How long a process that ends waits for the export of its last spans."""


def open_provider(endpoint: str, service: str) -> TracerProvider:
    """`endpoint` is the base URL of the receiver, to which `/v1/traces` is added."""
    attributes = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    url = f"{endpoint.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint=url, session=_ExportSession())
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def shut_down(provider: TracerProvider) -> None:
    """Export the spans that are waiting, for at most `FLUSH_SECONDS`."""
    closing = threading.Thread(target=provider.shutdown, daemon=True)
    closing.start()
    closing.join(FLUSH_SECONDS)


class _ExportSession(requests.Session):
    """Sends as all other outgoing calls: with a deadline for the whole call, without a redirect or
    a proxy, and no body of an answer is read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.headers.clear()

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        call = OutgoingCall(
            request.method or "POST",
            request.url or "",
            allow_private=True,
            seconds=options["timeout"],
            headers=cast("dict[str, str]", dict(request.headers)),
            content=cast("bytes", request.body or b""),
            tls=self._tls(),
        )
        try:
            answer = asyncio.run(send_call(call))
        except HanseiError as error:
            raise requests.ConnectionError(error.detail) from error
        response = requests.Response()
        response.status_code = answer.status
        return response

    def _tls(self) -> ssl.SSLContext | None:
        """With the files of OTEL_EXPORTER_OTLP_CERTIFICATE and its client certificates."""
        if self.verify is True and self.cert is None:
            return None
        context = ssl.create_default_context(
            cafile=self.verify if isinstance(self.verify, str) else None
        )
        if self.cert is not None:
            files = (self.cert,) if isinstance(self.cert, str) else self.cert
            context.load_cert_chain(*files)
        return context
