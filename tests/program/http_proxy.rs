//! What goes to a proxy that the environment names, and what never does.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is the failure of its test")]

use crate::home;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

const KEY: &str = "sk-canary-7f3a9b2c5d";

/// A proxy that takes what it is sent, answers 502, and tells what it saw: the head, and the body of what it could
/// read.
fn proxy() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (mut reader, mut stream) = (BufReader::new(stream.try_clone().unwrap()), stream);
            let (mut seen, mut length) = (String::new(), 0);
            loop {
                let from = seen.len();
                let read = reader.read_line(&mut seen).unwrap_or(0);
                let line = seen.get(from..).unwrap_or_default().trim_end().to_ascii_lowercase();
                if read == 0 || line.is_empty() {
                    break;
                }
                length = line.strip_prefix("content-length:").map_or(length, |n| n.trim().parse().unwrap());
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_ok() {
                seen.push_str(&String::from_utf8_lossy(&body));
            }
            let _ = tell.send(seen);
            let _ = stream.write_all(b"HTTP/1.1 502 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    (url, told)
}

/// Asks a provider at `url` once, with these variables, and says what the program said.
fn check(url: &str, key: bool, variables: &[(&str, &str)]) -> String {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("config/chemigram/providers");
    std::fs::create_dir_all(&folder).unwrap();
    let key_env = if key { "key_env = \"MINE_API_KEY\"\n" } else { "" };
    let text = format!(
        "name = \"mine\"\nsummary = \"\"\ndialect = \"openai_chat\"\nbase_url = \"{url}\"\n{key_env}\
         default_model = \"m\"\n[other_models]\nvision = true\n[wire]\nfirst_byte_seconds = 20\n"
    );
    std::fs::write(folder.join("mine.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
    home::settle(&mut command, home.path());
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_ascii_lowercase());
    }
    command.env("MINE_API_KEY", KEY).envs(variables.iter().copied());
    let output = command.args(["providers", "check", "mine"]).output().unwrap();
    assert!(!output.status.success(), "nobody is there to answer");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn an_encrypted_provider_is_reached_through_a_tunnel_that_shows_the_host_alone() {
    for variable in ["HTTPS_PROXY", "ALL_PROXY", "https_proxy"] {
        let (url, told) = proxy();
        check("https://provider.invalid/v1", true, &[(variable, &url), ("HTTP_PROXY", "http://127.0.0.1:9")]);
        let seen = told.recv().unwrap();
        assert!(seen.starts_with("CONNECT provider.invalid:443 HTTP/1.1\r\n"), "{variable}: {seen}");
        assert!(!seen.contains(KEY) && !seen.contains("/v1"), "{variable}: {seen}");
    }
}

#[test]
fn an_unencrypted_provider_is_read_by_the_proxy_and_gets_no_key() {
    let (url, told) = proxy();
    check("http://provider.invalid/v1", false, &[("HTTP_PROXY", &url)]);
    let seen = told.recv().unwrap();
    assert!(seen.starts_with("POST http://provider.invalid/v1/chat/completions HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("\"messages\"") && !seen.contains(KEY), "{seen}");

    let (url, told) = proxy();
    let refused = check("http://provider.invalid/v1", true, &[("HTTP_PROXY", &url), ("ALL_PROXY", &url)]);
    assert!(refused.contains("insecure_http = true"), "{refused}");
    assert!(told.try_recv().is_err(), "the key's provider was asked all the same");
}

#[test]
fn this_machine_and_what_no_proxy_names_are_reached_without_one() {
    let (url, told) = proxy();
    let everything = [("HTTP_PROXY", url.as_str()), ("HTTPS_PROXY", &url), ("ALL_PROXY", &url)];
    // Nobody listens on the ports of the first three, and nobody answers to the name of the last.
    for near in ["http://127.0.0.1:9/v1", "http://localhost:9/v1", "https://127.0.0.2:9/v1"] {
        check(near, false, &everything);
    }
    check(
        "https://provider.invalid/v1",
        false,
        &[&everything[..], &[("NO_PROXY", "provider.invalid")]].concat(),
    );
    assert!(told.try_recv().is_err(), "the proxy was asked");
}
