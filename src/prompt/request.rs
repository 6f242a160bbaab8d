//! A parsed request: what routing needs to know of a body, and the prompt in the shape that its API gives it.
//!
//! Only what routing depends on is checked. Whatever else is wrong with a request the engine says better,
//! and in its own words: such a request is passed on.

use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{
    declared::Declared,
    fields::{Fields, bad_request},
    media::Media,
};
use crate::types::{Api, Rejection};

/// One request to an inference API. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ParsedRequest {
    /// The API that it speaks.
    pub api: Api,
    /// The model that it names; `None` only from [`ParsedRequest::read`].
    pub model: Option<Arc<str>>,
    /// Whether the answer comes as events.
    pub stream: bool,
    /// Salts the first block of its KV cache.
    pub cache_salt: Option<Arc<str>>,
    /// A stored response that it goes on from: only the worker that made it knows the prompt.
    pub previous_response_id: Option<Arc<str>>,
    /// Part of the prompt is given as embeddings: its tokens can't be known.
    pub prompt_embeds: bool,
    /// Tokens that its answer may have at most, where it says so.
    pub max_output: Option<u64>,
    /// What it says of itself.
    pub declared: Declared,
    /// Images, audio clips and videos in it.
    pub images: usize,
    /// What becomes tokens.
    pub prompts: Prompts,
    /// The decoded body.
    pub body: Bytes,
    /// Whether the tokenizer adds its own special tokens; unset: as its API has it.
    pub(super) add_special_tokens: Option<bool>,
    /// Where the client has its prompt cut.
    pub(super) truncation: Option<Truncation>,
}

/// A prompt cut by its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Truncation {
    /// Tokens kept.
    pub(super) keep: usize,
    /// Keeps the beginning instead of the end.
    pub(super) beginning: bool,
}

/// What of a request becomes tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompts {
    /// Messages, for the model's chat template. They stay in the body until they are needed.
    Conversation,
    /// Texts, each a prompt of its own.
    Texts(Arc<[String]>),
    /// Token ids, each list a prompt of its own.
    TokenIds(Arc<[Arc<[u32]>]>),
}

/// Parses the decoded body of a request. The bytes are kept, not copied.
///
/// # Errors
/// 400, in words for the client, when it is not JSON, lacks its prompt or names no model.
pub fn parse(api: Api, body: &Bytes) -> Result<ParsedRequest, Rejection> {
    let request = ParsedRequest::read(api, body)?;
    if request.model.is_none() {
        return Err(bad_request("You must provide a 'model' parameter.".to_owned()));
    }
    Ok(request)
}

/// The model that any JSON body names, for calls whose prompt is not looked at; `None` where it names none.
pub fn named_model(body: &[u8]) -> Option<Arc<str>> {
    let model: String = Fields::read(body).ok()?.lenient("model")?;
    Some(model).filter(|model| !model.is_empty()).map(Arc::from)
}

impl ParsedRequest {
    /// Like [`parse`], for where the model is known otherwise: a body that names none is fine.
    ///
    /// # Errors
    /// 400, in words for the client.
    pub fn read(api: Api, body: &Bytes) -> Result<Self, Rejection> {
        let fields = Fields::read(body)?;
        let prompts = prompts(api, &fields)?;
        let media = media(&prompts, &fields);
        let text = |name| fields.lenient::<String>(name).filter(|text| !text.is_empty()).map(Arc::from);
        if let Some(model) = fields.get("model") {
            typed::<String>(model, "model", "a string")?;
        }
        Ok(Self {
            api,
            model: text("model"),
            stream: fields.flag("stream").unwrap_or(false),
            cache_salt: text("cache_salt"),
            previous_response_id: if api == Api::Responses { text("previous_response_id") } else { None },
            prompt_embeds: media.embeds || (api == Api::Completions && fields.get("prompt_embeds").is_some()),
            max_output: ["max_completion_tokens", "max_output_tokens", "max_tokens"]
                .iter()
                .find_map(|name| fields.lenient(name)),
            declared: Declared::of(&fields),
            images: media.items,
            prompts,
            body: body.clone(),
            add_special_tokens: fields.flag("add_special_tokens"),
            truncation: truncation(&fields),
        })
    }
}

