//! Messages and token ids as the bodies that say the same, so that they take the path of every other request.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    serve::{
        proto::{Messages, TokenIds},
        status::Refusal,
    },
    types::ErrorKind,
};

/// What both kinds of body have in common.
#[derive(Serialize)]
struct Common<'a> {
    /// An absent one is refused where every body's is.
    #[serde(skip_serializing_if = "str::is_empty")]
    model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cache_salt: &'a str,
    stream: bool,
}

#[derive(Serialize)]
struct Chat<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    messages: Vec<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<&'a RawValue>,
}

#[derive(Serialize)]
struct Completion<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    prompt: &'a [u32],
}

/// A chat completions body.
///
/// # Errors
/// What should be a JSON object is none.
pub fn conversation(messages: &Messages, model: &str, stream: bool) -> Result<Vec<u8>, Refusal> {
    written(&Chat {
        common: Common { model, cache_salt: &messages.cache_salt, stream },
        messages: objects(&messages.messages_json, "messages_json")?,
        tools: objects(&messages.tools_json, "tools_json")?,
    })
}

/// A completions body.
///
/// # Errors
/// None in practice.
pub fn tokenized(tokens: &TokenIds, model: &str, stream: bool) -> Result<Vec<u8>, Refusal> {
    let common = Common { model, cache_salt: &tokens.cache_salt, stream };
    written(&Completion { common, prompt: &tokens.ids })
}

fn objects<'a>(texts: &'a [String], field: &str) -> Result<Vec<&'a RawValue>, Refusal> {
    let object = |(i, text): (usize, &'a String)| {
        let value: Option<&RawValue> = serde_json::from_str(text).ok();
        let object = value.filter(|value| value.get().starts_with('{'));
        object.ok_or_else(|| Refusal::new(ErrorKind::BadRequest, format!("{field}[{i}] is no JSON object.")))
    };
    texts.iter().enumerate().map(object).collect()
}

fn written(body: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(body).map_err(|error| {
        tracing::error!(%error, "a body is not written");
        Refusal::new(ErrorKind::Internal, "The request could not be read.")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn bodies_say_what_they_were_made_of() {
        let messages = Messages {
            messages_json: vec![r#" {"role":"user","content":"a\u00e9"} "#.into()],
            tools_json: vec!["{}".into()],
            cache_salt: "s\"".into(),
        };
        let body = conversation(&messages, "m", true).unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&body).unwrap(),
            json!({"model": "m", "cache_salt": "s\"", "stream": true, "tools": [{}],
                "messages": [{"role": "user", "content": "aé"}]})
        );
        let tokens = TokenIds { ids: vec![1, u32::MAX], cache_salt: String::new() };
        let body = tokenized(&tokens, "", false).unwrap();
        let want = json!({"stream": false, "prompt": [1, u32::MAX]});
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), want);
    }

    #[test]
    fn nothing_is_smuggled_in() {
        for text in ["", "[]", "1", "{}, {}", r#"{}], "model": "x", "y": [{}"#, "{"] {
            let messages = Messages { messages_json: vec!["{}".into(), text.into()], ..Messages::default() };
            let refusal = conversation(&messages, "m", false).unwrap_err();
            assert_eq!(refusal.reason, ErrorKind::BadRequest.into(), "{text}");
            assert!(refusal.message.contains("messages_json[1]"), "{}", refusal.message);
        }
    }
}
