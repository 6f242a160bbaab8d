//! What commands print on stdout: records as a table, as JSON lines or as YAML documents, each written whole.
//!
//! Invariant: colours are for a terminal only, and never where `NO_COLOR` is set.

mod table;
#[cfg(test)]
mod tests;

pub use table::{Cell, Column, Line, Tone, clean, layout};

use std::{
    env,
    io::{self, ErrorKind, IsTerminal, Write},
};

use serde_json::Value;

/// How records are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Columns for people.
    Table,
    /// An object a line.
    Json,
    /// A document an object.
    Yaml,
}

/// The option of commands that print records.
#[derive(Clone, Copy, clap::Args)]
pub struct Output {
    /// How data is printed: as columns, as one JSON object a line, or as YAML documents. Default: `table` on a
    /// terminal, else `json`.
    #[arg(long, short, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    output: Option<Format>,
}

impl Output {
    /// What was asked for, or what suits where the output goes.
    pub fn format(self) -> Format {
        let suits = || if io::stdout().is_terminal() { Format::Table } else { Format::Json };
        self.output.unwrap_or_else(suits)
    }
}

/// How a command ended that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was wrong.
    Fine,
    /// What it looked at has problems, which it has printed.
    Problems,
}

/// Prints records that are all there.
pub fn list<T>(format: Format, items: &[T], shape: &Shape<T>) -> anyhow::Result<()> {
    if format != Format::Table {
        return items.iter().try_for_each(|item| object(format, &(shape.object)(item)));
    }
    let rows: Vec<_> = items.iter().map(shape.row).collect();
    layout(shape.columns, &rows, None).iter().try_for_each(|line| text(&line.painted(colours())))
}

/// How records of a kind are shown.
pub struct Shape<T> {
    /// The columns of its table.
    pub columns: &'static [Column],
    /// Its cells.
    pub row: fn(&T) -> Vec<Cell>,
    /// Its fields.
    pub object: fn(&T) -> Value,
}

/// Prints records as they come.
pub struct Stream {
    format: Format,
    columns: &'static [Column],
    begun: bool,
}

impl Stream {
    /// Nothing is printed yet. The columns are as wide as they say: what comes later is not known.
    pub fn new(format: Format, columns: &'static [Column]) -> Self {
        Self { format, columns, begun: false }
    }

    /// Whether rows are printed, not fields.
    pub fn is_table(&self) -> bool {
        self.format == Format::Table
    }

    /// Prints one.
    pub fn record(&mut self, fields: &Value, row: impl FnOnce() -> Vec<Cell>) -> anyhow::Result<()> {
        if !self.is_table() {
            return object(self.format, fields);
        }
        let lines = layout(self.columns, &[row()], None);
        let skipped = usize::from(std::mem::replace(&mut self.begun, true));
        lines.iter().skip(skipped).try_for_each(|line| text(&line.painted(colours())))
    }
}

/// Prints an object as a JSON line or a YAML document.
pub fn object(format: Format, fields: &Value) -> anyhow::Result<()> {
    match format {
        Format::Yaml => text(format!("---\n{}", serde_saphyr::to_string(fields)?).trim_end()),
        Format::Json | Format::Table => text(&fields.to_string()),
    }
}

/// Prints a line of text.
pub fn text(line: &str) -> anyhow::Result<()> {
    io::stdout().lock().write_all(format!("{line}\n").as_bytes())?;
    Ok(())
}

/// Whether stdout takes colours.
pub fn colours() -> bool {
    let unset = |name| env::var_os(name).is_none_or(|value| value.is_empty());
    unset("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb") && io::stdout().is_terminal()
}

/// Nobody reads our output any more.
pub fn nobody_reads(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
