//! Models over HTTP, in any dialect: one call, one request, no more.

use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::timeout;

use super::cassette::{self, Lost, Player, Recorder, Recording, Slot};
use super::classify::{self, Classification};
use super::dialect::{Reading, WireConfig, count_body, request_body};
use super::limits::{self, RateLimit, Refill};
use super::profile::{Dialect, Profile, SetupError};
use super::{
    Attempt, Count, FaultClass, Message, ModelInfo, ModelReply, ModelRequest, Provider, ProviderFault, Usage,
};
use crate::gate::{ModelCall, Permit, TokenCount};
use base::clock::{Clock, SystemClock};
use base::redact::Redactor;

use incoming::Incoming;
use patience::Patience;

mod incoming;
mod patience;

/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a count is waited for.
const COUNT: Duration = Duration::from_secs(5);

/// The largest answer to a question for a count that is read.
const COUNT_BODY: usize = 64 << 10;

/// The largest body that is read. A reply is text, and has at most a few thousand tokens; a stream needs some
/// hundred bytes for each.
pub(super) const BODY: usize = 4 << 20;

/// The version of Anthropic Messages that servers are asked for whose profile names none: all that speak it know it.
const MESSAGES_VERSION: &str = "2023-06-01";

/// Statuses of a gateway that waited in vain: the model behind it may have worked all the same.
const GAVE_UP: [u16; 2] = [504, 524];

/// One model behind one address.
#[derive(Debug)]
pub struct HttpModel {
    info: ModelInfo,
    url: reqwest::Url,
    client: reqwest::Client,
    headers: HeaderMap,
    redactor: Redactor,
    key_env: Option<String>,
    config: WireConfig,
    /// The model's name at the server.
    asked: String,
    tape: Tape,
    /// What the last reply said of its limits, and when.
    limits: Mutex<Option<(Instant, Vec<RateLimit>)>>,
    /// Where input tokens are counted for nothing.
    counts_at: Option<reqwest::Url>,
}

/// Whether exchanges are recorded, or played back in place of a server.
#[derive(Debug)]
enum Tape {
    Off,
    Recording(Box<Recorder>),
    Playing(Player),
}

