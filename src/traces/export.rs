//! Where spans and metrics go: a file of OTLP/JSON, or a collector, by OTLP over HTTP with the client that models are called with.
//!
//! The exporter is the official one; what it reads of the environment (endpoint, headers, time limit) is as its
//! specification says. It works on a thread of its own. A session never waits for it but for a moment at its end.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{MetricExporter, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};

use super::spans::{Content, Spans};
use crate::provider::http;
use crate::transcript::Line;
use base::error::{Coded, ErrorCode};

/// The variable that holds the address of the collector.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES: Signal = Signal {
    endpoint: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    exporter: "OTEL_TRACES_EXPORTER",
    path: "v1/traces",
};
pub(super) const METRICS: Signal = Signal {
    endpoint: "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    exporter: "OTEL_METRICS_EXPORTER",
    path: "v1/metrics",
};
/// How long one export may take.
const LIMIT: Duration = Duration::from_secs(3);
/// How long the end of a session waits for spans that are still to be sent.
const FLUSH: Duration = Duration::from_secs(1);
/// Spans that may wait to be sent; further ones are dropped.
const WAITING: usize = 2_048;
/// Spans of one request.
const BATCH: usize = 512;
/// The most that is read of a collector's answer.
const ANSWER: usize = 64 << 10;

/// A trace that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The address, or another setting, cannot be used.
    #[error("traces cannot be sent: {0}")]
    Setup(String),
    /// The collector cannot be reached, or does not take it.
    #[error("the collector did not take the trace: {0}")]
    Refused(String),
}

impl Coded for TraceError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Setup(_) => ErrorCode::InvalidInput,
            Self::Refused(_) => ErrorCode::StateError,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Setup(_) => {
                "an address looks like http://localhost:4318, without user name and password".into()
            }
            Self::Refused(_) => "is a collector running there that takes OTLP over HTTP (port 4318)?".into(),
        })
    }
}

/// Spans as OTLP/JSON: one object, the same whenever it is made.
pub fn json(spans: Vec<SpanData>) -> Result<serde_json::Value, TraceError> {
    let mut resource = ResourceAttributesWithSchema::from(&resource());
    resource.attributes.0.sort_by(|a, b| a.key.cmp(&b.key));
    let resource_spans = group_spans_by_resource_and_scope(spans, &resource);
    serde_json::to_value(ExportTraceServiceRequest { resource_spans })
        .map_err(|e| TraceError::Setup(e.to_string()))
}

/// Sends spans to the collector at that address.
pub fn send(spans: &[SpanData], endpoint: &str) -> Result<(), TraceError> {
    let (exporter, runtime) = (exporter(&TRACES.beneath(endpoint))?, runtime()?);
    for batch in spans.chunks(BATCH) {
        let sent = runtime.block_on(exporter.export(batch.to_vec()));
        sent.map_err(|e| TraceError::Refused(e.to_string()))?;
    }
    Ok(())
}

/// Sends the spans of a running session as they end.
pub struct Live {
    spans: Spans,
    to: Option<SyncSender<SpanData>>,
    /// Hangs up when everything was sent.
    done: Receiver<()>,
    failed: Arc<AtomicBool>,
}

impl Live {
    /// The exporter that the environment asks for, if it does. A setting that cannot be used is a line of the log.
    pub fn from_env() -> Option<Self> {
        let address = TRACES.address()?;
        let exporter = exporter(&address).and_then(|exporter| Ok((exporter, runtime()?)));
        match exporter {
            Ok((exporter, runtime)) => Self::start(exporter, runtime, Content::from_env()),
            Err(error) => {
                tracing::warn!("{error}");
                None
            }
        }
    }

    fn start(exporter: SpanExporter, runtime: tokio::runtime::Runtime, content: Content) -> Option<Self> {
        let (to, waiting) = sync_channel::<SpanData>(WAITING);
        let (finished, done) = sync_channel(0);
        let failed = Arc::new(AtomicBool::new(false));
        let noted = failed.clone();
        let work = move || {
            while let Ok(first) = waiting.recv() {
                let batch = std::iter::once(first).chain(waiting.try_iter().take(BATCH - 1)).collect();
                if let Err(error) = runtime.block_on(exporter.export(batch))
                    && !noted.swap(true, Ordering::Relaxed)
                {
                    tracing::warn!("spans are lost, as the collector does not take them: {error}");
                }
            }
            drop(finished);
        };
        std::thread::Builder::new().name("traces".into()).spawn(work).ok()?;
        Some(Self { spans: Spans::new(content), to: Some(to), done, failed })
    }

