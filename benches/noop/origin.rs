//! An HTTP/1.1 server on several ports that answers every request the same, or with the events that it asks for.

use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use serde_json::json;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::wire::Reader;

/// Between two events of a stream.
const BETWEEN: Duration = Duration::from_millis(4);

#[derive(Parser)]
pub struct Args {
    /// Ports to listen on.
    #[arg(long, default_value_t = 3)]
    ports: usize,
    /// The model that is served, as `/v1/models` says it.
    #[arg(long)]
    model: String,
}

/// Serves until it is ended.
#[tokio::main(flavor = "current_thread")]
pub async fn run(args: Args) -> Result<()> {
    let mut listeners = Vec::new();
    for _ in 0..args.ports {
        listeners.push(TcpListener::bind("127.0.0.1:0").await?);
    }
    let addresses: Result<Vec<_>, _> = listeners.iter().map(TcpListener::local_addr).collect();
    let addresses: Vec<_> = addresses?.iter().map(ToString::to_string).collect();
    crate::say(&json!({"listen": addresses}))?;
    let answers: &'static Answers = Box::leak(Box::new(Answers::new(&args.model)));
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(listener, answers));
    }
    accepting.join_all().await.into_iter().collect()
}

struct Answers {
    models: Vec<u8>,
    completion: Vec<u8>,
    event: Vec<u8>,
    end: Vec<u8>,
}

impl Answers {
    fn new(model: &str) -> Self {
        let models =
            json!({"object": "list", "data": [{"id": model, "object": "model", "owned_by": "vllm"}]});
        let usage = json!({"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101});
        let message = json!({"role": "assistant", "content": "Yes."});
        let completion = json!({"id": "chatcmpl-1", "object": "chat.completion", "model": model, "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
        let event = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": model,
            "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": null}]});
        let last = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": model, "choices": [],
            "usage": usage});
        let mut end = chunk(&format!("data: {last}\n\ndata: [DONE]\n\n"));
        end.extend_from_slice(b"0\r\n\r\n");
        Self {
            models: whole(&models.to_string()),
            completion: whole(&completion.to_string()),
            event: chunk(&format!("data: {event}\n\n")),
            end,
        }
    }
}

fn whole(body: &str) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + body).into_bytes()
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

async fn accept(listener: TcpListener, answers: &'static Answers) -> Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        // A connection that breaks is its client's to complain of.
        connections.spawn(serve(connection, answers));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut connection: TcpStream, answers: &Answers) -> Result<()> {
    let mut reader = Reader::default();
    while let Some(head) = reader.message(&mut connection).await? {
        if let Some(events) = head.chunks {
            stream(&mut connection, answers, events).await?;
        } else if head.first.starts_with("GET /v1/models ") {
            connection.write_all(&answers.models).await?;
        } else {
            connection.write_all(&answers.completion).await?;
        }
    }
    Ok(())
}

async fn stream(connection: &mut TcpStream, answers: &Answers, events: usize) -> Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    connection.write_all(head.as_bytes()).await?;
    let mut due = interval(BETWEEN);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..events {
        due.tick().await;
        connection.write_all(&answers.event).await?;
    }
    Ok(connection.write_all(&answers.end).await?)
}
