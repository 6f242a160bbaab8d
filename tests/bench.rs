//! The scripts of the routing benchmark: their configuration is the documented one, and their figures are right.
//! Runs them with python3, without any server.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};

fn python(program: &str) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program =
        format!("import sys; sys.dont_write_bytecode = True; sys.path.insert(0, 'benches')\n{program}");
    Command::new("python3").current_dir(root).args(["-c", &program]).output().unwrap()
}

/// What a program prints; it must succeed.
fn printed(program: &str) -> String {
    let output = python(program);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Kinference's configuration beside engines of that speed.
fn config(speedup: u32) -> String {
    printed(&format!(
        "from bench import ROOT, kinference\n\
         page = (ROOT / 'docs/configuration.md').read_text()\n\
         print(kinference.config(page, {speedup}, 9002, 9003, None))"
    ))
}

/// The settings in force with a configuration file.
fn checked(dir: &Path, config: &str) -> String {
    fs::write(dir.join("kinference.toml"), config).unwrap();
    fs::write(dir.join("workers.toml"), "workers = []\n").unwrap();
    fs::create_dir_all(dir.join("models")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinference"));
    let output = command.arg("--check").arg("--config").arg(dir.join("kinference.toml")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("no known key"), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn at_the_speed_of_life_every_setting_is_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(1);
    let kept = |line: &&str| !line.contains("_ms");
    let bare: Vec<_> = config.lines().filter(kept).collect();
    assert!(bare.len() + 8 <= config.lines().count(), "few times are written: {config}");
    assert_eq!(checked(dir.path(), &config), checked(dir.path(), &bare.join("\n")));
}

#[test]
fn at_ten_times_that_every_time_is_a_tenth() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(10);
    let settings: toml::Table = checked(dir.path(), &config).parse().unwrap();
    assert_eq!(settings["metrics_poll_ms"].as_integer(), Some(100));
    let profile = &settings["profile"][0];
    assert_eq!(profile["predictor"]["base_ms"].as_float(), Some(40.0));
    assert_eq!(profile["predictor"]["queue_ms_per_entry"].as_float(), Some(100.0));
    assert_eq!(profile["picker"]["tie_tolerance_ms"].as_float(), Some(5.0));
    assert_eq!(profile["predictor"]["inflight_concurrent_capacity"].as_integer(), Some(5));
}

#[test]
fn figures_of_a_run_are_those_of_its_requests() {
    let text = printed(
        "import json\n\
         from bench import results\n\
         at = lambda n, ttft, **more: {'at_s': 12.0 * n, 'ttft_ms': ttft, 'prompt_tokens': 100, 'cached_tokens': 25, **more}\n\
         records = [at(n, 100.0 * n) for n in range(1, 5)] + [at(5, 0.0, error='status 503')]\n\
         run = results.summary(records, 200.0)\n\
         print(json.dumps({**run, **results.path(run, 20.0, 10)}))",
    );
    let run: Value = serde_json::from_str(&text).unwrap();
    let expected = json!({
        "ttft_p50_ms": 200.0, "ttft_p95_ms": 400.0, "ttft_mean_ms": 250.0, "cached_share": 0.25,
        // Two of five met the objective, in one minute; one failed.
        "goodput_rpm": 2.0, "errors": {"status 503": 1},
        // 25 ms of wall time, 20 of them the engine's: 5, and not 50 ms of engine time.
        "path_ms": 5.0, "ttft_mean_life_ms": 205.0,
    });
    assert_eq!(run, expected);
}

#[test]
fn a_row_leaves_out_runs_whose_engines_were_late_and_says_so() {
    let text = printed(
        "import json\n\
         from bench import results\n\
         run = lambda p50, late: {**dict.fromkeys(results.FIGURES, 1.0), 'ttft_p50_ms': p50, 'errors': {}, 'late': late}\n\
         row = results.row({'workload': 'w', 'arm': 'a'}, [run(1.0, False), run(9.0, True), run(4.0, False), run(2.0, False)])\n\
         why = results.absent({'workload': 'w', 'arm': 'b'}, 'no such program')\n\
         print(json.dumps(row)); print(results.table([row, why]))",
    );
    let (row, table) = text.split_once('\n').unwrap();
    let row: Value = serde_json::from_str(row).unwrap();
    assert_eq!((&row["ttft_p50_ms"], &row["repeats"], &row["not_used"]), (&json!(2.0), &json!(3), &json!(1)));
    assert_eq!(row["spread"]["ttft_p50_ms"], json!([1.0, 4.0]));
    assert!(
        table.contains("3 (and 1 not used)") && table.contains("not measured: no such program"),
        "{table}"
    );
}
