//! What a PromQL expression names: metrics with their matchers, and the labels that it groups and joins by.
//!
//! It takes well-formed expressions: that each is one promtool says.

use std::collections::BTreeSet;

/// The names in an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Each metric, with its matchers: label and value.
    pub metrics: Vec<(String, Vec<(String, String)>)>,
    /// Labels after `by`, `on` and their like.
    pub grouped: BTreeSet<String>,
    /// Texts outside matchers: what `label_replace` is given.
    pub texts: BTreeSet<String>,
}

const GROUPING: &[&str] = &["by", "on", "without", "ignoring", "group_left", "group_right"];
const WORDS: &[&str] = &["and", "or", "unless", "offset", "bool"];

impl Query {
    /// Reads an expression.
    pub fn read(expr: &str) -> Self {
        let (mut query, mut rest) = (Self::default(), expr);
        while let Some(first) = rest.chars().next() {
            rest = match first {
                '"' => {
                    let (text, after) = rest[1..].split_once('"').unwrap();
                    query.texts.insert(text.to_owned());
                    after
                }
                // Ranges: durations are no names.
                '[' => rest.split_once(']').unwrap().1,
                c if is_name(c) => query.word(rest),
                c => &rest[c.len_utf8()..],
            };
        }
        query
    }

    fn word<'e>(&mut self, rest: &'e str) -> &'e str {
        let (word, after) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        let next = after.trim_start();
        if word.starts_with(|c: char| c.is_ascii_digit()) || WORDS.contains(&word) {
            return after;
        }
        if GROUPING.contains(&word) {
            let (labels, after) = next[1..].split_once(')').unwrap();
            self.grouped.extend(labels.split(',').map(|label| label.trim().to_owned()));
            return after;
        }
        // A function, or an aggregation with its labels first.
        if next.starts_with('(') || GROUPING.iter().any(|grouping| next.starts_with(&format!("{grouping} (")))
        {
            return after;
        }
        let Some(inside) = next.strip_prefix('{') else {
            self.metrics.push((word.to_owned(), Vec::new()));
            return after;
        };
        let (matchers, after) = matchers(inside);
        self.metrics.push((word.to_owned(), matchers));
        after
    }
}

/// The matchers up to the closing brace, and what is behind it.
fn matchers(mut rest: &str) -> (Vec<(String, String)>, &str) {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ', '\n']);
        if let Some(after) = rest.strip_prefix('}') {
            return (found, after);
        }
        let (label, quoted) = rest.split_once('"').unwrap();
        let (value, after) = quoted.split_once('"').unwrap();
        found.push((label.trim_end_matches(['=', '~', '!', ' ']).to_owned(), value.to_owned()));
        rest = after;
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

#[test]
fn names_are_found_and_nothing_else() {
    let query = Query::read(
        r#"label_replace(sum by (job, le) (rate(a_bucket{x=~"b|c", y!="d"}[5m] offset 1h)), "what", "e", "", "") > 0.5 and on (job) a:b:c unless min(f) * 2e3"#,
    );
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    let matcher = |label: &str, value: &str| (label.to_owned(), value.to_owned());
    let metrics = [
        ("a_bucket".to_owned(), vec![matcher("x", "b|c"), matcher("y", "d")]),
        ("a:b:c".to_owned(), Vec::new()),
        ("f".to_owned(), Vec::new()),
    ];
    assert_eq!(query.metrics, metrics);
    assert_eq!(query.grouped, words(&["job", "le"]));
    assert_eq!(query.texts, words(&["", "e", "what"]));
}
