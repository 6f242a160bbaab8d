//! The pictures of the README, of real traffic. Not part of the tests: they look different every time.

use std::{fs, path::Path, time::Duration};

use tokio::{task::JoinSet, time::sleep};

use crate::{
    shown::{SOON, Shown},
    stack::{Engine, Router, all},
    traffic::Gateway,
};

const TENANTS: [&str; 6] = ["acme", "acme", "acme", "globex", "initech", "nightly-batch"];
/// Long enough for lines in the charts.
const TRAFFIC: Duration = Duration::from_secs(840);

#[tokio::test]
#[ignore = "takes minutes and writes docs/images"]
async fn pictures_of_the_readme() {
    let mut engines: Vec<_> =
        (0..4).map(|_| Engine::start(&["--preset", "documented", "--seed", "1"])).collect();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("policies.yaml"), include_str!("policies.yaml")).unwrap();
    let policy = format!("[policy]\nenabled = true\nfiles = [\"{}/*.yaml\"]\n", dir.path().display());
    let router = Router::start(&engines, &policy);
    router.until("all are followed", |f| all(f, |w| w["health"]["state"] == "ok")).await;
    let page = Shown::on(&router).await.expect("a browser");
    let mut clients = JoinSet::new();
    for seed in 0..12 {
        let gateway = Gateway::to(&router.grpc).await;
        clients.spawn(gateway.keep_asking(seed, &TENANTS));
    }
    sleep(TRAFFIC).await;
    engines[2].kill();
    page.until_worker(("w2", "out", "failing"), TRAFFIC).await;
    page.browser.prefer("light").await;
    page.browser.size([1440, 1240]).await;
    sleep(SOON).await;
    save("dashboard.png", &page.browser.picture().await);
    page.browser.prefer("dark").await;
    page.browser.size([1240, 800]).await;
    let open = "const rows = [...document.querySelectorAll('#decisions tr[data-outcome=completed]')]; \
                rows.find((row) => row.innerText.includes('fair/long')).querySelector('button').click()";
    page.browser.run(open).await;
    sleep(SOON).await;
    save("decision.png", &page.browser.picture().await);
}

fn save(name: &str, png: &[u8]) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(name), png).unwrap();
}
