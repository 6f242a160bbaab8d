//! What a body's `metadata` says of the request: whose it is, its tags, its pool. Clients write it: it counts only where
//! it is allowed to.

use std::sync::Arc;

use serde_json::Value;

use super::fields::Fields;

/// Keys in a body's `metadata`.
const TENANT: &str = "kinference.tenant";
const TAGS: &str = "kinference.tags";
const POOL: &str = "kinference.pool";

/// What a body says of its request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Whose it is.
    pub tenant: Option<Arc<str>>,
    /// Semantic tags.
    pub tags: Vec<Arc<str>>,
    /// The InferencePool that it is for.
    pub pool: Option<Arc<str>>,
}

impl Declared {
    pub(super) fn of(fields: &Fields<'_>) -> Self {
        let Some(Value::Object(metadata)) = fields.lenient::<Value>("metadata") else {
            return Self::default();
        };
        let text = |key: &str| metadata.get(key)?.as_str().and_then(word);
        let tags = match metadata.get(TAGS) {
            Some(Value::String(list)) => list.split(',').filter_map(word).collect(),
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).filter_map(word).collect(),
            _ => Vec::new(),
        };
        Self { tenant: text(TENANT), tags, pool: text(POOL) }
    }
}

fn word(text: &str) -> Option<Arc<str>> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(metadata: &str) -> Declared {
        let body = format!(r#"{{"model":"m","metadata":{metadata}}}"#);
        Declared::of(&Fields::read(body.as_bytes()).unwrap())
    }

    #[test]
    fn what_is_said_is_read_and_nothing_else() {
        let all = declared(
            r#"{"kinference.tenant":" acme ","kinference.tags":"a, b,,","kinference.pool":"ns/chat","x":1}"#,
        );
        let tags = vec!["a".into(), "b".into()];
        assert_eq!(all, Declared { tenant: Some("acme".into()), tags, pool: Some("ns/chat".into()) });
        assert_eq!(declared(r#"{"kinference.tags":["a",1,"b"]}"#).tags, ["a".into(), "b".into()]);
        for nothing in ["null", "[]", "7", r#""kinference.tags""#, r#"{"kinference.tenant":["x"]}"#, "{}"] {
            assert_eq!(declared(nothing), Declared::default(), "{nothing}");
        }
    }
}
