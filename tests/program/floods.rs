//! Replies that are far too large, sent to the real program: the session ends when it should, and the program stays
//! small.
//!
//! A busy machine may take its time, so the time that counts here is the processor's: what would be at work beyond the
//! session's time is a loop that nobody can cut, and that is counted however many others run beside it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::home::settle;
use chemigram::session::listing;
use chemigram::transcript::{Event, Outcome};
use darktable::dng;
use engine::photo::Library;
use serde_json::{Value, json};
use testkit::chat_stub::{ChatStub, StubReply};

/// The session's own time, in seconds.
const TIME: u64 = 4;
/// How much memory the program may have had at any moment, in KiB.
const MEMORY: u64 = 200 << 10;

fn command(root: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
    settle(&mut command, root);
    command.arg("--library").arg(root.join("photos")).current_dir(root).stdin(Stdio::null());
    command
}

/// A number of `/proc/PID/status`, in KiB; `None` once the process has ended.
fn status(pid: u32, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// Seconds of processor time that a process has used, itself and in the system for it.
fn processor(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = text.rsplit_once(") ")?.1.split(' ').skip(11).take(2).map(|n| n.parse::<f64>().unwrap());
    // Whatever the kernel was built with, it tells hundredths of a second here.
    Some(ticks.sum::<f64>() / 100.0)
}

fn delta(delta: &Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}))
}

fn body(text: String) -> StubReply {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n".to_vec();
    StubReply::Raw { pieces: vec![head, text.into_bytes()], pause: Duration::ZERO }
}

#[test]
fn a_reply_of_any_size_takes_neither_the_time_nor_the_memory() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("cup.dng"), dng::demo_raw().unwrap()).unwrap();
    assert!(command(root.path()).args(["ingest", "cup.dng"]).status().unwrap().success());
    // A first session leaves the picture that every session begins with in the cache: on a busy machine it may take
    // longer than the sessions below have.
    let mut first = command(root.path());
    first.args([
        "run-mode-b",
        "cup",
        "--yes",
        "--preview-size",
        "256",
        "--budget",
        "time=5m,iterations=1,branches=1",
    ]);
    first.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    let providers = root.path().join("config/chemigram/providers");
    std::fs::create_dir_all(&providers).unwrap();
    let profile = "name = \"mine\"\nsummary = \"\"\ndialect = \"openai_chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
                   default_model = \"m\"\nfree = true\n[other_models]\nvision = true\n";
    std::fs::write(providers.join("mine.toml"), profile).unwrap();

    let thought = json!({"reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "m"}]});
    let call = |index: usize| {
        let function = json!({"name": "render_preview", "arguments": "{}"});
        json!({"tool_calls": [{"index": index, "id": format!("c{index}"), "function": function}]})
    };
    let calls: String = (0..150_000).map(|n| delta(&call(150_000 - n))).collect();
    let event = format!("data: [1,\n{}", "data:1,\n".repeat(40_000));
    assert_eq!(event.len() / 1000, 320);
    let nested = |item: &str| {
        let items = item.repeat((32 << 20) / item.len() - 10);
        body(format!("{{\"x\":[{items}0],\"choices\":[]}}"))
    };
    for (name, reply) in [
        ("one event of 320 kB", StubReply::events(&event)),
        ("one event without an end", StubReply::events(&event.repeat(100))),
        ("150,000 pieces of thought", StubReply::events(&delta(&thought).repeat(150_000))),
        ("150,000 calls", StubReply::events(&calls)),
        ("32 MB of objects", nested("{\"a\":0},")),
        ("32 MB of lists", nested("[],")),
    ] {
        let stub = ChatStub::start(vec![reply; 9]);
        let mut session = command(root.path());
        session.args(["run-mode-b", "cup", "--yes", "--provider", "mine", "--preview-size", "256"]);
        session.args([
            "--vector",
            "tone=brighter",
            "--budget",
            &format!("time={TIME}s,iterations=4,branches=1"),
        ]);
        let said = root.path().join("said");
        session.env("CHEMIGRAM_BASE_URL", stub.url()).stdout(Stdio::null());
        session.stderr(std::fs::File::create(&said).unwrap());
        let mut child = session.spawn().unwrap();
        let (mut memory, mut worked) = (0, 0.0);
        let began = Instant::now();
        while child.try_wait().unwrap().is_none() {
            memory = status(child.id(), "VmHWM:").unwrap_or(memory).max(memory);
            worked = processor(child.id()).unwrap_or(worked).max(worked);
            if began.elapsed() > Duration::from_secs(120) || worked > 60.0 {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{name}: it never ends; {worked} s of work");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = std::fs::read_to_string(said).unwrap();
        println!("{name}: {memory} KiB, {worked} s of work, {:?}", began.elapsed());
        assert!(!stub.requests().is_empty(), "{name} was never asked for: {said}");
        assert!(memory > 0 && memory < MEMORY, "{name}: {memory} KiB");
        assert!(worked < (TIME + 1) as f64, "{name}: {worked} s of work");
        let workspace = Library::new(root.path().join("photos")).open(&"cup".parse().unwrap()).unwrap();
        let id = listing::of_photo(&workspace).unwrap().remove(0);
        let told = listing::read(&workspace, &id).unwrap();
        let ended = told.condition.outcome();
        let right = [Outcome::ProviderFailed, Outcome::BudgetExhausted].map(Some);
        assert!(right.contains(&ended), "{name}: {ended:?}");
        assert!(told.lines.iter().any(|line| matches!(line.event, Event::Attempt { .. })), "{name}");
    }
}
