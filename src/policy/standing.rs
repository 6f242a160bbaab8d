//! Where a resource stands, and the conditions that say so in its status.

use super::{
    eval::Key,
    problem::{Problem, in_one_line},
    secrets::{NoSecret, SecretKey, Secrets},
};

/// Where a resource stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its kind.
    pub kind: &'static str,
    /// Which one.
    pub key: Key,
    /// The generation that was looked at.
    pub generation: Option<i64>,
    /// The generation in force, if any is.
    pub active: Option<i64>,
    /// Why the generation that was looked at is not in force: it is unsound, or its name is taken.
    pub rejected: Vec<Problem>,
    /// What it names that does not exist.
    pub unresolved: Vec<Problem>,
    /// What hardly does what was meant.
    pub suspicious: Vec<Problem>,
    /// The Secret that it names was not looked for yet: whether all is there is not known.
    pub unread: bool,
}

/// A condition of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Why, in a word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

impl Standing {
    /// Says of a provider whether the credential that it refers to is known.
    pub fn look_for(&mut self, key: &SecretKey, secrets: &Secrets) {
        match secrets.get(key) {
            Ok(_) => {}
            Err(NoSecret::Unread) => self.unread = true,
            Err(why) => self.unresolved.push(key.problem(&why)),
        }
    }

    /// What the status says.
    pub fn conditions(&self) -> Vec<Condition> {
        let resolved = (!self.unread).then(|| self.resolved());
        [self.accepted()].into_iter().chain(resolved).collect()
    }

    fn accepted(&self) -> Condition {
        let stays = match self.active {
            Some(active) if !self.rejected.is_empty() => format!("; generation {active} stays in force"),
            _ => String::new(),
        };
        let holds = self.rejected.is_empty();
        Condition {
            kind: "Accepted",
            holds,
            reason: if holds { "Accepted" } else { "Invalid" },
            message: match holds {
                true if self.suspicious.is_empty() => "in force".into(),
                true => format!("in force, but {}", in_one_line(&self.suspicious)),
                false => format!("{}{stays}", in_one_line(&self.rejected)),
            },
        }
    }

    fn resolved(&self) -> Condition {
        let holds = self.unresolved.is_empty();
        Condition {
            kind: "ResolvedRefs",
            holds,
            reason: if holds { "ResolvedRefs" } else { "RefNotFound" },
            message: if holds { "all that it names exists".into() } else { in_one_line(&self.unresolved) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{FieldPath, secrets::Secret},
        *,
    };

    fn standing(kind: &'static str) -> Standing {
        Standing {
            kind,
            key: Key { namespace: "n".into(), name: "x".into() },
            generation: Some(2),
            active: Some(2),
            rejected: Vec::new(),
            unresolved: Vec::new(),
            suspicious: Vec::new(),
            unread: false,
        }
    }

    fn said(standing: &Standing) -> Vec<(bool, &'static str, String)> {
        standing.conditions().into_iter().map(|one| (one.holds, one.reason, one.message)).collect()
    }

    #[test]
    fn a_sound_resource_is_accepted_and_what_it_names_exists() {
        let all = said(&standing("InferencePool"));
        let resolved = (true, "ResolvedRefs", "all that it names exists".to_owned());
        assert_eq!(all, [(true, "Accepted", "in force".to_owned()), resolved]);
    }

    #[test]
    fn a_provider_needs_the_secret_that_it_names() {
        let key = SecretKey { namespace: "n".into(), name: "s".into(), key: "k".into() };
        let secrets = Secrets::default();
        let provider = || {
            let mut provider = standing("InferenceProvider");
            provider.look_for(&key, &secrets);
            said(&provider)
        };
        let accepted = (true, "Accepted", "in force".to_owned());
        assert_eq!(provider(), [accepted], "before anybody looked nothing is said");
        let path = "`spec.credentials.secretRef` names key `k` of Secret n/s, which";
        let usable = "has no value that a header can carry: printable ASCII is accepted";
        for (found, (holds, reason, message)) in [
            (Err(NoSecret::Absent), (false, "RefNotFound", format!("{path} does not exist"))),
            (Secret::read(b"a\nb"), (false, "RefNotFound", format!("{path} {usable}"))),
            (Secret::read(b"ab\n"), (true, "ResolvedRefs", "all that it names exists".to_owned())),
        ] {
            secrets.replace([(key.clone(), found)].into());
            assert_eq!(provider()[1], (holds, reason, message));
        }
    }

    #[test]
    fn what_is_wrong_is_in_the_message_and_what_stays_in_force_too() {
        let problem = |path: &str| vec![Problem::new(FieldPath::of(path), "is wrong")];
        let broken = Standing { active: Some(1), rejected: problem("spec.a"), ..standing("InferencePolicy") };
        let expected = (false, "Invalid", "`spec.a` is wrong; generation 1 stays in force".to_owned());
        assert_eq!(said(&broken)[0], expected);
        let odd = Standing {
            unresolved: problem("spec.b"),
            suspicious: problem("spec.c"),
            ..standing("InferencePolicy")
        };
        let accepted = (true, "Accepted", "in force, but `spec.c` is wrong".to_owned());
        assert_eq!(said(&odd), [accepted, (false, "RefNotFound", "`spec.b` is wrong".to_owned())]);
    }
}
