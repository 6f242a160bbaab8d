//! What every front door of the gRPC server gets: a health name, and a place in reflection.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
    task::{Context, Poll},
    time::Duration,
};

use kinference::serve::{Server, Services};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Status,
    body::Body,
    codegen::{Service, http},
    server::NamedService,
    transport::Channel,
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

const DEADLINE: Duration = Duration::from_secs(20);

macro_rules! service {
    ($type:ident, $name:literal) => {
        #[derive(Clone)]
        struct $type;

        impl NamedService for $type {
            const NAME: &'static str = $name;
        }

        impl Service<http::Request<Body>> for $type {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = Ready<Result<Self::Response, Infallible>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, _: http::Request<Body>) -> Self::Future {
                ready(Ok(Status::unimplemented("a stand-in").into_http()))
            }
        }
    };
}

service!(Picker, "kinference.v1alpha1.Picker");
service!(Fleet, "kinference.v1alpha1.Fleet");
service!(Foreign, "envoy.service.ext_proc.v3.ExternalProcessor");

struct Running {
    channel: Channel,
    ready: watch::Sender<bool>,
    address: SocketAddr,
    shutdown: CancellationToken,
    server: JoinSet<()>,
}

async fn serve() -> Running {
    let (ready, is_ready) = watch::channel(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
    let services = Services::default().with_routing(Picker).with_routing(Foreign).with(Fleet);
    let server = Server { services, ready: is_ready, tls: None };
    let mut task = JoinSet::new();
    let stop = shutdown.clone();
    task.spawn(async move { server.run(listener, stop).await.unwrap() });
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    Running { channel, ready, address, shutdown, server: task }
}

#[tokio::test]
async fn every_service_has_its_health() {
    let running = serve().await;
    let mut health = HealthClient::new(running.channel.clone());
    let routing = ["readiness", Picker::NAME, Foreign::NAME];
    for (fleet_ready, serving) in [(false, ServingStatus::NotServing), (true, ServingStatus::Serving)] {
        running.ready.send_replace(fleet_ready);
        for (names, want) in
            [(&routing[..], serving), (&["", "liveness", Fleet::NAME][..], ServingStatus::Serving)]
        {
            for name in names {
                let watched = health.watch(HealthCheckRequest { service: (*name).into() }).await;
                let mut watched = watched.unwrap().into_inner();
                let reached = async { while watched.message().await.unwrap().unwrap().status() != want {} };
                timeout(DEADLINE, reached).await.unwrap_or_else(|_| panic!("{name} is not {want:?}"));
            }
        }
    }
    let unknown = health.check(HealthCheckRequest { service: "nobody".into() }).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
}

/// Lists the services and describes each of them, with one of the two versions.
macro_rules! reflected {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::{
            ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
            server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
        };
        let mut client = ServerReflectionClient::new($channel);
        let mut ask = async |request| {
            let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
            let answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
            answers.into_inner().message().await.unwrap().unwrap().message_response.unwrap()
        };
        let list = ask(MessageRequest::ListServices(String::new())).await;
        let MessageResponse::ListServicesResponse(list) = list else { panic!("{list:?}") };
        let mut names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
        for name in &names {
            let described = ask(MessageRequest::FileContainingSymbol(name.clone())).await;
            assert!(matches!(described, MessageResponse::FileDescriptorResponse(_)), "{name}: {described:?}");
        }
        names.sort();
        names
    }};
}

#[tokio::test]
async fn what_is_served_and_described_is_listed() {
    let running = serve().await;
    for (own, names) in [
        ("grpc.reflection.v1.ServerReflection", reflected!(v1, running.channel.clone())),
        ("grpc.reflection.v1alpha.ServerReflection", reflected!(v1alpha, running.channel.clone())),
    ] {
        assert_eq!(names, ["grpc.health.v1.Health", own, Fleet::NAME, Picker::NAME]);
    }
}

#[tokio::test]
async fn what_is_too_large_is_turned_away_alone() {
    let running = serve().await;
    let mut health = HealthClient::new(running.channel.clone());
    let mut ask = async |name: usize, header: usize| {
        let mut request = tonic::Request::new(HealthCheckRequest { service: "x".repeat(name) });
        request.metadata_mut().insert("x-large", "x".repeat(header).parse().unwrap());
        timeout(DEADLINE, health.check(request)).await.unwrap().unwrap_err()
    };
    // Found to be nobody's name: the message was read.
    assert_eq!(ask(4_000_000, 15_000).await.code(), Code::NotFound);
    assert_eq!(ask(5_000_000, 0).await.code(), Code::OutOfRange);
    let refused = ask(1, 20_000).await;
    assert!(refused.code() != Code::NotFound, "{refused:?}");
    assert_eq!(ask(1, 0).await.code(), Code::NotFound);
}

/// One that watches, one that keeps reflection open, and one that has connected and says nothing.
#[tokio::test]
async fn idle_clients_do_not_hold_a_server_that_stops() {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest,
    };
    let mut running = serve().await;
    let _silent = TcpStream::connect(running.address).await.unwrap();
    let channel = Channel::from_shared(format!("http://{}", running.address)).unwrap();
    // Connections are accepted in turn: the silent one has been by now.
    let channel = channel.connect().await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    let watched = health.watch(HealthCheckRequest { service: String::new() }).await;
    let mut watched = watched.unwrap().into_inner();
    let mut told = async || timeout(DEADLINE, watched.message()).await.unwrap();
    assert_eq!(told().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let list = MessageRequest::ListServices(String::new());
    let asked = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let asking = tokio_stream::once(asked).chain(tokio_stream::pending());
    let mut client = ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(asking).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();
    running.shutdown.cancel();
    assert_eq!(told().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(told().await.unwrap_err().code(), Code::Unavailable);
    let ended = timeout(DEADLINE, answers.message()).await.unwrap();
    assert_eq!(ended.unwrap_err().code(), Code::Unavailable);
    timeout(DEADLINE, running.server.join_next()).await.expect("the server ends").unwrap().unwrap();
}
