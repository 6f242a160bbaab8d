//! Results as JSON rows, and as a table beside random.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use serde::Serialize;
use serde_json::Value;

use crate::{
    arms::Name,
    stats::{Figures, Spread, spread},
    workload::{Shape, Workload},
};

/// One arm under one load, over all repeats.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub fleet: String,
    pub workload: Workload,
    pub arm: Name,
    pub mode: &'static str,
    /// Conversations a second, in engine time.
    pub rate_rps: f64,
    /// That rate, in units of the one at which the bars are read.
    pub load: f64,
    #[serde(flatten)]
    pub median: Figures,
    pub errors: u32,
    pub repeats: usize,
    pub spread: BTreeMap<&'static str, Spread>,
    pub objective_ms: f64,
    pub seeds: Vec<u64>,
    pub replicas: usize,
    pub shape: Shape,
}

/// Sums up the repeats of one figure after the other.
pub fn summed(runs: &[Figures]) -> (Figures, BTreeMap<&'static str, Spread>) {
    let of = |figure: fn(&Figures) -> f64| spread(runs.iter().map(figure));
    let spreads = BTreeMap::from([
        ("ttft_p50_ms", of(|f| f.ttft_p50_ms)),
        ("ttft_p95_ms", of(|f| f.ttft_p95_ms)),
        ("ttft_mean_ms", of(|f| f.ttft_mean_ms)),
        ("cached_share", of(|f| f.cached_share)),
        ("goodput_rpm", of(|f| f.goodput_rpm)),
    ]);
    let median = Figures {
        ttft_p50_ms: spreads["ttft_p50_ms"].median,
        ttft_p95_ms: spreads["ttft_p95_ms"].median,
        ttft_mean_ms: spreads["ttft_mean_ms"].median,
        cached_share: spreads["cached_share"].median,
        goodput_rpm: spreads["goodput_rpm"].median,
    };
    (median, spreads)
}

/// Writes the rows in place of earlier ones of the same mode and fleets; rows of other modes stay.
///
/// # Errors
/// The file can't be written.
pub fn write(path: &Path, rows: &[Row]) -> anyhow::Result<()> {
    let before: Vec<Value> =
        fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let replaced = |old: &Value| {
        rows.iter().any(|row| {
            old["mode"] == row.mode
                && old["fleet"] == *row.fleet
                && old["workload"] == serde_json::json!(row.workload)
        })
    };
    let mut all: Vec<Value> = before.into_iter().filter(|old| !replaced(old)).collect();
    for row in rows {
        all.push(serde_json::to_value(row)?);
    }
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    fs::write(path, serde_json::to_string_pretty(&all)?)?;
    fs::write(path.with_extension("md"), table(rows)?)?;
    Ok(())
}

/// A table a fleet and workload, at the rate where the bars are read; goodput is the best over all rates.
fn table(rows: &[Row]) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let mut groups: Vec<(&str, Workload)> = rows.iter().map(|row| (&*row.fleet, row.workload)).collect();
    groups.dedup();
    for (fleet, workload) in groups {
        let of: Vec<&Row> = rows.iter().filter(|r| r.fleet == fleet && r.workload == workload).collect();
        let read: Vec<&&Row> = of.iter().filter(|row| row.load == 1.0).collect();
        let best = |arm: Name| {
            of.iter().filter(|row| row.arm == arm).map(|row| row.median.goodput_rpm).fold(0.0, f64::max)
        };
        let Some(random) = read.iter().find(|row| row.arm == Name::Random) else { continue };
        writeln!(out, "### {fleet}, {workload:?}, simulated, {:.2} conversations/s\n", random.rate_rps)?;
        writeln!(
            out,
            "| arm | TTFT p50 ms (least to most) | p95 ms | mean ms | cached | p50, p95 against random | goodput/min | against random |\n|---|---|---|---|---|---|---|---|"
        )?;
        for row in &read {
            let (m, p50) = (&row.median, &row.spread["ttft_p50_ms"]);
            writeln!(
                out,
                "| {:?} | {:.0} ({:.0} to {:.0}) | {:.0} | {:.0} | {:.0}% | {:.1}x, {:.1}x | {:.0} | {:.1}x |",
                row.arm,
                m.ttft_p50_ms,
                p50.least,
                p50.most,
                m.ttft_p95_ms,
                m.ttft_mean_ms,
                m.cached_share * 100.0,
                random.median.ttft_p50_ms / m.ttft_p50_ms,
                random.median.ttft_p95_ms / m.ttft_p95_ms,
                best(row.arm),
                best(row.arm) / best(Name::Random),
            )?;
        }
        out.push('\n');
    }
    Ok(out)
}
