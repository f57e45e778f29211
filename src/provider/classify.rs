//! What went wrong, in classes that decide whether another attempt may help.
//!
//! A status alone does not say: "no money" comes as 429 from two houses, a permanent fault as 500 from a
//! third. So the words of the body are read first where they are telling, then its codes, then the status.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;

use super::{FaultClass, limits};

/// The class of a failed attempt, with what to tell about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classification {
    /// The class.
    pub class: FaultClass,
    /// The cause in one line.
    pub message: String,
    /// The least pause that the provider asks for.
    pub retry_after: Option<Duration>,
}

/// Words that settle the class whatever the status says (lower case).
const TELLING_WORDS: &[(&str, FaultClass)] = &[
    ("context size", FaultClass::TooLarge),
    ("context length", FaultClass::TooLarge),
    ("context window", FaultClass::TooLarge),
    ("prompt is too long", FaultClass::TooLarge),
    ("request too large", FaultClass::TooLarge),
    ("failed to parse", FaultClass::BadRequest),
    ("image input is not supported", FaultClass::BadRequest),
    ("spend limit", FaultClass::Quota),
    ("usage limit", FaultClass::Quota),
    ("credit balance", FaultClass::Quota),
    ("insufficient credits", FaultClass::Quota),
    ("insufficient balance", FaultClass::Quota),
    ("invalid api key", FaultClass::Auth),
    ("incorrect api key", FaultClass::Auth),
    ("api key not valid", FaultClass::Auth),
    ("content policy", FaultClass::Refused),
    ("content management policy", FaultClass::Refused),
];

/// Codes and types that settle the class whatever the status says (lower case).
const TELLING_CODES: &[(&str, FaultClass)] = &[
    ("insufficient_quota", FaultClass::Quota),
    ("credit_balance_exhausted", FaultClass::Quota),
    ("billing_hard_limit_reached", FaultClass::Quota),
    ("billing_not_active", FaultClass::Quota),
    ("billing_error", FaultClass::Quota),
    ("enforced_spend_limit_reached", FaultClass::Quota),
    ("exceed_context_size_error", FaultClass::TooLarge),
    ("context_length_exceeded", FaultClass::TooLarge),
    ("request_too_large", FaultClass::TooLarge),
    ("image_dimensions_too_large", FaultClass::TooLarge),
    ("invalid_api_key", FaultClass::Auth),
    ("authentication_error", FaultClass::Auth),
    ("permission_error", FaultClass::Auth),
    ("content_filter", FaultClass::Refused),
    ("content_policy_violation", FaultClass::Refused),
    ("rate_limit_exceeded", FaultClass::RateLimit),
    ("rate_limit_error", FaultClass::RateLimit),
    ("slow_down", FaultClass::RateLimit),
    ("server_is_overloaded", FaultClass::Transient),
    ("overloaded_error", FaultClass::Transient),
];

/// Codes and types that count only where no status came (an error inside a 200, or in a stream).
const VAGUE_CODES: &[(&str, FaultClass)] = &[
    ("invalid_request_error", FaultClass::BadRequest),
    ("not_found_error", FaultClass::BadRequest),
    ("model_not_found", FaultClass::BadRequest),
];

/// Longest message that is passed on, in characters.
const MESSAGE: usize = 400;

/// The class of an HTTP answer that is not a success.
pub fn http(status: u16, headers: &HeaderMap, body: &[u8], now: jiff::Timestamp) -> Classification {
    let retry_after = retry_after(headers, now);
    let mut verdict = match serde_json::from_slice::<Value>(body) {
        Ok(value) => judge(Some(status), &value, retry_after.is_some()),
        Err(_) => {
            let text = plain(&String::from_utf8_lossy(body));
            Classification { class: by_status(status, false), message: text, retry_after: None }
        }
    };
    let refills = || refill(headers, now).filter(|_| verdict.class == FaultClass::RateLimit);
    verdict.retry_after = retry_after.or_else(refills);
    verdict.message = if verdict.message.is_empty() {
        format!("HTTP {status}")
    } else {
        format!("HTTP {status}: {}", verdict.message)
    };
    // The server knows best, but for what no pause can heal.
    match headers.get("x-should-retry").map(|v| v.as_bytes()) {
        Some(b"true") if verdict.class == FaultClass::BadRequest => verdict.class = FaultClass::Transient,
        Some(b"false") if verdict.class.retryable() => verdict.class = FaultClass::BadRequest,
        _ => {}
    }
    verdict
}

/// The class of an error object that came inside a success or in the middle of a stream.
pub fn in_body(body: &Value) -> Classification {
    let error = body.get("error").unwrap_or(body);
    let status = error.get("code").or_else(|| error.get("status")).and_then(|code| {
        let number = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
        u16::try_from(number).ok().filter(|n| (400..600).contains(n))
    });
    judge(status, body, false)
}

