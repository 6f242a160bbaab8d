//! The top-level fields of a JSON body, found without building a tree of it.
//!
//! A tree costs up to 36 times the body (`[1,1,1,...`), so the body stays text until a field is needed.
//! As in the engines' own parser, the last of several equal keys counts, and `null` is as good as absent.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::types::{ErrorKind, Rejection};

/// Deepest nesting that is read: what `serde_json` follows before it refuses.
const MAX_DEPTH: usize = 127;

/// The fields that any API's prompt or its routing depends on; the others are not kept.
const KNOWN: [&str; 28] = [
    "add_generation_prompt",
    "add_special_tokens",
    "cache_salt",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
    "input",
    "instructions",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "mm_processor_kwargs",
    "model",
    "output_config",
    "previous_response_id",
    "prompt",
    "prompt_embeds",
    "reasoning",
    "reasoning_effort",
    "stream",
    "system",
    "tools",
    "truncate_prompt_tokens",
    "truncation",
    "truncation_side",
];

/// The known top-level fields of a body, as JSON text.
pub(super) struct Fields<'a> {
    found: Vec<(&'static str, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 when it is not UTF-8, not JSON, not an object or nested too deeply, in words for the client.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Rejection> {
        let text = std::str::from_utf8(body)
            .map_err(|_| bad_request("The request body is not valid UTF-8.".to_owned()))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if !text.trim_start().starts_with('{') {
            return Err(bad_request("The request body must be a JSON object.".to_owned()));
        }
        let fields: Self = serde_json::from_str(text)
            .map_err(|error| bad_request(format!("The request body is not valid JSON: {error}.")))?;
        if outline(text).depth > MAX_DEPTH {
            return Err(bad_request(format!(
                "The request body is nested more than {MAX_DEPTH} levels deep."
            )));
        }
        Ok(fields)
    }

    /// The text of a field that is there and not `null`.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.found.iter().rev().find(|(known, _)| *known == name)?.1;
        (found.get() != "null").then_some(found)
    }

    /// A field of that type; `None` when it is absent or something else.
    pub(super) fn lenient<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// A flag: the engines also take 1 and "true".
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        let raw = self.get(name)?.get().trim_matches('"').to_ascii_lowercase();
        Some(matches!(raw.as_str(), "true" | "1" | "yes" | "on" | "t" | "y"))
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut found: Vec<(&'static str, &'de RawValue)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let Some(known) = KNOWN.iter().find(|known| **known == key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value()?;
            found.retain(|(name, _)| name != known);
            found.push((known, value));
        }
        Ok(Fields { found })
    }
}

/// How large the tree of a JSON text would be.
pub(super) struct Outline {
    /// Deepest nesting of arrays and objects.
    pub(super) depth: usize,
    /// No fewer than the values in it.
    pub(super) values: usize,
}

/// Measures valid JSON without building it.
pub(super) fn outline(text: &str) -> Outline {
    let (mut depth, mut deepest, mut values) = (0_usize, 0, 1);
    let mut left = text.as_bytes();
    while let [byte, rest @ ..] = left {
        left = rest;
        match byte {
            b'"' => left = after_string(rest),
            b'[' | b'{' => {
                depth += 1;
                values += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
    }
    Outline { depth: deepest, values }
}

/// What follows a string, given all after its opening quote. Nearly all of a prompt is strings: eight bytes at a time.
fn after_string(mut left: &[u8]) -> &[u8] {
    loop {
        while let Some((eight, rest)) = left.split_first_chunk::<8>() {
            let eight = u64::from_le_bytes(*eight);
            if has(eight, b'"') || has(eight, b'\\') {
                break;
            }
            left = rest;
        }
        match left {
            [b'"', rest @ ..] => return rest,
            [b'\\', _, rest @ ..] | [_, rest @ ..] => left = rest,
            [] => return left,
        }
    }
}

/// Whether one of eight bytes is that one.
fn has(eight: u64, byte: u8) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    let zero_where_equal = eight ^ (ONES * u64::from(byte));
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & HIGH != 0
}

/// A 400.
pub(super) fn bad_request(message: String) -> Rejection {
    Rejection::new(ErrorKind::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_of_equal_keys_counts_and_null_is_absent() {
        let fields = Fields::read(br#"{"model":"a","x":[{}],"m\u006fdel":"b","stream":null}"#).unwrap();
        assert_eq!(fields.get("model").unwrap().get(), "\"b\"");
        assert!(fields.get("stream").is_none());
        assert!(Fields::read(br#"{"model":"a","model":null}"#).unwrap().get("model").is_none());
    }

    #[test]
    fn hostile_bodies_are_errors_in_words() {
        let deep =
            |open: &str, close: &str| format!("{{\"x\":{}1{}}}", open.repeat(100_000), close.repeat(100_000));
        let table = [
            (b"\xff{}".to_vec(), "UTF-8"),
            (b"[]".to_vec(), "must be a JSON object"),
            (b"".to_vec(), "must be a JSON object"),
            (b"{\"a\":1".to_vec(), "not valid JSON"),
            (b"{\"a\":1} x".to_vec(), "not valid JSON"),
            (b"{\"a\":NaN}".to_vec(), "not valid JSON"),
            (deep("[", "]").into_bytes(), "nested"),
            (deep("{\"messages\":", "}").into_bytes(), "nested"),
            (b"[".repeat(100_000), "must be a JSON object"),
            ([b"{\"a\":".repeat(100_000)].concat(), "not valid JSON"),
        ];
        for (body, words) in table {
            let message = Fields::read(&body).err().unwrap().message;
            assert!(message.contains(words), "{message}");
        }
        assert!(Fields::read(b"{\"temperature\":1e400,\"user\":\"\\ud800\"}").is_ok());
    }

    proptest! {
        #[test]
        fn strings_are_passed_over_whole(
            parts in prop::collection::vec(
                prop_oneof!["[a-z\u{e9}{}]{0,12}", Just("\\\"".to_owned()), Just("\\\\".to_owned()), Just("[,".to_owned())],
                0..12,
            ),
            after in "[a-z]{0,20}",
        ) {
            let text = parts.concat();
            let quoted = format!("{text}\"{after}");
            prop_assert_eq!(after_string(quoted.as_bytes()), after.as_bytes());
            prop_assert_eq!(after_string(text.as_bytes()), b"");
        }
    }

    #[test]
    fn outlines_see_through_strings() {
        let outline = outline(r#"{"a":"[[\"[","b":[1,2,{"c":"\\"}]}"#);
        assert_eq!((outline.depth, outline.values), (3, 7));
    }
}
