//! What operators do to the real server with the real `kinfctl`, while it serves.

use std::{collections::BTreeSet, env, process::Command};

use kinference::{observe::DEFAULT_LOG, serve::proto::picker_client::PickerClient};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::{
    proxy::{Call, Gateway},
    stack::{Engine, Router, all},
};

/// Two engines behind a server, both in sync.
async fn start() -> (Vec<Engine>, Router) {
    let engines: Vec<_> = (0..2).map(|_| Engine::start(&["--speedup", "50"])).collect();
    let router = Router::start(&engines, "");
    router.until("all workers are synced", |f| all(f, |w| w["kv_events"]["state"] == "synced")).await;
    router.until("all workers name models", |f| all(f, |w| w["engine"] == "vllm")).await;
    (engines, router)
}

/// What `kinfctl` prints on stdout, else on stderr.
async fn kinfctl(router: &Router, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinfctl"));
    command.args(args).args(["--admin", &format!("http://{}", router.admin)]);
    let ran = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap().trim().to_owned();
    if ran.status.success() { Ok(text(ran.stdout)) } else { Err(text(ran.stderr)) }
}

/// Asks for the answer to a long prompt; the worker that gave it.
async fn ask(gateway: &mut Gateway) -> String {
    let content = "Which worker has seen this before? ".repeat(40);
    let body = json!({"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": content}]});
    let path = "/v1/chat/completions".into();
    let call = Call { path, model: String::new(), body: body.to_string().into() };
    let done = gateway.proxy(call, &mut Vec::new()).await.unwrap();
    assert_eq!(done.status, 200);
    done.worker
}

fn named<'f>(fleet: &'f Value, name: &str) -> &'f Value {
    fleet["workers"].as_array().unwrap().iter().find(|worker| worker["name"] == name).unwrap()
}

#[tokio::test]
async fn a_worker_is_taken_out_and_keeps_what_is_known_of_it() {
    let (_engines, router) = start().await;
    let mut gateway = Gateway::new(PickerClient::connect(format!("http://{}", router.grpc)).await.unwrap());
    let first = ask(&mut gateway).await;
    let other = if first == "w0" { "w1" } else { "w0" };
    let warm =
        router.until("its blocks are known", |f| named(f, &first)["blocks"]["gpu"].as_u64() > Some(10)).await;
    let warm = named(&warm, &first);
    assert_eq!((&warm["cordoned"], &warm["warming"]), (&json!(false), &json!(false)));
    let as_it_was = |fleet: &Value| {
        let now = named(fleet, &first);
        let blocks = |worker: &Value| worker["blocks"]["gpu"].as_u64().unwrap();
        now["generation"] == warm["generation"] && blocks(now) >= blocks(warm)
    };

    assert_eq!(kinfctl(&router, &["cordon", &first]).await, Ok(format!("{first}: cordoned")));
    assert_eq!(ask(&mut gateway).await, other);
    let now = router.fleet().await;
    assert!(as_it_was(&now) && named(&now, &first)["cordoned"] == true, "{now}");
    assert_eq!(kinfctl(&router, &["uncordon", &first]).await, Ok(format!("{first}: not cordoned")));
    assert_eq!(named(&router.fleet().await, &first)["cordoned"], false);

    let name = format!("worker_id_str = \"{first}\"\n");
    router.edit_workers(|text| text.replace(&name, &format!("{name}cordoned = true\n")));
    let now = router.until("the file cordons it", |f| named(f, &first)["cordoned"] == true).await;
    assert!(as_it_was(&now), "{now}");
    let stays = format!("kinfctl: `{first}` stays cordoned: its workers file says `cordoned = true`");
    assert_eq!(kinfctl(&router, &["uncordon", &first]).await, Err(stays));
    assert_eq!(ask(&mut gateway).await, other);
    kinfctl(&router, &["cordon", other]).await.unwrap();
    let ready = reqwest::get(format!("http://{}/readyz", router.admin)).await.unwrap();
    assert_eq!(ready.status(), 503);
    router.edit_workers(|text| text.replace("cordoned = true\n", ""));
    let now = router.until("the file says nothing", |f| named(f, &first)["cordoned"] == false).await;
    assert!(as_it_was(&now), "{now}");
    assert_eq!(ask(&mut gateway).await, first);
}

#[tokio::test]
async fn the_log_of_a_running_server_is_changed() {
    let (_engines, router) = start().await;
    let parts = |filter: &str| filter.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
    let first = env::var("RUST_LOG").unwrap_or_else(|_| DEFAULT_LOG.to_owned());
    assert_eq!(parts(&kinfctl(&router, &["log"]).await.unwrap()), parts(&first));
    let wanted = "info,kinference=debug";
    assert_eq!(parts(&kinfctl(&router, &["log", wanted]).await.unwrap()), parts(wanted));
    assert!(kinfctl(&router, &["log", "infoo"]).await.is_err());
    assert_eq!(parts(&kinfctl(&router, &["log"]).await.unwrap()), parts(wanted));
}
