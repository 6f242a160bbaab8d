//! `kinfctl top` on a terminal, which `script` (util-linux) plays.

use std::{io, io::Write, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
    time::timeout,
};

use super::workers::server;

const DEADLINE: Duration = Duration::from_secs(30);

/// What the terminal was sent, and the exit code. `key` is pressed once the table is there.
async fn top(address: &str, key: &[u8]) -> Option<(String, Option<i32>)> {
    let kinfctl = env!("CARGO_BIN_EXE_kinfctl");
    let command = format!("stty cols 80 rows 24; exec '{kinfctl}' top --server {address} --interval 0.1");
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut pressed) = (Vec::new(), false);
    while screen.read_buf(&mut shown).await.unwrap() > 0 {
        let text = String::from_utf8_lossy(&shown);
        if !pressed && text.contains("vllm-3") {
            keys.write_all(key).await.unwrap();
            pressed = true;
        }
    }
    Some((String::from_utf8_lossy(&shown).into_owned(), child.wait().await.unwrap().code()))
}

#[tokio::test(flavor = "multi_thread")]
async fn top_takes_the_terminal_and_gives_it_back() {
    let (address, serving) = server().await;
    let looks = async {
        for key in [&b"q"[..], b"\x03"] {
            let Some((shown, code)) = timeout(DEADLINE, top(&address, key)).await.unwrap() else {
                // Past the test harness, which swallows what `eprintln!` says.
                return io::stderr().write_all(b"SKIPPED: no `script` to play a terminal\n").unwrap();
            };
            assert_eq!(code, Some(0), "{shown:?}");
            assert!(shown.contains("\x1b[?1049h") && shown.contains("2 of 3 up"), "{shown:?}");
            assert!(shown.contains("\x1b[31m  evicted"), "colours: {shown:?}");
            let given_back = shown.rfind("\x1b[?1049l").unwrap();
            assert!(shown[given_back..].contains("\x1b[?25h"), "the cursor is back: {shown:?}");
        }
    };
    tokio::select! {
        served = serving => served.unwrap(),
        () = looks => {}
    }
}
