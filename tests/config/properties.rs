//! Whatever a file holds: what is printed parses back, and nothing makes the reader panic or ramble.

use kinference::config::parse_workers;
use proptest::prelude::*;

use crate::{file, parse};

/// A string as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}

proptest! {
    #[test]
    fn what_is_printed_parses_back(
        name in "\\PC*[a-z\"\\\\'\n\t]\\PC*",
        base in 0.0..=1e15f64,
        tiny in 0.0..=f64::MIN_POSITIVE,
        fraction in 0.0..=1.0f64,
        millis in 1..=u32::MAX,
        seed in proptest::option::of(0..=i64::MAX),
        tenants in proptest::collection::vec("\\PC+", 0..4),
    ) {
        let name = quoted(&name);
        let tenants: Vec<_> = tenants.iter().map(|tenant| quoted(tenant)).collect();
        let text = file(&[
            ("", &format!("metrics_poll_ms = {millis}")),
            ("[[profile]]", &format!("name = {name}")),
            ("[profile.predictor]", &format!("base_ms = {base:?}\nforward_pass_ms = {tiny:?}")),
            ("[profile.picker]", &format!(
                "top_k_fraction = {fraction:?}\n{}", seed.map(|seed| format!("seed = {seed}")).unwrap_or_default()
            )),
            ("[[workerset]]", &format!("profile = {name}")),
            ("[metrics]", &format!("tenant_labels = [{}]", tenants.join(", "))),
        ]);
        prop_assume!(!name.contains("\"\"\"") && !name.contains("'''"));
        let (config, _) = parse(&text).map_err(|report| TestCaseError::fail(report.to_string()))?;
        prop_assert_eq!(config.profiles[0].predictor.base_ms.to_bits(), base.to_bits());
        prop_assert_eq!(parse(&config.effective()).map(|(again, _)| again), Ok(config));
    }

    #[test]
    fn broken_files_are_reported_briefly(
        at in any::<prop::sample::Index>(),
        length in 0..40usize,
        put in "[\\[\\]\"'=.,#{}a-z0-9\n -]{0,20}|\\PC{0,8}",
    ) {
        let (whole, _) = parse(&file(&[])).map_err(|report| TestCaseError::fail(report.to_string()))?;
        let mut text: Vec<char> = whole.effective().chars().collect();
        let from = at.index(text.len());
        let to = (from + length).min(text.len());
        text.splice(from..to, put.chars());
        let text: String = text.into_iter().collect();
        for report in [parse(&text).err(), parse_workers(&text, false).err()].into_iter().flatten() {
            prop_assert!(!report.errors().is_empty());
            let report = report.to_string();
            prop_assert!(report.lines().all(|line| line.len() < 1200), "{}", report);
        }
    }
}
