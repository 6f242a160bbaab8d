//! What a screen shows: a title with totals, the table, as many workers as fit. Pure.
//!
//! Invariant: no line is wider, and there are no more lines, than the screen has.

#[cfg(test)]
mod tests;

use kinference::serve::proto::Worker;

use super::fleet::Fleet;
use crate::{
    output::{Cell, Column, Line, Tone, clean, layout},
    workers::{is_up, kv_use, state, why},
};

/// Columns and lines of a screen, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters a line.
    pub width: usize,
    /// Lines.
    pub height: usize,
}

const COLUMNS: &[Column] = &[
    Column::left("WORKER").elastic(),
    Column::left("STATE"),
    Column::left("MODELS").elastic(),
    Column::right("QUEUE"),
    Column::right("RUN"),
    Column::right("KV USE"),
    Column::right("FLIGHT"),
    Column::right("WORK MS"),
    Column::right("BLOCKS"),
];

/// The title, an empty line, the heading, and the line that says what is left out.
const AROUND: usize = 4;

/// A whole screen.
pub fn lines(fleet: &Fleet, size: Size, colours: bool) -> Vec<String> {
    let mut table = table(fleet, Some(size.width));
    let room = size.height.saturating_sub(AROUND) + 1;
    let left_out = table.len().saturating_sub(room);
    table.truncate(room);
    let short = |text: String| text.chars().take(size.width).collect::<String>();
    let tone = |text: String, tone: Tone| if colours { tone.paint(&text) } else { text };
    let status = match &fleet.lost {
        Some(why) => tone(short(format!("Not up to date: {}", one_line(why))), Tone::Bad),
        None => String::new(),
    };
    let mut out = vec![tone(short(title(fleet)), Tone::Strong), status];
    out.extend(table.iter().map(|line| line.painted(colours)));
    if left_out > 0 {
        out.push(tone(short(format!("... and {left_out} more")), Tone::Faint));
    }
    out.extend(notes(fleet).into_iter().map(|note| tone(short(note), Tone::Faint)));
    out.truncate(size.height);
    out
}

/// The heading and a line a worker.
pub fn table(fleet: &Fleet, width: Option<usize>) -> Vec<Line> {
    let rows: Vec<_> = fleet.workers.values().map(row).collect();
    layout(COLUMNS, &rows, width)
}

/// Why workers get no requests, a line each.
pub fn notes(fleet: &Fleet) -> Vec<String> {
    let out = fleet.workers.values().filter(|worker| !is_up(worker) && !worker.wrong.is_empty());
    out.map(|worker| clean(&format!("{}: {}", worker.worker_id, why(worker)))).collect()
}

fn title(fleet: &Fleet) -> String {
    let totals = fleet.totals();
    format!(
        "{}  {} of {} up, queue {}, running {}, in flight {}   q quits",
        fleet.title,
        totals.up,
        fleet.workers.len(),
        totals.queue,
        totals.running,
        totals.in_flight,
    )
}

fn row(worker: &Worker) -> Vec<Cell> {
    let load = worker.load.unwrap_or_default();
    let waits = if load.queue > 0.0 { Tone::Warning } else { Tone::Plain };
    vec![
        worker.worker_id.clone().into(),
        state(worker),
        worker.models.join(",").into(),
        Cell::toned(load.queue.to_string(), waits),
        load.running.into(),
        kv_use(&load),
        load.in_flight.into(),
        format!("{:.0}", load.backlog_ms).into(),
        (worker.gpu_blocks + worker.lower_blocks).into(),
    ]
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
