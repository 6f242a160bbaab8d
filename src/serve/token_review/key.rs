//! Under what a question is remembered: a hash of token and audiences, keyed with this process's secret.

use crate::kubernetes::Question;

/// A question's name in memory. Tells nothing of the token to who lacks the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key([u8; blake3::OUT_LEN]);

/// Makes keys.
pub struct Keyer([u8; blake3::KEY_LEN]);

impl Keyer {
    /// With that secret.
    pub fn new(secret: [u8; blake3::KEY_LEN]) -> Self {
        Self(secret)
    }

    /// The key of a question. Every part goes in with its length before it: no two questions look alike.
    pub fn key(&self, question: &Question) -> Key {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        let token = std::iter::once(question.token().reveal());
        for part in token.chain(question.audiences().iter().map(String::as_str)) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Key(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::kubernetes::Token;

    fn key(secret: u8, token: &str, audiences: &[String]) -> Key {
        let question = Question::new(Token::parse(token.into()).unwrap(), audiences.to_vec());
        Keyer::new([secret; 32]).key(&question)
    }

    proptest! {
        #[test]
        fn equal_exactly_for_the_same_token_and_set_of_audiences(
            tokens in ["[ab]{1,3}", "[ab]{1,3}"],
            left in prop::collection::vec("[ab]{0,2}", 0..4),
            right in prop::collection::vec("[ab]{0,2}", 0..4),
        ) {
            let same = tokens[0] == tokens[1]
                && left.iter().collect::<BTreeSet<_>>() == right.iter().collect::<BTreeSet<_>>();
            prop_assert_eq!(key(1, &tokens[0], &left) == key(1, &tokens[1], &right), same);
        }
    }

    #[test]
    fn another_secret_gives_another_key() {
        assert_ne!(key(1, "t", &[]), key(2, "t", &[]));
    }
}
