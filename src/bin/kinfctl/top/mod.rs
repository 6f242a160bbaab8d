//! `kinfctl top`: a live table of the workers of a running server; on no terminal, plain tables one after another.
//!
//! The loop only waits and draws: what is shown is `fleet`'s and `frame`'s business. A server that goes away is asked again.

mod fleet;
mod frame;
mod screen;
mod watch;

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use anyhow::bail;
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures::StreamExt;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use crate::{client::Server, output};
use fleet::{Fleet, Told};
use frame::Size;
use screen::Screen;
use watch::Watch;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    /// Only of this worker set. Default: all.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    worker_set: String,
    /// Seconds between two looks, 0.1 to 3600.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print the table once, plain, and end.
    #[arg(long)]
    once: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "no number".to_owned())?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("must be from 0.1 to 3600".into()),
    }
}

/// Runs the command.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let title = args.server.shown();
    // What is wrong from the start is an error, not something to wait for.
    let mut watch = Watch::start(args.server, args.worker_set).await?;
    let mut fleet = Fleet::new(title);
    match watch.next().await {
        Told::Lost(why) => bail!("{why}"),
        told => fleet.told(told),
    }
    match !args.once && io::stdout().is_terminal() {
        true => live(watch, fleet, args.interval).await,
        false => plain(watch, fleet, (args.interval, args.once)).await,
    }
}

async fn plain(mut watch: Watch, mut fleet: Fleet, (period, once): (Duration, bool)) -> anyhow::Result<()> {
    let mut ticks = interval(period);
    loop {
        tokio::select! {
            told = watch.next() => match told {
                Told::Lost(why) => bail!("{why}"),
                told => fleet.told(told),
            },
            _ = ticks.tick() => {
                frame::table(&fleet, None).iter().try_for_each(|line| output::text(&line.painted(false)))?;
                frame::notes(&fleet).iter().try_for_each(|note| output::text(note))?;
                if once {
                    return Ok(());
                }
                output::text("")?;
            }
        }
    }
}

async fn live(mut watch: Watch, mut fleet: Fleet, period: Duration) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut screen = Screen::open()?;
    let mut keys = EventStream::new();
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let redraw = tokio::select! {
            told = watch.next() => {
                fleet.told(told);
                false
            }
            _ = ticks.tick() => true,
            _ = terminate.recv() => return Ok(()),
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) if ends(key) => return Ok(()),
                Some(Ok(event)) => matches!(event, Event::Resize(..)),
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
        };
        if redraw {
            screen.draw(|size: Size, colours| frame::lines(&fleet, size, colours))?;
        }
    }
}

/// In raw mode Ctrl-C is a key as any other.
fn ends(key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
            KeyCode::Char(c) => control && (c == 'c' || c == 'd'),
            _ => false,
        }
}
