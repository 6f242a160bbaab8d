//! Where lines go: standard output, or a file that is put aside when it is full.
//!
//! Invariant: a file holds whole lines. What was written of a piece that did not get through is taken back.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
};

use super::LogTarget;

/// Tenants are in it: not for everybody.
const MODE: u32 = 0o640;

/// An open target.
pub(super) struct Sink {
    target: LogTarget,
    open: Option<Open>,
}

/// An open file, and the bytes of whole lines in it.
struct Open {
    file: File,
    bytes: u64,
    /// Its device and inode.
    id: (u64, u64),
    /// Only what is a file by itself is put aside: no device, and no link to elsewhere.
    regular: bool,
}

impl LogTarget {
    /// Whether lines could be written now, and full files put aside. Leaves nothing behind.
    ///
    /// # Errors
    /// Why not.
    pub fn probe(&self) -> io::Result<()> {
        let Self::File { path, .. } = self else { return Ok(()) };
        match fs::symlink_metadata(path) {
            Ok(_) => {
                let open = Open::at(path)?;
                // What is no file by itself is never put aside.
                if !open.regular {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // Beside it: the file itself is begun by what is first written.
        let beside = suffixed(path, &format!("check-{}", process::id()));
        OpenOptions::new().write(true).create_new(true).mode(MODE).open(&beside)?;
        fs::remove_file(beside)
    }
}

impl Sink {
    /// Nothing is opened before something is written.
    pub fn new(target: LogTarget) -> Self {
        Self { target, open: None }
    }

    /// Writes whole lines. What failed is not tried again; the next call begins anew.
    ///
    /// # Errors
    /// The pipe or the file does not take them.
    pub fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match &self.target {
            LogTarget::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(lines).and_then(|()| out.flush())
            }
            LogTarget::File { path, max_bytes, max_files } => {
                let size = lines.len() as u64;
                let mut open = match self.open.take().filter(|open| open.is_still_at(path)) {
                    Some(open) => open,
                    None => Open::at(path)?,
                };
                if open.regular && open.bytes > 0 && open.bytes + size > *max_bytes {
                    shift(path, *max_files)?;
                    open = Open::at(path)?;
                }
                open.write(lines)?;
                self.open = Some(open);
                Ok(())
            }
        }
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Self> {
        // To open a pipe that nobody reads would take for ever.
        if fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo()) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "is a named pipe"));
        }
        let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
        let about = file.metadata()?;
        let regular = fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
        Ok(Self { file, bytes: about.len(), id: (about.dev(), about.ino()), regular })
    }

    /// Nobody has moved it, removed it, or put another one in its place.
    fn is_still_at(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == self.id)
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines).inspect_err(|_| {
            // What is no file can't be cut.
            let _ = self.file.set_len(self.bytes);
        })?;
        self.bytes += lines.len() as u64;
        Ok(())
    }
}

/// Puts the file aside as the first of the full ones; the last of them goes.
fn shift(path: &Path, files: u32) -> io::Result<()> {
    for number in (1..files).rev() {
        match fs::rename(numbered(path, number), numbered(path, number + 1)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match fs::rename(path, numbered(path, 1)) {
        // Somebody took it away.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    suffixed(path, &number.to_string())
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{suffix}"));
    name.into()
}
