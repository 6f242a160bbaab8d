//! Help texts, completions and manual pages.

use std::{collections::BTreeSet, fs};

use super::run::{Snapshots, kinfctl};

/// Each subcommand, as its words.
fn commands() -> Vec<Vec<String>> {
    let (mut all, mut next) = (Vec::new(), vec![Vec::new()]);
    while let Some(words) = next.pop() {
        let help = help(&words);
        let listed = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
        let names = listed.lines().take_while(|line| !line.is_empty());
        for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
            next.push([words.clone(), vec![name.to_owned()]].concat());
        }
        all.push(words);
    }
    all.sort();
    all
}

fn help(words: &[String]) -> String {
    let args: Vec<_> = words.iter().map(String::as_str).chain(["--help"]).collect();
    let ran = kinfctl(&args);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.out
}

#[test]
fn every_help_is_as_it_was() {
    let mut snapshots = Snapshots::default();
    let all = commands();
    assert!(all.len() > 10, "{all:?}");
    for words in all {
        let name = [vec!["kinfctl".to_owned()], words.clone()].concat().join("-");
        snapshots.hold(&format!("help/{name}.txt"), &help(&words));
    }
    snapshots.done();
}

#[test]
fn wrong_arguments_end_with_2() {
    for args in [&["--nonsense"][..], &["workers", "--output", "xml"], &["top", "--interval", "0"], &[]] {
        let ran = kinfctl(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {ran:?}");
    }
}

#[test]
fn completions_know_the_subcommands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = kinfctl(&["completions", shell]);
        assert!(ran.code == 0 && ran.out.contains("workers"), "{shell}: {ran:?}");
    }
    assert_eq!(kinfctl(&["completions", "tcsh"]).code, 2);
}

#[test]
fn every_subcommand_has_a_page() {
    let page = kinfctl(&["man"]).out;
    assert!(page.contains(".TH kinfctl 1") && page.contains("Exit codes"), "{page}");
    let page = kinfctl(&["man", "events", "tail"]).out;
    assert!(page.contains(".TH kinfctl-events-tail 1") && page.contains("PUB socket"), "{page}");
    let ran = kinfctl(&["man", "nonsense"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "kinfctl: nonsense: no subcommand\n"));

    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("pages");
    assert_eq!(kinfctl(&["man", "--dir", pages.to_str().unwrap()]).code, 0);
    let written: BTreeSet<_> = fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for words in commands() {
        let name = [vec!["kinfctl".to_owned()], words].concat().join("-");
        assert!(written.contains(&format!("{name}.1")), "{name}: {written:?}");
    }
}
