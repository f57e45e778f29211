#!/usr/bin/env python3
"""Takes traces of sessions and metrics of workers as a collector does, and holds them against the official types and
names.

    python3 -m venv /tmp/collector
    /tmp/collector/bin/pip install opentelemetry-proto==1.45.2 opentelemetry-semantic-conventions==0.66b2
    /tmp/collector/bin/python scripts/collector.py chemigram run-mode-b photo --budget lite --yes
    /tmp/collector/bin/python scripts/collector.py sh -c \
        'chemigram mode-b otel last --endpoint "$OTEL_EXPORTER_OTLP_ENDPOINT"'
    /tmp/collector/bin/python scripts/collector.py chemigram worker --store nats://localhost:4222/studio --until-empty

The command is run with OTEL_EXPORTER_OTLP_ENDPOINT set to this collector. What it sends must be what the official
protobuf types read, every attribute `gen_ai.…` one that the conventions know, and every span what they require of its
kind; every metric is one of the conventions, with their unit, or begins with `chemigram.`. Nothing is sent anywhere else. Nothing else needs Python.
"""

import http.server
import os
import subprocess
import sys
import threading

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    http_attributes,
    messaging_attributes,
)
from opentelemetry.semconv._incubating.metrics import messaging_metrics

KNOWN = {
    value
    for module in (gen_ai_attributes, error_attributes, http_attributes, messaging_attributes)
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

METRICS = {value for name, value in vars(messaging_metrics).items() if name.isupper() and isinstance(value, str)}

requests = []
metrics = []


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf":
            requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
        elif self.path == "/v1/metrics" and self.headers["content-type"] == "application/x-protobuf":
            metrics.append(ExportMetricsServiceRequest.FromString(body))
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


def judge_metric(metric):
    """The breaches of a metric, and its points in words."""
    if metric.name not in METRICS and not metric.name.startswith("chemigram."):
        yield f"{metric.name}: no convention knows it", None
    if metric.name.endswith(".duration") and metric.unit != "s":
        yield f"{metric.name}: it is not in seconds", None
    for point in getattr(metric, metric.WhichOneof("data")).data_points:
        keys = {attribute.key: attribute.value for attribute in point.attributes}
        for key in keys:
            if key not in KNOWN and not key.startswith("chemigram."):
                yield f"{metric.name}: no convention knows {key}", None
        if metric.name.startswith("messaging."):
            for key in ("messaging.system", "messaging.operation.name"):
                if key not in keys:
                    yield f"{metric.name}: {key} is missing", None
        told = {key: getattr(value, value.WhichOneof("value")) for key, value in keys.items()}
        value = f"{point.count} in {point.sum:.3f} s" if hasattr(point, "count") else point.as_int or point.as_double
        yield None, f"{metric.name} {told}: {value}"


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
    # Counts are sent as sums so far: the last request has them all.
    for resource in metrics[-1].resource_metrics if metrics else []:
        for scope in resource.scope_metrics:
            for breach, told in [row for metric in scope.metrics for row in judge_metric(metric)]:
                print(breach or told)
                breaches += [breach] if breach else []
    print("\n".join(breaches))
    sys.exit(status or bool(breaches) or not (spans or metrics))


main()
