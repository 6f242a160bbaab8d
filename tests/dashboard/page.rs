//! What happens to engines and policies shows on the page, soon and in words; and the page is fit to be used.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    shown::{SOON, Shown},
    stack::{Engine, PATIENCE, Router, until},
    traffic::{Ask, Gateway, tokens},
};

const POLICIES: &str = include_str!("policies.yaml");
/// A tenant that would be markup.
const HOSTILE: &str = "<img src=x onerror=console.error(1)>";
/// A tenant that would turn the text beside it around, and how it is shown.
const TURNING: (&str, &str) = ("acme\u{202e}gpj.exe\u{7}", "acme\\u{202E}gpj.exe\\u{0007}");

pub fn write(dir: &Path, text: &str) {
    let (new, path) = (dir.join("policies.new"), dir.join("policies.yaml"));
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

pub fn enabled(dir: &Path) -> String {
    format!("[policy]\nenabled = true\nfiles = [\"{}/*.yaml\"]\n", dir.display())
}

/// Every worker that is to be is followed.
pub async fn until_followed(router: &Router, workers: usize) {
    let followed = |fleet: &Value| {
        let all = fleet["workers"].as_array();
        all.is_some_and(|all| {
            all.len() == workers && all.iter().all(|worker| worker["health"]["state"] == "ok")
        })
    };
    router.until("all are followed", followed).await;
}

/// Asks an engine past the router.
async fn straight(engine: &Engine, tokens: Vec<u32>, answer: u32) {
    let body = json!({"model": "tiny", "prompt": tokens, "max_tokens": answer});
    let sent =
        reqwest::Client::new().post(format!("http://{}/v1/completions", engine.http)).json(&body).send();
    sent.await.unwrap().error_for_status().unwrap();
}

/// Waits until an engine says itself that its requests hold most of its cache.
async fn until_full(engine: &Engine) {
    let used = async || {
        let text = reqwest::get(format!("http://{}/metrics", engine.http)).await.ok()?.text().await.ok()?;
        let line = text.lines().find(|line| line.starts_with("vllm:kv_cache_usage_perc"))?.to_owned();
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    until("the cache is full", async || used().await.filter(|used| *used > 0.9)).await;
}

#[tokio::test]
async fn what_happens_shows_within_two_seconds_and_why() {
    // Slow enough for an answer to hold its share of the cache while a test looks.
    let tight = ["--num-blocks", "65", "--max-model-len", "1024", "--speedup", "0.5"];
    let mut engines = vec![
        Engine::start(&["--speedup", "50"]),
        Engine::start(&tight),
        Engine::start(&["--speedup", "50", "--kv-block-size-published", "32"]),
    ];
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), POLICIES);
    let router = Router::start(&engines, &enabled(dir.path()));
    until_followed(&router, 3).await;
    let Some(page) = Shown::on(&router).await else { return };
    page.until_worker(("w0", "ok", ""), PATIENCE).await;

    // The cache of one is filled: its requests hold more than 90 % of it.
    let shown = async {
        until_full(&engines[1]).await;
        page.until_worker(("w1", "degraded", "its KV cache is 9"), SOON).await
    };
    tokio::select! {
        () = straight(&engines[1], tokens(1, 940), 80) => panic!("the answer did not last"),
        _ = shown => {}
    }
    page.until_worker(("w1", "ok", ""), PATIENCE).await;

    // One publishes blocks of another size than its worker set's.
    straight(&engines[2], tokens(2, 320), 1).await;
    let why = "evicted: it publishes KV blocks of 32 tokens, but kv_block_size of its worker set is 16";
    page.until_worker(("w2", "out", why), SOON).await;

    engines[0].kill();
    page.until_worker(("w0", "degraded", "its KV-event socket is not reached"), SOON).await;
    page.until_worker(("w0", "degraded", "its engine does not answer"), SOON).await;
    page.until_worker(("w0", "out", "failing"), PATIENCE).await;
    engines[0].restart();
    page.until_worker(("w0", "ok", ""), SOON).await;
    let news = page.text("#news-list").await;
    assert!(news.contains("w0 is well again"), "{news}");
    assert!(news.contains("its KV events were lost and are followed anew"), "{news}");
    let announced = page.text("#announce").await;
    assert!(announced.starts_with("w0 is well again"), "{announced}");

    write(dir.path(), &POLICIES.replace("queueLength", "queueLengths"));
    let script =
        |words: &str| format!("return document.getElementById('banners').innerText.includes('{words}')");
    page.until("the policy is refused", SOON, &script("did you mean `queueLength`?")).await;
    let banner = page.text("#banners").await;
    assert!(banner.starts_with("The policy files can't be used: what was in force stays"), "{banner}");
    write(dir.path(), POLICIES);
    let gone = "return document.getElementById('banners').innerText === ''";
    page.until("the policy is sound again", SOON, gone).await;
    page.is_quiet().await;
}

