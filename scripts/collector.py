#!/usr/bin/env python3
"""Takes the trace of a session as a collector does, and holds it against the official types and names.

    python3 -m venv /tmp/collector
    /tmp/collector/bin/pip install opentelemetry-proto==1.45.2 opentelemetry-semantic-conventions==0.66b2
    /tmp/collector/bin/python scripts/collector.py chemigram run-mode-b photo --budget lite --yes
    /tmp/collector/bin/python scripts/collector.py sh -c \
        'chemigram mode-b otel last --endpoint "$OTEL_EXPORTER_OTLP_ENDPOINT"'

The command is run with OTEL_EXPORTER_OTLP_ENDPOINT set to this collector. What it sends must be what the official
protobuf types read, every attribute `gen_ai.…` one that the conventions know, and every span what they require of its
kind. Nothing is sent anywhere else. Nothing else needs Python.
"""

import http.server
import os
import subprocess
import sys
import threading

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes, http_attributes

KNOWN = {
    value
    for module in (gen_ai_attributes, error_attributes, http_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
OPERATIONS = {value.value for value in gen_ai_attributes.GenAiOperationNameValues}
PROVIDERS = {value.value for value in gen_ai_attributes.GenAiProviderNameValues}
# What the conventions require of a span, by its operation.
REQUIRED = {
    "chat": ["gen_ai.provider.name", "gen_ai.request.model"],
    "invoke_agent": ["gen_ai.provider.name", "gen_ai.agent.name"],
    "execute_tool": ["gen_ai.tool.name"],
}

requests = []


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf":
            requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
        else:
            self.send_response(404)
        self.end_headers()

    def log_message(self, *_):
        pass


def judge(span):
    """The breaches of a span."""
    keys = {attribute.key: attribute.value for attribute in span.attributes}
    events = [attribute.key for event in span.events for attribute in event.attributes]
    for key in [*keys, *events]:
        if key not in KNOWN and not key.startswith("chemigram."):
            yield f"{span.name}: no convention knows {key}"
    operation = keys["gen_ai.operation.name"].string_value if "gen_ai.operation.name" in keys else None
    if operation is None:
        if not span.name.startswith(("render ", "referee")):
            yield f"{span.name}: it has no operation"
        return
    if operation not in OPERATIONS or not span.name.startswith(operation + " "):
        yield f"{span.name}: {operation} is no operation, or not in its name"
    for key in REQUIRED[operation]:
        if key not in keys:
            yield f"{span.name}: {key} is missing"
    if span.status.code == 2 and "error.type" not in keys:
        yield f"{span.name}: it failed and has no error.type"


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
    status = subprocess.run(sys.argv[1:], env=environment).returncode
    spans = [
        span
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    children = {}
    for span in spans:
        children.setdefault(span.parent_span_id, []).append(span)

    def tree(parent, depth):
        for span in sorted(children.get(parent, []), key=lambda span: span.start_time_unix_nano):
            ms = (span.end_time_unix_nano - span.start_time_unix_nano) // 1_000_000
            print(f"{'  ' * depth}{span.name}  {ms} ms")
            tree(span.span_id, depth + 1)

    tree(b"", 0)
    own = {keys.value.string_value for span in spans for keys in span.attributes if keys.key == "gen_ai.provider.name"}
    breaches = [breach for span in spans for breach in judge(span)]
    print(f"{len(spans)} spans, {len(breaches)} breaches; providers not in the conventions: {sorted(own - PROVIDERS)}")
    print("\n".join(breaches))
    sys.exit(status or bool(breaches) or not spans)


main()