/// -1 stands for the model's own limit, which a prompt within it does not feel.
fn truncation(fields: &Fields<'_>) -> Option<Truncation> {
    let keep = usize::try_from(fields.lenient::<i64>("truncate_prompt_tokens")?).ok()?;
    let beginning = fields.lenient::<String>("truncation_side").is_some_and(|side| side == "right");
    Some(Truncation { keep, beginning })
}

fn media(prompts: &Prompts, fields: &Fields<'_>) -> Media {
    if *prompts != Prompts::Conversation {
        return Media::default();
    }
    let conversation = fields.get("messages").or_else(|| fields.get("input"));
    let counted = conversation.map(|raw| serde_json::from_str(raw.get()));
    // What can't be counted may hold anything: it earns no credit.
    counted.map_or_else(Media::default, |media| media.unwrap_or(Media { items: 0, embeds: true }))
}

fn prompts(api: Api, fields: &Fields<'_>) -> Result<Prompts, Rejection> {
    match api {
        Api::ChatCompletions | Api::Messages => {
            let messages = required(fields, "messages")?;
            if !messages.get().starts_with('[') {
                return Err(wrong_type("messages", "an array of objects"));
            }
            Ok(Prompts::Conversation)
        }
        Api::Responses => match required(fields, "input")?.get().as_bytes().first() {
            Some(b'[' | b'"') => Ok(Prompts::Conversation),
            _ => Err(wrong_type("input", "a string or an array of items")),
        },
        Api::Completions => completion_prompts(fields),
    }
}

/// A string, strings, token ids or lists of token ids, told apart by how the JSON begins.
fn completion_prompts(fields: &Fields<'_>) -> Result<Prompts, Rejection> {
    const EXPECTED: &str = "a string, an array of strings, of token ids, or of arrays of token ids";
    let Some(raw) = fields.get("prompt") else {
        // Embeddings may stand alone.
        let embeds = fields.get("prompt_embeds").is_some();
        return if embeds { Ok(Prompts::Texts([].into())) } else { Err(missing("prompt")) };
    };
    let json = raw.get();
    let mut structure = json.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let prompts = match (structure.next(), structure.next()) {
        (Some(b'"'), _) => Prompts::Texts([typed(raw, "prompt", EXPECTED)?].into()),
        (Some(b'['), Some(b'"')) => Prompts::Texts(typed::<Vec<String>>(raw, "prompt", EXPECTED)?.into()),
        (Some(b'['), Some(b'[')) => {
            let lists: Vec<Vec<u32>> = typed(raw, "prompt", EXPECTED)?;
            Prompts::TokenIds(lists.into_iter().map(Arc::from).collect())
        }
        (Some(b'['), Some(b']')) => return Err(bad_request("'prompt' must not be empty.".to_owned())),
        (Some(b'['), _) => {
            let ids: Vec<u32> = typed(raw, "prompt", EXPECTED)?;
            Prompts::TokenIds([ids.into()].into())
        }
        _ => return Err(wrong_type("prompt", EXPECTED)),
    };
    Ok(prompts)
}

fn required<'a>(fields: &Fields<'a>, name: &str) -> Result<&'a RawValue, Rejection> {
    fields.get(name).ok_or_else(|| missing(name))
}

fn typed<T: DeserializeOwned>(raw: &RawValue, name: &str, expected: &str) -> Result<T, Rejection> {
    serde_json::from_str(raw.get()).map_err(|_| wrong_type(name, expected))
}

fn missing(name: &str) -> Rejection {
    bad_request(format!("Missing required parameter: '{name}'."))
}

