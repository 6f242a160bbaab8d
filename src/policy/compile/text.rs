//! A step as it is written, in one line, for whoever asks what it did.
//!
//! Invariant: at most [`LONGEST`] bytes, so that a recorded decision is bounded whatever a policy lists.

use std::sync::Arc;

use serde_json::Value;

use super::super::crd;

/// Bytes of a step that are kept.
const LONGEST: usize = 512;
/// What stands for the rest.
const MORE: &str = "...";

/// The step as YAML in one line, without its outer braces.
pub(super) fn of(step: &crd::Step) -> Arc<str> {
    let text = flow(&serde_json::to_value(step).unwrap_or_default());
    let bare = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(&text);
    if bare.len() <= LONGEST {
        return bare.into();
    }
    format!("{}{MORE}", &bare[..bare.floor_char_boundary(LONGEST - MORE.len())]).into()
}

/// YAML in one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{name}: {}", flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        // Bounds are numbers of any kind: a whole one is written as such.
        Value::Number(number) => {
            number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string())
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(step: Value) -> Arc<str> {
        of(&serde_json::from_value(step).unwrap())
    }

    #[test]
    fn a_step_reads_as_it_is_written() {
        let prefer = json!({"prefer": {"workerSets": ["a", "b"], "cachedPercent": {"above": 50.5}}, "unlessFasterByMs": 20});
        let text = read(prefer);
        assert!(
            text.contains("workerSets: [a, b]") && text.contains("cachedPercent: {above: 50.5}"),
            "{text}"
        );
        assert!(text.contains("unlessFasterByMs: 20") && !text.starts_with('{'), "{text}");
        assert_eq!(&*read(json!({"minimize": "Cost"})), "minimize: Cost");
    }

    #[test]
    fn a_long_one_is_cut_between_characters() {
        let sets: Vec<_> = (0..32).map(|n| format!("\u{e9}{n}{}", "\u{e9}".repeat(30))).collect();
        let text = read(json!({"keep": {"workerSets": sets}}));
        assert!(text.len() <= LONGEST && text.len() > LONGEST - 4 && text.ends_with(MORE), "{text}");
    }
}
