//! Has a JSON body name another model, or ask for usage, byte for byte the same elsewhere. Offsets in bytes of the body
//! as it came.
//!
//! Invariant: splices are in ascending order and do not overlap; spliced, the body names that model and no other.

use std::{fmt, ops::Range};

use bytes::{Bytes, BytesMut};
use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Bytes of a body, and what stands there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// Bytes replaced.
    pub range: Range<usize>,
    /// What they become.
    pub replacement: Bytes,
}

/// What makes a body name that model. Every top-level `model` is changed: which of several counts is its reader's choice.
/// Empty: it names it. `None`: it is no JSON object.
pub fn name_model(body: &[u8], model: &str) -> Option<Vec<Splice>> {
    let value = serde_json::to_string(model).ok()?;
    let named = |raw: &str| serde_json::from_str::<String>(raw).is_ok_and(|name| name == model);
    set(body, json(body)?, Setting { key: "model", value }, named)
}

/// What makes a body ask for the usage of the streamed answer that it asks for. Other stream options stay. Empty: it asks
/// for it, or for no streamed answer. `None`: it is no JSON object.
pub fn ask_usage(body: &[u8]) -> Option<Vec<Splice>> {
    const INSIDE: &str = "include_usage";
    let found = Found::read(json(body)?, &["stream", "stream_options"])?;
    // Readers take the last one of several.
    let stream = found.values.iter().rfind(|(key, _)| *key == 0);
    if stream.is_none_or(|(_, raw)| raw.get() != "true") {
        return Some(Vec::new());
    }
    let mut splices = Vec::new();
    let mut options = found.values.iter().filter(|(key, _)| *key == 1).map(|(_, raw)| raw.get()).peekable();
    if options.peek().is_none() {
        let setting = Setting { key: "stream_options", value: format!("{{\"{INSIDE}\":true}}") };
        return set(body, json(body)?, setting, |_| false);
    }
    for raw in options {
        if raw.starts_with('{') {
            let setting = Setting { key: INSIDE, value: "true".to_owned() };
            splices.extend(set(body, raw, setting, |raw| raw == "true")?);
        } else {
            let replacement = format!("{{\"{INSIDE}\":true}}").into();
            splices.push(Splice { range: range(body, raw), replacement });
        }
    }
    Some(splices)
}

/// Both changes of one body, which change different fields.
pub fn joined(mut splices: Vec<Splice>, others: Vec<Splice>) -> Vec<Splice> {
    splices.extend(others);
    splices.sort_by_key(|splice| splice.range.start);
    splices
}

/// The body with the splices applied.
pub fn spliced(body: &[u8], splices: &[Splice]) -> Bytes {
    let mut out = BytesMut::with_capacity(spliced_len(body.len(), splices));
    let mut kept = 0;
    for Splice { range, replacement } in splices {
        out.extend_from_slice(&body[kept..range.start]);
        out.extend_from_slice(replacement);
        kept = range.end;
    }
    out.extend_from_slice(&body[kept..]);
    out.freeze()
}

/// How long a body of `len` bytes is with the splices applied.
pub fn spliced_len(len: usize, splices: &[Splice]) -> usize {
    let replaced: usize = splices.iter().map(|splice| splice.range.len()).sum();
    let added: usize = splices.iter().map(|splice| splice.replacement.len()).sum();
    len - replaced + added
}

/// A field and its value, as JSON.
struct Setting {
    key: &'static str,
    value: String,
}

/// What sets a field of an object, which is a part of the body, wherever `is_set` does not hold of its value.
fn set(body: &[u8], object: &str, setting: Setting, is_set: impl Fn(&str) -> bool) -> Option<Vec<Splice>> {
    let Setting { key, value } = setting;
    let found = Found::read(object, &[key])?;
    if found.values.is_empty() {
        let inside = range(body, object).start + object.find('{')? + 1;
        let comma = if found.is_empty { "" } else { "," };
        let replacement = format!("\"{key}\":{value}{comma}").into();
        return Some(vec![Splice { range: inside..inside, replacement }]);
    }
    let replacement = Bytes::from(value);
    let values = found.values.into_iter().map(|(_, raw)| raw.get());
    let others = values.filter(|raw| !is_set(raw));
    Some(others.map(|raw| Splice { range: range(body, raw), replacement: replacement.clone() }).collect())
}

