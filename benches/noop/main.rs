//! What a decision is measured against: `processor` does nothing but ext_proc's minimum, `origin` answers at once,
//! `load` asks over a fixed number of connections.
//!
//! `benches/overhead.py` runs them. `processor` and `origin` print one line of JSON that says where they listen, `load`
//! one that says what it saw.

mod load;
mod origin;
mod processor;
mod prompts;
mod wire;

use std::io::Write;

use anyhow::Result;
use clap::Parser;
use serde_json::Value;

#[derive(Parser)]
enum Command {
    /// An ext_proc server that changes nothing.
    Processor(processor::Args),
    /// An HTTP/1.1 server that answers every request the same.
    Origin(origin::Args),
    /// A load of chat completions.
    Load(load::Args),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Processor(args) => processor::run(args),
        Command::Origin(args) => origin::run(args),
        Command::Load(args) => load::run(args),
    }
}

/// The one line of output that the caller waits for.
fn say(line: &Value) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}
