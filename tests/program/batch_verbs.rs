//! Batches of a store, followed and reported by who has not submitted them just now.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::many_machines::{Studio, ended, until};
use crate::overnight::{Home, script};
use chemigram::transcript::Outcome;
use std::process::{Child, Stdio};

/// A session on each photo, each of which waits before it judges its branch.
fn plan(home: &Home, photos: &[&str], pause: u64) {
    home.write("script.toml", script("Open.", pause));
    let sessions = photos.iter().map(|photo| format!("[[session]]\nphoto = \"{photo}\"\n\n"));
    home.plan("branches = 4\ntime = \"1h\"", &sessions.collect::<String>());
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_batch_whose_submitter_was_killed_is_watched_to_its_end() {
    let mut studio = Studio::new(&["cup"]);
    plan(&studio.home, &["cup"], 1000);
    let submitted = studio.submit();
    until("a batch", || studio.show()["state"] == "open");
    kill(submitted);
    let address = studio.address();
    let watch = ["batch", "watch", "last", "--store", &address];
    let mut watching = studio.home.command(&watch);
    let watching = watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    studio.worker("one", &[]);
    let output = ended(watching);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}\n{}", studio.logs());
    assert!(told.contains("1. cup: claimed by one"), "{told}");
    assert_eq!(studio.home.outcomes(), [(0, Outcome::Completed)]);
    assert_eq!(studio.show()["state"], "over");
    assert!(studio.home.report("report.html").contains("chemigram promote cup branch_b_tone"));
    assert!(studio.home.branches().iter().any(|row| row.starts_with("cup branch_b_tone")));
    // It is over, and is collected once; another library has not submitted it.
    assert_eq!(studio.home.status(&watch), 0);
    assert_eq!(studio.home.outcomes().len(), 1);
    let elsewhere = studio.home.path("elsewhere");
    let output = studio.home.run(&[&watch[..], &["--library", elsewhere.to_str().unwrap()]].concat());
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("was not submitted from this library"), "{told}");
}

#[test]
fn a_report_collects_what_is_over_and_no_more() {
    let mut studio = Studio::new(&["cup", "bar"]);
    plan(&studio.home, &["cup", "bar"], 4000);
    let submitted = studio.submit();
    until("a batch", || studio.show()["state"] == "open");
    kill(submitted);
    studio.worker("one", &[]);
    until("an end", || studio.show()["jobs"][0]["state"] == "ended");
    let address = studio.address();
    let report = ["batch", "report", "last", "--store", &address];
    studio.home.status(&report);
    let first: Vec<(usize, Outcome)> = studio.home.outcomes();
    assert_eq!(first.first(), Some(&(0, Outcome::Completed)));
    assert!(studio.home.report("report.txt").contains("branch_b_tone"));
    until("the other end", || studio.show()["jobs"][1]["state"] == "ended");
    assert_eq!(studio.home.status(&report), 0, "{}", studio.logs());
    assert_eq!(studio.home.outcomes(), [(0, Outcome::Completed), (1, Outcome::Completed)]);
    assert_eq!(studio.show()["state"], "over");
    assert_eq!(studio.counted(), studio.spent());
}
