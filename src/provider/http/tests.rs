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

/// OpenAI Responses: a hidden thought, words, and two calls whose arguments come in letters before they come whole.
const RESPONSES: &str = concat!(
    "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"object\":\"response\",\"status\":\"in_progress\",\"model\":\"m\",\"output\":[],\"usage\":null}}\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[]}}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\": {\"type\":\"reasoning\", \"id\":\"rs\",\"summary\":[ ],\"encrypted_content\":\"a\\/\\u00e9=\"} }\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":1,\"delta\":\"Grö\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"Größer.\",\"annotations\":[]}]}}\n\n",
    "event: response.function_call_arguments.delta\ndata: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":2,\"delta\":\"{\\\"m\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":2,\"item\":{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"apply_primitive\",\"arguments\":\"{\\\"move\\\":\\\"wärmer\\\"}\"}}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":3,\"item\":{\"type\":\"function_call\",\"call_id\":\"b\",\"name\":\"render_preview\",\"arguments\":\"{}\"}}\n\n",
    "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"object\":\"response\",\"status\":\"completed\",\"model\":\"m\",\"output\":[],\"usage\":{\"input_tokens\":339,\"output_tokens\":50,\"input_tokens_details\":{\"cached_tokens\":300,\"cache_write_tokens\":9},\"output_tokens_details\":{\"reasoning_tokens\":7}}}}\n\n",
);

/// Anthropic Messages: the same; a call without arguments has none of its letters streamed.
const MESSAGES: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":30,\"cache_read_input_tokens\":300,\"cache_creation_input_tokens\":9,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
    "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"Dunkel \"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"– ja.\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"a/é=\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Größer.\"}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"apply_primitive\",\"input\":{}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"move\\\":\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"wärmer\\\"}\"}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"tool_use\",\"id\":\"b\",\"name\":\"render_preview\"}}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":50,\"output_tokens_details\":{\"thinking_tokens\":7}}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

/// What is understood of a body that comes in these pieces.
fn understood(dialect: Dialect, pieces: &[&[u8]]) -> (Result<Option<String>, Classification>, Decoded) {
    struct NoBlobs;
    impl crate::provider::Blobs for NoBlobs {
        fn bytes(&self, _: &base::ids::Hash) -> std::io::Result<Vec<u8>> {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }
    let reading = Reading::new(dialect);
    let mut incoming = Incoming::new(true, reading);
    for piece in pieces {
        // As the loop that reads does: nothing after the end.
        if !incoming.ended() {
            incoming.push(piece);
        }
    }
    incoming.finish();
    let config = WireConfig {
        dialect,
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
        on_progress: &|_, _| {},
    };
    let verdict = incoming.verdict();
    (verdict, incoming.draft.decode(&config, &request))
}

#[test]
fn a_stream_cut_at_any_byte_and_in_all_its_bytes_is_understood_as_the_whole() {
    for (name, stream, dialect) in [
        ("llama.cpp", LLAMA, Dialect::ChatCompletions),
        ("OpenRouter", OPENROUTER, Dialect::ChatCompletions),
        ("Ollama", OLLAMA, Dialect::ChatCompletions),
        ("careless", CARELESS, Dialect::ChatCompletions),
        ("cut", CUT, Dialect::ChatCompletions),
        ("Responses", RESPONSES, Dialect::Responses),
        ("Messages", MESSAGES, Dialect::Messages),
    ] {
        let told = |pieces: &[&[u8]]| format!("{:?}", understood(dialect, pieces));
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
    let said = |stream: &str| understood(Dialect::ChatCompletions, &[stream.as_bytes()]);
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

#[test]
fn the_same_reply_is_understood_alike_in_responses_and_messages() {
    let mut kept = Vec::new();
    for (stream, dialect) in [(RESPONSES, Dialect::Responses), (MESSAGES, Dialect::Messages)] {
        let (verdict, decoded) = understood(dialect, &[stream.as_bytes()]);
        assert_eq!(verdict, Ok(None));
        let Message::Assistant { text, calls, mut opaque } = decoded.message else { panic!() };
        let made: Vec<String> = calls.iter().map(|c| format!("{} {}{}", c.id, c.name, c.arguments)).collect();
        assert_eq!(made, ["a apply_primitive{\"move\":\"wärmer\"}", "b render_preview{}"]);
        assert_eq!((text.as_str(), decoded.finish), ("Größer.", crate::provider::Finish::ToolCalls));
        let usage = Usage {
            input_fresh: Some(30),
            input_cache_read: Some(300),
            input_cache_write: Some(9),
            output: Some(50),
            reasoning: Some(7),
        };
        assert_eq!(decoded.usage, usage);
        kept.push(opaque.remove(0).block["parts"].take());
    }
    // The very letters, as far as a stream has them.
    assert_eq!(
        kept[0][0]["item"],
        r#"{"type":"reasoning", "id":"rs","summary":[ ],"encrypted_content":"a\/\u00e9="}"#
    );
    assert_eq!(
        kept[1],
        json!([{"item": {"type": "thinking", "thinking": "Dunkel – ja.", "signature": "a/é="}},
               {"text": "Größer."}, {"call": 0}, {"call": 1}])
    );
}

#[test]
fn a_stream_of_any_dialect_that_ends_early_is_no_reply_and_tells_what_it_was_told() {
    for (stream, dialect) in [(RESPONSES, Dialect::Responses), (MESSAGES, Dialect::Messages)] {
        let events: Vec<&str> = stream.split_inclusive("\n\n").collect();
        for end in 1..events.len() {
            let (verdict, decoded) = understood(dialect, &[events[..end].concat().as_bytes()]);
            assert_eq!(verdict.unwrap_err().class, FaultClass::Transport, "{dialect:?} after {end} events");
            // The length of what was to come is not known, and so not told.
            let whole = end + 1 == events.len() && dialect == Dialect::Messages;
            assert_eq!(decoded.usage.output.is_some(), whole, "{dialect:?} after {end} events");
        }
    }
}

#[test]
fn what_only_keeps_a_connection_alive_is_no_event_wherever_it_is_torn() {
    let alive = [
        ": OPENROUTER PROCESSING\r\n\r\n",
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n",
        "data:\n\n",
        "id: 7\n\nretry: 1000\n\n",
    ];
    let events = |pieces: &[&[u8]]| {
        let reading = Reading::new(Dialect::Messages);
        let mut incoming = Incoming::new(true, reading);
        pieces.iter().for_each(|piece| incoming.push(piece));
        incoming.events
    };
    for text in alive {
        for at in 0..=text.len() {
            let (a, b) = text.as_bytes().split_at(at);
            assert_eq!(events(&[a, b, a, b]), 0, "{text:?} cut at {at}");
        }
    }
    let (first, rest) = MESSAGES.split_once("\n\n").unwrap();
    assert_eq!(events(&[first.as_bytes(), b"\n\n"]), 2, "a long part, and the whole");
    // One of its events is a ping.
    assert_eq!(events(&[rest.as_bytes()]) as usize, rest.matches("\n\n").count() - 1);
    let mut whole = Incoming::default();
    whole.push(b"{\"choices\":");
    assert_eq!(whole.events, 1, "no stream");
}
