//! `kinfctl validate`, `test` and `explain`, offline.

use std::fs;

use serde_json::{Value, json};

use super::run::{Snapshots, kinfctl, snapshot, with_input};

const SAMPLES: &str = "../../config/samples/policies";

#[test]
fn every_mistake_is_explained() {
    let mut names: Vec<_> =
        fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kinfctl/files/mistakes"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
    names.sort();
    assert!(names.len() >= 25, "{names:?}");
    let mut snapshots = Snapshots::default();
    for name in names {
        let file = format!("files/mistakes/{name}");
        let ran = kinfctl(&["validate", "--worker-set", "large", "--strict", &file]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.out.lines().next().unwrap().starts_with(&format!("{file}:")), "a line is told: {ran:?}");
        snapshots.hold(&format!("mistakes/{}", name.replace(".yaml", ".txt")), &ran.out);
    }
    snapshots.done();
}

#[test]
fn the_samples_are_right_and_do_what_they_say() {
    let ran = kinfctl(&["validate", "--strict", SAMPLES]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "12 resources in 12 files: fine\n"));
    let ran = kinfctl(&["test", SAMPLES]);
    assert_eq!(ran.code, 0, "{ran:?}");
    snapshot("policies/samples.txt", &ran.out);
    for sample in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/config/samples/policies")).unwrap() {
        let path = sample.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !["cloud.yaml", "bedrock.yaml"].contains(&name) && !name.contains(".test.") {
            assert!(path.with_extension("test.yaml").exists(), "{name} has no test");
        }
    }
}

#[test]
fn warnings_are_problems_where_one_is_strict() {
    let file = "files/mistakes/never-reached.yaml";
    assert_eq!(kinfctl(&["validate", file]).code, 0);
    assert_eq!(kinfctl(&["validate", "--strict", file]).code, 1);
}

#[test]
fn files_come_from_anywhere() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config/samples/policies/cloud.yaml"))
        .unwrap();
    let ran = with_input(&["validate", "-"], &text);
    assert_eq!((ran.code, ran.out.as_str()), (0, "1 resource in 1 file: fine\n"));
    let all = kinfctl(&["validate", &format!("{SAMPLES}/*-to-cloud.yaml"), &format!("{SAMPLES}/cloud.yaml")]);
    assert_eq!((all.code, all.out.as_str()), (0, "3 resources in 2 files: fine\n"));
    let none = kinfctl(&["validate", "files/nothing-*.yaml", "files/missing.yaml"]);
    let wanted = "files/nothing-*.yaml: error: cannot be read: no such files\n\
                  files/missing.yaml: error: cannot be read: No such file or directory (os error 2)\n\
                  0 resources in 0 files: 2 errors\n";
    assert_eq!((none.code, none.out.as_str()), (1, wanted));
}

#[test]
fn worker_sets_are_known_from_a_configuration() {
    let pool = format!("{SAMPLES}/model-aliasing.yaml");
    let ran = kinfctl(&["validate", "--config", "files/fine.toml", &pool]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("is \"large\", which is no worker set; there are: `llama`"), "{}", ran.out);
}

#[test]
fn a_case_that_fails_says_why() {
    let ran = kinfctl(&["test", "files/failing.test.yaml"]);
    assert_eq!(ran.code, 1);
    snapshot("policies/failing.txt", &ran.out);
    let ran = kinfctl(&["test", "files/failing.test.yaml", "-o", "json"]);
    let cases: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(ran.code == 1 && cases.iter().all(|case| case["passed"] == false), "{cases:#?}");
    assert_eq!(
        cases[0]["differences"][0],
        json!({ "wanted": { "picks": "cloud" }, "came": { "picks": "large-0" } })
    );
}

#[test]
fn a_test_that_can_not_run_is_a_problem() {
    let mut snapshots = Snapshots::default();
    for name in ["misspelt", "no-pool", "broken-policy", "meaningless"] {
        let ran = kinfctl(&["test", &format!("files/{name}.test.yaml")]);
        assert_eq!(ran.code, 1, "{ran:?}");
        snapshots.hold(&format!("policies/{name}.txt"), &ran.out);
    }
    snapshots.done();
    // Nothing that was run is nothing proved.
    assert_eq!(kinfctl(&["test", SAMPLES, "--case", "no case says this"]).code, 1);
}

#[test]
fn a_decision_is_explained_term_by_term() {
    let mut snapshots = Snapshots::default();
    for format in ["table", "json"] {
        let ran = kinfctl(&["explain", &format!("{SAMPLES}/simple-to-cheaper.test.yaml"), "-o", format]);
        assert_eq!(ran.code, 0, "{ran:?}");
        snapshots.hold(&format!("policies/explain-{format}.txt"), &ran.out);
    }
    snapshots.done();
}

#[test]
fn predictions_are_made_with_the_profiles_of_a_configuration() {
    let ran = kinfctl(&["test", "files/profile.test.yaml"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "ok   waits for what costs nothing\n1 case passed, 0 failed\n")
    );
}

#[test]
fn the_documentation_shows_the_samples() {
    let read = |path: &str| fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let dir = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/config/samples/policies")).unwrap();
    let samples: String = dir.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let page = read("docs/policy.md");
    let shown: Vec<_> =
        page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(shown.len(), 7);
    for block in shown {
        assert!(samples.contains(block), "no sample has\n{block}");
    }
    let explained =
        kinfctl(&["explain", &format!("{SAMPLES}/burst-to-cloud.test.yaml"), "--case", "busy"]).out;
    for line in explained.trim_end().lines().skip(1) {
        assert!(page.contains(&format!("    {line}\n")), "the page lacks\n{line}");
    }
}
