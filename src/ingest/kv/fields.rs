//! The fields of KV events: where each version puts them, and how they become a [`KvEvent`].
//!
//! Owner: the decoder. Invariant: what a `KvEvent` is made of is consistent (tokens and extra keys match the
//! blocks), so that nobody behind has to check again.

use super::{
    cursor::{Cursor, Token},
    faults::{DecodeError, SkipReason},
};
use crate::types::{EngineHash, ExtraKey, Group, KvEvent, StoredBlocks, Tier};

/// Why an event could not be read.
#[derive(Debug)]
pub enum Fault {
    /// The bytes are broken: so is all that follows.
    Bytes(DecodeError),
    /// Only this event is not usable.
    Skip(SkipReason),
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Bytes(error)
    }
}

impl From<SkipReason> for Fault {
    fn from(reason: SkipReason) -> Self {
        Self::Skip(reason)
    }
}

/// The event types that we act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `BlockStored`
    Stored,
    /// `BlockRemoved`
    Removed,
    /// `AllBlocksCleared`
    Cleared,
}

impl Kind {
    /// By its name in the event.
    pub fn parse(name: &[u8]) -> Result<Self, SkipReason> {
        match name {
            b"BlockStored" => Ok(Self::Stored),
            b"BlockRemoved" => Ok(Self::Removed),
            b"AllBlocksCleared" => Ok(Self::Cleared),
            _ => Err(SkipReason::UnknownType),
        }
    }

    /// Its fields in the order of the positional encoding; what follows them is skipped.
    pub fn layout(self) -> &'static [Field] {
        use Field::{
            BlockSize, ExtraKeys, GroupIndex, Hashes, LoraId, LoraName, Medium, Parent, SlidingWindow,
            SpecKind, Tokens,
        };
        match self {
            Self::Stored => &[
                Hashes,
                Parent,
                Tokens,
                BlockSize,
                LoraId,
                Medium,
                LoraName,
                ExtraKeys,
                GroupIndex,
                SpecKind,
                SlidingWindow,
            ],
            Self::Removed => &[Hashes, Medium, GroupIndex],
            Self::Cleared => &[],
        }
    }
}

/// The fields that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `block_hashes`
    Hashes,
    /// `parent_block_hash`
    Parent,
    /// `token_ids`
    Tokens,
    /// `block_size`
    BlockSize,
    /// `lora_id`
    LoraId,
    /// `lora_name`
    LoraName,
    /// `medium`
    Medium,
    /// `extra_keys`
    ExtraKeys,
    /// `group_idx`
    GroupIndex,
    /// `kv_cache_spec_kind`
    SpecKind,
    /// `kv_cache_spec_sliding_window`
    SlidingWindow,
}

impl Field {
    /// By its name in the map encoding.
    pub fn parse(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"block_hashes" => Self::Hashes,
            b"parent_block_hash" => Self::Parent,
            b"token_ids" => Self::Tokens,
            b"block_size" => Self::BlockSize,
            b"lora_id" => Self::LoraId,
            b"lora_name" => Self::LoraName,
            b"medium" => Self::Medium,
            b"extra_keys" => Self::ExtraKeys,
            b"group_idx" => Self::GroupIndex,
            b"kv_cache_spec_kind" => Self::SpecKind,
            b"kv_cache_spec_sliding_window" => Self::SlidingWindow,
            _ => return None,
        })
    }
}

/// What has been read of an event.
#[derive(Debug, Default)]
pub struct Fields {
    hashes: Option<Vec<EngineHash>>,
    tokens: Option<Vec<u32>>,
    extra_keys: Option<Vec<Vec<ExtraKey>>>,
    rest: StoredBlocks,
}

impl Fields {
    /// Reads the value of a field.
    pub fn read(&mut self, field: Field, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        let rest = &mut self.rest;
        match field {
            Field::Hashes => self.hashes = Some(list(cursor, |cursor| hash(cursor.token()?))?),
            Field::Tokens => self.tokens = Some(list(cursor, |cursor| small(cursor.token()?))?),
            Field::Parent => rest.parent = optional(cursor, hash)?,
            Field::BlockSize => rest.block_size = small(cursor.token()?)?,
            Field::LoraId => rest.lora_id = optional(cursor, integer)?,
            Field::LoraName => rest.lora_name = optional(cursor, string)?,
            Field::Medium => rest.tier = optional(cursor, tier)?.unwrap_or_default(),
            Field::ExtraKeys => self.extra_keys = extra_keys(cursor)?,
            Field::GroupIndex => rest.group.index = optional(cursor, small)?,
            Field::SpecKind => rest.group.kind = optional(cursor, string)?,
            Field::SlidingWindow => rest.group.sliding_window = optional(cursor, small)?,
        }
        Ok(())
    }

