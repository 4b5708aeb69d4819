//! A log file of bounded size.

use rustix::fs::OFlags;
use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Mutex,
};
use tracing_subscriber::fmt::MakeWriter;

/// A log file that is rotated when it is full. A line that cannot be written is lost, and the program continues.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    limit: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    /// Lines lost since the last line in the file.
    lost: u64,
    /// The last write ended within a line.
    is_torn: bool,
}

impl LogFile {
    /// Opens the file and creates its folder.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::open_with_limit(path, FILE_MAX)
    }

    fn open_with_limit(path: &Path, limit: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let state = State { file: open(path)?, lost: 0, is_torn: false };
        Ok(Self { path: path.to_owned(), limit, state: Mutex::new(state) })
    }

    /// Writes a whole line. Reports the first lost line, and the first line after it, at standard error.
    fn line(&self, line: &[u8]) {
        let mut state = runtime_lock::lock(&self.state);
        self.rotate(&mut state);
        let path = self.path.display();
        match state.append(line) {
            Ok(()) if state.lost > 0 => {
                report(&format!("writing to the log {path} again; {} lines are lost", state.lost));
                state.lost = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if state.lost == 0 {
                    report(&format!(
                        "cannot write the log {path}: {error}; lines are lost until the disk has room"
                    ));
                }
                state.lost += 1;
            }
        }
    }

    /// Renames a full file and opens a new one. If that fails, the log continues in the full file.
    fn rotate(&self, state: &mut State) {
        let Ok(found) = state.file.metadata() else { return };
        // A device or a pipe has no end.
        if !found.is_file() || found.len() < self.limit {
            return;
        }
        // A person removed or renamed the file, or it could not be opened after the last rotation.
        if !is_at(&found, &self.path) {
            self.reopen(state);
            return;
        }
        for number in (1..FILES_KEPT).rev() {
            // A missing number is no error.
            let _ = fs::rename(numbered(&self.path, number), numbered(&self.path, number + 1));
        }
        if fs::rename(&self.path, numbered(&self.path, 1)).is_ok() {
            self.reopen(state);
        }
    }

    fn reopen(&self, state: &mut State) {
        if let Ok(file) = open(&self.path) {
            state.file = file;
            state.is_torn = false;
        }
    }
}

fn is_at(file: &Metadata, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
}

impl State {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        let mut rest = line;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    self.is_torn = !rest.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The writer of one line.
pub(super) struct Line<'a>(&'a LogFile);

impl io::Write for Line<'_> {
    /// Takes the whole line. The formatter passes each line in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.append(true).create(true).mode(MODE);
    // Without the flag a FIFO without a reader would block the program.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if found.is_file() && found.mode() & 0o7777 & !MODE != 0 {
        // Earlier releases created the file for all readers.
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok(file)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Writes to standard error, because the log itself cannot be written.
fn report(message: &str) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// The owner reads and writes, its group reads: lines name pods and addresses.
const MODE: u32 = 0o640;
/// The size in bytes at which a file is rotated, as for the plugin's log.
const FILE_MAX: u64 = 20 * 1024 * 1024;
/// The number of rotated files kept, as `<file>.1`, `<file>.2` …
const FILES_KEPT: u32 = 3;

#[cfg(test)]
mod tests;
