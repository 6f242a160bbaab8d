//! `kinfctl cordon`, `uncordon` and `log` against a real admin listener.

use kinference::{fleet::Availability, observe::DEFAULT_LOG};
use tokio::task::spawn_blocking;

use super::{
    run::{Ran, kinfctl},
    site::{Site, worker},
};

/// Runs it against that listener.
async fn ran(site: &Site, args: &[&str]) -> Ran {
    let mut args: Vec<String> = args.iter().map(ToString::to_string).collect();
    args.extend(["--admin".to_owned(), site.address.clone()]);
    spawn_blocking(move || kinfctl(&args.iter().map(String::as_str).collect::<Vec<_>>())).await.unwrap()
}

fn fine(out: &str) -> (i32, String, String) {
    (0, format!("{out}\n"), String::new())
}

fn failed(err: &str) -> (i32, String, String) {
    (1, String::new(), format!("kinfctl: {err}\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_taken_out_and_put_back() {
    let mut listed = worker(2, "w2");
    listed.availability = Availability::Cordoned;
    let site = Site::start(vec![worker(1, "ns/w?1#2"), listed]).await;
    let run = async |args: &[&str]| {
        let ran = ran(&site, args).await;
        (ran.code, ran.out, ran.err)
    };
    assert_eq!(run(&["cordon", "ns/w?1#2"]).await, fine("ns/w?1#2: cordoned"));
    assert!(site.member(1).cordoned());
    assert_eq!(run(&["uncordon", "ns/w?1#2"]).await, fine("ns/w?1#2: not cordoned"));
    assert!(!site.member(1).cordoned());
    let stays = "`w2` stays cordoned: its workers file says `cordoned = true`";
    assert_eq!(run(&["uncordon", "w2"]).await, failed(stays));
    assert_eq!(run(&["cordon", "w3"]).await, failed("no worker is called `w3`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_shown_and_changed() {
    let site = Site::start(vec![]).await;
    let run = async |args: &[&str]| {
        let ran = ran(&site, args).await;
        (ran.code, ran.out, ran.err)
    };
    assert_eq!(run(&["log"]).await, fine("info"));
    assert_eq!(run(&["log", "kinference=debug"]).await, fine("kinference=debug"));
    let slip = "`verbose` is neither a level (off, error, warn, info, debug, trace) nor `target=level`";
    assert_eq!(run(&["log", "verbose"]).await, failed(slip));
    assert_eq!(run(&["log"]).await, fine("kinference=debug"));
    let (code, filter, _) = run(&["log", "debug"]).await;
    assert_eq!(code, 0);
    for part in DEFAULT_LOG.split(',').chain(["kinference=debug"]) {
        assert!(filter.trim_end().split(',').any(|one| one == part), "{part} is not in {filter}");
    }
}

#[test]
fn an_admin_listener_that_is_not_there_is_an_error() {
    let gone = kinfctl(&["cordon", "w", "--admin", "http://127.0.0.1:0"]);
    assert_eq!((gone.code, gone.out.as_str()), (1, ""));
    let want = "kinfctl: --admin http://127.0.0.1:0 is not reached. It is `admin_listen` of ";
    assert!(gone.err.starts_with(want) && gone.err.lines().count() == 1, "{}", gone.err);
    let tls = kinfctl(&["log", "--admin", "https://127.0.0.1:1"]);
    let want = "kinfctl: --admin https://127.0.0.1:1: the admin listener speaks http:// only\n";
    assert_eq!((tls.code, tls.err.as_str()), (1, want));
}
