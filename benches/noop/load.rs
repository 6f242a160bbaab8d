//! A load over a fixed number of connections, each of which asks again once it is answered. Times in milliseconds.

use std::{cell::RefCell, rc::Rc, time::Duration};

use anyhow::{Result, bail};
use clap::Parser;
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream, task::LocalSet, time::Instant};

use crate::{prompts::Prompts, wire::Reader};

#[derive(Parser)]
pub struct Args {
    /// `host:port`
    #[arg(long)]
    to: String,
    #[arg(long)]
    model: String,
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Size of a body.
    #[arg(long, default_value_t = 16)]
    body_kb: usize,
    /// Documents that the bodies are about; 0: no two bodies begin alike.
    #[arg(long, default_value_t = 16)]
    documents: usize,
    /// How long to go on.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// The number of the first request: numbers tell requests apart.
    #[arg(long, default_value_t = 0)]
    first: usize,
    /// How far apart numbers are.
    #[arg(long, default_value_t = 1)]
    step: usize,
    /// Ends after that many requests, if before the time is up.
    #[arg(long)]
    most: Option<usize>,
    /// Asks for answers of that many events.
    #[arg(long)]
    events: Option<usize>,
}

struct Run {
    args: Args,
    prompts: Prompts,
    until: Instant,
    asked: usize,
    took: Vec<Duration>,
}

/// Runs the load and says what it saw.
#[tokio::main(flavor = "current_thread")]
pub async fn run(args: Args) -> Result<()> {
    let prompts = Prompts::new(&args.model, args.body_kb * 1024, args.documents);
    let (connections, began) = (args.connections, Instant::now());
    let until = began + Duration::from_secs_f64(args.seconds);
    let run = Rc::new(RefCell::new(Run { args, prompts, until, asked: 0, took: Vec::new() }));
    let local = LocalSet::new();
    let asking: Vec<_> = (0..connections).map(|_| local.spawn_local(ask(run.clone()))).collect();
    local.await;
    let seconds = began.elapsed().as_secs_f64();
    for asked in asking {
        asked.await??;
    }
    let took = &mut run.borrow_mut().took;
    took.sort_unstable();
    let at = |share: f64| {
        let rank = (took.len() as f64 * share) as usize;
        took.get(rank).map(|took| took.as_secs_f64() * 1e3)
    };
    crate::say(&json!({
        "requests": took.len(), "seconds": seconds, "p50_ms": at(0.5), "p99_ms": at(0.99),
    }))
}

impl Run {
    /// The next request, all of it; `None`: that was enough.
    fn next(&mut self) -> Option<Vec<u8>> {
        let args = &self.args;
        if Instant::now() >= self.until || args.most.is_some_and(|most| self.asked >= most) {
            return None;
        }
        let body = self.prompts.body(args.first + self.asked * args.step);
        let events = args.events.map(|events| format!("x-chunks: {events}\r\n")).unwrap_or_default();
        self.asked += 1;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n{events}content-length: {}\r\n\r\n",
            args.to,
            body.len()
        );
        Some((head + &body).into_bytes())
    }
}

async fn ask(run: Rc<RefCell<Run>>) -> Result<()> {
    let to = run.borrow().args.to.clone();
    let mut connection = TcpStream::connect(to).await?;
    connection.set_nodelay(true)?;
    let mut reader = Reader::default();
    loop {
        let Some(request) = run.borrow_mut().next() else { return Ok(()) };
        let began = Instant::now();
        connection.write_all(&request).await?;
        let Some(head) = reader.message(&mut connection).await? else { bail!("the connection ended") };
        if !head.first.starts_with("HTTP/1.1 200") {
            bail!("{}", head.first);
        }
        run.borrow_mut().took.push(began.elapsed());
    }
}
