//! What goes wrong around a store, end to end: who may not enter, servers without JetStream, without room, with
//! certificates, of a cluster; workers with another darktable and another clock. Errors are told, and nothing is lost.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chemigram::transcript::Outcome;
use nkeys::KeyPair;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::many_machines::{Studio, ended, until};
use crate::overnight::{Home, script};
use testkit::nats::Server;

/// Gives a process a clock that differs by so much, such as `+5h`: what it measures stays as it is.
pub fn shifted(command: &mut Command, by: &str) {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let found =
        folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    command.env("LD_PRELOAD", found.expect("no libfaketime: run scripts/install-nats.sh"));
    command.env("FAKETIME", by);
    for name in
        ["DONT_FAKE_MONOTONIC", "FAKETIME_DONT_FAKE_MONOTONIC", "NO_FAKE_STAT", "FAKETIME_DISABLE_SHM"]
    {
        command.env(name, "1");
    }
}

fn server(folder: &Path, config: &str) -> Server {
    std::fs::create_dir_all(folder).unwrap();
    let file = folder.join("server.conf");
    std::fs::write(&file, config).unwrap();
    Server::with(folder, &["-c", file.to_str().unwrap()])
}

/// A batch of one session that waits so long, in milliseconds, before it judges its branch.
fn one(home: &Home, pause: u64) {
    home.write("script.toml", script("Open.", pause));
    home.plan("branches = 1\ntime = \"1h\"", "[[session]]\nphoto = \"cup\"\n");
}

fn undisturbed() -> Vec<String> {
    let home = Home::new(&["cup"]);
    one(&home, 0);
    assert_eq!(home.overnight(&[]), 0);
    home.branches()
}

/// Everything that uses a store, each of which must end with this status and these words.
fn refused(home: &Home, address: &str, status: i32, words: &[&str]) {
    let plan = home.path("plan.toml");
    let each: [&[&str]; 3] =
        [&["overnight", plan.to_str().unwrap()], &["worker", "--until-empty"], &["batch", "list"]];
    for verb in each {
        let output = home.run(&[verb, &["--store", address]].concat());
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{verb:?} {told}");
        for word in words {
            assert!(told.contains(word), "{verb:?} without `{word}`: {told}");
        }
        assert!(!told.contains("guess"), "{told}");
    }
}