/// Reads an error body in any of the shapes that are about: `{"error": {…}}`, `{"error": "…"}`,
/// `{"message": …}`, `{"detail": …}`, and lists of one of these.
fn judge(status: Option<u16>, body: &Value, asks_to_wait: bool) -> Classification {
    let body = body.get(0).unwrap_or(body);
    let error = body.get("error").filter(|e| !e.is_null()).unwrap_or(body);
    let said = error.as_str().or_else(|| {
        ["message", "detail", "error_description"].iter().find_map(|key| error.get(key)?.as_str())
    });
    let raw = error.pointer("/metadata/raw").and_then(Value::as_str);
    let mut message = plain(said.unwrap_or_default());
    if let Some(raw) = raw {
        message = format!("{message} ({})", plain(raw));
    }
    let words = message.to_lowercase();
    let codes: Vec<String> = ["/code", "/type", "/status", "/details/error_code"]
        .iter()
        .filter_map(|at| error.pointer(at)?.as_str())
        .map(str::to_lowercase)
        .collect();
    let by_code = |table: &[(&str, FaultClass)]| {
        table.iter().find(|(c, _)| codes.iter().any(|x| x == c)).map(|(_, k)| *k)
    };
    let flagged = error.pointer("/metadata/reasons").or_else(|| error.pointer("/metadata/flagged_input"));
    let class = TELLING_WORDS
        .iter()
        .find(|(word, _)| words.contains(word))
        .map(|(_, class)| *class)
        .or_else(|| flagged.map(|_| FaultClass::Refused))
        .or_else(|| by_code(TELLING_CODES))
        .or_else(|| status.map(|s| by_status(s, asks_to_wait)))
        .or_else(|| by_code(VAGUE_CODES))
        .unwrap_or(FaultClass::Transient);
    if let Some(code) = codes.first().filter(|c| !words.contains(c.as_str())) {
        message = format!("{message} ({code})").trim_start().to_owned();
    }
    Classification { class, message, retry_after: None }
}

/// The class by status alone. 402 with a pause is a limit that refills; without one it is no money.
fn by_status(status: u16, asks_to_wait: bool) -> FaultClass {
    match status {
        401 | 403 => FaultClass::Auth,
        402 if asks_to_wait => FaultClass::RateLimit,
        402 => FaultClass::Quota,
        408 | 409 | 425 => FaultClass::Transient,
        413 => FaultClass::TooLarge,
        429 => FaultClass::RateLimit,
        501 | 505 => FaultClass::BadRequest,
        500..=599 => FaultClass::Transient,
        _ => FaultClass::BadRequest,
    }
}