fn wrong_type(name: &str, expected: &str) -> Rejection {
    bad_request(format!("Invalid type for '{name}': expected {expected}."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(api: Api, body: &str) -> Result<ParsedRequest, Rejection> {
        parse(api, &Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn what_routing_needs_is_read() {
        let chat = read(
            Api::ChatCompletions,
            r#"{"model":"t\u00e9","stream":true,"cache_salt":"s","previous_response_id":"x","messages":
               [{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}]}"#,
        )
        .unwrap();
        assert_eq!(chat.model.as_deref(), Some("té"));
        assert_eq!(chat.cache_salt.as_deref(), Some("s"));
        assert_eq!((chat.stream, chat.images, chat.prompt_embeds), (true, 1, false));
        assert_eq!((chat.previous_response_id, chat.prompts), (None, Prompts::Conversation));
        let response =
            read(Api::Responses, r#"{"model":"t","input":"hi","previous_response_id":"r"}"#).unwrap();
        assert_eq!(response.previous_response_id.as_deref(), Some("r"));
        let embeds = read(Api::Completions, r#"{"model":"t","prompt_embeds":"AA","max_tokens":7}"#).unwrap();
        assert!(embeds.prompt_embeds);
        assert_eq!((embeds.max_output, response.max_output), (Some(7), None));
        let both = r#"{"model":"t","messages":[],"max_tokens":7,"max_completion_tokens":9}"#;
        assert_eq!(read(Api::ChatCompletions, both).unwrap().max_output, Some(9));
    }

    #[test]
    fn any_json_may_name_a_model() {
        assert_eq!(named_model(br#"{"input":["a"],"model":"e"}"#).as_deref(), Some("e"));
        for none in ["", "[]", "{\"model\":", "{\"model\":\"\"}", "{\"model\":5}", "{}"] {
            assert_eq!(named_model(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn completions_take_four_shapes() {
        let prompts = |prompt: &str| {
            read(Api::Completions, &format!(r#"{{"model":"t","prompt":{prompt}}}"#))
                .map(|request| request.prompts)
        };
        let ids = |lists: &[&[u32]]| Prompts::TokenIds(lists.iter().map(|&list| Arc::from(list)).collect());
        assert_eq!(prompts(r#""a""#).unwrap(), Prompts::Texts(["a".to_owned()].into()));
        assert_eq!(
            prompts(r#"[ "a" ,"b"]"#).unwrap(),
            Prompts::Texts(["a".to_owned(), "b".to_owned()].into())
        );
        assert_eq!(prompts("[ 1, 2]").unwrap(), ids(&[&[1, 2]]));
        assert_eq!(prompts("[ [1],[2,3]]").unwrap(), ids(&[&[1], &[2, 3]]));
        for wrong in ["1", "{}", "[]", "[-1]", "[1.5]", "[\"a\",1]", "[1,\"a\"]", "[4294967296]", "[null]"] {
            assert!(prompts(wrong).unwrap_err().message.contains("prompt"), "{wrong}");
        }
    }

    #[test]
    fn any_body_may_name_a_model() {
        assert_eq!(named_model(br#"{"input":"x","model":"t"}"#).as_deref(), Some("t"));
        for none in ["", "[]", "{}", r#"{"model":7}"#, r#"{"model":""}"#, r#"{"model":"t""#] {
            assert_eq!(named_model(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let table = [
            (Api::ChatCompletions, r#"{"messages":[]}"#, "'model'"),
            (Api::ChatCompletions, r#"{"model":"","messages":[]}"#, "'model'"),
            (Api::ChatCompletions, r#"{"model":7,"messages":[]}"#, "'model': expected a string"),
            (Api::ChatCompletions, r#"{"model":"t"}"#, "parameter: 'messages'"),
            (Api::Messages, r#"{"model":"t","messages":"hi"}"#, "'messages': expected an array"),
            (Api::Completions, r#"{"model":"t"}"#, "parameter: 'prompt'"),
            (Api::Responses, r#"{"model":"t","input":7}"#, "'input': expected a string"),
        ];
        for (api, body, words) in table {
            let message = read(api, body).unwrap_err().message;
            assert!(message.contains(words), "{message}");
        }
    }

    proptest! {
        #[test]
        fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,200}", api in 0..4usize) {
            let api = Api::ALL[api];
            let _ = parse(api, &Bytes::from(body));
            let _ = read(api, &format!(r#"{{"model":"t","messages":{text},"input":{text},"prompt":{text}}}"#));
        }
    }
}
