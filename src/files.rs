//! Follows files that others replace: editors, certificate managers, Kubernetes' volume mounts.
//!
//! The directories are watched, because files are replaced and symlinks swapped rather than written; a slow poll
//! catches what no watch sees. Invariant: what can't be used is reported once, and only once it has settled.

mod pattern;

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::{
    io::AsyncReadExt,
    sync::Notify,
    time::{Instant, sleep, timeout, timeout_at},
};

pub use pattern::matching;

/// How often files are read without any sign of a change.
const POLL: Duration = Duration::from_secs(5);
/// A change is read once nothing moved for this long, or at the latest after [`UNQUIET`].
const QUIET: Duration = Duration::from_millis(100);
const UNQUIET: Duration = Duration::from_secs(2);
/// What can't be used may be half written: it is read again after this, before it is reported.
const SETTLE: Duration = Duration::from_millis(300);

/// A file is read again after this, until it reads the same, and this many times.
const BETWEEN_READS: Duration = Duration::from_millis(10);
const READS: usize = 20;

/// Something that is made from files, and made anew when they change.
pub trait FromFiles: Send {
    /// Where the files are.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads the files and takes over what they say, if it is new.
    ///
    /// # Errors
    /// What is wrong with them, in words; then everything stays as it was.
    fn load(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// Counts and logs what [`FromFiles::load`] said, which stands now.
    fn refused(&self, why: &str);
}

/// Keeps `thing` as its files say until the task is dropped.
pub async fn follow(mut thing: impl FromFiles) -> Infallible {
    let changed = Arc::new(Notify::new());
    // Held, because dropping it ends the watch.
    let _watcher = watch(&thing.files(), changed.clone()).inspect_err(|error| {
        tracing::warn!(files = ?thing.files(), %error, every = ?POLL, "can't be watched: polled only");
    });
    let mut reported = None;
    loop {
        reload(&mut thing, &mut reported).await;
        if timeout(POLL, changed.notified()).await.is_ok() {
            let latest = Instant::now() + UNQUIET;
            while Instant::now() < latest
                && timeout_at(latest.min(Instant::now() + QUIET), changed.notified()).await.is_ok()
            {
            }
        }
    }
}

/// The content of a file of at most `most` bytes, as two reads in a row saw it: one that falls into a write may see
/// part of the old and part of the new content, and still look whole.
///
/// # Errors
/// It can't be read, is larger, or never stands still.
pub async fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut before = read_once(path, most).await?;
    for _ in 0..READS {
        sleep(BETWEEN_READS).await;
        let now = read_once(path, most).await?;
        if now == before {
            return Ok(now);
        }
        before = now;
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "changes all the time"))
}

async fn read_once(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // To open a pipe that nobody writes to would take for ever.
    if !tokio::fs::metadata(path).await?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is no regular file"));
    }
    let mut content = Vec::new();
    tokio::fs::File::open(path).await?.take(most + 1).read_to_end(&mut content).await?;
    if content.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("has more than {most} bytes")));
    }
    Ok(content)
}

/// Loads what is there now; reports what can't be used, unless it was `reported` last.
async fn reload(thing: &mut impl FromFiles, reported: &mut Option<String>) {
    let mut error = thing.load().await.err();
    if error.is_some() && error != *reported {
        sleep(SETTLE).await;
        error = thing.load().await.err();
    }
    if let Some(error) = error.as_ref().filter(|error| reported.as_ref() != Some(error)) {
        thing.refused(error);
    }
    *reported = error;
}

/// Notifies `changed` at changes in the directories of `files`.
fn watch(files: &[PathBuf], changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // Our own reading is an event too. An error may stand for lost events: look.
        if event.map_or(true, |event| is_change(event.kind)) {
            changed.notify_one();
        }
    })?;
    let directories: BTreeSet<_> = files.iter().filter_map(|file| file.parent()).collect();
    for directory in directories {
        let here = directory.as_os_str().is_empty();
        watcher.watch(if here { Path::new(".") } else { directory }, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

fn is_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Takes only files that hold "good".
    struct Thing {
        path: PathBuf,
        taken: Vec<u8>,
        refusals: AtomicUsize,
    }

    impl FromFiles for Thing {
        fn files(&self) -> Vec<PathBuf> {
            vec![self.path.clone()]
        }

        async fn load(&mut self) -> Result<(), String> {
            let content = read(&self.path, 10).await.map_err(|error| error.to_string())?;
            if content != b"good" {
                return Err(format!("{content:?}"));
            }
            self.taken = content;
            Ok(())
        }

        fn refused(&self, _: &str) {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_falls_into_a_write_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "go").unwrap();
        let (content, ()) = tokio::join!(read(&path, 10), async {
            sleep(BETWEEN_READS / 2).await;
            std::fs::write(&path, "good").unwrap();
        });
        assert_eq!(content.unwrap(), b"good");
    }

    #[tokio::test]
    async fn what_is_no_regular_file_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = read(&path, 10).await.unwrap_err();
        assert_eq!(error.to_string(), "is no regular file");
        assert!(read(directory.path(), 10).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_half_written_is_read_again_before_it_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut thing = Thing { path: path.clone(), taken: Vec::new(), refusals: AtomicUsize::new(0) };
        let mut reported = None;
        std::fs::write(&path, "go").unwrap();
        tokio::join!(reload(&mut thing, &mut reported), async {
            sleep(SETTLE / 2).await;
            std::fs::write(&path, "good").unwrap();
        });
        assert_eq!((thing.taken.as_slice(), thing.refusals.load(Ordering::Relaxed)), (&b"good"[..], 0));
        // One that stays as it is gets reported, once; another one again.
        for (content, refusals) in
            [("bad", 1), ("bad", 1), ("worse", 2), ("good", 2), ("more than ten bytes", 3)]
        {
            std::fs::write(&path, content).unwrap();
            reload(&mut thing, &mut reported).await;
            assert_eq!(thing.refusals.load(Ordering::Relaxed), refusals, "{content}");
        }
    }
}
