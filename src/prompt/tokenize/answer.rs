//! What engines answer to render and `/tokenize`, in every shape that versions from 0.15 on give it.

use serde::{Deserialize, de::IgnoredAny};

use crate::types::{ImageSpan, PromptTokens};

/// One rendered prompt. 0.15 and 0.16 name the ids `prompt_token_ids`.
#[derive(Deserialize)]
struct Rendered {
    #[serde(alias = "prompt_token_ids")]
    token_ids: Vec<u32>,
    #[serde(default)]
    features: Option<Features>,
}

/// Multimodal items by modality.
#[derive(Deserialize)]
struct Features {
    #[serde(default)]
    mm_hashes: std::collections::BTreeMap<String, Vec<Option<String>>>,
    #[serde(default)]
    mm_placeholders: std::collections::BTreeMap<String, Vec<Placeholder>>,
}

#[derive(Deserialize)]
struct Placeholder {
    offset: usize,
    length: usize,
}

#[derive(Deserialize)]
struct Tokenized {
    tokens: Vec<u32>,
}

/// The longest prompt of a render answer; `None` when it is none. `images`: whether the request has any.
pub(super) fn rendered(body: &[u8], images: bool) -> Option<PromptTokens> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace())?;
    let prompts: Vec<Rendered> = match first {
        b'{' => vec![serde_json::from_slice(body).ok()?],
        // 0.15 and 0.16 put the conversation in front of its prompts.
        _ => serde_json::from_slice(body)
            .or_else(|_| serde_json::from_slice(body).map(|(_, prompts): (IgnoredAny, _)| prompts))
            .ok()?,
    };
    let longest = prompts.into_iter().rev().max_by_key(|prompt| prompt.token_ids.len())?;
    let spans = longest.features.map(spans).unwrap_or_default();
    let known = spans.iter().all(|span| !span.hash.is_empty()) && spans.is_empty() != images;
    let credit_until = match spans.first() {
        _ if known => None,
        Some(first) => Some(first.offset),
        None => Some(0),
    };
    let images = if known { spans } else { Vec::new() };
    Some(PromptTokens { ids: longest.token_ids.into(), images, credit_until, ..PromptTokens::default() })
}

/// The items in order of their place; one without a hash has an empty one.
fn spans(mut features: Features) -> Vec<ImageSpan> {
    let mut spans = Vec::new();
    for (modality, placeholders) in features.mm_placeholders {
        let hashes = features.mm_hashes.remove(&modality).unwrap_or_default();
        let mut hashes = hashes.into_iter();
        spans.extend(placeholders.into_iter().map(|place| ImageSpan {
            hash: hashes.next().flatten().unwrap_or_default().into(),
            offset: place.offset,
            length: place.length,
        }));
    }
    spans.sort_by_key(|span| span.offset);
    spans
}

/// The prompt of a `/tokenize` answer; `None` when it is none. Where the request has images nothing is known
/// of them.
pub(super) fn tokenized(body: &[u8], images: bool) -> Option<PromptTokens> {
    let Tokenized { tokens } = serde_json::from_slice(body).ok()?;
    Some(PromptTokens { ids: tokens.into(), credit_until: images.then_some(0), ..PromptTokens::default() })
}

/// The engine's own words in an error answer; `None` when it is not in the engine's format.
pub(super) fn error_message(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let message = value.get("error")?.get("message")?.as_str()?;
    Some(message.chars().take(500).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(body: &str) -> Option<Vec<u32>> {
        rendered(body.as_bytes(), false).map(|tokens| tokens.ids.to_vec())
    }

    #[test]
    fn every_version_is_understood() {
        assert_eq!(ids(r#"{"token_ids":[1,2],"features":null,"model":"m"}"#), Some(vec![1, 2]));
        assert_eq!(ids(r#" [{"token_ids":[1]},{"token_ids":[2,3]},{"token_ids":[4,5]}]"#), Some(vec![2, 3]));
        assert_eq!(
            ids(r#"[[{"role":"user","content":"a"}],[{"prompt_token_ids":[7,8],"prompt":"x"}]]"#),
            Some(vec![7, 8])
        );
        for wrong in
            ["", "[]", "{}", "null", "[[],[]]", r#"{"token_ids":[-1]}"#, r#"{"token_ids":"x"}"#, "<html>"]
        {
            assert_eq!(ids(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn images_are_placed_or_earn_no_credit() {
        let body = r#"{"token_ids":[0,1,2,3,4,5],"features":{
            "mm_hashes":{"image":["b","a"],"audio":["c"]},
            "mm_placeholders":{"image":[{"offset":4,"length":1},{"offset":1,"length":2}],"audio":[{"offset":3,"length":1}]}}}"#;
        let tokens = rendered(body.as_bytes(), true).unwrap();
        let spans: Vec<_> =
            tokens.images.iter().map(|span| (&*span.hash, span.offset, span.length)).collect();
        assert_eq!((spans, tokens.credit_until), (vec![("a", 1, 2), ("c", 3, 1), ("b", 4, 1)], None));
        let unhashed = body.replace(r#"["b","a"]"#, r#"[null,"a"]"#);
        let tokens = rendered(unhashed.as_bytes(), true).unwrap();
        assert_eq!((tokens.images.len(), tokens.credit_until), (0, Some(1)));
        let tokens = rendered(br#"{"token_ids":[1],"features":null}"#, true).unwrap();
        assert_eq!(tokens.credit_until, Some(0));
        assert_eq!(tokenized(br#"{"tokens":[1],"count":1}"#, true).unwrap().credit_until, Some(0));
    }
}
