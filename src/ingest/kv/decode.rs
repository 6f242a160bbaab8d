//! A KV-event payload (MessagePack) into a [`Batch`], whatever the engine's version.
//!
//! Invariant: an event that can't be read costs only itself; bytes that are no MessagePack cost the payload,
//! and never a panic. Memory stays proportional to the payload's length.

#[cfg(test)]
mod tests;

pub use super::faults::{DecodeError, SkipReason};
use super::{
    cursor::{Cursor, Token},
    fields::{Fault, Field, Fields, Kind, text},
};
use crate::types::KvEvent;

/// What one message of an engine says.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// When it was published: seconds since the Unix epoch, by the engine's clock.
    pub ts: f64,
    /// The data-parallel rank that the engine calls itself. Shown, never acted on.
    pub rank: Option<i32>,
    /// In order.
    pub events: Vec<KvEvent>,
    /// What could not be used, in order.
    pub skipped: Vec<Skipped>,
}

/// An event that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its place among all events of the batch.
    pub index: u32,
    /// Why.
    pub reason: SkipReason,
}

/// Reads a payload: `[ts, [events], rank]`, each event a positional array (up to vLLM 0.23) or a map.
///
/// # Errors
/// Bytes that are no such batch.
pub fn decode(payload: &[u8]) -> Result<Batch, DecodeError> {
    let mut cursor = Cursor::new(payload);
    let Token::Array(len @ 2..) = cursor.token()? else { return Err(DecodeError::Shape) };
    let ts = match cursor.token()? {
        Token::Float(ts) => ts,
        #[expect(clippy::cast_precision_loss, reason = "whole seconds since the epoch are far below 2^52")]
        Token::Uint(ts) => ts as f64,
        _ => return Err(DecodeError::Shape),
    };
    let Token::Array(count) = cursor.token()? else { return Err(DecodeError::Shape) };
    let mut batch = Batch { ts, rank: None, events: Vec::with_capacity(cursor.room(count)), skipped: vec![] };
    for index in 0..count {
        match event(&mut cursor)? {
            Ok(event) => batch.events.push(event),
            Err(reason) => batch.skipped.push(Skipped { index, reason }),
        }
    }
    if len > 2 {
        batch.rank = rank(&mut cursor)?;
    }
    for _ in 3..len {
        cursor.skip_value()?;
    }
    if cursor.remaining() > 0 { Err(DecodeError::Trailing) } else { Ok(batch) }
}

fn rank(cursor: &mut Cursor<'_>) -> Result<Option<i32>, DecodeError> {
    let start = cursor.position();
    match cursor.token()? {
        Token::Uint(rank) => Ok(i32::try_from(rank).ok()),
        Token::Int(rank) => Ok(i32::try_from(rank).ok()),
        _ => {
            cursor.rewind(start);
            cursor.skip_value().map(|()| None)
        }
    }
}

/// One event, or why it is left out; the cursor is behind it either way.
fn event(cursor: &mut Cursor<'_>) -> Result<Result<KvEvent, SkipReason>, DecodeError> {
    let start = cursor.position();
    match read(cursor) {
        Ok(event) => Ok(Ok(event)),
        Err(Fault::Bytes(error)) => Err(error),
        Err(Fault::Skip(reason)) => {
            cursor.rewind(start);
            cursor.skip_value()?;
            Ok(Err(reason))
        }
    }
}

fn read(cursor: &mut Cursor<'_>) -> Result<KvEvent, Fault> {
    match cursor.token()? {
        Token::Array(len @ 1..) => positional(cursor, len),
        Token::Map(pairs) => named(cursor, pairs),
        _ => Err(SkipReason::Malformed.into()),
    }
}

/// `["BlockStored", ...]`: fields by place; later versions only append.
fn positional(cursor: &mut Cursor<'_>, len: u32) -> Result<KvEvent, Fault> {
    let kind = Kind::parse(text(cursor)?)?;
    let mut fields = Fields::default();
    let mut layout = kind.layout().iter();
    for _ in 1..len {
        match layout.next() {
            Some(field) => fields.read(*field, cursor)?,
            None => cursor.skip_value()?,
        }
    }
    fields.event(kind)
}

/// `{"type": "BlockStored", ...}`: fields by name, those at their defaults left out.
fn named(cursor: &mut Cursor<'_>, pairs: u32) -> Result<KvEvent, Fault> {
    let mut kind = None;
    let mut fields = Fields::default();
    for _ in 0..pairs {
        let start = cursor.position();
        match cursor.token()? {
            Token::Str(b"type") => kind = Some(Kind::parse(text(cursor)?)?),
            Token::Str(name) => match Field::parse(name) {
                Some(field) => fields.read(field, cursor)?,
                None => cursor.skip_value()?,
            },
            _ => {
                cursor.rewind(start);
                cursor.skip_value()?;
                cursor.skip_value()?;
            }
        }
    }
    fields.event(kind.ok_or(SkipReason::UnknownType)?)
}
