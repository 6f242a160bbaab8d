//! How many workers of a set take requests, and why the others do not, as the registry has it.
//!
//! The same as routing asks of a worker, so that a status never claims one that gets nothing.

use std::collections::BTreeMap;

use crate::{
    fleet::{KvState, Member, Registry},
    types::RemovedReason,
};

/// As many reasons are told.
const TOLD: usize = 3;

/// The workers of one set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// All of them.
    pub workers: usize,
    /// Of these, the ones that take requests.
    pub ready: usize,
    /// Why the others do not, and how many each reason keeps, the commonest first.
    pub kept: Vec<(String, usize)>,
}

impl Serving {
    /// Of the set of that name.
    pub fn of(registry: &Registry, set: &str) -> Self {
        let fleet = registry.snapshot();
        let members = fleet.values().filter(|member| &*member.worker.set.name == set);
        Self::count(members.map(|member| why_not(member)))
    }

    fn count(workers: impl Iterator<Item = Option<String>>) -> Self {
        let mut all = Self::default();
        let mut kept = BTreeMap::<String, usize>::new();
        for why in workers {
            all.workers += 1;
            match why {
                None => all.ready += 1,
                Some(why) => *kept.entry(why).or_default() += 1,
            }
        }
        all.kept.extend(kept);
        all.kept.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }

    /// In words.
    pub fn tell(&self) -> String {
        let mut told = format!("workers that take requests: {} of {}", self.ready, self.workers);
        for (why, count) in self.kept.iter().take(TOLD) {
            told.push_str(&format!("; {count} {why}"));
        }
        let others: usize = self.kept.iter().skip(TOLD).map(|(_, count)| count).sum();
        if others > 0 {
            told.push_str(&format!("; {others} for other reasons"));
        }
        told
    }
}

fn why_not(member: &Member) -> Option<String> {
    Some(match member.unavailable()? {
        RemovedReason::Evicted => match &**member.status.kv.load() {
            KvState::Evicted(why) => format!("evicted: {why}"),
            _ => "evicted".to_owned(),
        },
        RemovedReason::Failing if member.status.needs_probe() => "failing: its responses are errors".into(),
        RemovedReason::Failing => "failing: it does not answer polls".into(),
        other => other.label().replace('_', " "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commonest_reason_comes_first() {
        let workers = ["not ready", "", "evicted: x", "a", "b", "evicted: x"];
        let serving =
            Serving::count(workers.iter().map(|why| Some((*why).to_owned()).filter(|why| !why.is_empty())));
        assert_eq!((serving.workers, serving.ready), (6, 1));
        assert_eq!(
            serving.tell(),
            "workers that take requests: 1 of 6; 2 evicted: x; 1 a; 1 b; 1 for other reasons"
        );
        assert_eq!(Serving::default().tell(), "workers that take requests: 0 of 0");
    }
}