/// The body as a JSON text, without its byte order mark.
fn json(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    Some(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Where in the body a part of it is.
fn range(body: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - body.as_ptr().addr();
    start..start + part.len()
}

/// What the top level of an object has under some keys.
struct Found<'a> {
    /// Which of the keys, and its value.
    values: Vec<(usize, &'a RawValue)>,
    is_empty: bool,
}

impl<'a> Found<'a> {
    fn read(object: &'a str, keys: &[&str]) -> Option<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(object);
        let found = Keys(keys).deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        Some(found)
    }
}

struct Keys<'k>(&'k [&'k str]);

impl<'de> DeserializeSeed<'de> for Keys<'_> {
    type Value = Found<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found<'de>, A::Error> {
        let mut found = Found { values: Vec::new(), is_empty: true };
        while let Some(key) = map.next_key::<String>()? {
            found.is_empty = false;
            match self.0.iter().position(|wanted| *wanted == key) {
                Some(at) => found.values.push((at, map.next_value()?)),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn renamed(body: &str, model: &str) -> Option<String> {
        let splices = name_model(body.as_bytes(), model)?;
        let out = spliced(body.as_bytes(), &splices);
        assert_eq!(out.len(), spliced_len(body.len(), &splices));
        Some(String::from_utf8(out.to_vec()).unwrap())
    }

    #[test]
    fn only_the_models_name_changes() {
        let table = [
            (r#"{"model":"a","x":{"model":"a"}}"#, r#"{"model":"b","x":{"model":"a"}}"#),
            ("{ \"x\" : [1], \"model\" :\t\"a\" }\n", "{ \"x\" : [1], \"model\" :\t\"b\" }\n"),
            (r#"{"x":"\"model\":\"a\"","m\u006fdel":null}"#, r#"{"x":"\"model\":\"a\"","m\u006fdel":"b"}"#),
            (r#"{"model":"a","model":"b","model":7}"#, r#"{"model":"b","model":"b","model":"b"}"#),
            (r#"{"model":"\u0062"}"#, r#"{"model":"\u0062"}"#),
            (" {}", r#" {"model":"b"}"#),
            ("\u{feff}{ \"x\":1}", "\u{feff}{\"model\":\"b\", \"x\":1}"),
        ];
        for (body, want) in table {
            assert_eq!(renamed(body, "b").as_deref(), Some(want), "{body}");
        }
        for not_an_object in ["", "[]", "{", "{} x", "\"model\"", "{\"model\":}"] {
            assert_eq!(renamed(not_an_object, "b"), None, "{not_an_object}");
        }
        assert_eq!(name_model(b"\xff{}", "b"), None);
    }

    #[test]
    fn a_streamed_answer_is_asked_to_tell_its_usage() {
        let table = [
            (r#"{"stream":true}"#, r#"{"stream_options":{"include_usage":true},"stream":true}"#),
            (
                "\u{feff}{ \"stream\" : true, \"stream_options\": { \"x\" : 1e3 }}",
                "\u{feff}{ \"stream\" : true, \"stream_options\": {\"include_usage\":true, \"x\" : 1e3 }}",
            ),
            (
                r#"{"stream_options":{"include_usage":false,"include_usage":true},"stream":true,"stream_options":null}"#,
                r#"{"stream_options":{"include_usage":true,"include_usage":true},"stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (
                r#"{"stream":true,"stream_options":{}}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (r#"{"stream":true,"stream":false}"#, r#"{"stream":true,"stream":false}"#),
            (r#"{"x":{"stream":true}}"#, r#"{"x":{"stream":true}}"#),
            ("{}", "{}"),
        ];
        for (body, want) in table {
            let splices = ask_usage(body.as_bytes()).unwrap();
            assert_eq!(spliced(body.as_bytes(), &splices), want, "{body}");
            let both = joined(name_model(body.as_bytes(), "b").unwrap(), splices);
            let (out, want) = (spliced(body.as_bytes(), &both), renamed(want, "b").unwrap());
            let [out, want] = [&out[..], want.as_bytes()].map(|json| {
                serde_json::from_slice::<Value>(json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json))
            });
            assert_eq!(out.unwrap(), want.unwrap(), "{body}");
        }
        assert_eq!(ask_usage(b"[]"), None);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("model|[a-c\"\\\\]{1,3}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_renamed_body_is_the_same_but_for_its_model(
            fields in prop::collection::hash_map("model|[a-e]{1,3}", value(), 0..6),
            model in ".{1,12}",
            pretty: bool,
        ) {
            let mut body = Value::Object(fields.into_iter().collect());
            let text = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) }.unwrap();
            let out: Value = serde_json::from_str(&renamed(&text, &model).unwrap()).unwrap();
            body["model"] = json!(model);
            prop_assert_eq!(out, body);
        }
    }
}
