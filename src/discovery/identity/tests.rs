//! Identities with a hash so narrow that collisions are the rule.

use std::collections::BTreeSet;

use proptest::{collection::btree_set, prelude::*};

use super::*;

/// Four numbers at first; more when tried again.
fn narrow(key: &str, attempt: u64) -> u64 {
    hash(key, attempt) % (4 << attempt.min(3))
}

fn claims(keys: &BTreeSet<u8>) -> Vec<(String, String)> {
    keys.iter().map(|key| (format!("uid-{key}:8000"), format!("pod-{}", key % 3))).collect()
}

fn given(
    claims: &[(String, String)],
    before: &BTreeMap<String, Identity>,
    taken: &Taken,
) -> BTreeMap<String, Identity> {
    let claims: Vec<_> =
        claims.iter().map(|(key, name)| Claim { key, name, namespace: Some("ns") }).collect();
    identify(&claims, before, taken.clone(), narrow)
}

#[test]
fn without_a_collision_it_is_the_hash_and_the_name() {
    let one = [Claim { key: "uid:8000", name: "vllm-0", namespace: Some("ns") }];
    let given = identify(&one, &BTreeMap::new(), Taken::default(), hash);
    let identity = &given["uid:8000"];
    // The number is shown, logged and kept by others: a new hash would be another fleet.
    assert_eq!((identity.id.0, &*identity.name), (HASH_OF_UID, "vllm-0"));
    assert!(i64::try_from(hash("a", 0)).is_ok());
}

const HASH_OF_UID: u64 = 3_139_895_780_286_443_210;

#[test]
fn a_taken_name_is_qualified() {
    let mut taken = Taken::default();
    let claim = [Claim { key: "k", name: "p", namespace: Some("ns") }];
    let name = |taken: &Taken| identify(&claim, &BTreeMap::new(), taken.clone(), |_, _| 7)["k"].name.clone();
    for (n, wanted) in ["p", "ns/p", "ns/p#7", "ns/p#7.1"].into_iter().enumerate() {
        assert_eq!(&*name(&taken), wanted);
        taken.take(WorkerId(1000 + n as u64), wanted.into());
    }
}

proptest! {
    #[test]
    fn all_are_unique_and_whoever_stays_stays_who_it_is(
        steps in proptest::collection::vec(btree_set(0..24u8, 0..16), 1..12),
        of_others in btree_set(0..8u64, 0..6),
    ) {
        let mut taken = Taken::default();
        for id in &of_others {
            taken.take(WorkerId(*id), format!("pod-{}", id % 3).into());
        }
        let mut before = BTreeMap::new();
        for keys in steps {
            let claims = claims(&keys);
            let now = given(&claims, &before, &taken);
            prop_assert_eq!(now.len(), claims.len());
            let ids: BTreeSet<_> = now.values().map(|identity| identity.id).collect();
            let names: BTreeSet<_> = now.values().map(|identity| identity.name.clone()).collect();
            prop_assert!(ids.len() == now.len() && names.len() == now.len(), "{now:?}");
            prop_assert!(now.values().all(|identity| taken.is_free(identity)));
            for (key, identity) in &now {
                prop_assert_eq!(before.get(key).unwrap_or(identity), identity);
            }
            // In whatever order they are told, and again.
            let backwards: Vec<_> = claims.iter().rev().cloned().collect();
            prop_assert_eq!(&given(&backwards, &before, &taken), &now);
            prop_assert_eq!(&given(&claims, &now, &taken), &now);
            before = now;
        }
    }

    #[test]
    fn whose_identity_somebody_takes_gets_another_and_the_rest_keep_theirs(
        keys in btree_set(0..24u8, 1..16),
        which in any::<prop::sample::Index>(),
    ) {
        let claims = claims(&keys);
        let before = given(&claims, &BTreeMap::new(), &Taken::default());
        let (lost, identity) = before.iter().nth(which.index(before.len())).unwrap();
        let mut taken = Taken::default();
        taken.take(identity.id, identity.name.clone());
        let now = given(&claims, &before, &taken);
        prop_assert!(now[lost].id != identity.id && now[lost].name != identity.name);
        prop_assert!(now.iter().filter(|(key, _)| *key != lost).all(|(key, now)| before[key] == *now));
    }
}