fn enters(home: &Home, address: &str) -> Output {
    let output = home.run(&["batch", "list", "--store", address, "--json"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[]", "{output:?}");
    output
}

#[test]
fn who_may_not_enter_is_told_so_and_which_file_is_missing() {
    let (home, dir) = (Home::new(&["cup"]), tempfile::tempdir().unwrap());
    one(&home, 0);
    let (mine, other) = (KeyPair::new_user(), KeyPair::new_user());
    home.write("mine", mine.seed().unwrap());
    home.write("other", other.seed().unwrap());
    let users = format!("{{ user: me, password: right }}, {{ nkey: {} }}", mine.public_key());
    let server = server(dir.path(), &format!("jetstream {{}}\nauthorization {{ users: [ {users} ] }}"));
    let with = |user: &str| server.address("studio").replace("nats://", &format!("nats://{user}@"));
    let key = |name: &str| format!("{}?nkey={}", server.address("studio"), home.path(name).display());
    enters(&home, &with("me:right"));
    enters(&home, &key("mine"));
    let words = ["refuses these credentials", "creds=FILE"];
    for address in [with("me:guess"), server.address("studio"), key("other")] {
        refused(&home, &address, 9, &words);
    }
    refused(&home, &key("nowhere"), 9, &["cannot be used", "a file that exists"]);
    home.write("broken", "no seed");
    let output = home.run(&["batch", "list", "--store", &key("broken")]);
    assert_eq!(output.status.code(), Some(9), "{output:?}");
}

/// A token of NATS: claims that an issuer signs.
fn token(issuer: &KeyPair, subject: &str, name: &str, mut claims: Value) -> String {
    claims["version"] = 2.into();
    let body = json!({ "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "name": name,
                       "sub": subject, "nats": claims });
    let head = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&head), part(&body));
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

fn credentials(account: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let claims = json!({ "type": "user", "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {} });
    let token = token(account, &user.public_key(), "worker", claims);
    let seed = user.seed().unwrap();
    format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

#[test]
fn a_credentials_file_opens_the_store_of_its_account() {
    let (home, dir) = (Home::new(&[]), tempfile::tempdir().unwrap());
    let (operator, system, studio) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let account = |pair: &KeyPair, room: i64| {
        let limits = json!({ "subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1,
                             "payload": -1, "wildcards": true, "mem_storage": room, "disk_storage": room,
                             "streams": -1, "consumer": -1 });
        token(&operator, &pair.public_key(), "account", json!({ "type": "account", "limits": limits }))
    };
    let own = token(&operator, &operator.public_key(), "studio", json!({ "type": "operator" }));
    let config = format!(
        "jetstream {{}}\noperator: {own}\nsystem_account: {0}\nresolver: MEMORY\n\
         resolver_preload: {{ {0}: {1}, {2}: {3} }}\n",
        system.public_key(),
        account(&system, 0),
        studio.public_key(),
        account(&studio, 1 << 30),
    );
    let server = server(dir.path(), &config);
    home.write("mine.creds", credentials(&studio));
    home.write("stranger.creds", credentials(&KeyPair::new_account()));
    let with = |name: &str| format!("{}?creds={}", server.address("studio"), home.path(name).display());
    enters(&home, &with("mine.creds"));
    let told = home.run(&["batch", "list", "--store", &with("stranger.creds")]);
    assert_eq!(told.status.code(), Some(9), "{told:?}");
}

/// An authority, and a certificate of it for 127.0.0.1 with its key: files in `folder`.
fn certificates(folder: &Path) -> [PathBuf; 3] {
    std::fs::create_dir_all(folder).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = authority.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, key);
    let own = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&own, &issuer).unwrap().pem();
    let files = ["ca.pem", "server.pem", "server.key"].map(|name| folder.join(name));
    for (file, text) in files.iter().zip([ca, leaf, own.serialize_pem()]) {
        std::fs::write(file, text).unwrap();
    }
    files
}

#[test]
fn a_server_with_a_certificate_is_entered_by_who_knows_its_authority() {
    let (home, dir) = (Home::new(&["cup"]), tempfile::tempdir().unwrap());
    one(&home, 0);
    let [ca, certificate, key] = certificates(&dir.path().join("own"));
    let [wrong, ..] = certificates(&dir.path().join("wrong"));
    let tls = format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}");
    let server = server(&dir.path().join("server"), &format!("jetstream {{}}\n{tls}"));
    let address = server.address("studio");
    let with = |ca: &Path| format!("{address}?ca={}", ca.display());
    enters(&home, &with(&ca));
    enters(&home, &with(&ca).replace("nats://", "tls://"));
    let words = ["no encrypted connection", "invalid peer certificate", "ca=FILE"];
    refused(&home, &with(&wrong), 9, &words);
    refused(&home, &address, 9, &words);
}

#[test]
fn a_server_without_jetstream_is_said_to_be_one() {
    let (home, dir) = (Home::new(&["cup"]), tempfile::tempdir().unwrap());
    one(&home, 0);
    let server = server(dir.path(), "");
    refused(&home, &server.address("studio"), 4, &["without JetStream", "-js"]);
}

/// Lets the server have so many kilobytes of files from now on.
fn limit(studio: &mut Studio, kilobytes: u64) {
    let config = format!("jetstream {{ max_file_store: {kilobytes}KB, max_memory_store: 1MB }}");
    std::fs::write(studio.storage.path().join("server.conf"), config).unwrap();
    studio.server.restart();
}

#[test]
fn a_full_store_refuses_a_plan_and_holds_a_session_up_and_nothing_is_lost() {
    let storage = tempfile::tempdir().unwrap();
    let tight = server(storage.path(), "jetstream { max_file_store: 200KB, max_memory_store: 1MB }");
    let mut studio = Studio::on(tight, storage, &["cup"]);
    one(&studio.home, 3000);
    let output = ended(studio.submit());
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains("is full") && told.contains("max_file_store"), "{told}");
    // With room, the same plan is submitted as if nothing had been.
    limit(&mut studio, 50_000);
    studio.worker("one", &[]);
    let submitted = studio.submit();
    until("an edit", || studio.edited("one"));
    limit(&mut studio, 100);
    until("a full store", || studio.log("one").contains("waits for room"));
    limit(&mut studio, 50_000);
    let output = ended(submitted);
    assert_eq!(output.status.code(), Some(0), "{output:?}\n{}", studio.logs());
    assert_eq!(studio.home.outcomes(), [(0, Outcome::Completed)]);
    assert_eq!(studio.home.branches(), undisturbed());
    assert_eq!(studio.counted(), studio.spent());
    assert_eq!(studio.spent().model_calls, 5, "nothing was paid twice");
    assert_eq!(studio.show()["jobs"][0]["claims"], 1);
}

