//! Answers of the four APIs: whole, and as server-sent events with one chunk a token.

use serde_json::{Value, json};

use super::ask::Api;

const FINGERPRINT: &str = "vllm-0.32.0-sim";
const DONE: &str = "data: [DONE]\n\n";

/// What a request has used so far, tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In all prompts.
    pub prompt: usize,
    /// Generated.
    pub completion: usize,
    /// Of the prompts, found in the prefix cache.
    pub cached: usize,
    /// Of the prompts, in full blocks.
    pub cacheable: usize,
}

impl Usage {
    fn created(&self) -> Option<usize> {
        (self.cacheable > 0).then(|| self.cacheable - self.cached.min(self.cacheable))
    }

    fn streamed(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt, "total_tokens": self.prompt + self.completion, "completion_tokens": self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached, "created_cache_tokens": self.created()},
        })
    }

    fn whole(&self) -> Value {
        let mut usage = self.streamed();
        usage["prompt_tokens_details"]["multimodal_tokens"] = Value::Null;
        usage["completion_tokens_details"] = Value::Null;
        usage
    }

    fn anthropic(&self) -> Value {
        json!({
            "input_tokens": self.prompt, "output_tokens": self.completion,
            "cache_creation_input_tokens": self.created().unwrap_or(0), "cache_read_input_tokens": self.cached,
        })
    }

    fn responses(&self) -> Value {
        json!({
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": self.created().unwrap_or(0)},
            "output_tokens": self.completion, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.prompt + self.completion,
        })
    }
}

/// The parts of an answer that do not change.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Which API's shapes.
    pub api: Api,
    /// The request's id, prefix included.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// As asked for.
    pub model: String,
}

impl Reply {
    /// The answer in one piece; one text a choice.
    pub fn whole(&self, texts: &[String], usage: &Usage) -> Value {
        let Self { id, created, model, .. } = self;
        let first = texts.first().map_or("", String::as_str);
        match self.api {
            Api::Chat => json!({
                "id": id, "object": "chat.completion", "created": created, "model": model,
                "choices": [{
                    "index": 0, "message": {"role": "assistant", "content": first, "refusal": null, "tool_calls": []},
                    "logprobs": null, "finish_reason": "length", "stop_reason": null, "token_ids": null,
                }],
                "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": usage.whole(),
            }),
            Api::Completions => {
                let choice = |(index, text): (usize, &String)| {
                    json!({
                        "index": index, "text": text, "logprobs": null, "finish_reason": "length", "stop_reason": null,
                    })
                };
                json!({
                    "id": id, "object": "text_completion", "created": created, "model": model,
                    "choices": texts.iter().enumerate().map(choice).collect::<Vec<_>>(),
                    "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": usage.whole(),
                })
            }
            Api::Responses => self.response_object(Some((first, usage))),
            Api::Messages => json!({
                "id": id, "type": "message", "role": "assistant", "content": [{"type": "text", "text": first}],
                "model": model, "stop_reason": "max_tokens", "usage": usage.anthropic(),
            }),
        }
    }

    /// What a stream begins with before anything is computed.
    pub fn announcement(&self) -> String {
        if self.api != Api::Responses {
            return String::new();
        }
        let response = self.response_object(None);
        event(&json!({"type": "response.created", "response": response}))
            + &event(&json!({"type": "response.in_progress", "response": response}))
    }

    /// What goes right before the first token of a stream.
    pub fn opening(&self, usage: &Usage) -> String {
        let Self { id, created, model, .. } = self;
        match self.api {
            Api::Chat => data(&json!({
                "id": id, "object": "chat.completion.chunk", "created": created, "model": model,
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}],
                "prompt_token_ids": null, "prompt_text": null,
            })),
            Api::Completions | Api::Responses => String::new(),
            Api::Messages => {
                let message = json!({
                    "id": id, "type": "message", "role": "assistant", "content": [], "model": model,
                    "stop_reason": null, "usage": usage.anthropic(),
                });
                let block = json!({"type": "text", "text": ""});
                event(&json!({"type": "message_start", "message": message}))
                    + &event(&json!({"type": "content_block_start", "index": 0, "content_block": block}))
            }
        }
    }

    /// One token. Written by hand: this is the hot path of a busy engine.
    pub fn token(&self, choice: usize, text: &str, last: bool) -> String {
        let Self { id, created, .. } = self;
        let (model, text) = (Value::from(self.model.as_str()), Value::from(text));
        let finish = if last { r#""length","stop_reason":null"# } else { "null" };
        match self.api {
            Api::Chat => format!(
                "data: {{\"id\":\"{id}\",\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":{model},\
                 \"choices\":[{{\"index\":{choice},\"delta\":{{\"content\":{text}}},\"logprobs\":null,\
                 \"finish_reason\":{finish},\"token_ids\":null}}]}}\n\n"
            ),
            Api::Completions => format!(
                "data: {{\"id\":\"{id}\",\"object\":\"text_completion\",\"created\":{created},\"model\":{model},\
                 \"choices\":[{{\"index\":{choice},\"text\":{text},\"logprobs\":null,\"finish_reason\":{finish}}}]}}\n\n"
            ),
            Api::Responses => event(&json!({
                "type": "response.output_text.delta", "item_id": "msg_0", "output_index": 0, "content_index": 0,
                "delta": text,
            })),
            Api::Messages => event(&json!({
                "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text},
            })),
        }
    }

    /// What goes after the last token.
    pub fn closing(&self, usage: &Usage, include_usage: bool) -> String {
        let Self { id, created, model, .. } = self;
        let object = if self.api == Api::Chat { "chat.completion.chunk" } else { "text_completion" };
        match self.api {
            Api::Chat | Api::Completions if include_usage => {
                data(&json!({
                    "id": id, "object": object, "created": created, "model": model, "choices": [],
                    "usage": usage.streamed(), "system_fingerprint": FINGERPRINT,
                })) + DONE
            }
            Api::Chat | Api::Completions => DONE.to_owned(),
            // The deltas have carried the text.
            Api::Responses => event(
                &json!({"type": "response.completed", "response": self.response_object(Some(("", usage)))}),
            ),
            Api::Messages => {
                event(&json!({"type": "content_block_stop", "index": 0}))
                    + &event(&json!({
                        "type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": usage.anthropic(),
                    }))
                    + &event(&json!({"type": "message_stop"}))
            }
        }
    }

    fn response_object(&self, done: Option<(&str, &Usage)>) -> Value {
        let output = |(text, _): (&str, &Usage)| {
            json!([{
                "id": "msg_0", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }])
        };
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "model": self.model,
            "status": if done.is_some() { "incomplete" } else { "in_progress" },
            "incomplete_details": done.map(|_| json!({"reason": "max_output_tokens"})),
            "output": done.map_or_else(|| json!([]), output),
            "usage": done.map(|(_, usage)| usage.responses()),
        })
    }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// An event with its name, as the APIs other than OpenAI's first two send them.
fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
}
