//! Copies files to and from a host, and checks that they arrived as they are.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::connection::{CommandResult, Connection, Request};
use crate::error::ConnectionError;
use crate::target::Become;

/// Says whether the file is there already: path, name in a folder, digest, mode.
const COMPARE: &str = r#"d=$1; if [ -d "$d" ]; then d=${d%/}/$2; fi
[ -f "$d" ] && [ ! -h "$d" ] && [ "$(stat -c %a "$d")" = "$4" ] || { echo different; exit 0; }
[ "$(sha256sum <"$d" | cut -c 1-64)" = "$3" ] && echo same || echo different"#;

/// Writes the input to a file beside the path, checks it, and moves it there. A connection that is
/// lost ends the input, so the digest is wrong and nothing is moved.
const WRITE: &str = r#"set -e; umask 077
d=$1; if [ -d "$d" ]; then d=${d%/}/$2; fi
t=$(mktemp "$d.XXXXXXXX"); trap 'rm -f "$t"' EXIT; trap 'exit 1' HUP INT TERM PIPE
cat >"$t"
if [ "$(sha256sum <"$t" | cut -c 1-64)" != "$3" ]; then
    echo 'it changed while it was copied, or did not arrive whole' >&2; exit 1
fi
chmod "$4" "$t"; sync "$t" 2>/dev/null || sync
mv -fT "$t" "$d" 2>/dev/null || mv -f "$t" "$d""#;

/// Prints the digest of a file and the file.
const READ: &str = r#"set -e
if [ ! -f "$1" ]; then echo "there is no file $1" >&2; exit 1; fi
sha256sum <"$1" | cut -c 1-64; cat "$1""#;

/// Characters of a digest, and the line break after them.
const DIGEST_LINE: usize = 65;

/// A file to copy to hosts.
#[derive(Clone, Debug)]
pub struct Upload {
    source: PathBuf,
    name: String,
    digest: String,
    bytes: u64,
    mode: u32,
}

/// What copying did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// The file was written.
    Changed {
        /// Its length.
        bytes: u64,
    },
    /// It was there already, with the same bytes and mode.
    Unchanged,
}

impl Upload {
    /// Reads the file once, for its digest.
    ///
    /// # Errors
    /// It cannot be read, or has no name in UTF-8.
    pub async fn prepare(source: &Path, mode: u32) -> Result<Self, ConnectionError> {
        let failed = |source_error| local(format!("read {}", source.display()), source_error);
        let name = source.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?.to_owned();
        let mut file = tokio::fs::File::open(source).await.map_err(failed)?;
        let mut context = Context::new(&SHA256);
        let mut buffer = vec![0; 64 << 10];
        let mut bytes = 0;
        loop {
            match file.read(&mut buffer).await.map_err(failed)? {
                0 => break,
                read => {
                    context.update(&buffer[..read]);
                    bytes += read as u64;
                }
            }
        }
        let digest = hexadecimal(context.finish().as_ref());
        Ok(Self { source: source.to_path_buf(), name, digest, bytes, mode })
    }

    /// Copies it to a path on a host; to a folder under its own name. A file that is there already
    /// is not written again.
    ///
    /// # Errors
    /// It cannot be read or written, or did not arrive as it is; then nothing has changed.
    pub async fn send(
        &self,
        connection: &Connection,
        path: &str,
        r#become: Option<&Become>,
        limit: Option<Duration>,
    ) -> Result<CopyOutcome, ConnectionError> {
        let mode = format!("{:o}", self.mode);
        let request = |script: &str| {
            let words = ["sh", "-c", script, "sh", path, &self.name, &self.digest, &mode];
            Request { words: words.map(str::to_owned).to_vec(), r#become, limit }
        };
        let compared = connection.run(&request(COMPARE)).await?;
        if compared.stdout == b"same\n" {
            return Ok(CopyOutcome::Unchanged);
        }
        let opened = tokio::fs::File::open(&self.source).await;
        let mut file =
            opened.map_err(|error| local(format!("read {}", self.source.display()), error))?;
        let written = connection.transfer(&request(WRITE), &mut file, None).await?;
        check(&written, path)?;
        Ok(CopyOutcome::Changed { bytes: self.bytes })
    }
}

impl Connection {
    /// Copies a file of the host to a path on this machine, which is written whole or not at all.
    /// Returns its length.
    ///
    /// # Errors
    /// It cannot be read or written, or did not arrive as it is.
    pub async fn fetch(
        &self,
        path: &str,
        to: &Path,
        r#become: Option<&Become>,
        limit: Option<Duration>,
    ) -> Result<u64, ConnectionError> {
        let failed = |error| local(format!("write {}", to.display()), error);
        let mut part = to.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let words = ["sh", "-c", READ, "sh", path].map(str::to_owned).to_vec();
        let request = Request { words, r#become, limit };
        let result = async {
            let mut options = tokio::fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&part).await.map_err(failed)?;
            let mut writer = DigestWriter::new(&mut file);
            let empty = &mut tokio::io::empty();
            let result = self.transfer(&request, empty, Some(&mut writer)).await?;
            check(&result, path)?;
            let (is_whole, bytes) = writer.finish();
            if !is_whole {
                let messages = "it changed while it was copied, or did not arrive whole".to_owned();
                return Err(ConnectionError::Copy { path: path.to_owned(), messages });
            }
            file.shutdown().await.map_err(failed)?;
            file.sync_all().await.map_err(failed)?;
            tokio::fs::rename(&part, to).await.map_err(failed)?;
            Ok(bytes)
        };
        let result = result.await;
        if result.is_err() {
            // The reason is what the user has to know.
            let _ = tokio::fs::remove_file(&part).await;
        }
        result
    }
}

fn check(result: &CommandResult, path: &str) -> Result<(), ConnectionError> {
    if result.is_success() {
        return Ok(());
    }
    let messages = result.stderr.clone();
    Err(ConnectionError::Copy { path: path.to_owned(), messages })
}

fn local(what: String, source: io::Error) -> ConnectionError {
    ConnectionError::Local { what, source }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Separates the digest in the first line from the bytes after it, and compares them.
struct DigestWriter<'f> {
    file: &'f mut tokio::fs::File,
    expected: Vec<u8>,
    context: Context,
    bytes: u64,
}

impl<'f> DigestWriter<'f> {
    fn new(file: &'f mut tokio::fs::File) -> Self {
        Self { file, expected: Vec::new(), context: Context::new(&SHA256), bytes: 0 }
    }

    fn finish(self) -> (bool, u64) {
        let digest = hexadecimal(self.context.finish().as_ref());
        (self.expected.trim_ascii_end() == digest.as_bytes(), self.bytes)
    }
}

impl tokio::io::AsyncWrite for DigestWriter<'_> {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        let this = self.get_mut();
        let missing = DIGEST_LINE - this.expected.len();
        if missing > 0 {
            let taken = missing.min(bytes.len());
            this.expected.extend_from_slice(&bytes[..taken]);
            return std::task::Poll::Ready(Ok(taken));
        }
        let poll = std::pin::Pin::new(&mut *this.file).poll_write(context, bytes);
        if let std::task::Poll::Ready(Ok(written)) = &poll {
            this.context.update(&bytes[..*written]);
            this.bytes += *written as u64;
        }
        poll
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut *self.get_mut().file).poll_flush(context)
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut *self.get_mut().file).poll_shutdown(context)
    }
}
