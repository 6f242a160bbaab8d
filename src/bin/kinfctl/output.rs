//! What commands print: lines on stdout, each written whole.

use std::io::{self, ErrorKind, Write};

use serde_json::Value;

/// Prints a JSON line.
pub fn print(line: &Value) -> anyhow::Result<()> {
    text(&line.to_string())
}

/// Prints a line of text.
pub fn text(line: &str) -> anyhow::Result<()> {
    io::stdout().lock().write_all(format!("{line}\n").as_bytes())?;
    Ok(())
}

/// Nobody reads our output any more.
pub fn nobody_reads(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
