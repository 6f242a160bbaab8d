//! What an operator on call looks for: providers and why one gets no requests, who was set apart on purpose, what is not
//! known yet.

use std::fs;

use kinference::admin::CHANGE_HEADER;
use reqwest::{Client, Method};

use crate::{
    browser::Browser,
    page::{enabled, until_followed, write},
    shown::{SOON, Shown},
    stack::{Engine, PATIENCE, Router},
    traffic::{Ask, Gateway, tokens},
};

const PROVIDERS: &str = include_str!("providers.yaml");

/// A request for a model of the pool.
fn ask(model: &str) -> Ask {
    Ask { pool: "outside".into(), model: model.into(), ..Ask::of(tokens(1, 32)) }
}

fn row(provider: &str, words: &[&str]) -> String {
    let has = words.iter().map(|words| format!("text.includes('{words}')")).collect::<Vec<_>>().join(" && ");
    format!(
        "const row = document.querySelector('#providers tr[data-provider=\"default/{provider}\"]'); \
         const text = row?.innerText ?? ''; return {has}"
    )
}

#[tokio::test]
async fn providers_show_their_load_and_why_one_gets_no_requests() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("secrets")).unwrap();
    write(dir.path(), PROVIDERS);
    let secrets = format!("secrets_dir = \"{}/secrets\"\n", dir.path().display());
    let router = Router::start(&[], &(enabled(dir.path()) + &secrets));
    let Some(page) = Shown::on(&router).await else { return };
    let fresh = ["ok", "near.example:8443", "default/outside", "large-1", "900 ms", "not seen yet"];
    page.until("both are listed", SOON, &row("near", &fresh)).await;
    let missing =
        ["out", "no credential, no requests:", "key `token` of Secret default/cloud, which does not exist"];
    page.until("one lacks its credential", SOON, &row("far", &missing)).await;

    let mut gateway = Gateway::to(&router.grpc).await;
    gateway.begin(&ask("near"), true).await;
    gateway.begin(&ask("near"), false).await;
    let learnt = "const cells = [...document.querySelectorAll('#providers tr[data-provider=\"default/near\"] td')]; \
                  return cells[2].innerText === '2' && / ms$/.test(cells.at(-1).innerText)";
    page.until("what is in flight and learnt", SOON, learnt).await;
    for _ in 0..3 {
        gateway.fail(&ask("near")).await;
    }
    let aside = [
        "set aside since ",
        "it failed 3 times in a row; the last request there failed: 5xx",
        "one request tries it",
    ];
    page.until("it is set aside", SOON, &row("near", &aside)).await;
    for width in [360, 1600] {
        page.browser.size([width, 900]).await;
        let over = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(page.browser.run(over).await, 0, "{width} px");
    }
    write(dir.path(), "");
    let none =
        "return document.getElementById('providers-note').innerText === 'No pool in force has a provider.'";
    page.until("they are gone", PATIENCE, none).await;
    page.is_quiet().await;
}

#[tokio::test]
async fn who_was_set_apart_is_no_outage() {
    let engines: Vec<_> = (0..2).map(|_| Engine::start(&["--speedup", "50"])).collect();
    let router = Router::start(&engines, "");
    until_followed(&router, 2).await;
    let Some(page) = Shown::on(&router).await else { return };
    let warming = "warming up: it has answered nothing yet";
    page.until_worker(("w0", "ok", warming), SOON).await;
    let url = format!("http://{}/api/workers/w0/cordon", router.admin);
    let change = async |method: Method| {
        let sent = Client::new().request(method, &url).header(CHANGE_HEADER, "1").send();
        sent.await.unwrap().error_for_status().unwrap();
    };
    change(Method::PUT).await;
    page.until_worker(("w0", "cordoned", "cordoned by hand"), SOON).await;
    let news = page.text("#news-list").await;
    assert!(news.contains("w0 gets no requests: cordoned by hand"), "{news}");
    assert_eq!(page.text("#fleet-note").await, "1 ok, 0 degraded, 0 out, 1 cordoned");
    let tone = "return document.querySelector('#tiles .tile').dataset.tone";
    assert_eq!(page.browser.run(tone).await, "good");
    change(Method::DELETE).await;
    page.until_worker(("w0", "ok", warming), SOON).await;

    router.edit_workers(|text| text.replace("worker_id_num = 1\n", "worker_id_num = 1\ncordoned = true\n"));
    page.until_worker(("w1", "cordoned", "cordoned by its workers file"), PATIENCE).await;
    page.is_quiet().await;
}

/// A page that was not told anything yet shows no zeros for it.
#[tokio::test]
async fn what_is_not_known_yet_is_a_dash() {
    let router = Router::start(&[], "mock_mode = true");
    let Some(browser) = Browser::start().await else { return };
    let mut others = Vec::new();
    for _ in 0..32 {
        others.push(reqwest::get(format!("http://{}/api/events", router.admin)).await.unwrap());
    }
    let page = Shown { browser };
    page.browser.size([1600, 1000]).await;
    page.browser.go(&format!("http://{}/", router.admin)).await;
    page.until("it is told nothing", SOON, "return document.body.dataset.connection === 'lost'").await;
    let values = "return [...document.querySelectorAll('#tiles strong, .empty')].filter((one) => one.checkVisibility()) \
                  .map((one) => one.innerText).join('')";
    let shown = page.browser.run(values).await;
    let dashes = shown.as_str().unwrap();
    assert!(dashes.chars().count() > 10 && dashes.chars().all(|one| one == '–'), "{shown}");
    others.clear();
    let told = "return document.querySelector('#tiles strong').innerText === '0 of 0'";
    page.until("it is told", PATIENCE, told).await;
}
