//! What a status becomes when we have our say. Pure.
//!
//! Invariant: saying the same again changes nothing, and what others say of the object stays.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use serde_json::{Map, Value, json};

/// Characters of a message; the rest is cut off.
const MESSAGE: usize = 2_000;

/// What the status of an object is to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Conditions. Others that the object has are left alone.
    pub conditions: Vec<Verdict>,
    /// Fields of the kind's own; null removes one.
    pub fields: Map<String, Value>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its type: `Accepted`.
    pub kind: &'static str,
    /// It is `True`, else `False`.
    pub holds: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// The fields that `present` lacks to say what is wanted of that generation; `None`: it says so already.
pub(super) fn merge(
    present: &Value,
    (wanted, generation): (&Wanted, Option<i64>),
    now: Timestamp,
) -> Option<Map<String, Value>> {
    let mut fields = wanted.fields.clone();
    fields.insert("conditions".into(), conditions(present, (wanted, generation), now));
    fields.insert("observedGeneration".into(), json!(generation));
    let says = |(key, value): (&String, &Value)| present.get(key).unwrap_or(&Value::Null) == value;
    (!fields.iter().all(says)).then_some(fields)
}

fn conditions(present: &Value, (wanted, generation): (&Wanted, Option<i64>), now: Timestamp) -> Value {
    let mut all = present["conditions"].as_array().cloned().unwrap_or_default();
    for verdict in &wanted.conditions {
        let at = all.iter().position(|condition| condition["type"] == verdict.kind);
        let before = at.map(|at| &all[at]);
        let condition = condition(before, (verdict, generation), now);
        match at {
            Some(at) => all[at] = condition,
            None => all.push(condition),
        }
    }
    all.into()
}

fn condition(
    before: Option<&Value>,
    (verdict, generation): (&Verdict, Option<i64>),
    now: Timestamp,
) -> Value {
    let status = if verdict.holds { "True" } else { "False" };
    let since =
        before.filter(|before| before["status"] == status).map(|before| &before["lastTransitionTime"]);
    let condition = json!(Condition {
        last_transition_time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        message: verdict.message.chars().take(MESSAGE).collect(),
        observed_generation: generation,
        reason: verdict.reason.into(),
        status: status.into(),
        type_: verdict.kind.into(),
    });
    match (condition, since) {
        (Value::Object(mut condition), Some(since @ Value::String(_))) => {
            condition.insert("lastTransitionTime".into(), since.clone());
            condition.into()
        }
        (condition, _) => condition,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn wanted(holds: bool, message: &str) -> Wanted {
        let verdict = Verdict { kind: "Accepted", holds, reason: "Valid", message: message.into() };
        let fields = json!({"workers": 3}).as_object().cloned().unwrap();
        Wanted { conditions: vec![verdict], fields }
    }

    /// What the API server makes of a merge patch.
    fn apply(present: &mut Value, patch: Option<Map<String, Value>>) -> bool {
        let Some(patch) = patch else { return false };
        let status = present.as_object_mut().unwrap();
        for (key, value) in patch {
            match value {
                Value::Null => drop(status.remove(&key)),
                value => drop(status.insert(key, value)),
            }
        }
        true
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_turn() {
        let mut status = json!({"theirs": 1, "conditions": [{"type": "Theirs", "status": "True"}]});
        let mut say = |holds, message: &str, second| {
            let patch = merge(&status, (&wanted(holds, message), Some(2)), at(second));
            (apply(&mut status, patch), status.clone())
        };
        let (changed, now) = say(true, "fine", 10);
        assert!(changed && now["theirs"] == 1 && now["workers"] == 3 && now["observedGeneration"] == 2);
        assert_eq!(now["conditions"][0], json!({"type": "Theirs", "status": "True"}));
        assert_eq!(
            now["conditions"][1],
            json!({"type": "Accepted", "status": "True", "reason": "Valid", "message": "fine",
                "observedGeneration": 2, "lastTransitionTime": "1970-01-01T00:00:10Z"})
        );
        assert!(!say(true, "fine", 20).0);
        let (changed, now) = say(true, "better", 30);
        assert!(changed && now["conditions"][1]["message"] == "better");
        assert_eq!(now["conditions"][1]["lastTransitionTime"], "1970-01-01T00:00:10Z");
        let (_, now) = say(false, "worse", 40);
        assert_eq!(now["conditions"][1]["lastTransitionTime"], "1970-01-01T00:00:40Z");
    }

    #[test]
    fn null_removes_a_field_once() {
        let mut status = json!({"workers": 3});
        let mut gone = wanted(true, "");
        gone.fields.insert("workers".into(), Value::Null);
        let patch = merge(&status, (&gone, None), at(0));
        assert!(apply(&mut status, patch) && status.get("workers").is_none());
        assert_eq!(merge(&status, (&gone, None), at(1)), None);
    }

    #[test]
    fn messages_are_cut() {
        let long = wanted(true, &"é".repeat(MESSAGE + 1));
        let patch = merge(&json!(null), (&long, None), at(0)).unwrap();
        assert_eq!(patch["conditions"][0]["message"].as_str().unwrap().chars().count(), MESSAGE);
    }

    proptest! {
        /// Whatever was said before, and by whom: saying the same again changes nothing.
        #[test]
        fn the_same_again_changes_nothing(
            says in prop::collection::vec((any::<bool>(), "[a-c]{0,2}", prop::option::of(0..3i64)), 1..8),
        ) {
            let mut status = json!({});
            for ((holds, message, generation), second) in says.iter().zip(0..) {
                let wanted = wanted(*holds, message);
                let patch = merge(&status, (&wanted, *generation), at(second));
                apply(&mut status, patch);
                prop_assert_eq!(merge(&status, (&wanted, *generation), at(second + 100)), None);
                prop_assert_eq!(status["conditions"].as_array().unwrap().len(), 1);
            }
        }
    }
}
