//! The book of statuses by itself.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rand::{SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    book::{Book, Job, Key, Next, Present},
    merge::{Verdict, Wanted},
};
use crate::{kubernetes::failure::Failure, policy::crd::InferenceWorkerSet};

fn object(name: &str, version: u32, status: Value) -> InferenceWorkerSet {
    serde_json::from_value(json!({
        "apiVersion": "kinference.buoyant.io/v1alpha1", "kind": "InferenceWorkerSet",
        "metadata": {"namespace": "x", "name": name, "uid": format!("uid-{name}"), "generation": 3,
            "resourceVersion": version.to_string()},
        "spec": {"profile": "p", "modelName": "m", "kvBlockSize": 16}, "status": status,
    }))
    .unwrap()
}

fn wanted(workers: u32) -> Wanted {
    let verdict = Verdict { kind: "Accepted", holds: true, reason: "Valid", message: String::new() };
    Wanted { conditions: vec![verdict], fields: json!({"workers": workers}).as_object().cloned().unwrap() }
}

fn book() -> Book {
    Book::new(StdRng::seed_from_u64(1))
}

fn job(book: &Book, now: Instant) -> Job {
    match book.next(now, Timestamp::UNIX_EPOCH) {
        Next::Write(job) => *job,
        next => panic!("{next:?}"),
    }
}

fn due(book: &Book, now: Instant) -> Instant {
    match book.next(now, Timestamp::UNIX_EPOCH) {
        Next::At(due) => due,
        next => panic!("{next:?}"),
    }
}

/// What the API server has after that write.
fn applied(job: &Job, version: u32) -> Present {
    let status = job.body()["status"].clone();
    Present { uid: Some(format!("uid-{}", job.key.name)), version: Some(version.to_string()), status }
}

#[tokio::test(start_paused = true)]
async fn the_last_word_lands_and_no_more_than_once_a_second() {
    let (mut book, now) = (book(), Instant::now());
    book.say(&object("a", 1, json!({})), wanted(1));
    let first = job(&book, now);
    assert_eq!(first.body()["metadata"], json!({"resourceVersion": "1"}));
    assert_eq!(first.body()["status"]["observedGeneration"], 3);
    // More is said while it is under way, of the version that the write is over.
    book.say(&object("a", 1, json!({})), wanted(2));
    book.say(&object("a", 1, json!({})), wanted(3));
    book.wrote(&first, applied(&first, 2), now);
    assert_eq!(due(&book, now), now + Duration::from_secs(1));
    let second = job(&book, now + Duration::from_secs(1));
    assert_eq!(second.body()["status"]["workers"], 3);
    assert_eq!(second.body()["metadata"], json!({"resourceVersion": "2"}));
    book.wrote(&second, applied(&second, 3), now);
    assert_eq!(book.pending(), 0);
    assert!(matches!(book.next(now, Timestamp::UNIX_EPOCH), Next::Nothing));
}

#[tokio::test(start_paused = true)]
async fn what_is_said_already_is_not_written() {
    let (mut book, now) = (book(), Instant::now());
    book.say(&object("a", 1, json!({})), wanted(1));
    let status = applied(&job(&book, now), 2).status;
    book.say(&object("a", 2, status.clone()), wanted(1));
    assert_eq!(book.pending(), 0);
    book.say(&object("a", 2, status), wanted(2));
    assert_eq!(book.pending(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_written_over_what_is_there_now() {
    let (mut book, now) = (book(), Instant::now());
    book.say(&object("a", 1, json!({})), wanted(1));
    let lost = job(&book, now);
    let theirs = Present { version: Some("9".into()), ..applied(&lost, 9) };
    let other = Present { status: json!({"workers": 7}), ..theirs.clone() };
    book.reread(&lost, other, now);
    let again = job(&book, due(&book, now));
    assert_eq!(again.body()["metadata"], json!({"resourceVersion": "9"}));
    // Who changed it said the same.
    book.reread(&again, theirs, now);
    assert_eq!(book.pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_does_not_keep_others() {
    let (mut book, now) = (book(), Instant::now());
    book.say(&object("a", 1, json!({})), wanted(1));
    let first = job(&book, now);
    book.say(&object("b", 1, json!({})), wanted(1));
    assert!(book.failed(&first, &Failure::Forbidden("403".into()), now));
    let other = job(&book, now);
    assert_eq!(other.key.name, "b");
    assert!(!book.wrote(&other, applied(&other, 2), now));
    let wait = due(&book, now) - now;
    assert!(wait <= Duration::from_millis(200) && wait >= Duration::from_millis(100), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_forgotten() {
    let (mut book, now) = (book(), Instant::now());
    let it = object("a", 1, json!({}));
    book.say(&it, wanted(1));
    let lost = job(&book, now);
    book.failed(&lost, &Failure::NotFound, now);
    assert_eq!(book.pending(), 0);
    // Another by its name.
    book.say(&it, wanted(1));
    let again = Present { uid: Some("other".into()), ..applied(&lost, 5) };
    book.reread(&lost, again, now);
    assert_eq!(book.pending(), 0);
    book.say(&it, wanted(1));
    book.forget(&Key::of(&it));
    assert_eq!(book.pending(), 0);
}

/// The log hears of a failure once, however many objects have it and however often.
#[tokio::test(start_paused = true)]
async fn only_new_failures_are_news() {
    let (mut book, now) = (book(), Instant::now());
    book.say(&object("a", 1, json!({})), wanted(1));
    let a = job(&book, now);
    assert!(book.failed(&a, &Failure::TimedOut, now));
    book.say(&object("b", 1, json!({})), wanted(1));
    let b = job(&book, now);
    assert!(!book.failed(&b, &Failure::TimedOut, now));
    assert!(!book.failed(&a, &Failure::TimedOut, now));
    assert!(book.failed(&a, &Failure::Forbidden("403".into()), now));
    assert!(!book.wrote(&b, applied(&b, 2), now), "the other fails still");
    assert!(book.wrote(&a, applied(&a, 2), now));
}