/// One line, no longer than a person reads; of a web page its title.
fn plain(text: &str) -> String {
    let lower = text.get(..512).unwrap_or(text).to_ascii_lowercase();
    if lower.trim_start().starts_with('<') {
        let title = lower.find("<title>").and_then(|from| {
            let title = text.get(from + 7..)?;
            title.get(..title.find('<')?)
        });
        return format!("a web page instead of a reply: {}", title.unwrap_or("without a title").trim());
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// The pause a server asks for: `retry-after-ms`, else `retry-after` in seconds or as an HTTP date.
pub fn retry_after(headers: &HeaderMap, now: jiff::Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str, unit: f64| {
        let seconds = text(name)?.parse::<f64>().ok().filter(|value| *value >= 0.0)? * unit;
        // Longer than any session is long enough.
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    };
    number("retry-after-ms", 0.001).or_else(|| number("retry-after", 1.0)).or_else(|| {
        let date = jiff::fmt::rfc2822::parse(text("retry-after")?).ok()?;
        Some(Duration::try_from(date.timestamp().duration_since(now)).unwrap_or_default())
    })
}

/// When the limit that was reached is refilled: the longest of those of which nothing is left.
fn refill(headers: &HeaderMap, now: jiff::Timestamp) -> Option<Duration> {
    limits::read(headers, now).iter().filter(|limit| limit.remaining == 0).map(|limit| limit.reset).max()
}

/// The pause after attempt `attempt`, counted from 1: half a second, doubled each time, at
/// most eight, less up to a quarter so that many sessions do not return at once; never less than the
/// provider asks for.
pub fn backoff(attempt: u32, retry_after: Option<Duration>, jitter_seed: u64) -> Duration {
    let base = Duration::from_millis(500).saturating_mul(1 << attempt.saturating_sub(1).min(4));
    // The SplitMix64 finaliser: a seed is a place, not a random number.
    let mut x = jitter_seed.wrapping_add(u64::from(attempt)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let thousandths = u32::try_from((x ^ (x >> 31)) % 251).unwrap_or(0);
    let pause = base.saturating_sub(base * thousandths / 1000);
    pause.max(retry_after.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::FaultClass::*;
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect()
    }

    fn now() -> jiff::Timestamp {
        "1994-11-06T08:49:30Z".parse().unwrap()
    }

    #[test]
    fn every_row_of_the_table() {
        let openai =
            |code: &str| format!(r#"{{"error":{{"message":"m","type":"t","param":null,"code":"{code}"}}}}"#);
        type Row<'a> = (u16, &'a [(&'static str, &'static str)], String, FaultClass);
        let rows: Vec<Row<'_>> = vec![
            // OpenAI
            (400, &[], openai("x"), BadRequest),
            (401, &[], openai("invalid_api_key"), Auth),
            (403, &[], openai("x"), Auth),
            (404, &[], openai("model_not_found"), BadRequest),
            (408, &[], openai("x"), Transient),
            (409, &[], openai("x"), Transient),
            (422, &[], openai("x"), BadRequest),
            (429, &[], openai("rate_limit_exceeded"), RateLimit),
            (429, &[], openai("slow_down"), RateLimit),
            (429, &[("retry-after", "9")], openai("insufficient_quota"), Quota),
            (429, &[], openai("credit_balance_exhausted"), Quota),
            (429, &[], r#"{"error":{"message":"You have reached your monthly usage limit."}}"#.into(), Quota),
            (429, &[], r#"{"error":{"message":"Request too large for m on tokens per min","code":"rate_limit_exceeded"}}"#.into(), TooLarge),
            (400, &[], openai("context_length_exceeded"), TooLarge),
            (400, &[], openai("content_policy_violation"), Refused),
            (500, &[], openai("x"), Transient),
            (503, &[], openai("server_is_overloaded"), Transient),
            (400, &[], r#"{"error":{"message":"Function tools with reasoning_effort are not supported for gpt-5.6-luna in /v1/chat/completions.","type":"invalid_request_error","param":"reasoning_effort","code":null}}"#.into(), BadRequest),
            // the server's own word
            (400, &[("x-should-retry", "true")], openai("x"), Transient),
            (500, &[("x-should-retry", "false")], openai("x"), BadRequest),
            (401, &[("x-should-retry", "true")], openai("x"), Auth),
            // Anthropic-shaped
            (529, &[], r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#.into(), Transient),
            (413, &[], r#"{"type":"error","error":{"type":"request_too_large","message":"m"}}"#.into(), TooLarge),
            (429, &[], r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"x"}}}"#.into(), RateLimit),
            (429, &[], r#"{"error":{"type":"x","message":"m","details":{"error_code":"enforced_spend_limit_reached"}}}"#.into(), Quota),
            (402, &[], r#"{"error":{"type":"billing_error","message":"m"}}"#.into(), Quota),
            // OpenRouter: integer codes
            (402, &[], r#"{"error":{"code":402,"message":"m"}}"#.into(), Quota),
            (402, &[("retry-after", "3")], r#"{"error":{"code":402,"message":"m"}}"#.into(), RateLimit),
            (429, &[], r#"{"error":{"code":429,"message":"m"}}"#.into(), RateLimit),
            (502, &[], r#"{"error":{"code":502,"message":"Provider returned error","metadata":{"raw":"boom"}}}"#.into(), Transient),
            (503, &[("retry-after", "3")], r#"{"error":{"code":503,"message":"m"}}"#.into(), Transient),
            (403, &[], r#"{"error":{"code":403,"message":"m","metadata":{"reasons":["violence"]}}}"#.into(), Refused),
            // llama.cpp
            (401, &[], r#"{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}"#.into(), Auth),
            (400, &[], r#"{"error":{"code":400,"message":"request (6030 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error"}}"#.into(), TooLarge),
            (500, &[], r#"{"error":{"code":500,"message":"Failed to parse tools: key 'name' not found","type":"server_error"}}"#.into(), BadRequest),
            (500, &[], r#"{"error":{"code":500,"message":"Failed to parse tool call arguments as JSON: x","type":"server_error"}}"#.into(), BadRequest),
            (500, &[], r#"{"error":{"code":500,"message":"image input is not supported - hint: mmproj","type":"server_error"}}"#.into(), BadRequest),
            (400, &[], r#"{"error":{"code":400,"message":"Failed to load image or audio file","type":"invalid_request_error"}}"#.into(), BadRequest),
            (503, &[], r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#.into(), Transient),
            // litellm, Google, strays
            (400, &[], r#"{"error":{"message":"litellm.BadRequestError: OpenAIException - request (6318 tokens) exceeds the available context size","type":null,"param":null,"code":"400"}}"#.into(), TooLarge),
            (400, &[], r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#.into(), Auth),
            (429, &[], r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#.into(), RateLimit),
            (500, &[], r#"{"error":"a plain string"}"#.into(), Transient),
            (404, &[], r#"{"detail":"Not Found"}"#.into(), BadRequest),
            (502, &[], "<html><head><title>502 Bad Gateway</title></head></html>".into(), Transient),
            (429, &[], "<!DOCTYPE html><title>Slow down</title>".into(), RateLimit),
            (503, &[], String::new(), Transient),
            (301, &[], String::new(), BadRequest),
        ];
        for (status, pairs, body, class) in rows {
            let verdict = http(status, &headers(pairs), body.as_bytes(), now());
            assert_eq!(verdict.class, class, "{status} {body} gave {verdict:?}");
            assert!(verdict.message.starts_with(&format!("HTTP {status}")), "{verdict:?}");
        }
        let page = http(502, &HeaderMap::new(), b"<html><title> 502 Bad Gateway </title>", now());
        assert_eq!(page.message, "HTTP 502: a web page instead of a reply: 502 Bad Gateway");
    }

    #[test]
    fn errors_inside_a_success() {
        let class = |text: &str| in_body(&serde_json::from_str(text).unwrap()).class;
        assert_eq!(class(r#"{"error":{"code":429,"message":"m"}}"#), RateLimit);
        assert_eq!(class(r#"{"error":{"code":"502","message":"m"}}"#), Transient);
        assert_eq!(class(r#"{"error":{"type":"invalid_request_error","message":"m"}}"#), BadRequest);
        assert_eq!(class(r#"{"error":{"type":"server_error","message":"m"}}"#), Transient);
        assert_eq!(class(r#"{"error":"boom"}"#), Transient);
    }

    #[test]
    fn the_pause_is_read_in_each_of_its_forms() {
        let read = |pairs: &[(&'static str, &'static str)]| retry_after(&headers(pairs), now());
        assert_eq!(read(&[("retry-after", "3")]), Some(Duration::from_secs(3)));
        assert_eq!(read(&[("retry-after", "1.5")]), Some(Duration::from_millis(1500)));
        assert_eq!(
            read(&[("retry-after", "60"), ("retry-after-ms", "250")]),
            Some(Duration::from_millis(250))
        );
        assert_eq!(read(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]), Some(Duration::from_secs(7)));
        assert_eq!(read(&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT")]), Some(Duration::ZERO));
        assert_eq!(read(&[("retry-after", "soon")]), None);
        assert_eq!(read(&[("retry-after", "-5")]), None);
        assert_eq!(read(&[("retry-after", "99999999999999999999")]), Some(Duration::MAX));
    }

    #[test]
    fn a_limit_that_is_used_up_says_when_it_is_refilled() {
        let openai = [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "20ms"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        let anthropic = [
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "1994-11-06T08:49:37Z"),
            ("anthropic-ratelimit-requests-remaining", "5"),
            ("anthropic-ratelimit-requests-reset", "1994-11-06T09:49:37Z"),
        ];
        let read = |status: u16, pairs: &[(&'static str, &'static str)]| {
            http(status, &headers(pairs), b"{}", now()).retry_after
        };
        assert_eq!(read(429, &openai), Some(Duration::from_secs(360)));
        assert_eq!(read(429, &anthropic), Some(Duration::from_secs(7)));
        assert_eq!(read(429, &[&openai[..], &[("retry-after", "3")]].concat()), Some(Duration::from_secs(3)));
        assert_eq!(read(429, &anthropic[2..]), None, "there is something left");
        assert_eq!(
            read(429, &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "soon")]),
            None
        );
        assert_eq!(read(503, &openai), None, "another cause");
        assert_eq!(
            read(429, &[("x-ratelimit-remaining-tokens", "-1"), ("x-ratelimit-reset-tokens", "0")]),
            None
        );
    }

    #[test]
    fn pauses_double_are_capped_and_jittered_downwards() {
        for seed in 0..50 {
            for (attempt, top) in
                [(1, 500), (2, 1000), (3, 2000), (4, 4000), (5, 8000), (6, 8000), (99, 8000)]
            {
                let pause = backoff(attempt, None, seed);
                let top = Duration::from_millis(top);
                assert!(pause <= top && pause >= top * 3 / 4, "attempt {attempt}: {pause:?}");
            }
        }
        assert_eq!(backoff(3, None, 7), backoff(3, None, 7));
        assert_ne!(backoff(3, None, 7), backoff(3, None, 8));
        assert_eq!(backoff(1, Some(Duration::from_secs(30)), 1), Duration::from_secs(30));
        assert!(backoff(5, Some(Duration::from_millis(1)), 1) > Duration::from_secs(5));
    }
}
