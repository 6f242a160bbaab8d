//! What salts a block beyond its tokens, read from a prompt or from an event into one form and folded into its key.
//!
//! Invariant: two blocks of equal tokens and adapter get equal keys if and only if their salts are equal; a salt
//! that can't be told for sure is an error, never a guess. Offsets in tokens from the start of the block.

use xxhash_rust::xxh3::xxh3_64;

use super::NoCreditReason;
use crate::types::{BlockHash, ExtraKey};

/// The salts of one block. The adapter is not among them: it seeds the hash of the tokens.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Salts<'a> {
    /// `cache_salt`, on the first block of a sequence only.
    pub(super) cache_salt: Option<&'a str>,
    /// Items that touch the block: (offset, hash).
    pub(super) images: Vec<(i64, &'a str)>,
}

impl<'a> Salts<'a> {
    /// Reads what an engine says of one block. A text is the adapter's name once, then `cache_salt` if the block is
    /// a sequence's first; any other text (a digest of prompt embeddings) is something that no prompt can
    /// reproduce.
    pub(super) fn of_event(
        keys: &'a [ExtraKey],
        lora_name: Option<&str>,
        first: bool,
    ) -> Result<Self, NoCreditReason> {
        let mut salts = Self::default();
        let mut adapter = lora_name;
        for key in keys {
            match key {
                ExtraKey::Text(text) if adapter == Some(text) => adapter = None,
                ExtraKey::Text(text) if first && salts.cache_salt.is_none() => salts.cache_salt = Some(text),
                ExtraKey::Image { hash, offset } => salts.images.push((*offset, hash)),
                ExtraKey::Text(_) | ExtraKey::Unknown => return Err(NoCreditReason::UnknownSalt),
            }
        }
        Ok(salts)
    }

    /// The block's key: `content` itself (the hash of its tokens) where nothing salts it.
    pub(super) fn fold(mut self, content: u64) -> BlockHash {
        if self.cache_salt.is_none() && self.images.is_empty() {
            return BlockHash(content);
        }
        self.images.sort_unstable();
        // Every field has a tag or a fixed length before it, so that no two sets of salts read the same.
        let mut bytes = content.to_le_bytes().to_vec();
        let mut text = |tag: u8, offset: i64, text: &str| {
            bytes.push(tag);
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        };
        if let Some(salt) = self.cache_salt {
            text(1, 0, salt);
        }
        for (offset, hash) in self.images {
            text(2, offset, hash);
        }
        BlockHash(xxh3_64(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> ExtraKey {
        ExtraKey::Text(s.into())
    }

    #[test]
    fn texts_are_told_apart_by_place() {
        let read = |keys: &[ExtraKey], lora, first| {
            Salts::of_event(keys, lora, first).map(|s| s.cache_salt.map(str::to_owned))
        };
        assert_eq!(read(&[text("a")], Some("a"), false), Ok(None));
        assert_eq!(read(&[text("a")], None, true), Ok(Some("a".to_owned())));
        assert_eq!(read(&[text("a"), text("a")], Some("a"), true), Ok(Some("a".to_owned())), "both alike");
        assert_eq!(read(&[text("a")], None, false), Err(NoCreditReason::UnknownSalt), "a salt is on block 0");
        assert_eq!(
            read(&[text("a"), text("b")], None, true),
            Err(NoCreditReason::UnknownSalt),
            "which is it?"
        );
        assert_eq!(read(&[ExtraKey::Unknown], None, true), Err(NoCreditReason::UnknownSalt));
    }

    #[test]
    fn what_differs_in_any_salt_differs_in_key() {
        let sets = [
            Salts::default(),
            Salts { cache_salt: Some("a"), images: vec![] },
            Salts { cache_salt: Some("b"), images: vec![] },
            Salts { cache_salt: None, images: vec![(0, "a")] },
            Salts { cache_salt: None, images: vec![(1, "a")] },
            Salts { cache_salt: None, images: vec![(-1, "a")] },
            Salts { cache_salt: None, images: vec![(0, "a"), (1, "a")] },
            Salts { cache_salt: Some("a"), images: vec![(0, "a")] },
        ];
        let keys: std::collections::HashSet<_> = sets.into_iter().map(|s| s.fold(7)).collect();
        assert_eq!(keys.len(), 8);
        let order = |images| Salts { cache_salt: None, images }.fold(7);
        assert_eq!(order(vec![(0, "a"), (1, "b")]), order(vec![(1, "b"), (0, "a")]));
    }
}
