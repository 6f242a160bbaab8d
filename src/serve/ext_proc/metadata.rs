//! Reads the metadata that a proxy sends along, and builds what we answer with.
//!
//! Lists may come as a list of strings or as one comma-separated string; spaces and empty parts don't count.

use std::collections::HashMap;

use envoy_types::pb::{
    envoy::config::core::v3::Metadata,
    google::protobuf::{Struct, Value, value::Kind},
};

/// The string under that namespace and key, if it is one and not empty.
pub fn text<'a>(metadata: Option<&'a Metadata>, namespace: &str, key: &str) -> Option<&'a str> {
    match kind(metadata, namespace, key)? {
        Kind::StringValue(text) => Some(text.trim()).filter(|text| !text.is_empty()),
        _ => None,
    }
}

/// The list under that namespace and key. `Some(vec![])` where the key is there and names nothing.
pub fn list(metadata: Option<&Metadata>, namespace: &str, key: &str) -> Option<Vec<String>> {
    let mut out = Vec::new();
    collect(kind(metadata, namespace, key)?, &mut out);
    Some(out)
}

/// The parts of a comma-separated list.
pub fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// `{namespace: {key: value}}`, as dynamic metadata is answered.
pub fn nested(namespace: &str, key: &str, value: String) -> Struct {
    let inner = one(key, Kind::StringValue(value));
    one(namespace, Kind::StructValue(inner))
}

fn one(key: &str, kind: Kind) -> Struct {
    Struct { fields: HashMap::from([(key.to_owned(), Value { kind: Some(kind) })]) }
}

fn kind<'a>(metadata: Option<&'a Metadata>, namespace: &str, key: &str) -> Option<&'a Kind> {
    metadata?.filter_metadata.get(namespace)?.fields.get(key)?.kind.as_ref()
}

fn collect(kind: &Kind, out: &mut Vec<String>) {
    match kind {
        Kind::StringValue(text) => out.extend(split(text).map(str::to_owned)),
        Kind::ListValue(list) => {
            // One level deep: a list inside a list names nothing.
            for kind in list.values.iter().filter_map(|value| value.kind.as_ref()) {
                if let Kind::StringValue(text) = kind {
                    out.extend(split(text).map(str::to_owned));
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::google::protobuf::ListValue;

    use super::*;

    fn with(kind: Kind) -> Metadata {
        Metadata { filter_metadata: HashMap::from([("ns".into(), one("key", kind))]), ..Default::default() }
    }

    fn string(text: &str) -> Value {
        Value { kind: Some(Kind::StringValue(text.into())) }
    }

    #[test]
    fn lists_come_in_both_forms() {
        let want = Some(vec!["1.1.1.1:80".to_owned(), "2.2.2.2:80".to_owned()]);
        let comma = with(Kind::StringValue(" 1.1.1.1:80 ,2.2.2.2:80,".into()));
        let values = vec![string("1.1.1.1:80"), string(" 2.2.2.2:80 ")];
        let listed = with(Kind::ListValue(ListValue { values }));
        assert_eq!(list(Some(&comma), "ns", "key"), want);
        assert_eq!(list(Some(&listed), "ns", "key"), want);
        assert_eq!(list(Some(&with(Kind::StringValue(String::new()))), "ns", "key"), Some(vec![]));
        assert_eq!(list(Some(&comma), "ns", "other"), None);
        assert_eq!(list(None, "ns", "key"), None);
    }

    #[test]
    fn what_is_nested_reads_back() {
        let answered = nested("ns", "key", "v".into());
        let Some(Kind::StructValue(inner)) = &answered.fields["ns"].kind else { panic!("no struct") };
        let back =
            Metadata { filter_metadata: HashMap::from([("ns".into(), inner.clone())]), ..Default::default() };
        assert_eq!(text(Some(&back), "ns", "key"), Some("v"));
    }
}
