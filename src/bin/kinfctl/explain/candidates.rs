//! The table of candidates: every term of their predictions, and what becomes of each. Pure.

use kinference::types::Prediction;

use crate::output::{Cell, Column, Line, Tone, layout};

/// Milliseconds of a prediction.
type Term = fn(&Prediction) -> f64;

/// The terms of a prediction, and their sum first.
const TERMS: &[(Column, Term)] = &[
    (Column::right("TTFT MS"), |p| p.ttft_ms),
    (Column::right("BASE"), |p| p.base_ms),
    (Column::right("FORWARD"), |p| p.forward_pass_ms),
    (Column::right("BACKLOG"), |p| p.backlog_ms),
    (Column::right("QUEUE"), |p| p.queue_ms),
    (Column::right("PREFILL"), |p| p.prefill_ms),
    (Column::right("RUNNING"), |p| p.running_ms),
    (Column::right("PRESSURE"), |p| p.cache_pressure_ms),
    (Column::right("COLD"), |p| p.saturated_cold_ms),
    (Column::right("ASSUMED"), |p| p.assumed_ms),
    (Column::right("PROVIDER"), |p| p.provider_ms),
];

/// A candidate.
pub struct Row {
    /// Who it is.
    pub name: String,
    /// The model as it knows it.
    pub model: String,
    /// What was predicted of it.
    pub prediction: Prediction,
    /// What becomes of it.
    pub fate: (String, Tone),
}

/// Nothing where there are none. Terms that are zero everywhere are left out.
pub fn table(rows: &[Row]) -> Vec<Line> {
    let counts = |term: &Term| rows.iter().any(|one| term(&one.prediction) != 0.0);
    let terms: Vec<_> = TERMS.iter().filter(|(_, term)| counts(term)).collect();
    let mut columns = vec![Column::left("CANDIDATE"), Column::left("MODEL")];
    columns.extend(terms.iter().map(|(column, _)| *column));
    columns.extend([Column::right("CACHED"), Column::left("WHAT BECOMES OF IT")]);
    let cells = |Row { name, model, prediction: p, fate: (said, tone) }: &Row| -> Vec<Cell> {
        let values = terms.iter().map(|(_, term)| Cell::from(format!("{:.0}", term(p))));
        let cached = format!("{}/{}", p.cached_blocks, p.blocks);
        let names = [name, model].map(Cell::from);
        names.into_iter().chain(values).chain([cached.into(), Cell::toned(said, *tone)]).collect()
    };
    let cells: Vec<_> = rows.iter().map(cells).collect();
    if cells.is_empty() { Vec::new() } else { layout(&columns, &cells, None) }
}
