//! What a worker counts, as a collector reads it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use crate::many_machines::{Studio, ended};
use crate::overnight::script;
use crate::traces::Collector;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point::Value};
use prost::Message as _;

fn words(attributes: &[KeyValue]) -> String {
    let mut each: Vec<String> = attributes
        .iter()
        .map(|one| match one.value.clone().unwrap().value.unwrap() {
            any_value::Value::StringValue(text) => format!(" {}={text}", one.key),
            any_value::Value::BoolValue(flag) => format!(" {}={flag}", one.key),
            other => panic!("{other:?}"),
        })
        .collect();
    each.sort();
    each.concat()
}

/// The last request: each series with its sum, and how many values that are.
fn series(collector: &Collector) -> BTreeMap<String, (f64, u64)> {
    let requests = collector.requests.lock().unwrap();
    let (head, body) = requests.iter().rfind(|(head, _)| head.contains("/v1/metrics")).unwrap();
    assert!(head.contains("application/x-protobuf"), "{head}");
    let request = ExportMetricsServiceRequest::decode(body.as_slice()).unwrap();
    let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
    let mut found = BTreeMap::new();
    for metric in scopes.flat_map(|scope| scope.metrics) {
        match metric.data.unwrap() {
            Data::Sum(sum) => {
                for point in sum.data_points {
                    let value = match point.value.unwrap() {
                        Value::AsInt(number) => number as f64,
                        Value::AsDouble(number) => number,
                    };
                    found.insert(format!("{}{}", metric.name, words(&point.attributes)), (value, 1));
                }
            }
            Data::Histogram(histogram) => {
                assert_eq!(metric.unit, "s", "{}", metric.name);
                for point in histogram.data_points {
                    let name = format!("{}{}", metric.name, words(&point.attributes));
                    found.insert(name, (point.sum.unwrap(), point.count));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    found
}

#[test]
fn a_worker_tells_a_collector_what_it_did() {
    let mut studio = Studio::new(&["cup", "bar"]);
    studio.home.write("script.toml", script("Open.", 0));
    studio.home.write("broken.toml", "this is no script");
    let broken = "[[session]]\nphoto = \"bar\"\nmodel = \"broken.toml\"\n";
    studio.home.plan("branches = 3\ntime = \"1h\"", &format!("[[session]]\nphoto = \"cup\"\n\n{broken}"));
    let collector = Collector::start();
    let submitted = studio.submit();
    crate::many_machines::until("a batch", || studio.show()["state"] == "open");
    studio.worker_with("one", &["--until-empty"], |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address);
    });
    assert_eq!(ended(submitted).status.code(), Some(1), "{}", studio.logs());
    assert!(ended(studio.workers.remove(0)).status.success(), "{}", studio.logs());
    let series = series(&collector);
    let of = |name: &str| series.get(name).unwrap_or_else(|| panic!("no {name}: {series:#?}"));
    // The one that fails is tried twice.
    assert_eq!(of("chemigram.worker.claims chemigram.claim.after_loss=false").0, 3.0);
    assert_eq!(of("chemigram.worker.claim.duration").1, 3);
    let sessions = "chemigram.worker.sessions chemigram.session";
    assert_eq!(of(&format!("{sessions}.outcome=completed chemigram.session.state=finished")).0, 1.0);
    assert_eq!(of(&format!("{sessions}.state=given_back")).0, 1.0);
    assert_eq!(of(&format!("{sessions}.state=failed error.type=INVALID_INPUT")).0, 1.0);
    assert_eq!(of("chemigram.worker.sessions.active").0, 0.0);
    let tokens = studio.spent().tokens;
    assert_eq!(of("chemigram.batch.tokens").0, tokens as f64);
    assert!(series.contains_key("chemigram.batch.cost"));
    let asked = |operation: &str| {
        *of(&format!(
            "messaging.client.operation.duration messaging.operation.name={operation} messaging.system=nats"
        ))
    };
    for operation in ["kv.get", "kv.update", "publish", "stream.get", "object.get"] {
        let (seconds, count) = asked(operation);
        assert!(count > 0 && seconds > 0.0, "{operation}: {seconds} s, {count}");
    }
}

#[test]
fn a_collector_that_is_away_or_turned_off_keeps_no_worker_from_working() {
    let mut studio = Studio::new(&[]);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let collector = Collector::start();
    for (name, address, off) in
        [("gone", format!("http://{gone}"), ""), ("off", collector.address.clone(), "none")]
    {
        studio.worker_with(name, &["--until-empty"], |command| {
            command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address).env("OTEL_METRICS_EXPORTER", off);
        });
        assert!(ended(studio.workers.remove(0)).status.success(), "{}", studio.log(name));
    }
    assert_eq!(studio.log("gone").matches("metrics are lost").count(), 1, "{}", studio.log("gone"));
    assert!(collector.requests.lock().unwrap().is_empty());
}
