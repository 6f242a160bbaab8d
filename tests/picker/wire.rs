//! The Picker on a real socket: codes and details of errors, and bodies larger than gRPC's default message.

use std::time::Duration;

use kinference::{
    config::BodyLimits,
    serve::{
        proto::{PickRequest, picker_client::PickerClient},
        status::{DOMAIN, HTTP_STATUS, Reason},
    },
    types::ErrorKind,
};
use serde_json::json;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code,
    transport::{Channel, Server, server::TcpIncoming},
};
use tonic_types::StatusExt;

use crate::{
    door::{COMPLETIONS, Door, by_id, chunk, first, head, inline, pushing, seeded, tokens},
    site::MODEL,
};

async fn serve(door: &Door) -> (PickerClient<Channel>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder().add_service(door.picker.clone().into_server());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { server.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap() });
    (PickerClient::connect(url).await.unwrap(), tasks)
}

fn check(status: &tonic::Status, code: Code, reason: Reason) {
    assert_eq!(status.code(), code, "{status:?}");
    let info = status.get_details_error_info().unwrap();
    assert_eq!((info.domain.as_str(), info.reason.as_str()), (DOMAIN, reason.name()));
    assert_eq!(info.metadata[HTTP_STATUS], reason.http_status().to_string());
}

#[tokio::test]
async fn a_large_body_is_pushed_and_sent_inline() {
    let door = Door::of(&seeded(), 1);
    let (mut client, _tasks) = serve(&door).await;
    let pad = "x".repeat(6 << 20);
    let body = json!({"model": MODEL, "prompt": [1, 2, 3], "user": pad}).to_string().into_bytes();
    let inline = client.pick(inline(head(COMPLETIONS), &body)).await.unwrap().into_inner();
    assert_eq!(inline.prompt_tokens, Some(3));
    let messages = std::iter::once(first(head(COMPLETIONS))).chain(body.chunks(65_536).map(chunk));
    let messages: Vec<_> = messages.collect();
    let pushed = client.push_body(futures::stream::iter(messages)).await.unwrap().into_inner();
    assert_eq!(pushed.length, body.len() as u64);
    let picked = client.pick(by_id(&pushed.body_id)).await.unwrap().into_inner();
    assert_eq!(picked.prompt_tokens, Some(3));
}

#[tokio::test]
async fn a_push_that_breaks_off_leaves_nothing() {
    let door = Door::of(&seeded(), 1);
    let (client, _tasks) = serve(&door).await;
    let mut pushes = JoinSet::new();
    let mut sends = Vec::new();
    for _ in 0..20 {
        let (send, receive) = mpsc::channel(4);
        send.send(first(head(COMPLETIONS))).await.unwrap();
        send.send(chunk(&[b' '; 50_000])).await.unwrap();
        sends.push(send);
        let mut client = client.clone();
        pushes.spawn(async move { client.push_body(ReceiverStream::new(receive)).await.is_ok() });
    }
    until("all hold their bytes", || door.budget.held_bytes() >= 20 * 50_000).await;
    pushes.shutdown().await;
    until("all bytes are given back", || door.budget.held_bytes() == 0).await;
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), wait).await.is_ok(), "waited in vain: {what}");
}

#[tokio::test]
async fn errors_are_canonical_and_say_why() {
    let limits = BodyLimits { request_bytes: 100_000, total_bytes: 150_000, ..BodyLimits::default() };
    let door = Door::with(&seeded(), 1, limits);
    let (mut client, _tasks) = serve(&door).await;
    let large = vec![b' '; 100_001];
    let push = client.push_body(futures::stream::iter(pushing(head(COMPLETIONS), &large))).await.unwrap_err();
    check(&push, Code::ResourceExhausted, ErrorKind::BodyTooLarge.into());
    let broken = client.push_body(futures::stream::iter(pushing(head(COMPLETIONS), b"{"))).await.unwrap_err();
    check(&broken, Code::InvalidArgument, ErrorKind::BadRequest.into());
    let table = [
        (inline(head(COMPLETIONS), &large), Code::ResourceExhausted, ErrorKind::BodyTooLarge.into()),
        (inline(head(COMPLETIONS), b"[]"), Code::InvalidArgument, ErrorKind::BadRequest.into()),
        (tokens(0..60_000), Code::ResourceExhausted, ErrorKind::BodyTooLarge.into()),
        (
            PickRequest { model: "unknown".into(), ..tokens(0..9) },
            Code::NotFound,
            ErrorKind::ModelNotFound.into(),
        ),
        (by_id("here.1"), Code::NotFound, Reason::BodyNotFound),
        (by_id("there.1"), Code::FailedPrecondition, Reason::WrongReplica),
        (
            PickRequest { exclude: vec!["10.0.0.1:8000".into()], ..tokens(0..9) },
            Code::Unavailable,
            ErrorKind::NoWorker.into(),
        ),
    ];
    for (request, code, reason) in table {
        check(&client.pick(request).await.unwrap_err(), code, reason);
    }
    let kept = vec![b' '; 99_000];
    let audio = || futures::stream::iter(pushing(head("/v1/audio"), &kept));
    client.push_body(audio()).await.unwrap();
    let full = client.push_body(audio()).await.unwrap_err();
    check(&full, Code::ResourceExhausted, ErrorKind::Overloaded.into());
    assert!(full.get_details_retry_info().is_some());
    assert!(door.has_counted("kinference_picker_refusals_total{reason=\"WRONG_REPLICA\"} 1"));
}

#[tokio::test]
async fn the_trace_of_the_caller_is_joined() {
    let door = Door::of(&seeded(), 1);
    let (mut client, _tasks) = serve(&door).await;
    let mut request = tonic::Request::new(tokens(0..9));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    client.pick(request).await.unwrap();
    client.pick(tokens(0..9)).await.unwrap();
    let told = door.site.decisions.after(0, 9);
    let parents: Vec<_> =
        told.iter().map(|one| one.record.traceparent.map(|parent| parent.to_string())).collect();
    assert_eq!(parents, [Some(parent.to_owned()), None]);
}