/// A stack with traffic of several tenants, and a page in front of it.
struct Busy {
    page: Shown,
    gateway: Gateway,
    router: Router,
    _engines: Vec<Engine>,
    _dir: tempfile::TempDir,
}

impl Busy {
    async fn start() -> Option<Self> {
        let engines: Vec<_> = (0..2).map(|_| Engine::start(&["--speedup", "50"])).collect();
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), POLICIES);
        let router = Router::start(&engines, &enabled(dir.path()));
        until_followed(&router, 2).await;
        let page = Shown::on(&router).await?;
        let gateway = Gateway::to(&router.grpc).await;
        Some(Self { page, gateway, router, _engines: engines, _dir: dir })
    }

    async fn ask(&mut self, tenant: &str, model: &str) -> bool {
        let ask = Ask {
            tenant: tenant.into(),
            pool: "chat".into(),
            model: model.into(),
            ..Ask::of(tokens(3, 160))
        };
        self.gateway.ask(&ask).await
    }

    async fn run(&self, script: &str) -> Value {
        self.page.browser.run(script).await
    }
}

#[tokio::test]
async fn decisions_stream_and_open_with_every_candidate() {
    let Some(mut busy) = Busy::start().await else { return };
    assert!(busy.ask(HOSTILE, "assistant").await);
    assert!(!busy.ask("acme", "nobody").await);
    let page = &busy.page;
    let ended = "return document.querySelectorAll('#decisions tr[data-outcome=completed]').length === 1 \
                 && document.querySelectorAll('#decisions tr[data-outcome=rejected]').length === 1";
    page.until("both are shown with their end", SOON, ended).await;
    assert!(page.text("#decisions").await.contains(HOSTILE));
    assert!(page.text("#tenants").await.contains(HOSTILE));
    assert_eq!(busy.run("return document.querySelectorAll('img').length").await, 0);
    assert!(page.text("#lacking").await.contains("model_not_found"));
    let rule = "return document.getElementById('policies').innerText";
    let policies = busy.run(rule).await;
    assert!(policies.as_str().unwrap().contains("fair/rest\t1\t0"), "{policies}");

    // By keyboard alone: to the decision, into it, out of it, and back where one was.
    busy.run("document.querySelector('#decisions tr[data-outcome=completed] button').focus()").await;
    page.browser.press("\u{e007}").await;
    page.until("it opens", SOON, "return document.getElementById('detail').open").await;
    let detail = page.text("#detail").await;
    for part in [
        HOSTILE,
        "Candidates: 2",
        "prefill",
        "fallback 1",
        "Rules of default/chat for assistant",
        "fair/rest",
    ] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    assert_eq!(busy.run("return document.activeElement.id").await, "detail-title");
    page.browser.press("\u{e00c}").await;
    page.until("it closes", SOON, "return !document.getElementById('detail').open").await;
    let back = "return document.activeElement.closest('tr')?.dataset.outcome ?? null";
    assert_eq!(busy.run(back).await, "completed");

    busy.run("document.getElementById('pause').click()").await;
    assert!(busy.ask("acme", "assistant").await);
    let page = &busy.page;
    let waits = "return document.getElementById('stream-note').innerText === 'paused, 1 new one'";
    page.until("paused, new ones are counted", SOON, waits).await;
    assert_eq!(busy.run("return document.querySelectorAll('#decisions tbody tr').length").await, 2);
    busy.run("document.getElementById('pause').click()").await;
    let three = "return document.querySelectorAll('#decisions tbody tr').length === 3";
    page.until("it goes on", SOON, three).await;
    page.is_quiet().await;
}

