//! What a worker counts and times, as metrics of OpenTelemetry. Without a collector in the environment nothing is kept.

use std::sync::LazyLock;
use std::time::Duration;

use opentelemetry::metrics::{Counter, Histogram, UpDownCounter};
use opentelemetry::{KeyValue, global};
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};

use super::export::{self, TraceError};
use crate::budget::Amounts;
use base::error::ErrorCode;

/// The bounds of times that are measured in seconds, those of the conventions and some below them.
const BOUNDS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0];

static INSTRUMENTS: LazyLock<Instruments> = LazyLock::new(Instruments::new);

struct Instruments {
    claims: Counter<u64>,
    claim_duration: Histogram<f64>,
    sessions: Counter<u64>,
    active: UpDownCounter<i64>,
    fenced: Counter<u64>,
    tokens: Counter<u64>,
    cost: Counter<f64>,
    operation: Histogram<f64>,
}

impl Instruments {
    fn new() -> Self {
        let meter = global::meter("chemigram");
        let counter = |name: &'static str, unit: &'static str, what: &'static str| {
            meter.u64_counter(name).with_unit(unit).with_description(what).build()
        };
        let histogram = |name: &'static str, what: &'static str| {
            let built = meter.f64_histogram(name).with_unit("s").with_description(what);
            built.with_boundaries(BOUNDS.to_vec()).build()
        };
        Self {
            claims: counter("chemigram.worker.claims", "{claim}", "Sessions that this worker has claimed"),
            claim_duration: histogram(
                "chemigram.worker.claim.duration",
                "From the moment a session is handed out until it is claimed",
            ),
            sessions: counter(
                "chemigram.worker.sessions",
                "{session}",
                "Sessions that this worker is done with, by what became of them",
            ),
            active: meter
                .i64_up_down_counter("chemigram.worker.sessions.active")
                .with_unit("{session}")
                .with_description("Sessions that this worker has claimed and is not done with")
                .build(),
            fenced: counter(
                "chemigram.worker.fenced",
                "{message}",
                "Messages that the store refused because another worker had written",
            ),
            tokens: counter("chemigram.batch.tokens", "{token}", "Tokens of sessions that were settled"),
            cost: meter
                .f64_counter("chemigram.batch.cost")
                .with_unit("{USD}")
                .with_description("What sessions that were settled have cost")
                .build(),
            operation: histogram(
                "messaging.client.operation.duration",
                "How long the store takes to answer a request",
            ),
        }
    }
}

/// Sends the metrics of this process now and then, and once more when it is dropped.
pub struct Exporting(SdkMeterProvider);

impl Exporting {
    /// To the collector that the environment names, if it does. A setting that cannot be used is a line of the log.
    pub fn from_env() -> Option<Self> {
        match Self::start(&export::METRICS.address()?) {
            Ok(exporting) => Some(exporting),
            Err(error) => {
                tracing::warn!("{error}");
                None
            }
        }
    }

    fn start(address: &str) -> Result<Self, TraceError> {
        let reader = PeriodicReader::builder(export::metrics(address)?).build();
        let provider =
            SdkMeterProvider::builder().with_reader(reader).with_resource(export::resource()).build();
        global::set_meter_provider(provider.clone());
        Ok(Self(provider))
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            tracing::debug!(%error, "the last metrics were not sent");
        }
    }
}

/// A session that is worked on, as long as this lives.
pub struct Active(());

impl Drop for Active {
    fn drop(&mut self) {
        INSTRUMENTS.active.add(-1, &[]);
    }
}

/// A session was claimed, so long after it had been handed out; `lost` if the worker that had it before went away.
pub fn claimed(after: Duration, lost: bool) -> Active {
    INSTRUMENTS.claims.add(1, &[KeyValue::new("chemigram.claim.after_loss", lost)]);
    INSTRUMENTS.claim_duration.record(after.as_secs_f64(), &[]);
    INSTRUMENTS.active.add(1, &[]);
    Active(())
}

/// A session is over for this worker: `finished`, `failed`, `not_begun`, `given_back` or `lost`; with its outcome, or
/// the code of its error.
pub fn done(state: &'static str, outcome: Option<&'static str>, error: Option<ErrorCode>) {
    let mut attributes = vec![KeyValue::new("chemigram.session.state", state)];
    attributes.extend(outcome.map(|outcome| KeyValue::new("chemigram.session.outcome", outcome)));
    let code = error.and_then(|code| serde_json::to_value(code).ok()?.as_str().map(str::to_owned));
    attributes.extend(code.map(|code| KeyValue::new("error.type", code)));
    INSTRUMENTS.sessions.add(1, &attributes);
}

/// The store refused what an earlier worker wrote.
pub fn fenced() {
    INSTRUMENTS.fenced.add(1, &[]);
}

/// A session was settled in the ledger of its batch.
pub fn settled(spent: Amounts) {
    INSTRUMENTS.tokens.add(spent.tokens, &[]);
    INSTRUMENTS.cost.add(spent.cost_micro_usd as f64 / 1e6, &[]);
}

/// The store answered a request, or refused it.
pub fn asked(operation: &'static str, took: Duration, well: bool) {
    let mut attributes =
        vec![KeyValue::new("messaging.system", "nats"), KeyValue::new("messaging.operation.name", operation)];
    if !well {
        attributes.push(KeyValue::new("error.type", "_OTHER"));
    }
    INSTRUMENTS.operation.record(took.as_secs_f64(), &attributes);
}
