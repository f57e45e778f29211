//! Chromium without a window, driven by chromedriver over plain HTTP. `scripts/install-browser.sh` installs both.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The keys that have no character.
pub const ENTER: &str = "\u{e007}";
pub const ESCAPE: &str = "\u{e00c}";
pub const RIGHT: &str = "\u{e014}";

pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.ask("DELETE", "", &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    pub fn start(dark: bool) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("chromedriver: {e}; run scripts/install-browser.sh"));
        // It says when it listens.
        let mut said = BufReader::new(driver.stdout.take().unwrap()).lines();
        said.by_ref()
            .find(|line| line.as_ref().is_ok_and(|line| line.contains("started successfully")))
            .unwrap()
            .unwrap();
        std::thread::spawn(move || said.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let mut args: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
        ]
        .map(str::to_owned)
        .into();
        args.push(format!("--user-data-dir={}", profile.path().display()));
        if dark {
            args.push("--blink-settings=preferredColorScheme=0".into());
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": { "args": args },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let mut browser = Self { driver, port, session: String::new(), _profile: profile };
        let made = browser.ask("POST", "/session", &wanted).unwrap();
        browser.session = made["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        browser
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> std::io::Result<Value> {
        let path = if self.session.is_empty() {
            path.to_owned()
        } else {
            format!("/session/{}{path}", self.session)
        };
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let (mut reader, mut length) = (BufReader::new(stream), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = n.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes)?;
        let answer: Value = serde_json::from_slice(&bytes).map_err(std::io::Error::other)?;
        Ok(answer["value"].clone())
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let value = self.ask("POST", path, body).unwrap();
        assert!(value["error"].is_null(), "{path}: {value}");
        value
    }

    pub fn open(&self, page: &Path) {
        self.post("/url", &json!({ "url": format!("file://{}", page.display()) }));
        // The answer can come before the page's script has run.
        let until = Instant::now() + Duration::from_secs(60);
        while self.run("return document.readyState") != "complete" {
            assert!(Instant::now() < until, "{} is not loaded", page.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// As wide as a screen of this many pixels.
    pub fn width(&self, width: u32) {
        let params = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.post(
            "/goog/cdp/execute",
            &json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": params }),
        );
    }

    /// What a script returns.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// What a script hands to `done`.
    pub fn wait(&self, script: &str) -> Value {
        let script = format!("const done = arguments[0]; {script}");
        self.post("/execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Presses keys, one after the other.
    pub fn press(&self, keys: &[&str]) {
        let strokes: Vec<Value> = keys
            .iter()
            .flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({ "type": what, "value": key })))
            .collect();
        self.post("/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": strokes }] }));
    }

    /// Clicks the first element that a selector finds.
    pub fn click(&self, selector: &str) {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        let id = found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        self.post(&format!("/element/{id}/click"), &json!({}));
    }

    /// Presses the mouse at one point of the window, moves it to another and lets go.
    pub fn drag(&self, from: (u32, u32), to: (u32, u32)) {
        let at = |(x, y): (u32, u32)| json!({ "type": "pointerMove", "duration": 0, "x": x, "y": y });
        let button = |what: &str| json!({ "type": what, "button": 0 });
        let moves = [at(from), button("pointerDown"), at(to), button("pointerUp")];
        let mouse = json!({ "type": "pointer", "id": "mouse", "actions": moves });
        self.post("/actions", &json!({ "actions": [mouse] }));
    }

    /// Turns the wheel over a point of the window.
    pub fn scroll(&self, (x, y): (u32, u32), by: i32) {
        let turn = json!({ "type": "scroll", "duration": 0, "x": x, "y": y, "deltaX": 0, "deltaY": by });
        let wheel = json!({ "type": "wheel", "id": "wheel", "actions": [turn] });
        self.post("/actions", &json!({ "actions": [wheel] }));
    }

    /// The window as a PNG.
    pub fn screenshot(&self) -> Vec<u8> {
        let taken = self.ask("GET", "/screenshot", &Value::Null).unwrap();
        STANDARD.decode(taken.as_str().unwrap_or_else(|| panic!("{taken}"))).unwrap()
    }

    /// What the console holds since it was last asked.
    pub fn console(&self) -> Vec<Value> {
        self.post("/se/log", &json!({ "type": "browser" })).as_array().unwrap().clone()
    }

    /// The addresses that pages asked for, without those of the browser's own.
    pub fn requests(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({ "type": "performance" }));
        let lines = log.as_array().unwrap().iter();
        let messages =
            lines.map(|line| serde_json::from_str::<Value>(line["message"].as_str().unwrap()).unwrap());
        let asked = messages.filter(|m| m["message"]["method"] == "Network.requestWillBeSent");
        let addresses = asked.map(|m| m["message"]["params"]["request"]["url"].as_str().unwrap().to_owned());
        addresses.filter(|address| !address.starts_with("chrome")).collect()
    }
}