impl HttpModel {
    /// Makes the client; sends nothing. `url` is the whole address, the end of the dialect included.
    pub fn new(
        profile: &Profile,
        info: ModelInfo,
        url: reqwest::Url,
        key: Option<SecretString>,
    ) -> Result<Self, SetupError> {
        let failed = |cause: String| SetupError::Client { provider: profile.name.clone(), cause };
        let bad_header = |name: &str| failed(format!("header `{name}` is not legal"));
        let mut headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        if profile.dialect == Dialect::Messages {
            headers.insert("anthropic-version", HeaderValue::from_static(MESSAGES_VERSION));
        }
        for (name, value) in &profile.wire.headers {
            let legal = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
            let (name, value) = legal.ok_or_else(|| bad_header(name))?;
            headers.insert(name, value);
        }
        if let Some(key) = &key {
            let (name, value) = match profile.dialect {
                Dialect::Messages => (HeaderName::from_static("x-api-key"), key.expose_secret().to_owned()),
                _ => (AUTHORIZATION, format!("Bearer {}", key.expose_secret())),
            };
            let mut value = HeaderValue::try_from(value).map_err(|_| bad_header(name.as_str()))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let client = client(&url).map_err(|e| failed(chain(&e)))?;
        Ok(Self {
            config: WireConfig {
                dialect: profile.dialect,
                origin: format!("{}/{}", info.provider, info.model),
                vision: info.vision,
                wire: profile.wire.clone(),
                image: profile.image.clone(),
                model_body: profile.model(&info.model).map(|m| m.body.clone()).unwrap_or_default(),
            },
            redactor: Redactor::new(key),
            key_env: profile.key_env.clone(),
            asked: info.model.clone(),
            tape: Tape::Off,
            limits: Mutex::default(),
            counts_at: profile.wire.count_tokens.then(|| counts_at(&url, profile.dialect)).flatten(),
            info,
            url,
            client,
            headers,
        })
    }

    /// The same, which records what it sends and what comes back, without the keys that `redactor` knows.
    #[must_use]
    pub fn recording(mut self, record: Recording, redactor: &Redactor) -> Self {
        let WireConfig { dialect, wire, image, model_body, .. } = self.config.clone();
        let model = cassette::Model::new(self.info.clone(), dialect, wire, image, model_body);
        self.tape = Tape::Recording(Box::new(Recorder::new(record, model, &self.url, redactor.clone())));
        self
    }

    /// A model that answers from what was recorded.
    ///
    /// # Errors
    /// `folder` holds no recording of one model.
    pub fn playing(provider: &str, folder: &Path) -> Result<Self, SetupError> {
        let failed = |cause: String| SetupError::Client { provider: provider.to_owned(), cause };
        let (player, recorded) = Player::open(provider, folder)?;
        let url = reqwest::Url::parse("http://localhost/").map_err(|e| failed(e.to_string()))?;
        let cassette::Model { info, dialect, wire, image, body, .. } = recorded;
        let folder = std::path::absolute(player.folder()).map_err(|e| failed(e.to_string()))?;
        let model = folder.to_string_lossy().into_owned();
        Ok(Self {
            config: WireConfig {
                dialect,
                origin: format!("{}/{}", info.provider, info.model),
                vision: info.vision,
                wire,
                image,
                model_body: body,
            },
            redactor: Redactor::default(),
            key_env: None,
            asked: info.model.clone(),
            tape: Tape::Playing(player),
            info: ModelInfo { provider: provider.to_owned(), model, ..info },
            client: client(&url).map_err(|e| failed(chain(&e)))?,
            url,
            headers: HeaderMap::new(),
            limits: Mutex::default(),
            counts_at: None,
        })
    }

    /// Sends a request, or plays what came of it when it was recorded: the answer, and why that ended early if it did.
    async fn exchange(
        &self,
        slot: Option<&Slot>,
        session: &str,
        body: Vec<u8>,
    ) -> Result<(reqwest::Response, Option<Lost>), ProviderFault> {
        let lost = |lost: &Lost| ProviderFault {
            sent: lost.sent,
            ..self.fault(FaultClass::Transport, lost.message.clone())
        };
        if let Tape::Playing(player) = &self.tape {
            return match player.answer(session, &body) {
                Ok((Some(answer), early)) => Ok((answer, early)),
                Ok((None, early)) => Err(lost(&early.unwrap_or_default())),
                Err(miss) => Err(ProviderFault { sent: false, ..self.fault(FaultClass::BadRequest, miss) }),
            };
        }
        let limit = Duration::from_secs(self.config.wire.first_byte_seconds);
        let post = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let answer = match timeout(limit, post.send()).await {
            Err(_) => Err(self.lost(format!("sent nothing for {limit:?}"))),
            Ok(answer) => answer.map_err(|e| self.transport(&e)),
        };
        if let (Tape::Recording(recorder), Some(slot), Err(fault)) = (&self.tape, slot, &answer) {
            let _ = recorder.reply(slot, None, &[], Some(fault));
        }
        answer.map(|answer| (answer, None))
    }

    async fn send(&self, request: &ModelRequest<'_>) -> Result<ModelReply, ProviderFault> {
        let request = &ModelRequest { model: &self.asked, ..*request };
        let body = request_body(&self.config, request)
            .map_err(|e| self.fault(FaultClass::BadRequest, format!("a picture cannot be read: {e}")))
            .map_err(|fault| ProviderFault { sent: false, ..fault })?;
        let recorded = self.record(request.session, &body).map_err(|fault| *fault)?;
        let started = Instant::now();
        let (answer, early) = self.exchange(recorded.as_ref(), request.session, body).await?;

        let status = answer.status();
        let head = answer.headers().clone();
        let streams = status.is_success()
            && head.get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"text/event-stream"));
        let reading = Reading::new(self.config.dialect);
        let mut incoming = Incoming::new(streams, reading);
        let mut end = self.read(answer, &mut incoming, started, request.on_progress).await;
        if let (Tape::Recording(recorder), Some(slot)) = (&self.tape, &recorded) {
            let (head, fault) = (Some((status.as_u16(), &head)), end.as_ref().err());
            // The reply is paid for; that it is not kept is no reason to lose it.
            if let Err(error) = recorder.reply(slot, head, &incoming.raw, fault) {
                incoming.note = Some(format!("this reply is not recorded: {error}"));
            }
        }
        if let Some(early) = early {
            end = Err(self.fault(FaultClass::Transport, early.message));
        }
        if !status.is_success() {
            // What came of an error's body is enough to judge it by.
            return Err(self.refused(status.as_u16(), &head, incoming.raw));
        }
        let limits = limits::read(&head, SystemClock.wall());
        // Of a recording they were limits of another day.
        if !limits.is_empty() && !matches!(self.tape, Tape::Playing(_)) {
            *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), limits));
        }
        if let Err(mut fault) = end {
            fault.status = Some(status.as_u16());
            fault.usage = incoming.draft.usage();
            fault.raw = self.clean_bytes(incoming.raw);
            return Err(fault);
        }
        let first_byte = incoming.first_byte;
        self.apart(&mut incoming, Incoming::finish).await?;
        let raw = self.clean_bytes(std::mem::take(&mut incoming.raw));
        match incoming.verdict() {
            Err(verdict) => Err(ProviderFault {
                status: Some(status.as_u16()),
                usage: incoming.draft.usage(),
                // An error in place of a reply is a refusal, whatever its status.
                sent: !incoming.reported_error || incoming.draft.said_anything(),
                raw,
                ..self.judged(verdict)
            }),
            Ok(note) => {
                let mut decoded = incoming.draft.decode(&self.config, request);
                decoded.notes.extend(note.into_iter().chain(incoming.note.take()));
                Ok(ModelReply {
                    message: self.clean(decoded.message),
                    finish: decoded.finish,
                    usage: decoded.usage,
                    cost_micro_usd: decoded.cost_micro_usd,
                    model_served: decoded.model_served,
                    raw,
                    first_byte,
                    notes: decoded.notes,
                })
            }
        }
    }

    /// Records a request before it is sent: where its reply is recorded, too.
    fn record(&self, session: &str, body: &[u8]) -> Result<Option<Slot>, Box<ProviderFault>> {
        let Tape::Recording(recorder) = &self.tape else { return Ok(None) };
        recorder.request(session, &self.headers, body).map(Some).map_err(|error| {
            let message =
                format!("nothing can be recorded in {}: {error}", recorder.folder(session).display());
            Box::new(ProviderFault { sent: false, ..self.fault(FaultClass::BadRequest, message) })
        })
    }

    /// Asks how many input tokens the request has.
    async fn ask_count(&self, request: &ModelRequest<'_>) -> Option<u64> {
        let body = count_body(&self.config, request).ok()?;
        let post = self.client.post(self.counts_at.clone()?).headers(self.headers.clone());
        let answer = post.timeout(COUNT).body(body).send().await.ok();
        let mut answer = answer.filter(|answer| answer.status().is_success())?;
        let mut read = Vec::new();
        while let Some(chunk) = answer.chunk().await.ok()? {
            read.extend_from_slice(&chunk);
            if read.len() > COUNT_BODY {
                return None;
            }
        }
        serde_json::from_slice::<Value>(&read).ok()?.get("input_tokens")?.as_u64()
    }

    /// Reads the body to its end, or to the end of its stream.
    async fn read(
        &self,
        mut answer: reqwest::Response,
        incoming: &mut Incoming,
        started: Instant,
        on_progress: &(dyn Fn(usize, &str) + Send + Sync),
    ) -> Result<(), ProviderFault> {
        let wire = &self.config.wire;
        let mut patience = Patience::new(started, wire.first_byte_seconds, wire.idle_seconds);
        loop {
            let piece = timeout(patience.left(Instant::now()), answer.chunk()).await;
            let piece = piece.map_err(|_| self.lost(patience.words(Instant::now())))?;
            let Some(piece) = piece.map_err(|e| self.transport(&e))? else { return Ok(()) };
            incoming.first_byte.get_or_insert_with(|| started.elapsed());
            if incoming.raw.len() + piece.len() > BODY {
                let message = format!("the body has more than {BODY} bytes");
                return Err(self.fault(FaultClass::Garbage, message));
            }
            let before = incoming.events;
            self.apart(incoming, move |incoming| incoming.push(&piece)).await?;
            patience.came(Instant::now(), incoming.events > before);
            let text = self.redactor.clean(incoming.draft.text().to_owned());
            on_progress(incoming.draft.size(), &text);
            if incoming.ended() {
                return Ok(());
            }
        }
    }

    /// Works on what came, off the thread that watches the deadline.
    async fn apart(
        &self,
        incoming: &mut Incoming,
        work: impl FnOnce(&mut Incoming) + Send + 'static,
    ) -> Result<(), ProviderFault> {
        let mut own = std::mem::take(incoming);
        let done = tokio::task::spawn_blocking(move || {
            work(&mut own);
            own
        });
        *incoming = done
            .await
            .map_err(|e| self.fault(FaultClass::Garbage, format!("the reply could not be read: {e}")))?;
        Ok(())
    }

    /// Judges an answer that is no success.
    fn refused(&self, status: u16, head: &HeaderMap, raw: Vec<u8>) -> ProviderFault {
        let raw = self.clean_bytes(raw);
        let mut fault = self.judged(classify::http(status, head, &raw, SystemClock.wall()));
        fault.status = Some(status);
        fault.sent = GAVE_UP.contains(&status);
        fault.raw = raw;
        match status {
            300..=399 => {
                fault.message.push_str(": the address has moved, and redirects are not followed");
                fault.remedy = Some("set base_url to the new address".to_owned());
            }
            404 | 405 => {
                fault.remedy = Some(format!(
                    "check --model {} and the address {}",
                    self.info.model,
                    self.url.authority()
                ));
            }
            _ => {}
        }
        fault
    }

    fn judged(&self, verdict: Classification) -> ProviderFault {
        let remedy = match verdict.class {
            FaultClass::Auth => Some(match &self.key_env {
                Some(name) => format!("check the key in {name}"),
                None => "this server needs a key; set key_env to the name of its variable".to_owned(),
            }),
            FaultClass::Quota => Some("add credit, or raise the limit, at the provider".to_owned()),
            FaultClass::TooLarge => Some("a model with a larger context, or smaller previews".to_owned()),
            FaultClass::BadRequest if verdict.message.contains("reasoning_effort") => Some(
                "this model takes tools only with reasoning_effort = \"none\", or not over this dialect"
                    .to_owned(),
            ),
            FaultClass::BadRequest if verdict.message.contains("image input is not supported") => {
                Some("set vision = false for this model, or load its vision part".to_owned())
            }
            _ => None,
        };
        ProviderFault {
            remedy,
            retry_after: verdict.retry_after,
            ..self.fault(verdict.class, verdict.message)
        }
    }

    fn lost(&self, why: String) -> ProviderFault {
        self.fault(FaultClass::Transport, format!("{} {why}", self.url.authority()))
    }

    fn transport(&self, error: &reqwest::Error) -> ProviderFault {
        let host = self.url.authority();
        let mut fault = if error.is_connect() {
            self.fault(FaultClass::Transport, format!("{host} cannot be reached: {}", chain(error)))
        } else {
            self.fault(FaultClass::Transport, format!("the connection to {host} was lost: {}", chain(error)))
        };
        if error.is_connect() {
            fault.sent = false;
            fault.remedy = Some(format!("is the server at {host} running?"));
        }
        fault
    }

    fn fault(&self, class: FaultClass, message: String) -> ProviderFault {
        ProviderFault {
            provider: self.info.provider.clone(),
            class,
            status: None,
            message: self.redactor.clean(message),
            remedy: None,
            retry_after: None,
            sent: true,
            usage: Usage::default(),
            raw: Vec::new(),
        }
    }

    /// A body without the key, should the server echo it. One that is not UTF-8 holds no reply, and is kept
    /// as far as it can be read.
    fn clean_bytes(&self, raw: Vec<u8>) -> Vec<u8> {
        let text =
            String::from_utf8(raw).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        self.redactor.clean(text).into_bytes()
    }

    /// The message without the key, should the model have been told it.
    fn clean(&self, mut message: Message) -> Message {
        if let Message::Assistant { text, calls, opaque } = &mut message {
            for block in opaque {
                let before = block.block.to_string();
                let clean = self.redactor.clean(before.clone());
                if clean != before {
                    block.block = serde_json::from_str(&clean).unwrap_or_default();
                }
            }
            *text = self.redactor.clean(std::mem::take(text));
            for call in calls {
                call.arguments = self.redactor.clean(std::mem::take(&mut call.arguments));
            }
        }
        message
    }
}

