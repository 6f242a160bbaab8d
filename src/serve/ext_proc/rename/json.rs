//! Finds the value of `model` in a JSON object that comes in pieces, and puts another name in its place.
//!
//! Invariant: what comes of an object does not depend on where it was cut. Nothing is held back: a value goes where it
//! begins, and its old bytes are dropped as they come. Of an object only the bytes of one key are kept, up to `MOST_KEY`.

use std::{mem, ops::Range};

use bytes::Bytes;

use crate::prompt::Splice;

const MARK: &[u8] = b"\xef\xbb\xbf";
const MODEL: &str = "model";
/// The longest key of interest as it may be written, every character an escape of six bytes: `response`.
const MOST_KEY: usize = 48;

/// What a key means for its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Model,
    /// An object that has a `model` of its own.
    Inner,
    Other,
}

/// Where in the object the scanner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before it.
    Before,
    /// Where a key may begin.
    Members,
    /// In a key; the last byte was a backslash that counts.
    Key { escaped: bool },
    /// After a key.
    Colon(Field),
    /// Before a value.
    Value(Field),
    /// In a string that stays, that many brackets deep.
    String { escaped: bool, depth: usize },
    /// Between strings of a value that stays, that many brackets deep.
    Nested { depth: usize },
    /// In a string that goes.
    OldString { escaped: bool },
    /// In a number or a word that goes.
    OldWord,
    /// After a value, or in a number or a word that stays.
    After,
    /// Behind the object; or it is none, and stays as it is.
    Off,
}

/// Renames one object after the other.
#[derive(Debug)]
pub struct ModelNames {
    /// The name, as JSON.
    name: Bytes,
    /// The key of the object that has a `model` of its own.
    inner: Option<&'static str>,
    at: At,
    within_inner: bool,
    key: Vec<u8>,
}

impl ModelNames {
    /// Of objects that have `model` at their top, and in the object under the key `inner` there.
    pub fn new(name: &str, inner: Option<&'static str>) -> Self {
        let name = serde_json::Value::from(name).to_string().into();
        Self { name, inner, at: At::Before, within_inner: false, key: Vec::new() }
    }

    /// The next object begins.
    pub fn restart(&mut self) {
        (self.at, self.within_inner) = (At::Before, false);
    }

    /// Takes the next bytes, those of `bytes` in that range, and adds what becomes of them.
    pub fn push(&mut self, bytes: &[u8], range: Range<usize>, splices: &mut Vec<Splice>) {
        let mut here = range.start;
        while here < range.end {
            let before = self.at;
            let rest = &bytes[here..range.end];
            let taken = self.take(rest);
            let replacement = match (before, self.at) {
                (At::Value(_), At::OldString { .. } | At::OldWord) => Some(self.name.clone()),
                (At::OldString { .. } | At::OldWord, _) => Some(Bytes::new()),
                _ => None,
            };
            if let Some(replacement) = replacement.filter(|_| taken > 0) {
                splices.push(Splice { range: here..here + taken, replacement });
            }
            here += taken;
        }
    }