    /// Takes in lines whose spans have been sent before.
    pub fn skip(&mut self, lines: &[Line]) {
        lines.iter().for_each(|line| drop(self.spans.fold(line)));
    }

    /// Sends the spans that the line ends.
    pub fn line(&mut self, line: &Line) {
        for span in self.spans.fold(line) {
            // What does not fit is lost: a session waits for nobody.
            if let Some(to) = &self.to {
                drop(to.try_send(span));
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.to = None;
        if !self.failed.load(Ordering::Relaxed) {
            let _ = self.done.recv_timeout(FLUSH);
        }
    }
}

/// What is sent, and where the environment says that it goes.
pub(super) struct Signal {
    /// The variable with the whole address for this alone.
    endpoint: &'static str,
    /// The variable that turns it off.
    exporter: &'static str,
    /// What is added to the address of a collector.
    path: &'static str,
}

impl Signal {
    /// The whole address that the environment names, unless it turns this off.
    pub fn address(&self) -> Option<String> {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
        let off = text("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"))
            || text(self.exporter).is_some_and(|exporter| exporter == "none");
        text(self.endpoint).or_else(|| text(ENDPOINT).map(|base| self.beneath(&base))).filter(|_| !off)
    }

    fn beneath(&self, base: &str) -> String {
        format!("{}/{}", base.trim().trim_end_matches('/'), self.path)
    }
}

fn exporter(address: &str) -> Result<SpanExporter, TraceError> {
    let client = client(address)?;
    let builder = SpanExporter::builder().with_http().with_endpoint(address).with_http_client(client);
    let exporter = builder.with_retry_policy(RetryPolicy::disabled()).build();
    let mut exporter = exporter.map_err(|e| TraceError::Setup(e.to_string()))?;
    exporter.set_resource(&resource());
    Ok(exporter)
}

/// Sends metrics, also from a thread without a runtime.
pub(super) fn metrics(address: &str) -> Result<MetricExporter, TraceError> {
    let setup = |cause: String| TraceError::Setup(cause);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|e| setup(e.to_string()))?;
    let client = Elsewhere { client: client(address)?, runtime, failed: AtomicBool::new(false) };
    let builder = MetricExporter::builder().with_http().with_endpoint(address).with_http_client(client);
    builder.with_retry_policy(RetryPolicy::disabled()).build().map_err(|e| setup(e.to_string()))
}

fn client(address: &str) -> Result<Client, TraceError> {
    let failed = |cause: String| TraceError::Setup(cause);
    let url = reqwest::Url::parse(address).map_err(|e| failed(e.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() || !matches!(url.scheme(), "http" | "https") {
        return Err(failed("the address of the collector is not a plain http or https address".to_owned()));
    }
    http::client(&url).map(Client).map_err(|e| failed(e.to_string()))
}

fn runtime() -> Result<tokio::runtime::Runtime, TraceError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| TraceError::Setup(e.to_string()))
}

/// This program, as `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` describe it.
pub(super) fn resource() -> Resource {
    let named = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty());
    let builder =
        Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if named { builder.build() } else { builder.with_service_name("chemigram").build() }
}

/// The HTTP client that models are called with, as the exporter wants it.
#[derive(Clone, Debug)]
struct Client(reqwest::Client);

impl HttpClient for Client {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let mut request = reqwest::Request::try_from(request)?;
            *request.timeout_mut() = Some(LIMIT);
            let mut answer = self.0.execute(request).await.map_err(reqwest::Error::without_url)?;
            let mut body = Vec::new();
            while let Some(piece) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
                body.extend_from_slice(&piece);
                if body.len() > ANSWER {
                    return Err("its answer is too long".into());
                }
            }
            Ok(Response::builder().status(answer.status()).body(body.into())?)
        })
    }
}

/// The client on a thread of its own, for an exporter that works on one without a runtime.
#[derive(Debug)]
struct Elsewhere {
    client: Client,
    runtime: tokio::runtime::Runtime,
    /// Whether it was said that something was lost.
    failed: AtomicBool,
}

impl HttpClient for Elsewhere {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move { client.send_bytes(request).await });
        Box::pin(async move {
            let answer = match sending.await {
                Ok(answer) => answer,
                Err(error) => Err(error.into()),
            };
            let lost = match &answer {
                Ok(answer) if answer.status().is_success() => return Ok(answer.clone()),
                Ok(answer) => answer.status().to_string(),
                Err(error) => error.to_string(),
            };
            if !self.failed.swap(true, Ordering::Relaxed) {
                tracing::warn!("metrics are lost, as the collector does not take them: {lost}");
            }
            answer
        })
    }
}
