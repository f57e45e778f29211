use serde_json::json;

use super::*;
use crate::provider::profile::{ImageRules, Wire};
use crate::provider::reply::Decoded;

/// llama.cpp: the call's head once, then letters of its arguments; usage after the last choice, with fields of its own.
const LLAMA: &str = concat!(
    "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}],\"created\":1,\"object\":\"chat.completion.chunk\"}\n\n",
    "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"jp8bRGFU\",\"type\":\"function\",\"function\":{\"name\":\"apply_primitive\",\"arguments\":\"{\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"move\\\":\\\"wä\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"rmer\\\"}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"finish_reason\":\"tool_calls\",\"index\":0,\"delta\":{}}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":50,\"prompt_tokens\":339,\"total_tokens\":389,\"prompt_tokens_details\":{\"cached_tokens\":338}},\"timings\":{\"predicted_n\":50}}\n\n",
    "data: [DONE]\n\n",
);

/// OpenRouter: comments while it waits, reasoning in pieces, its own price, lines that end as in HTTP.
const OPENROUTER: &str = concat!(
    ": OPENROUTER PROCESSING\r\n\r\n: OPENROUTER PROCESSING\r\n\r\n",
    "data: {\"id\":\"gen-1\",\"model\":\"a/b\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"reasoning\":\"Dar\",\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"Dar\",\"index\":0}]},\"finish_reason\":null}]}\r\n\r\n",
    "data: {\"id\":\"gen-1\",\"model\":\"a/b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\",\"reasoning\":\"k.\",\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"k.\",\"index\":0,\"signature\":\"s==\"}]},\"finish_reason\":null}]}\r\n\r\n",
    "data: {\"id\":\"gen-1\",\"model\":\"a/b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Grö\u{df}er, \u{1f4f7} and brighter.\"},\"finish_reason\":null}]}\r\n\r\n",
    "data: {\"id\":\"gen-1\",\"model\":\"a/b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\",\"native_finish_reason\":\"end_turn\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"total_tokens\":13,\"cost\":0.0012345}}\r\n\r\n",
    "data: [DONE]\r\n\r\n",
);

/// Ollama: whole calls, the second under the first one's index, and no end but the connection's.
const OLLAMA: &str = concat!(
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"model\":\"g\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call_a\",\"index\":0,\"type\":\"function\",\"function\":{\"name\":\"render_preview\",\"arguments\":\"{}\"}}]},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"model\":\"g\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"id\":\"call_b\",\"index\":0,\"type\":\"function\",\"function\":{\"name\":\"compare\",\"arguments\":\"{\\\"a\\\":1}\"}}]},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"model\":\"g\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":\"tool_calls\"}]}",
);

/// A careless server: a byte-order mark, no blank lines, a payload over two lines, an error thrown in.
const CARELESS: &str = concat!(
    "\u{feff}event: chunk\r",
    "data:{\"choices\":[{\"delta\":\r\ndata: {\"content\":\"I\"}}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\r",
    "data:{\"choices\":[{\"delta\":{\"content\":\" see\"}}]}\r",
    "{\"error\":{\"code\":502,\"message\":\"upstream\"}}\n\n",
);

/// A stream that breaks off.
const CUT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"I\"}}]}\n\ndata: {\"choices\":[{\"del";

/// What is understood of a body that comes in these pieces.
fn understood(pieces: &[&[u8]]) -> (Result<Option<String>, Classification>, Decoded) {
    struct NoBlobs;
    impl crate::provider::Blobs for NoBlobs {
        fn bytes(&self, _: &base::ids::Hash) -> std::io::Result<Vec<u8>> {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }
    let mut incoming = Incoming { sse: Some(Sse::default()), ..Incoming::default() };
    for piece in pieces {
        // As the loop that reads does: nothing after the end.
        if !incoming.ended() {
            incoming.push(piece);
        }
    }
    incoming.finish();
    let config = WireConfig {
        origin: "p/m".into(),
        vision: true,
        wire: Wire::default(),
        image: ImageRules::default(),
        model_body: serde_json::Map::new(),
    };
    let request = ModelRequest {
        model: "m",
        system: "",
        tools: &[],
        messages: &[],
        earlier: 0,
        max_output_tokens: 9,
        session: "s",
        seed: None,
        blobs: &NoBlobs,
        time_left: None,
        on_progress: &|_| {},
    };
    let verdict = incoming.verdict();
    (verdict, incoming.draft.decode(&config, &request))
}

#[test]
fn a_stream_cut_at_any_byte_and_in_all_its_bytes_is_understood_as_the_whole() {
    let told = |pieces: &[&[u8]]| format!("{:?}", understood(pieces));
    for (name, stream) in [
        ("llama.cpp", LLAMA),
        ("OpenRouter", OPENROUTER),
        ("Ollama", OLLAMA),
        ("careless", CARELESS),
        ("cut", CUT),
    ] {
        let bytes = stream.as_bytes();
        let whole = told(&[bytes]);
        for at in 0..=bytes.len() {
            let (a, b) = bytes.split_at(at);
            assert_eq!(told(&[a, b]), whole, "{name} cut at {at}");
        }
        assert_eq!(told(&bytes.chunks(1).collect::<Vec<_>>()), whole, "{name} in single bytes");
    }
}

#[test]
fn what_servers_stream_is_understood() {
    let said = |stream: &str| understood(&[stream.as_bytes()]);
    let calls = |decoded: &Decoded| match &decoded.message {
        Message::Assistant { calls, .. } => {
            calls.iter().map(|c| format!("{}{}", c.name, c.arguments)).collect()
        }
        _ => Vec::new(),
    };
    let (_, llama) = said(LLAMA);
    assert_eq!(calls(&llama), ["apply_primitive{\"move\":\"wärmer\"}"]);
    assert_eq!((llama.usage.input_fresh, llama.usage.input_cache_read), (Some(1), Some(338)));
    let (_, routed) = said(OPENROUTER);
    let Message::Assistant { text, opaque, .. } = &routed.message else { panic!("{routed:?}") };
    assert_eq!((text.as_str(), routed.cost_micro_usd), ("Größer, \u{1f4f7} and brighter.", Some(1235)));
    assert_eq!(opaque[0].block["reasoning_details"][0]["text"], json!("Dark."));
    assert_eq!(calls(&said(OLLAMA).1), ["render_preview{}", "compare{\"a\":1}"]);
    let (verdict, careless) = said(CARELESS);
    assert_eq!((verdict.unwrap_err().message.as_str(), careless.usage.total()), ("upstream", Some(10)));
    assert_eq!(said(CUT).0.unwrap_err().class, FaultClass::Garbage);
}
