//! `doctor --store`, against real servers: what it finds step by step, and what it says of what is wrong.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::overnight::Home;
use crate::store_errors::shifted;
use serde_json::Value;
use testkit::nats::Server;

/// The status, and what was found of the store, by step.
fn doctor(home: &Home, address: &str, clock: Option<&str>) -> (i32, Vec<(String, Value)>) {
    let mut command = home.command(&["doctor", "--store", address, "--json"]);
    if let Some(by) = clock {
        shifted(&mut command, by);
    }
    let output = command.stdout(std::process::Stdio::piped()).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["well"], output.status.success(), "{told}");
    let checks = told["checks"].as_array().unwrap().clone();
    let steps = checks.into_iter().filter_map(|check| {
        let name = check["what"].as_str().unwrap().strip_prefix("store ")?.to_owned();
        Some((name, check))
    });
    (output.status.code().unwrap(), steps.collect())
}

fn of<'a>(steps: &'a [(String, Value)], name: &str) -> &'a str {
    let step = steps.iter().find(|(step, _)| step == name);
    step.unwrap_or_else(|| panic!("no {name}: {steps:?}")).1["found"].as_str().unwrap()
}

#[test]
fn a_store_is_tried_step_by_step_and_left_as_it_was() {
    let (home, dir) = (Home::new(&[]), tempfile::tempdir().unwrap());
    let server = Server::start(dir.path());
    let address = server.address("studio");
    let (status, steps) = doctor(&home, &address, None);
    let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
    let all = ["server", "access", "JetStream", "streams", "round trip", "clocks", "workers", "batches"];
    assert_eq!(names, all);
    assert!(steps.iter().all(|(_, step)| step["ok"] == true), "{steps:?}");
    assert_eq!(status, 0);
    assert!(of(&steps, "streams").contains("made now"), "{steps:?}");
    let (status, steps) = doctor(&home, &address, Some("+5h"));
    assert_eq!(status, 0, "{steps:?}");
    assert!(!of(&steps, "streams").contains("made now"), "{steps:?}");
    assert!(of(&steps, "clocks").contains("5.0 h behind"), "{steps:?}");
    assert_eq!(of(&steps, "workers"), "0 waiting for a session, 0 sessions under way");
    assert_eq!(of(&steps, "batches"), "0, 0 of them open");
    // One that is to be on three servers, and is on one.
    let (status, steps) = doctor(&home, &format!("{address}?replicas=3"), None);
    let streams = &steps.iter().find(|(name, _)| name == "streams").unwrap().1;
    assert_eq!((status, &streams["ok"], &streams["needed"]), (0, &false.into(), &false.into()), "{streams}");
    // The variable does the same as the option.
    let mut command = home.command(&["doctor"]);
    command.env("CHEMIGRAM_STORE", &address).stdout(std::process::Stdio::piped());
    let output = command.output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("✓ store round trip"));
}

#[test]
fn what_is_wrong_with_a_store_is_said_with_its_remedy() {
    let (home, dir) = (Home::new(&[]), tempfile::tempdir().unwrap());
    let start = |name: &str, config: &str| {
        let folder = dir.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("server.conf");
        std::fs::write(&file, config).unwrap();
        Server::with(&folder, &["-c", file.to_str().unwrap()])
    };
    let mut gone = start("gone", "jetstream {}");
    gone.kill();
    let plain = start("plain", "");
    let guarded = start("guarded", "jetstream {}\nauthorization { user: me, password: right }");
    let full = start("full", "jetstream { max_file_store: 100KB }");
    let of_guarded = |user: &str| guarded.address("studio").replace("nats://", &format!("nats://{user}@"));
    for (address, status, step, remedy) in [
        (gone.address("studio"), 4, "server", "nats-server -js"),
        (plain.address("studio"), 4, "JetStream", "-js -sd FOLDER"),
        (of_guarded("me:wrong"), 9, "credentials", "creds=FILE"),
        (of_guarded("me:right") + "?tls", 9, "encryption", "without `tls`"),
        (of_guarded("me:right") + "?nkey=/nowhere/seed", 9, "credentials", "a file that exists"),
        (full.address("studio"), 4, "round trip", "max_file_store"),
    ] {
        let (code, steps) = doctor(&home, &address, None);
        let (name, last) = steps.last().unwrap();
        assert_eq!((code, name.as_str()), (status, step), "{steps:?}");
        assert!(last["remedy"].as_str().unwrap().contains(remedy), "{last}");
        assert!(last["ok"] == false && last["needed"] == true, "{last}");
        assert!(!last.to_string().contains("wrong"), "{last}");
    }
    // An account with little room of its own is only remarked.
    let accounts = "jetstream {}\nno_auth_user: me\naccounts { A { jetstream { max_file: 50MB, max_mem: 1MB }, \
                    users: [ { user: me, password: right } ] } }";
    let small = start("small", accounts);
    let (status, steps) = doctor(&home, &small.address("studio"), None);
    assert_eq!(status, 0, "{steps:?}");
    assert!(of(&steps, "JetStream").contains("of the 52.4 MB that this account may have"), "{steps:?}");
}
