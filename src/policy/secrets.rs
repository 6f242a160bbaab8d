//! Credentials of providers: who fetches them puts them here, decisions and statuses look them up.
//!
//! Invariant: what is known is replaced as a whole, and can be carried in a header. No value is in any log or dump.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use tokio::sync::watch;

use super::{FieldPath, Problem};

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretKey {
    /// The Secret's namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The key in it.
    pub key: Arc<str>,
}

impl SecretKey {
    /// What is said of a provider that names it, where it is not known.
    pub fn problem(&self, why: &NoSecret) -> Problem {
        let path = FieldPath::of("spec.credentials.secretRef");
        Problem::new(path, format!("names {self}, which {why}"))
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key `{}` of Secret {}/{}", self.key, self.namespace, self.name)
    }
}

/// A credential: printable ASCII, not empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// From the bytes of a Secret or a file, without the line ends after it.
    ///
    /// # Errors
    /// It can't be carried in a header.
    pub fn read(bytes: &[u8]) -> Result<Self, NoSecret> {
        let text = std::str::from_utf8(bytes).unwrap_or_default().trim();
        let printable = !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if printable { Ok(Self(text.into())) } else { Err(NoSecret::Unusable) }
    }

    /// For the header that carries it, and nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why a credential is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSecret {
    /// Nobody looked for it yet.
    #[error("was not read yet")]
    Unread,
    /// There is no such Secret, or it has no such key.
    #[error("does not exist")]
    Absent,
    /// It is empty, or has bytes that no header carries.
    #[error("has no value that a header can carry: printable ASCII is accepted")]
    Unusable,
    /// It can't be read, for that reason.
    #[error("can't be read: {0}")]
    Unreadable(Arc<str>),
}

/// Credentials, and why others are not known. Who fetches them answers for all that are wanted.
pub type Known = HashMap<SecretKey, Result<Secret, NoSecret>>;

/// What is known, and what is wanted. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    known: Arc<watch::Sender<Arc<Known>>>,
    wanted: Arc<watch::Sender<Arc<BTreeSet<SecretKey>>>>,
}

impl Secrets {
    /// The credential there.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn get(&self, key: &SecretKey) -> Result<Secret, NoSecret> {
        self.known.borrow().get(key).cloned().unwrap_or(Err(NoSecret::Unread))
    }

    /// Takes over all that is known now.
    pub fn replace(&self, known: Known) {
        self.known.send_if_modified(|before| {
            let changed = **before != known;
            if changed {
                *before = Arc::new(known);
            }
            changed
        });
    }

    /// Tells when what is known changes.
    pub fn changes(&self) -> watch::Receiver<Arc<Known>> {
        self.known.subscribe()
    }

    /// Says which are needed.
    pub fn want(&self, keys: BTreeSet<SecretKey>) {
        self.wanted.send_if_modified(|wanted| {
            let changed = **wanted != keys;
            if changed {
                *wanted = Arc::new(keys);
            }
            changed
        });
    }

    /// Those that are needed, for who fetches them.
    pub fn wanted(&self) -> watch::Receiver<Arc<BTreeSet<SecretKey>>> {
        self.wanted.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_what_a_header_carries_and_is_never_shown() {
        let secret = Secret::read(b"sk-1 2\r\n\n").unwrap();
        assert_eq!((secret.expose(), format!("{secret:?}").as_str()), ("sk-1 2", "Secret(..)"));
        for bad in [&b""[..], b"\n", b"a\nb", b"a\0", "sch\u{fc}ssel".as_bytes(), b"\xff"] {
            assert_eq!(Secret::read(bad), Err(NoSecret::Unusable), "{bad:?}");
        }
    }

    #[test]
    fn what_is_known_is_replaced_as_a_whole_and_changes_are_told() {
        let key = |key: &str| SecretKey { namespace: "ns".into(), name: "s".into(), key: key.into() };
        let secrets = Secrets::default();
        let mut changes = secrets.clone().changes();
        secrets.replace([(key("a"), Secret::read(b"1"))].into());
        assert!(changes.has_changed().unwrap());
        assert_eq!(secrets.get(&key("a")).unwrap().expose(), "1");
        assert_eq!(secrets.get(&key("b")), Err(NoSecret::Unread));
        changes.mark_unchanged();
        secrets.replace([(key("a"), Secret::read(b"1"))].into());
        assert!(!changes.has_changed().unwrap());
        secrets.replace([(key("b"), Secret::read(b""))].into());
        assert_eq!(
            (secrets.get(&key("a")), secrets.get(&key("b"))),
            (Err(NoSecret::Unread), Err(NoSecret::Unusable))
        );
    }

    #[test]
    fn who_fetches_is_told_what_is_wanted_when_it_changes() {
        let key = SecretKey { namespace: "ns".into(), name: "s".into(), key: "k".into() };
        let secrets = Secrets::default();
        let mut wanted = secrets.wanted();
        secrets.want([key.clone()].into());
        assert!(wanted.has_changed().unwrap() && wanted.borrow_and_update().contains(&key));
        secrets.want([key].into());
        assert!(!wanted.has_changed().unwrap());
    }
}
