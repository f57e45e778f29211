//! A referee that is a model, played by a closure; what it was asked is kept.

use std::sync::{Arc, Mutex};

use base::assets::Overlay;
use chemigram::conversation::{Finish, Message, ToolCall, Usage};
use chemigram::gate::{ModelCall, Permit};
use chemigram::prompts::Store;
use chemigram::provider::{Attempt, ModelInfo, ModelReply, ModelRequest, Price, Provider};
use chemigram::referee::ModelReferee;
use chemigram::session::opinion::Referee;

type Says = dyn Fn(usize, &str) -> (&'static str, serde_json::Value) + Send + Sync;

pub struct Judge {
    info: ModelInfo,
    /// The whole text of every request.
    pub asked: Mutex<Vec<String>>,
    says: Box<Says>,
}

impl Judge {
    /// Says this of the question with that number (from 0) and text: a tool and its arguments.
    pub fn new(
        says: impl Fn(usize, &str) -> (&'static str, serde_json::Value) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let info = ModelInfo {
            provider: "bench".into(),
            model: "judge".into(),
            vision: true,
            context: None,
            free: true,
            price: Price::default(),
            image_tokens: 0,
            facts: Default::default(),
        };
        Arc::new(Self { info, asked: Mutex::default(), says: Box::new(says) })
    }

    pub fn referee(self: &Arc<Self>) -> Referee {
        let prompts = Store::new(Overlay::prompts(None)).unwrap();
        Referee::Model(ModelReferee::new(self.clone(), &prompts).unwrap())
    }

    pub fn questions(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Provider for Judge {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn attempt<'a>(&'a self, _: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        let text = format!(
            "{}\n{}\n{}",
            request.system,
            serde_json::to_string(request.tools).unwrap(),
            serde_json::to_string(request.messages).unwrap()
        );
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(text.clone());
            asked.len() - 1
        };
        let (name, arguments) = (self.says)(number, &text);
        let call = ToolCall {
            id: format!("answer_{number}"),
            name: name.into(),
            arguments: arguments.to_string(),
            extra: Default::default(),
        };
        Box::pin(std::future::ready(Ok(ModelReply {
            message: Message::Assistant { text: String::new(), calls: vec![call], opaque: Vec::new() },
            finish: Finish::ToolCalls,
            usage: Usage::default(),
            cost_micro_usd: None,
            model_served: None,
            raw: Vec::new(),
            first_byte: None,
            notes: Vec::new(),
        })))
    }
}
