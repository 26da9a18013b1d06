//! The log of an instance: a file that only the launcher writes, so that its size is bounded.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// The last line of a log that is full.
const FULL: &[u8] = b"\n[the log is full: further output is dropped]\n";

/// The writing end of a log. The file is removed when it is dropped.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    length: u64,
    /// What comes after so many bytes is dropped, and the log says so.
    limit: u64,
}

impl LogFile {
    pub(super) fn create(path: PathBuf, limit: u64) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { path, file, length: 0, limit })
    }

    /// Appends output as far as there is space.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.length >= self.limit {
            return Ok(());
        }
        let space = usize::try_from(self.limit - self.length).unwrap_or(usize::MAX);
        self.file.write_all(&bytes[..bytes.len().min(space)])?;
        self.length = self.length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if bytes.len() > space {
            self.file.write_all(FULL)?;
        }
        Ok(())
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        // The directory is removed with the launcher in any case.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the size of a log.
pub(super) fn length(path: &Path) -> io::Result<u64> {
    Ok(std::fs::metadata(path)?.len())
}

/// Reads a part of a log.
pub(super) fn read(path: &Path, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(end.saturating_sub(start)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_says_so_and_grows_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = LogFile::create(path.clone(), 10).unwrap();
        for _ in 0..5 {
            log.append(b"abc\xff").unwrap();
        }
        let text = read(&path, 0, 1000).unwrap();
        assert_eq!(text, [&b"abc\xffabc\xffab"[..], FULL].concat());
        assert_eq!(read(&path, 3, 5).unwrap(), b"\xffa");
        drop(log);
        assert!(!path.exists(), "the file is removed");
    }
}