#[tokio::test]
async fn the_page_fits_every_width_and_both_themes() {
    let Some(mut busy) = Busy::start().await else { return };
    for tenant in
        [TURNING.0, HOSTILE, "a-tenant-with-a-name-that-is-longer-than-any-column-of-a-phone-is-wide"]
    {
        busy.ask(tenant, "assistant").await;
    }
    let page = &busy.page;
    let there = "return document.querySelectorAll('#decisions tr[data-outcome=completed]').length === 3";
    page.until("they are shown", SOON, there).await;
    for part in ["#decisions", "#tenants"] {
        let text = page.text(part).await;
        assert!(text.contains(TURNING.1) && !text.contains('\u{202e}'), "{part}: {text}");
    }
    busy.run("document.querySelectorAll('details').forEach((one) => { one.open = true })").await;
    for open in [false, true] {
        if open {
            busy.run("document.querySelector('#decisions button').click()").await;
        }
        for width in [360, 800, 1600] {
            page.browser.size([width, 900]).await;
            let over = "return [document.documentElement, document.getElementById('detail')]\
                        .map((one) => one.scrollWidth - one.clientWidth)";
            assert_eq!(busy.run(over).await, json!([0, 0]), "{width} px, a decision is open: {open}");
            // On a phone all of a decision is there without scrolling aside.
            let hidden = "const box = document.getElementById('decisions').parentElement; \
                          return box.scrollWidth - box.clientWidth";
            assert!(width != 360 || busy.run(hidden).await == 0, "{width} px");
        }
    }
    busy.run("document.getElementById('detail').close()").await;
    let ground = async || busy.run("return getComputedStyle(document.body).backgroundColor").await;
    page.browser.prefer("light").await;
    let light = ground().await;
    page.browser.prefer("dark").await;
    let dark = ground().await;
    assert_ne!(light, dark);
    let choose = "const theme = document.getElementById('theme'); theme.value = 'light'; \
                  theme.dispatchEvent(new Event('change'))";
    busy.run(choose).await;
    assert_eq!(ground().await, light, "what was chosen is before what the system prefers");
    page.browser.go(&format!("http://{}/", busy.router.admin)).await;
    assert_eq!(ground().await, light, "and it is remembered");
    page.is_quiet().await;
}

/// Every control has a name, and is reached by Tab in the order of the page.
#[tokio::test]
async fn everything_is_reached_by_keyboard() {
    let Some(mut busy) = Busy::start().await else { return };
    busy.ask("acme", "assistant").await;
    let page = &busy.page;
    let there = "return document.querySelectorAll('#decisions tbody button').length === 1";
    page.until("it is shown", SOON, there).await;
    let wanted = "return [...document.querySelectorAll('a, button, select, input, summary, [tabindex=\"0\"]')]\
                  .filter((one) => one.checkVisibility()).length";
    let count = busy.run(wanted).await.as_u64().unwrap();
    assert!(count > 12, "{count}");
    let mut seen = Vec::new();
    for _ in 0..count {
        page.browser.press("\u{e004}").await;
        let focused = "const one = document.activeElement; \
                       const all = [...document.querySelectorAll('*')]; \
                       const name = one.getAttribute('aria-label') ?? one.innerText ?? ''; \
                       const by = one.getAttribute('aria-labelledby'); \
                       return [all.indexOf(one), one.tagName, name || (by && document.getElementById(by).innerText) \
                       || (one.labels?.[0]?.textContent ?? '')]";
        let found = busy.run(focused).await;
        assert!(!found[2].as_str().unwrap().trim().is_empty(), "no name: {found}");
        seen.push(found[0].as_u64().unwrap());
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");

    busy.run("document.getElementById('search').focus()").await;
    page.browser.press("W1").await;
    let found = "const rows = [...document.getElementById('fleet').tBodies[0].rows]; \
                 return rows.map((row) => row.dataset.worker).join() === 'w1' \
                 && document.getElementById('fleet-note').innerText.includes('1 of 2 match')";
    page.until("the one that was searched for is shown", SOON, found).await;
    page.browser.press("x").await;
    let none = "return document.getElementById('fleet-empty').innerText === 'No worker matches “w1x”.'";
    page.until("that there is none is said", SOON, none).await;
    page.is_quiet().await;
}

#[tokio::test]
async fn a_server_that_goes_away_is_told_and_found_again() {
    let engines = [Engine::start(&["--speedup", "50"])];
    let mut router = Router::start(&[], "");
    let Some(page) = Shown::on(&router).await else { return };
    let says = |selector: &str, words: &str| {
        format!("return document.querySelector('{selector}').innerText.includes('{words}')")
    };
    page.until("nobody is there", SOON, &says("#fleet-empty", "No worker is known.")).await;
    page.until("it is not ready", SOON, &says("#banners", "Not ready")).await;
    router.kill();
    page.until("it is lost", SOON, &says("#connection", "Disconnected since")).await;
    router.restart("mock_mode = true");
    page.until("it is back", PATIENCE, &says("#connection", "Live")).await;
    page.until("mock mode is told", SOON, &says("#banners", "Mock mode")).await;
    router.restart("dashboard_max_workers = 1");
    router.set_workers(&engines);
    page.until("a worker joins", PATIENCE, &says("#news-list", "w0 joined the fleet")).await;
    let quiet = until("nothing but the losses is said", async || {
        let said = page.browser.console().await;
        said.iter().all(|line| line.contains("net::ERR_")).then_some(())
    });
    quiet.await;
}
