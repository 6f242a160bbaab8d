//! Has a JSON body name another model, byte for byte the same elsewhere. Offsets in bytes of the body as it came.
//!
//! Invariant: splices are in ascending order and do not overlap; spliced, the body names that model and no other.

use std::{fmt, ops::Range};

use bytes::{Bytes, BytesMut};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
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
    let text = std::str::from_utf8(body).ok()?;
    let json = text.strip_prefix('\u{feff}').unwrap_or(text);
    let top: Top<'_> = serde_json::from_str(json).ok()?;
    let value = serde_json::to_string(model).ok()?;
    if top.models.is_empty() {
        let inside = text.find('{')? + 1;
        let comma = if top.is_empty { "" } else { "," };
        let replacement = format!("\"model\":{value}{comma}").into();
        return Some(vec![Splice { range: inside..inside, replacement }]);
    }
    let replacement = Bytes::from(value);
    let named = |raw: &&RawValue| serde_json::from_str::<String>(raw.get()).is_ok_and(|name| name == model);
    let others = top.models.into_iter().filter(|raw| !named(raw));
    let at = |raw: &RawValue| {
        // The value is a part of the body.
        let start = raw.get().as_ptr().addr() - body.as_ptr().addr();
        start..start + raw.get().len()
    };
    Some(others.map(|raw| Splice { range: at(raw), replacement: replacement.clone() }).collect())
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

/// The top level of an object.
struct Top<'a> {
    models: Vec<&'a RawValue>,
    is_empty: bool,
}

impl<'de> Deserialize<'de> for Top<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TopVisitor)
    }
}

struct TopVisitor;

impl<'de> Visitor<'de> for TopVisitor {
    type Value = Top<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top<'de>, A::Error> {
        let mut top = Top { models: Vec::new(), is_empty: true };
        while let Some(key) = map.next_key::<String>()? {
            top.is_empty = false;
            if key == "model" {
                top.models.push(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(top)
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
