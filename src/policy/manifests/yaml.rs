//! YAML documents that know where each of their fields is.

use std::{collections::HashMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Spanned};

use super::super::problem::FieldPath;

/// A place in a file, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl From<Location> for Position {
    fn from(at: Location) -> Self {
        Self { line: at.line().max(1), column: at.column().max(1) }
    }
}

/// A document.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub value: Value,
    positions: HashMap<FieldPath, Position>,
}

/// What is no YAML.
#[derive(Clone, Debug)]
pub(super) struct Syntax {
    pub at: Position,
    pub message: String,
}

/// The documents of a text. Empty ones are left out.
pub(super) fn documents(text: &str) -> Result<Vec<Document>, Syntax> {
    let read: Vec<Spanned<Node>> = serde_saphyr::from_multiple(text).map_err(|error| Syntax {
        at: error.location().map_or(Position { line: 1, column: 1 }, Into::into),
        message: error.without_snippet().to_string(),
    })?;
    let filled = read.into_iter().filter(|node| !matches!(node.value, Node::Scalar(Value::Null)));
    Ok(filled.map(Document::of).collect())
}

impl Document {
    fn of(root: Spanned<Node>) -> Self {
        let path = FieldPath::default();
        let mut positions = HashMap::from([(path.clone(), root.referenced.into())]);
        let value = root.value.plain(&path, &mut positions);
        Self { value, positions }
    }

    /// Where a field is, or what contains it if it is not there.
    pub(super) fn position(&self, path: &FieldPath) -> Position {
        let mut at = Some(path.clone());
        while let Some(path) = at {
            if let Some(found) = self.positions.get(&path) {
                return *found;
            }
            at = path.parent();
        }
        Position { line: 1, column: 1 }
    }
}

enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    /// Where a field is, is where its name is.
    Map(Vec<(Spanned<String>, Node)>),
}

impl Node {
    fn plain(self, path: &FieldPath, positions: &mut HashMap<FieldPath, Position>) -> Value {
        match self {
            Self::Scalar(value) => value,
            Self::List(items) => items
                .into_iter()
                .enumerate()
                .map(|(n, item)| {
                    let path = path.item(n);
                    positions.insert(path.clone(), item.referenced.into());
                    item.value.plain(&path, positions)
                })
                .collect(),
            Self::Map(fields) => fields
                .into_iter()
                .map(|(name, field)| {
                    let path = path.field(&name.value);
                    positions.insert(path.clone(), name.referenced.into());
                    let value = field.plain(&path, positions);
                    (name.value, value)
                })
                .collect::<Map<_, _>>()
                .into(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Nodes)
    }
}

struct Nodes;

impl<'de> Visitor<'de> for Nodes {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut out = Vec::new();
        while let Some(item) = items.next_element()? {
            out.push(item);
        }
        Ok(Node::List(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
        let mut out = Vec::new();
        while let Some(field) = fields.next_entry()? {
            out.push(field);
        }
        Ok(Node::Map(out))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let text = "# one\nkind: A\nspec:\n  list:\n  - name: x\n  - {name: b, n: 1.5}\n---\n---\nkind: B\nno: null\n";
        let documents = documents(text).unwrap();
        let [a, b] = &documents[..] else { panic!("{documents:?}") };
        assert_eq!(a.value, json!({"kind": "A", "spec": {"list": [{"name": "x"}, {"name": "b", "n": 1.5}]}}));
        assert_eq!(b.value, json!({"kind": "B", "no": null}));
        let at = |document: &Document, path: &str| {
            let Position { line, column } = document.position(&FieldPath::of(path));
            (line, column)
        };
        assert_eq!(at(a, "spec.list[0].name"), (5, 5));
        assert_eq!(at(a, "spec.list[1].n"), (6, 15));
        assert_eq!(at(a, "spec.list[1]"), (6, 5));
        assert_eq!(at(a, "spec.list[1].missing.field"), (6, 5));
        assert_eq!(at(b, "kind"), (9, 1));
        assert_eq!(at(b, "spec"), (9, 1));
    }

    #[test]
    fn what_is_no_yaml_is_said_with_its_place() {
        let wrong = documents("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(wrong.at.line >= 2, "{wrong:?}");
        let twice = documents("a: 1\na: 2\n").unwrap_err();
        assert!(twice.at.line == 2 && twice.message.contains("duplicate"), "{twice:?}");
    }
}
