//! The metrics that there are, as `docs/metrics.md` lists them: another test holds that list to the code.

use std::collections::{BTreeMap, BTreeSet};

use crate::read;

/// A family of metrics.
pub struct Family {
    pub kind: String,
    pub labels: BTreeSet<String>,
}

/// Every family, by its name.
pub fn families() -> BTreeMap<String, Family> {
    let doc = read("docs/metrics.md");
    let mut found = BTreeMap::new();
    let mut inside = false;
    for line in doc.lines() {
        inside = line.starts_with("| Name | Type | Labels |") || inside && line.starts_with('|');
        let Some(row) = line.strip_prefix("| `").filter(|_| inside) else { continue };
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let labels = cells[2].split_whitespace().map(|label| label.trim_matches('`').to_owned()).collect();
        let family = Family { kind: cells[1].to_owned(), labels };
        assert!(found.insert(cells[0].trim_end_matches('`').to_owned(), family).is_none(), "{line}: twice");
    }
    assert!(found.len() > 50, "{}", found.len());
    found
}

/// The family of a series and the labels that the series has: a histogram's have suffixes.
pub fn labels(families: &BTreeMap<String, Family>, series: &str) -> Option<BTreeSet<String>> {
    let of_histogram = |suffix: &str| {
        let family = families.get(series.strip_suffix(suffix)?)?;
        (family.kind == "histogram").then(|| family.labels.clone())
    };
    if let Some(family) = families.get(series) {
        return (family.kind != "histogram").then(|| family.labels.clone());
    }
    let mut labels = of_histogram("_sum").or_else(|| of_histogram("_count"));
    if let Some(mut buckets) = of_histogram("_bucket") {
        buckets.insert("le".to_owned());
        labels = Some(buckets);
    }
    labels
}
