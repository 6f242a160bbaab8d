//! The words of decisions as the documentation lists them, held to the code.

use std::{fs, path::Path};

use kinference::types::{Degradation, ErrorKind, Outcome, RemovedReason};

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The cells of the table under that heading.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let section = page.split_once(&format!("{heading}\n")).unwrap().1;
    let section = section.split("\n#").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells =
        |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
    rows.map(cells).collect()
}

#[test]
fn every_word_of_a_decision_is_documented() {
    let log = page("docs/decision-log.md");
    let lacks: Vec<_> =
        Degradation::ALL.iter().map(|one| vec![one.label().to_owned(), one.words().to_owned()]).collect();
    assert_eq!(table(&log, "### `degraded`"), lacks);
    let first = |rows: Vec<Vec<String>>| rows.into_iter().map(|row| row[0].clone()).collect::<Vec<_>>();
    assert_eq!(first(table(&log, "### `removed`")), RemovedReason::ALL.map(RemovedReason::label));
    let kinds = table(&log, "### `rejection`");
    assert_eq!(first(kinds.clone()), ErrorKind::ALL.map(ErrorKind::label));
    for (row, kind) in kinds.iter().zip(ErrorKind::ALL).filter(|(_, kind)| kind.label() != "policy") {
        assert_eq!(row[1], kind.http_status().to_string(), "{row:?}");
    }
    let outcomes = first(table(&page("docs/traces.md"), "## Outcomes"));
    assert_eq!(outcomes, Outcome::ENDS.map(Outcome::label));
}
