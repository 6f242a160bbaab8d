//! `kinfctl calibrate`: what a running server has learnt of how long engines take, a worker set: as TOML, or as JSON.
//!
//! Units: coefficients in milliseconds for each unit of their term, as in the configuration.

use std::fmt::Write;

use kinference::pipeline::Learnt;
use reqwest::Method;

use crate::{admin::Admin, output};

/// Observations after which a fit is worth pasting.
const ENOUGH: u64 = 500;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Only of this worker set. Default: of all.
    workerset: Option<String>,
    /// As JSON, with the coefficients as they are configured too.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: Admin,
}

/// Runs the command.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let request = args.admin.request(Method::GET, &["api", "calibration"])?;
    let mut all: Vec<Learnt> = args.admin.answer(request).await?;
    all.retain(|learnt| args.workerset.as_ref().is_none_or(|name| *name == learnt.workerset));
    if args.json {
        return output::text(&serde_json::to_string_pretty(&all)?);
    }
    anyhow::ensure!(!all.is_empty(), "nothing is learnt of any such worker set yet");
    output::text(all.iter().map(toml).collect::<Vec<_>>().join("\n\n").trim_end())
}

/// The coefficients as they can be pasted, under what they are worth.
fn toml(learnt: &Learnt) -> String {
    let Learnt { workerset, observations, before, after, .. } = learnt;
    let state = if learnt.in_force { "in force" } else { "only shown" };
    let name = workerset.escape_debug();
    let mut out = format!("# Worker set `{name}`, {observations} observations, {state}.\n");
    let _ = writeln!(
        out,
        "# Error, configured and fitted: {:.1} % and {:.1} %; nine of ten below {:.0} and {:.0} ms; bias {:+.0} and {:+.0} ms.",
        before.mape * 100.0,
        after.mape * 100.0,
        before.p90_ms,
        after.p90_ms,
        before.bias_ms,
        after.bias_ms,
    );
    if *observations < ENOUGH {
        out.push_str("# So few that the fit is not to be relied on yet.\n");
    }
    out.push_str("[profile.predictor]\n");
    for coefficient in &learnt.coefficients {
        let _ = writeln!(out, "{} = {}", coefficient.key, rounded(coefficient.fitted));
    }
    out
}

/// To four digits, as a TOML float.
fn rounded(value: f64) -> String {
    let digits = if value > 0.0 { 3 - value.log10().floor() as i32 } else { 0 };
    let scale = 10_f64.powi(digits);
    format!("{:?}", (value * scale).round() / scale)
}

#[cfg(test)]
mod tests {
    use kinference::pipeline::Coefficient;

    use super::*;

    #[test]
    fn what_is_printed_can_be_pasted() {
        let coefficient = |key: &str, fitted| Coefficient { key: key.into(), configured: 1.0, fitted };
        let learnt = Learnt {
            workerset: "s\n[tls]".into(),
            in_force: false,
            observations: 7,
            before: Default::default(),
            after: Default::default(),
            coefficients: vec![
                coefficient("base_ms", 12.3456),
                coefficient("attention_uncached_per_every_block_ms", 0.000_312_34),
                coefficient("queue_ms_per_entry", 0.0),
                coefficient("saturated_cold_ms_per_entry", 123_456.0),
            ],
        };
        let text = toml(&learnt);
        let table: toml::Table = text.parse().unwrap();
        let want = "[profile.predictor]\nbase_ms = 12.35\nattention_uncached_per_every_block_ms = 0.0003123\n\
                    queue_ms_per_entry = 0.0\nsaturated_cold_ms_per_entry = 123500.0\n";
        assert!(text.ends_with(want), "{text}");
        assert_eq!(table.len(), 1, "{text}");
    }
}
