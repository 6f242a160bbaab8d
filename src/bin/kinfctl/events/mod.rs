//! `kinfctl events`: tail an engine's KV events, or decode recorded ones. One record an event.

mod show;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use kinference::ingest::kv::{
    connection::Connection,
    decode::decode,
    replay::{Replay, Replayed},
    wire::{self, Numbered},
};

use crate::output::Output;
use show::Printer;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Prints what an engine publishes, until interrupted.
    Tail {
        /// Its PUB socket, e.g. `tcp://127.0.0.1:5557`.
        endpoint: String,
        /// Its replay socket: prints first what it still has. Default: none, live events only.
        #[arg(long, value_name = "ENDPOINT")]
        replay: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Prints what files hold: a bare payload, or a recording of messages.
    Decode {
        /// Files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
}

/// Runs the command.
pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Tail { endpoint, replay, output } => {
            tail(&endpoint, replay, &mut Printer::new(output.format())).await
        }
        Command::Decode { files, output } => {
            let mut printer = Printer::new(output.format());
            files.iter().try_for_each(|file| decode_file(file, &mut printer))
        }
    }
}

async fn tail(endpoint: &str, replay: Option<String>, printer: &mut Printer) -> anyhow::Result<()> {
    // Subscribed before the replay, so that nothing falls between.
    let unreachable = || format!("cannot subscribe to {endpoint}");
    let mut connection = Connection::dial(endpoint).await.with_context(unreachable)?;
    let mut replayed = None;
    if let Some(replay) = replay {
        let mut replay = Replay::start(replay, 0);
        loop {
            match replay.next().await {
                Replayed::Batch(message) => {
                    replayed = Some(message.seq);
                    print_message(&message, printer)?;
                }
                Replayed::End => break,
                Replayed::Failed(error) => return Err(error.into()),
            }
        }
    }
    while let Some(frames) = connection.next().await {
        match wire::numbered(&frames) {
            // The replay had it.
            Ok(message) if replayed.is_some_and(|last| message.seq <= last) => {}
            Ok(message) => {
                replayed = None;
                print_message(&message, printer)?;
            }
            Err(error) => printer.undecoded(None, &error.to_string())?,
        }
    }
    bail!("the engine closed the connection")
}

fn decode_file(file: &Path, printer: &mut Printer) -> anyhow::Result<()> {
    let name = || file.display().to_string();
    let bytes = Bytes::from(std::fs::read(file).with_context(name)?);
    // A payload begins with an array; a recording with a frame count far below 2^24.
    if bytes.first() != Some(&0) {
        let batch = decode(&bytes).with_context(name)?;
        return printer.batch(None, &batch);
    }
    for frames in wire::recorded(bytes).with_context(name)? {
        print_message(&wire::numbered(&frames).with_context(name)?, printer)?;
    }
    Ok(())
}

fn print_message(message: &Numbered, printer: &mut Printer) -> anyhow::Result<()> {
    if message.ends_replay() {
        return Ok(());
    }
    match decode(&message.payload) {
        Ok(batch) => printer.batch(Some(message.seq), &batch),
        Err(error) => printer.undecoded(Some(message.seq), &error.to_string()),
    }
}
