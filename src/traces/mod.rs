//! Sessions as traces of OpenTelemetry: from their transcripts alone, into a file or to a collector.
//!
//! A session is one span, `invoke_agent`; its calls of models, its tool calls and its renders are spans in it, with the
//! attributes of the [semantic conventions for generative AI](https://opentelemetry.io/docs/specs/semconv/gen-ai/).
//! What was said is left out unless it is asked for. A trace is a fold of the lines: made twice it is the same twice.
//! Workers of a store send [`metrics`] as well.

mod export;
pub mod metrics;
mod spans;

pub use export::{Live, TraceError, json, send};
pub use spans::{Content, Spans, spans};