#[test]
fn a_cluster_that_loses_a_server_goes_on() {
    let storage = tempfile::tempdir().unwrap();
    let mut servers = Server::cluster(storage.path(), 3);
    let mut studio = Studio::on(servers.remove(0), storage, &["cup"]);
    studio.query = "?replicas=3".to_owned();
    one(&studio.home, 4000);
    let address = studio.address();
    until("a cluster", || studio.home.status(&["batch", "list", "--store", &address]) == 0);
    studio.worker("one", &[]);
    let submitted = studio.submit();
    until("an edit", || studio.edited("one"));
    // The one that worker and submitter are connected to.
    std::mem::swap(&mut studio.server, &mut servers[0]);
    servers[0].kill();
    let output = ended(submitted);
    assert_eq!(output.status.code(), Some(0), "{output:?}\n{}", studio.logs());
    assert_eq!(studio.home.outcomes(), [(0, Outcome::Completed)]);
    assert_eq!(studio.home.branches(), undisturbed());
    until("an answer of the others", || studio.show()["state"] == "over");
    assert_eq!(studio.counted(), studio.spent());
    // Each is answered, whichever server the others would have given it to.
    let address = studio.address();
    let list = ["batch", "list", "--store", &address];
    let answers: Vec<i32> = (0..20).map(|_| studio.home.status(&list)).collect();
    assert_eq!(answers, [0; 20]);
}

#[test]
fn a_worker_with_another_darktable_declines_and_leaves_the_batch_to_others() {
    let mut studio = Studio::new(&["cup"]);
    one(&studio.home, 0);
    let real = testkit::kept::darktable();
    let (other, real) = (studio.home.path("darktable-cli"), real.path().display().to_string());
    // The real one, under another number.
    let number = r"s/(darktable(-cli)? [0-9]+\.[0-9]+)\.[0-9]+/\1.77/";
    let wrapped = format!(
        "#!/bin/sh\ncase \"$*\" in *--version*) '{real}' \"$@\" | sed -E '{number}'; exit;; esac\nexec '{real}' \"$@\"\n"
    );
    std::fs::write(&other, wrapped).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).unwrap();
    let submitted = studio.submit();
    until("a batch", || studio.show()["state"] == "open");
    let prepare = |command: &mut Command| _ = command.env("CHEMIGRAM_DARKTABLE_CLI", &other);
    studio.worker_with("other", &["--until-empty"], prepare);
    // It has nothing to do, and ends.
    let status = ended(studio.workers.remove(0)).status;
    let told = studio.log("other");
    assert!(status.success() && told.contains("declines the batch") && told.contains(".77"), "{told}");
    let jobs = studio.show()["jobs"].clone();
    assert_eq!((&jobs[0]["state"], &jobs[0]["claims"]), (&"waiting".into(), &0.into()), "{jobs}");
    studio.worker("right", &[]);
    assert_eq!(ended(submitted).status.code(), Some(0), "{}", studio.logs());
    assert_eq!(studio.show()["jobs"][0]["worker"], "right");
    assert_eq!(studio.home.branches(), undisturbed());
}

#[test]
fn clocks_that_are_ten_hours_apart_change_nothing() {
    let mut studio = Studio::new(&["cup"]);
    one(&studio.home, 3000);
    studio.worker_with("ahead", &[], |command| shifted(command, "+5h"));
    let submitted = studio.submit();
    until("an edit", || studio.edited("ahead"));
    let pid = i32::try_from(studio.workers[0].id()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    assert!(ended(studio.workers.remove(0)).status.success(), "{}", studio.logs());
    studio.worker_with("behind", &[], |command| shifted(command, "-5h"));
    let output = ended(submitted);
    assert_eq!(output.status.code(), Some(0), "{output:?}\n{}", studio.logs());
    assert_eq!(studio.home.outcomes(), [(0, Outcome::Completed)]);
    assert_eq!(studio.home.branches(), undisturbed());
    let job = studio.show()["jobs"][0].clone();
    assert_eq!((&job["worker"], &job["claims"]), (&"behind".into(), &2.into()), "{job}");
    assert_eq!((studio.counted(), studio.spent().model_calls), (studio.spent(), 5));
    // The lines were written by both clocks.
    let (photo, id, _) = studio.home.batch().unwrap().tracks()[0].session.clone().unwrap();
    let folder = studio.home.library().open(&photo).unwrap().session_folder(&id);
    let text = std::fs::read_to_string(folder.join("transcript.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let stamps: Vec<jiff::Timestamp> =
        lines.filter_map(|line| line["t"].as_str().and_then(|at| at.parse().ok())).collect();
    let apart = stamps[0].duration_since(*stamps.last().unwrap());
    assert!(apart.as_hours() >= 9, "{apart:?}");
}
