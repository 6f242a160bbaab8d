//! What can be wrong with a KV-event payload: with all of it, or with one event in it.

/// Why an event was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// Its type is none that we know.
    UnknownType,
    /// A field that we need is absent.
    MissingField,
    /// A field that we need has another shape.
    Malformed,
    /// Tokens or extra keys do not match the number of blocks.
    CountMismatch,
}

impl SkipReason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::UnknownType, Self::MissingField, Self::Malformed, Self::CountMismatch];

    /// As a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::UnknownType => "unknown_type",
            Self::MissingField => "missing_field",
            Self::Malformed => "malformed",
            Self::CountMismatch => "count_mismatch",
        }
    }
}

/// Why a payload could not be read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It ends inside a value.
    #[error("the payload ends inside a value")]
    Truncated,
    /// The one byte that MessagePack never uses.
    #[error("the payload holds a reserved byte")]
    Reserved,
    /// MessagePack, but not `[ts, [events], rank]`.
    #[error("the payload is not [time, [events], rank]")]
    Shape,
    /// More bytes after the batch.
    #[error("bytes follow the batch")]
    Trailing,
}