    /// Takes some of these bytes, which are not none; answers how many. None: the same again, in the new state.
    fn take(&mut self, rest: &[u8]) -> usize {
        let byte = rest[0];
        match self.at {
            At::Off => return rest.len(),
            At::Key { escaped } => return self.in_key(rest, escaped),
            At::String { escaped, depth } => {
                let (taken, state) = in_string(rest, escaped);
                self.at = match state {
                    Text::Open { escaped } => At::String { escaped, depth },
                    Text::Closed => nested(depth),
                };
                return taken;
            }
            At::OldString { escaped } => {
                let (taken, state) = in_string(rest, escaped);
                self.at = match state {
                    Text::Open { escaped } => At::OldString { escaped },
                    Text::Closed => At::After,
                };
                return taken;
            }
            At::OldWord => {
                let length = rest.iter().position(|byte| ends_word(*byte));
                if length.is_some() {
                    self.at = At::After;
                }
                return length.unwrap_or(rest.len());
            }
            At::Before if byte == b'{' => self.at = At::Members,
            At::Before if is_space(byte) || MARK.contains(&byte) => {}
            At::Members if byte == b'"' => {
                self.key.clear();
                self.at = At::Key { escaped: false };
            }
            At::Members if byte == b',' || is_space(byte) => {}
            At::Colon(field) if byte == b':' => self.at = At::Value(field),
            At::Colon(_) | At::Value(_) if is_space(byte) => {}
            At::Value(field) => self.value(field, byte),
            At::Nested { depth } => self.at = within(byte, depth),
            At::After if byte == b',' => self.at = At::Members,
            At::Members | At::After if byte == b'}' => {
                self.at = if mem::take(&mut self.within_inner) { At::After } else { At::Off };
            }
            At::After if !matches!(byte, b'"' | b'{' | b'[' | b']' | b':') => {}
            At::Before | At::Members | At::Colon(_) | At::After => self.at = At::Off,
        }
        1
    }

    fn in_key(&mut self, rest: &[u8], escaped: bool) -> usize {
        let (taken, state) = in_string(rest, escaped);
        // One byte more than counts tells that it is too long.
        let room = (MOST_KEY + 2).saturating_sub(self.key.len());
        self.key.extend_from_slice(&rest[..taken.min(room)]);
        self.at = match state {
            Text::Open { escaped } => At::Key { escaped },
            Text::Closed => At::Colon(self.field()),
        };
        taken
    }

    /// What the key is, of which the closing quote is a part.
    fn field(&self) -> Field {
        let Some((b'"', raw)) = self.key.split_last() else { return Field::Other };
        if raw.contains(&b'\\') {
            let quoted = [b"\"", self.key.as_slice()].concat();
            return serde_json::from_slice::<String>(&quoted).map_or(Field::Other, |key| self.named(&key));
        }
        std::str::from_utf8(raw).map_or(Field::Other, |key| self.named(key))
    }

    fn named(&self, key: &str) -> Field {
        match key {
            MODEL => Field::Model,
            _ if !self.within_inner && self.inner == Some(key) => Field::Inner,
            _ => Field::Other,
        }
    }

    fn value(&mut self, field: Field, byte: u8) {
        self.at = match (field, byte) {
            (Field::Model, b'"') => At::OldString { escaped: false },
            (Field::Inner, b'{') => {
                self.within_inner = true;
                At::Members
            }
            (_, b'"') => At::String { escaped: false, depth: 0 },
            (_, b'{' | b'[') => At::Nested { depth: 1 },
            (_, b',' | b'}' | b']' | b':') => At::Off,
            (Field::Model, _) => At::OldWord,
            _ => At::After,
        };
    }
}

enum Text {
    Open { escaped: bool },
    Closed,
}

/// Takes bytes of a string up to a backslash or its closing quote, which is taken too.
fn in_string(rest: &[u8], escaped: bool) -> (usize, Text) {
    if escaped {
        return (1, Text::Open { escaped: false });
    }
    match rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        Some(at) if rest[at] == b'"' => (at + 1, Text::Closed),
        Some(at) => (at + 1, Text::Open { escaped: true }),
        None => (rest.len(), Text::Open { escaped: false }),
    }
}

const fn within(byte: u8, depth: usize) -> At {
    match byte {
        b'"' => At::String { escaped: false, depth },
        b'{' | b'[' => At::Nested { depth: depth + 1 },
        b'}' | b']' => nested(depth - 1),
        _ => At::Nested { depth },
    }
}

const fn nested(depth: usize) -> At {
    if depth == 0 { At::After } else { At::Nested { depth } }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

const fn ends_word(byte: u8) -> bool {
    is_space(byte) || matches!(byte, b',' | b'}' | b']' | b'"' | b'{' | b'[' | b':')
}
