//! What is logged: by default, and once it is changed while the process runs.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[expect(dead_code, reason = "shared with tests that use more of it")]
mod logs;

use kinference::observe::DEFAULT_LOG;

use logs::Lines;

#[test]
fn the_default_filter_is_the_same_everywhere() {
    assert!(include_str!("../docs/configuration.md").contains(&format!("`{DEFAULT_LOG}`")));
    assert!(include_str!("../charts/kinference/values.yaml").contains(&format!("filter: {DEFAULT_LOG}\n")));
}

#[test]
fn a_changed_filter_is_in_force_at_once_and_told_of() {
    let (lines, log, _guard) = Lines::capture("info");
    let say = || {
        tracing::debug!(target: "kinference::test", "a detail");
        tracing::warn!(target: "kinference::test", "a warning");
        tracing::error!(target: "kube_client::client", "a library's word");
    };
    say();
    assert!(!lines.take().contains("a detail"));
    // A level alone leaves libraries as they are by default.
    for (filter, detail, warning, library) in [
        ("debug", true, true, false),
        ("error", false, false, false),
        ("warn", false, true, false),
        ("info,kinference=trace", true, true, true),
    ] {
        log.set(filter).unwrap();
        let told = lines.take();
        // From one that hides the line to another such, nobody hears of it.
        assert_eq!(
            told.matches("what is logged was changed").count(),
            usize::from(filter != "warn"),
            "{filter}: {told}"
        );
        say();
        let said = lines.take();
        let shown = ["a detail", "a warning", "a library's word"].map(|words| said.contains(words));
        assert_eq!(shown, [detail, warning, library], "{filter}: {said}");
    }
    let before = log.now().unwrap();
    assert!(log.set("info,verbose").is_err());
    say();
    assert!(lines.take().contains("a detail"));
    assert_eq!(log.now().unwrap(), before);
}
