//! The election's machine by itself, case by case.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::machine::{Action, Found, Input, Machine, Now, Record, Terms, Written};

const TERMS: Terms = Terms {
    duration: Duration::from_secs(15),
    grace: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

struct Bench {
    machine: Machine,
    start: Instant,
    at: f64,
}

impl Bench {
    fn new(me: &str) -> Self {
        Self { machine: Machine::new(me.into(), TERMS), start: Instant::now(), at: 0.0 }
    }

    fn instant(&self, at: f64) -> Instant {
        self.start + Duration::from_secs_f64(at)
    }

    fn step(&mut self, at: f64, input: Input) -> Action {
        self.at = at;
        let wall = Timestamp::UNIX_EPOCH + Duration::from_secs_f64(at);
        self.machine.step(input, Now { at: self.instant(at), wall })
    }

    fn wait(&self, at: f64) -> Action {
        Action::Wait(self.instant(at))
    }

    fn holds(&self) -> bool {
        self.machine.held(self.instant(self.at)).is_some()
    }

    fn wrote(&mut self, (sent, at): (f64, f64), came: Written) -> Action {
        let sent = self.instant(sent);
        self.step(at, Input::Wrote { sent, came })
    }

    /// Looks at `at`, and takes what it may; what it wrote.
    fn take(&mut self, at: f64, found: Found) -> Record {
        let Action::Write { record, over } = self.step(at, Input::Read(Some(found.clone()))) else {
            panic!("it does not take {found:?}")
        };
        let version = match found {
            Found::Lease { version, .. } => Some(version),
            Found::Nothing => None,
        };
        assert_eq!(over, version);
        self.wrote((at, at), Written::Done(lease(&record)));
        record
    }
}

fn record(holder: Option<&str>, renewed: i64) -> Record {
    Record {
        holder: holder.map(Into::into),
        duration: TERMS.duration,
        acquired: holder.and(Timestamp::from_second(renewed).ok()),
        renewed: Timestamp::from_second(renewed).ok(),
        transitions: 4,
    }
}

fn lease(record: &Record) -> Found {
    Found::Lease { version: format!("{:?}", record.renewed), record: record.clone() }
}

#[test]
fn a_lease_of_another_is_taken_only_after_it_stood_still() {
    let mut bench = Bench::new("me");
    assert_eq!(bench.step(0.0, Input::Woke), Action::Read);
    // Its times are of no account: they are of another clock.
    let theirs = lease(&record(Some("you"), 0));
    assert_eq!(bench.step(1.0, Input::Read(Some(theirs))), bench.wait(3.0));
    let renewed = lease(&record(Some("you"), 1));
    assert_eq!(bench.step(14.0, Input::Read(Some(renewed.clone()))), bench.wait(16.0));
    assert_eq!(bench.step(28.0, Input::Read(Some(renewed.clone()))), bench.wait(29.0));
    let taken = bench.take(29.0, renewed);
    assert_eq!((taken.holder.as_deref(), taken.transitions), (Some("me"), 5));
    assert!(bench.holds());
}

#[test]
fn a_longer_duration_is_respected() {
    let mut bench = Bench::new("me");
    let long = Record { duration: Duration::from_secs(60), ..record(Some("you"), 0) };
    bench.step(0.0, Input::Read(Some(lease(&long))));
    assert_eq!(bench.step(58.0, Input::Read(Some(lease(&long)))), bench.wait(60.0));
    bench.take(60.0, lease(&long));
}

#[test]
fn a_holder_renews_in_time_and_stops_before_others_may_start() {
    let mut bench = Bench::new("me");
    let free = lease(&record(None, 0));
    let Action::Write { record: mine, .. } = bench.step(0.0, Input::Read(Some(free))) else { panic!() };
    // Counted from when it was sent; renewed within `grace` of the end.
    assert_eq!(bench.wrote((1.0, 2.0), Written::Done(lease(&mine))), bench.wait(6.0));
    let Action::Write { record: renewal, over } = bench.step(6.0, Input::Woke) else { panic!() };
    assert!(over.is_some() && renewal.renewed > mine.renewed && renewal.acquired == mine.acquired);
    assert_eq!(renewal.transitions, mine.transitions);
    assert_eq!(bench.wrote((6.0, 9.0), Written::Failed), bench.wait(11.0));
    assert_eq!(bench.step(11.0, Input::Woke), Action::Read, "it may have worked");
    assert_eq!(bench.step(14.0, Input::Read(None)), bench.wait(16.0));
    assert!(bench.holds());
    bench.step(14.5, Input::Read(None));
    assert!(!bench.holds(), "1 s + 15 s, and 1.5 s less");
}

#[test]
fn a_renewal_whose_answer_was_lost_counts_only_once_repeated() {
    let mut bench = Bench::new("me");
    let mine = record(Some("me"), 0);
    let repeated = bench.take(0.0, lease(&mine));
    assert_eq!(repeated.transitions, mine.transitions, "the holder is the same");
    assert!(bench.holds());
}

#[test]
fn a_holder_that_sees_another_stops_at_once() {
    let mut bench = Bench::new("me");
    bench.take(0.0, lease(&record(None, 0)));
    bench.step(5.0, Input::Woke);
    assert_eq!(bench.wrote((5.0, 5.0), Written::Conflict), Action::Read);
    assert!(bench.holds(), "it may be but a change of its labels");
    bench.step(5.0, Input::Read(Some(lease(&record(Some("you"), 5)))));
    assert!(!bench.holds());
}

#[test]
fn a_lease_that_is_gone_is_made_anew_by_its_holder() {
    let mut bench = Bench::new("me");
    bench.take(0.0, lease(&record(None, 0)));
    bench.step(5.0, Input::Woke);
    assert_eq!(bench.wrote((5.0, 5.0), Written::Conflict), Action::Read);
    assert_eq!(bench.take(5.0, Found::Nothing).transitions, 0);
    assert!(bench.holds());
    bench.at = 18.0;
    assert!(bench.holds(), "it is a renewal");
}

/// It may have been deleted under a holder, who leads on for as long as it had renewed it.
#[test]
fn who_makes_a_lease_leads_only_when_another_could_not() {
    let mut bench = Bench::new("me");
    let mut mine = bench.take(0.0, Found::Nothing);
    for at in [5.0, 10.0] {
        assert!(!bench.holds());
        assert_eq!(bench.step(at, Input::Woke), Action::Read);
        mine = bench.take(at, lease(&mine));
    }
    assert_eq!(bench.step(15.0, Input::Woke), Action::Read);
    bench.take(15.0, lease(&mine));
    assert!(bench.holds());
}

#[test]
fn a_lease_that_was_made_without_our_knowing_counts_from_when_we_know() {
    let mut bench = Bench::new("me");
    let Action::Write { record: made, over: None } = bench.step(0.0, Input::Read(Some(Found::Nothing)))
    else {
        panic!()
    };
    bench.wrote((0.0, 3.0), Written::Failed);
    let mine = bench.take(5.0, lease(&made));
    bench.take(19.0, lease(&mine));
    assert!(!bench.holds());
    bench.take(20.0, lease(&mine));
    assert!(bench.holds());
}

#[test]
fn a_lease_that_is_given_up_names_nobody() {
    let mut bench = Bench::new("me");
    let mine = bench.take(0.0, lease(&record(None, 0)));
    assert_eq!(bench.step(1.0, Input::Leave), Action::Read);
    assert!(!bench.holds());
    let Action::Write { record: free, over } = bench.step(1.0, Input::Read(Some(lease(&mine)))) else {
        panic!()
    };
    assert_eq!((free.holder.as_ref(), free.transitions), (None, mine.transitions));
    assert!(over.is_some());
    assert_eq!(bench.wrote((1.0, 1.0), Written::Done(lease(&free))), Action::Rest);
    assert!(!bench.holds());

    let mut other = Bench::new("you");
    other.step(0.0, Input::Read(Some(lease(&mine))));
    assert_eq!(other.take(2.0, lease(&free)).transitions, mine.transitions + 1);
}

#[test]
fn who_never_wrote_leaves_at_once() {
    let mut bench = Bench::new("me");
    bench.step(0.0, Input::Read(Some(lease(&record(Some("you"), 0)))));
    assert_eq!(bench.step(1.0, Input::Leave), Action::Rest);
}

#[test]
fn who_holds_nothing_any_more_leaves_after_a_look() {
    for found in [Found::Nothing, lease(&record(Some("you"), 3)), lease(&record(None, 3))] {
        let mut bench = Bench::new("me");
        bench.take(0.0, lease(&record(None, 0)));
        assert_eq!(bench.step(3.0, Input::Leave), Action::Read);
        assert_eq!(bench.step(3.0, Input::Read(Some(found))), Action::Rest);
    }
}

/// It may have been deleted under a holder: who takes it next has to wait as well.
#[test]
fn a_lease_that_was_of_no_use_yet_is_not_given_up() {
    let mut bench = Bench::new("me");
    let made = bench.take(0.0, Found::Nothing);
    bench.step(1.0, Input::Leave);
    let Action::Write { record: left, .. } = bench.step(1.0, Input::Read(Some(lease(&made)))) else {
        panic!()
    };
    let mut other = Bench::new("you");
    assert_eq!(other.step(1.0, Input::Read(Some(lease(&left)))), other.wait(3.0));
}

/// A Lease without its holder, without anything, or of another duration.
fn edits(of: &Record) -> [Record; 4] {
    let nothing =
        Record { holder: None, acquired: None, renewed: None, transitions: 0, duration: Duration::ZERO };
    let lasting = |secs| Record { duration: Duration::from_secs(secs), ..of.clone() };
    [Record { holder: None, ..of.clone() }, nothing, lasting(0), lasting(1)]
}

#[test]
fn an_edit_frees_no_lease() {
    for secs in [15, 60] {
        let theirs = Record { duration: Duration::from_secs(secs), ..record(Some("you"), 0) };
        for edited in edits(&theirs) {
            let mut bench = Bench::new("me");
            bench.step(0.0, Input::Read(Some(lease(&theirs))));
            let due = 1.0 + secs as f64;
            assert_eq!(bench.step(1.0, Input::Read(Some(lease(&edited)))), bench.wait(3.0), "{edited:?}");
            assert_eq!(
                bench.step(due - 1.0, Input::Read(Some(lease(&edited)))),
                bench.wait(due),
                "{edited:?}"
            );
            bench.take(due, lease(&edited));
            assert!(bench.holds());
        }
    }
}

#[test]
fn an_edit_is_waited_out_by_who_comes_after_it() {
    for edited in edits(&record(Some("you"), 0)) {
        let mut bench = Bench::new("me");
        assert_eq!(bench.step(0.0, Input::Read(Some(lease(&edited)))), bench.wait(2.0), "{edited:?}");
        bench.take(15.0, lease(&edited));
    }
}

#[test]
fn a_holder_takes_back_what_an_edit_took() {
    let mut bench = Bench::new("me");
    let mut mine = bench.take(0.0, lease(&record(None, 0)));
    for edited in edits(&mine.clone()) {
        mine = bench.take(4.0, lease(&edited));
        assert!(bench.holds() && mine.duration == TERMS.duration);
    }
    // But not once it leads no longer.
    let edited = edits(&mine)[0].clone();
    assert_eq!(bench.step(30.0, Input::Read(Some(lease(&edited)))), bench.wait(32.0));
}

#[test]
fn a_renewal_ends_what_an_edit_prolonged() {
    let mut bench = Bench::new("me");
    let long = Record { duration: Duration::from_secs(3600), ..record(Some("you"), 0) };
    bench.step(0.0, Input::Read(Some(lease(&long))));
    assert_eq!(bench.machine.overdue(bench.instant(15.0)), None);
    let left = Duration::from_secs(3600 - 16);
    assert_eq!(bench.machine.overdue(bench.instant(16.0)), Some(("you", left)));
    let renewed = lease(&record(Some("you"), 1));
    bench.step(17.0, Input::Read(Some(renewed.clone())));
    assert_eq!(bench.machine.overdue(bench.instant(31.0)), None);
    bench.take(32.0, renewed);
}

#[test]
fn two_edits_alike_are_waited_out_each() {
    let mut bench = Bench::new("me");
    let nothing = edits(&record(None, 0))[1].clone();
    let at = |version: &str| Found::Lease { version: version.into(), record: nothing.clone() };
    bench.step(0.0, Input::Read(Some(at("1"))));
    assert_eq!(bench.step(14.0, Input::Read(Some(at("1")))), bench.wait(15.0));
    assert_eq!(bench.step(15.0, Input::Read(Some(at("3")))), bench.wait(17.0), "2 was a holder's");
}