    /// The event that they make.
    pub fn event(self, kind: Kind) -> Result<KvEvent, Fault> {
        let Self { hashes, tokens, extra_keys, rest } = self;
        if kind == Kind::Cleared {
            return Ok(KvEvent::Cleared);
        }
        let hashes = hashes.ok_or(SkipReason::MissingField)?;
        if kind == Kind::Removed {
            let Group { index, .. } = rest.group;
            return Ok(KvEvent::Removed { hashes, tier: rest.tier, group: index });
        }
        let tokens = tokens.ok_or(SkipReason::MissingField)?;
        if rest.block_size == 0 {
            return Err(SkipReason::MissingField.into());
        }
        let extra_keys = extra_keys.unwrap_or_default();
        // Blocks copied to a lower tier are announced without tokens: only their handles count.
        let right =
            tokens.is_empty() || tokens.len() as u64 == hashes.len() as u64 * u64::from(rest.block_size);
        if !right || !(extra_keys.is_empty() || extra_keys.len() == hashes.len()) {
            return Err(SkipReason::CountMismatch.into());
        }
        Ok(KvEvent::Stored(StoredBlocks { hashes, tokens, extra_keys, ..rest }))
    }
}

/// The bytes of a text.
pub fn text<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Fault> {
    match cursor.token()? {
        Token::Str(text) => Ok(text),
        _ => Err(SkipReason::Malformed.into()),
    }
}

fn list<T>(
    cursor: &mut Cursor<'_>,
    mut item: impl FnMut(&mut Cursor<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let Token::Array(count) = cursor.token()? else { return Err(SkipReason::Malformed.into()) };
    let mut items = Vec::with_capacity(cursor.room(count));
    for _ in 0..count {
        items.push(item(cursor)?);
    }
    Ok(items)
}

fn optional<T>(cursor: &mut Cursor<'_>, of: fn(Token<'_>) -> Result<T, Fault>) -> Result<Option<T>, Fault> {
    match cursor.token()? {
        Token::Nil => Ok(None),
        token => of(token).map(Some),
    }
}

fn hash(token: Token<'_>) -> Result<EngineHash, Fault> {
    match token {
        Token::Uint(hash) => Ok(EngineHash::Int(hash)),
        // A signed 64-bit hash is the same handle, seen as its bits.
        Token::Int(hash) => Ok(EngineHash::Int(hash.cast_unsigned())),
        Token::Bin(hash) => Ok(EngineHash::Bytes(hash.into())),
        _ => Err(SkipReason::Malformed.into()),
    }
}

fn small(token: Token<'_>) -> Result<u32, Fault> {
    match token {
        Token::Uint(number) => u32::try_from(number).map_err(|_| SkipReason::Malformed.into()),
        _ => Err(SkipReason::Malformed.into()),
    }
}

fn integer(token: Token<'_>) -> Result<i64, Fault> {
    match token {
        Token::Uint(number) => i64::try_from(number).map_err(|_| SkipReason::Malformed.into()),
        Token::Int(number) => Ok(number),
        _ => Err(SkipReason::Malformed.into()),
    }
}

fn string(token: Token<'_>) -> Result<Box<str>, Fault> {
    match token {
        Token::Str(text) => Ok(String::from_utf8_lossy(text).into()),
        _ => Err(SkipReason::Malformed.into()),
    }
}

fn tier(token: Token<'_>) -> Result<Tier, Fault> {
    Ok(match token {
        Token::Str(b"GPU") => Tier::Gpu,
        Token::Str(b"CPU") => Tier::Cpu,
        other => Tier::Other(string(other)?),
    })
}

/// For each block nil or a list of keys; `None` when no block has any.
fn extra_keys(cursor: &mut Cursor<'_>) -> Result<Option<Vec<Vec<ExtraKey>>>, Fault> {
    let blocks = match cursor.token()? {
        Token::Nil => return Ok(None),
        Token::Array(blocks) => blocks,
        _ => return Err(SkipReason::Malformed.into()),
    };
    let mut keys = Vec::with_capacity(cursor.room(blocks));
    for _ in 0..blocks {
        keys.push(match cursor.token()? {
            Token::Nil => Vec::new(),
            Token::Array(count) => {
                let mut own = Vec::with_capacity(cursor.room(count));
                for _ in 0..count {
                    own.push(extra_key(cursor)?);
                }
                own
            }
            _ => return Err(SkipReason::Malformed.into()),
        });
    }
    Ok(keys.iter().any(|own| !own.is_empty()).then_some(keys))
}

fn extra_key(cursor: &mut Cursor<'_>) -> Result<ExtraKey, DecodeError> {
    let start = cursor.position();
    let key = match cursor.token()? {
        Token::Str(text) => return Ok(ExtraKey::Text(String::from_utf8_lossy(text).into())),
        Token::Array(2) => image(cursor)?,
        _ => None,
    };
    if let Some(key) = key {
        return Ok(key);
    }
    cursor.rewind(start);
    cursor.skip_value()?;
    Ok(ExtraKey::Unknown)
}

/// `[hash, offset]`, if it is that.
fn image(cursor: &mut Cursor<'_>) -> Result<Option<ExtraKey>, DecodeError> {
    let hash = cursor.token()?;
    let Token::Str(hash) = hash else { return Ok(None) };
    let offset = integer(cursor.token()?).ok();
    Ok(offset.map(|offset| ExtraKey::Image { hash: String::from_utf8_lossy(hash).into(), offset }))
}
