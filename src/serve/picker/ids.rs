//! Ids of bodies and picks: `<replica>.<32 hex digits>`. The digits can't be guessed, the name says whose they are.

use std::sync::Arc;

use parking_lot::Mutex;
use rand::{Rng, rngs::StdRng};

use crate::serve::status::{Reason, Refusal};

/// The part of an id that can't be guessed.
pub type Token = u128;

/// Makes ids and reads them.
pub struct Ids {
    replica: Arc<str>,
    rng: Mutex<StdRng>,
}

impl Ids {
    /// Ids of that replica; the generator must be seeded from the system's randomness, or ids can be guessed.
    pub fn new(replica: Arc<str>, rng: StdRng) -> Self {
        Self { replica, rng: Mutex::new(rng) }
    }

    /// A new token.
    pub fn token(&self) -> Token {
        self.rng.lock().random()
    }

    /// The id of a token.
    pub fn id(&self, token: Token) -> String {
        format!("{}.{token:032x}", self.replica)
    }

    /// The token of an id; one that is none of ours is `unknown`.
    ///
    /// # Errors
    /// Another replica's, or no id at all.
    pub fn parse(&self, id: &str, unknown: Reason) -> Result<Token, Refusal> {
        let none = || Refusal::new(unknown, "There is nothing of that id.");
        let (replica, token) = id.rsplit_once('.').ok_or_else(none)?;
        if *replica != *self.replica {
            let why = "The id belongs to another replica: call the one that made it.";
            return Err(Refusal::new(Reason::WrongReplica, why));
        }
        Token::from_str_radix(token, 16).map_err(|_| none())
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn ids_come_back_where_they_were_made() {
        let ids = |name: &str| Ids::new(name.into(), StdRng::seed_from_u64(1));
        let (here, there) = (ids("pod-1.a"), ids("pod-2"));
        let token = here.token();
        let id = here.id(token);
        assert!(id.starts_with("pod-1.a."), "{id}");
        assert_eq!(here.parse(&id, Reason::PickNotFound), Ok(token));
        let reason = |ids: &Ids, id: &str| ids.parse(id, Reason::BodyNotFound).unwrap_err().reason;
        assert_eq!(reason(&there, &id), Reason::WrongReplica);
        for unknown in ["", "pod-1", "pod-1.a.", "pod-1.a.xyz"] {
            let reason = reason(&here, unknown);
            assert!(matches!(reason, Reason::BodyNotFound | Reason::WrongReplica), "{unknown}: {reason:?}");
        }
        assert_ne!(here.token(), token);
    }
}
