//! The tables of `docs/metrics.md`.

/// One family, as its row says.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub kind: String,
    pub labels: Vec<String>,
    /// Why no end-to-end test moves it; empty: one does.
    pub excuse: String,
}

/// Every family that is documented, in the order of the document.
pub fn rows() -> Vec<Row> {
    let text = include_str!("../../docs/metrics.md");
    let families =
        text.lines().filter(|line| line.starts_with("| `kinference_") || line.starts_with("| `process_"));
    families.map(row).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [name, kind, labels, moves, excuse] = cells[..] else { panic!("five cells: {line}") };
    assert!(!moves.is_empty(), "{line}");
    let bare = |cell: &str| cell.trim_matches('`').to_owned();
    Row {
        name: bare(name),
        kind: kind.into(),
        labels: labels.split_whitespace().map(bare).collect(),
        excuse: excuse.into(),
    }
}