impl Provider for HttpModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn refill(&self, sent: u64, fresh: u64) -> Option<Refill> {
        let told = self.limits.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (at, limits) = told?;
        let refills = limits.iter().filter_map(|limit| limit.refill(sent, fresh));
        let longest = refills.max_by_key(|refill| refill.pause)?;
        let pause = longest.pause.saturating_sub(at.elapsed());
        Some(Refill { pause, ..longest }).filter(|refill| !refill.pause.is_zero())
    }

    fn counts(&self) -> bool {
        // A count is not recorded, and where it is missing the limit of a reply may be another.
        self.counts_at.is_some() && matches!(self.tape, Tape::Off)
    }

    fn count<'a>(&'a self, _permit: Permit<TokenCount>, request: &'a ModelRequest<'a>) -> Count<'a> {
        Box::pin(self.ask_count(request))
    }

    fn attempt<'a>(&'a self, _permit: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        Box::pin(self.send(request))
    }
}

/// Where a server counts the input tokens of a request, beside where it answers it.
fn counts_at(url: &reqwest::Url, dialect: Dialect) -> Option<reqwest::Url> {
    let end = match dialect {
        Dialect::Messages => "count_tokens",
        Dialect::Responses => "input_tokens",
        _ => return None,
    };
    let mut url = url.clone();
    url.path_segments_mut().ok()?.push(end);
    Some(url)
}

/// The HTTP client: no redirects (a key must not travel to another host), no retries of its own (each
/// attempt needs a permit), no proxy for a server on this machine.
pub(crate) fn client(url: &reqwest::Url) -> Result<reqwest::Client, reqwest::Error> {
    static RING: Once = Once::new();
    RING.call_once(|| {
        // An error means that another part of the process chose a provider before; that one serves too.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let builder = reqwest::Client::builder()
        .user_agent(concat!("chemigram/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT);
    if is_loopback(url) { builder.no_proxy().build() } else { builder.build() }
}

/// Whether a server is on this machine.
pub(super) fn is_loopback(url: &reqwest::Url) -> bool {
    match url.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(host) => host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback()),
        None => false,
    }
}

/// An error with its causes, without the address (which the caller names).
fn chain(error: &reqwest::Error) -> String {
    let mut parts = Vec::new();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        parts.push(cause.to_string());
        source = cause.source();
    }
    // The innermost cause is the one that means something to a person.
    parts.pop().unwrap_or_else(|| "no cause given".to_owned())
}

#[cfg(test)]
mod tests;
