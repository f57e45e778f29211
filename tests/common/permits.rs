//! Permits for tests that call a provider themselves.

use std::sync::Arc;

use base::clock::{Stop, SystemClock};
use base::redact::Redactor;
use chemigram::budget::{Amounts, Budget, Ledger, Reserve};
use chemigram::gate::{Gate, ModelCall, Permit};
use chemigram::transcript::{ModelIntent, Transcript};
use engine::lease::Lessor;

/// A permit for one call, by a gate of its own.
pub fn permit() -> Permit<ModelCall> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("transcript.jsonl");
    let transcript = Transcript::create(&path, Arc::new(SystemClock), Redactor::default()).unwrap();
    let ledger = Ledger::new(Budget::parse("lite").unwrap(), Reserve::default());
    let mut gate = Gate::new(ledger, transcript, Lessor::default(), Stop::default());
    let (reserved, keep) = (Amounts::default(), Reserve::default());
    let intent = ModelIntent { turn: 1, attempt: 1, reserved, max_output_tokens: 9, messages: 1, keep };
    gate.admit(intent).unwrap().unwrap()
}
