//! Label selectors as Kubernetes writes them: checked here, so that a typing mistake is told at the start.

use super::kind::{Checked, checked};

/// Longest name and value of a label, and longest prefix of its key.
const MOST: usize = 63;
const MOST_PREFIX: usize = 253;

/// A label selector, as written.
pub(super) const fn label_selector<T>() -> Checked<T> {
    checked("a label selector, such as `team=a,tier in (gpu, cpu),!old`", |text| {
        is_label_selector(text).then(|| text.to_owned())
    })
}

fn is_label_selector(text: &str) -> bool {
    let mut rest = text;
    loop {
        let Some(after) = requirement(rest) else { return false };
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return rest.is_empty(),
        }
    }
}

/// The name of an object, which is also what a namespace is called.
pub(super) const fn object_name<T>() -> Checked<T> {
    checked("the name of a Kubernetes object: lower-case letters, digits, `-` and `.`", |text| {
        is_subdomain(text).then(|| text.to_owned())
    })
}

/// Reads one requirement; what follows it.
fn requirement(text: &str) -> Option<&str> {
    let text = text.trim_start();
    if let Some(rest) = text.strip_prefix('!') {
        return key(rest.trim_start());
    }
    let rest = key(text)?.trim_start();
    if let Some(rest) = ["!=", "==", "="].iter().find_map(|op| rest.strip_prefix(op)) {
        return value(rest.trim_start());
    }
    let set = ["in", "notin"].iter().find_map(|op| rest.strip_prefix(op)?.trim_start().strip_prefix('('));
    match set {
        Some(rest) => values(rest),
        None => Some(rest),
    }
}

fn values(mut text: &str) -> Option<&str> {
    loop {
        text = value(text.trim_start())?.trim_start();
        match text.strip_prefix(',') {
            Some(more) => text = more,
            None => return text.strip_prefix(')'),
        }
    }
}

fn key(text: &str) -> Option<&str> {
    let (word, rest) = word(text);
    let name = match word.split_once('/') {
        Some((prefix, name)) => (prefix.len() <= MOST_PREFIX && is_subdomain(prefix)).then_some(name)?,
        None => word,
    };
    (!name.is_empty() && is_label(name)).then_some(rest)
}

/// May be empty.
fn value(text: &str) -> Option<&str> {
    let (word, rest) = word(text);
    is_label(word).then_some(rest)
}

fn word(text: &str) -> (&str, &str) {
    let of_a_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    text.split_at(text.find(|c| !of_a_word(c)).unwrap_or(text.len()))
}

fn is_label(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edges = text.chars().next().into_iter().chain(text.chars().last());
    text.len() <= MOST && text.chars().all(inside) && edges.into_iter().all(|c| c.is_ascii_alphanumeric())
}

fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let lower = part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        !part.is_empty() && lower && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= MOST_PREFIX && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use toml::Value;

    use super::*;
    use crate::config::kind::Kind;

    fn taken<T>(kind: &impl Kind<Value = T>, text: &str) -> bool {
        kind.read(&Value::String(text.into())).is_some()
    }

    #[test]
    fn selectors_are_read_as_kubernetes_reads_them() {
        for good in [
            "a",
            "!a",
            "a=b",
            "a==b",
            "a!=b",
            "a=",
            "a in (b)",
            "a notin (b,c)",
            "a in (b, ,c)",
            " a = b , ! c ",
            "example.com/a_b.c=D-e",
            "a in(b)",
            "in=notin",
            "inner",
            "a=b,c in (d)",
            "x/y",
        ] {
            assert!(taken(&label_selector::<String>(), good), "{good}");
        }
        for bad in [
            "",
            " ",
            ",",
            "a,",
            ",a",
            "a=b=c",
            "a b",
            "a in b",
            "a in (b",
            "a in ()x",
            "=b",
            "a=b c",
            "!",
            "!a=b",
            "-a",
            "a-",
            "a=b/c",
            "/a",
            "A.com/a",
            "a/b/c",
            "a=-b",
            "a~b",
            "a in (b) c",
            "ä=b",
            "a > 1",
        ] {
            assert!(!taken(&label_selector::<String>(), bad), "{bad}");
        }
        let long = "x".repeat(64);
        assert!(!taken(&label_selector::<String>(), &long) && taken(&label_selector::<String>(), &long[1..]));
    }

    #[test]
    fn object_names() {
        for good in ["a", "vllm-0", "0", "a.b-c.d"] {
            assert!(taken(&object_name::<String>(), good), "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a/b", "a b", "a,b=c"] {
            assert!(!taken(&object_name::<String>(), bad), "{bad}");
        }
    }
}
