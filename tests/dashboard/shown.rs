//! A page of the dashboard in front of a whole stack, and what is to be seen on it.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    browser::Browser,
    stack::{PATIENCE, Router},
};

/// How soon the page has to show what happened.
pub const SOON: Duration = Duration::from_secs(2);

/// A browser on the dashboard of a server.
pub struct Shown {
    pub browser: Browser,
}

impl Shown {
    pub async fn on(router: &Router) -> Option<Self> {
        let shown = Self { browser: Browser::start().await? };
        shown.browser.size([1600, 1000]).await;
        shown.browser.go(&format!("http://{}/", router.admin)).await;
        shown.until("it is live", PATIENCE, "return document.body.dataset.connection === 'live'").await;
        Some(shown)
    }

    /// Waits until a script says yes; how long that took.
    pub async fn until(&self, what: &str, within: Duration, script: &str) -> Duration {
        let started = Instant::now();
        while self.browser.run(script).await != Value::Bool(true) {
            let seen = async || self.browser.run("return document.body.innerText").await;
            assert!(started.elapsed() < within, "not shown in time: {what}\n{}", seen().await);
            sleep(Duration::from_millis(20)).await;
        }
        started.elapsed()
    }

    /// Waits until the row of a worker has that state, and these words.
    pub async fn until_worker(&self, (name, state, words): (&str, &str, &str), within: Duration) -> Duration {
        let script = format!(
            "const row = document.querySelector('#fleet tr[data-worker=\"{name}\"]');\
             return row !== null && row.dataset.state === '{state}' && row.innerText.includes('{words}')"
        );
        self.until(&format!("{name} is {state}: {words}"), within, &script).await
    }

    /// The text of an element.
    pub async fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector('{selector}')?.innerText ?? ''");
        self.browser.run(&script).await.as_str().unwrap().to_owned()
    }

    /// Nothing but what is expected was said on the console.
    pub async fn is_quiet(&self) {
        assert_eq!(self.browser.console().await, [""; 0]);
    }
}
