//! Reads a layer: verifies, decompresses, bounds, and visits its entries.

use std::cell::Cell;
use std::io::{self, BufReader, Cursor, Read};

use super::entry::{BLOCK, Entries, LayerEntry};
use super::error::{LayerError, LayerProblem, LimitKind};
use crate::blob::{BlobSource, open_blob};
use crate::digest::{Digest, Hasher, VerifyError};
use crate::manifest::Descriptor;

/// The largest window of Zstandard, as a power of two: 32 MiB. Image builders use up to 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 25;

/// How much an image may cost to read.
///
/// With the defaults, an image within the limits takes less than 100 MB of memory besides the
/// files that are selected from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of all layers.
    pub entries: u64,
    /// Bytes of names and of targets of links in all layers.
    pub name_bytes: u64,
    /// Bytes of all layers after decompression.
    pub uncompressed_bytes: u64,
    /// Bytes after decompression for each compressed byte of a layer.
    pub ratio: u64,
    /// Bytes of a layer that are allowed at any ratio: a file of zeros is not an attack.
    pub ratio_free_bytes: u64,
    /// Steps to resolve paths, which symbolic links can multiply, and to apply whiteouts.
    pub resolution_steps: u64,
    /// Bytes of one file that is read into memory.
    pub file_bytes: u64,
    /// Bytes of all files that are read into memory.
    pub selected_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 500_000,
            name_bytes: 32 << 20,
            uncompressed_bytes: 64 << 30,
            ratio: 250,
            ratio_free_bytes: 1 << 30,
            resolution_steps: 100_000_000,
            file_bytes: 512 << 20,
            selected_bytes: 1 << 30,
        }
    }
}

/// What is left of the limits while the layers of one image are read.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    limits: Limits,
    entries: u64,
    name_bytes: u64,
    uncompressed_bytes: u64,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        let limits = limits.clone();
        Self { limits, entries: 0, name_bytes: 0, uncompressed_bytes: 0 }
    }

    fn spend_entry(&mut self, entry: &LayerEntry) -> Result<(), LayerProblem> {
        self.entries += 1;
        self.name_bytes += (entry.name.len() + entry.link.len()) as u64;
        exceeds(self.entries, self.limits.entries, LimitKind::Entries)?;
        exceeds(self.name_bytes, self.limits.name_bytes, LimitKind::NameBytes)
    }
}

pub(crate) fn exceeds(value: u64, limit: u64, kind: LimitKind) -> Result<(), LayerProblem> {
    if value > limit { Err(LayerProblem::Limit { kind, limit }) } else { Ok(()) }
}

/// Reads one layer to its end and calls `visit` for each entry with a reader of its content.
///
/// The blob is verified against its digest and size, and its content before compression against
/// `diff_id`. Both are known only at the end: what was visited must not be used before this
/// function has returned.
///
/// # Errors
///
/// [`LayerError`] with the digest of the layer and the name of the entry.
pub fn read_layer(
    source: &dyn BlobSource,
    layer: &Descriptor,
    diff_id: Option<&Digest>,
    limits: &Limits,
    visit: &mut dyn FnMut(&LayerEntry, &mut dyn Read) -> Result<(), LayerProblem>,
) -> Result<(), LayerError> {
    read_layer_within(source, layer, diff_id, &mut Budget::new(limits), visit)
}

/// The same, with what is left for the whole image.
pub(crate) fn read_layer_within(
    source: &dyn BlobSource,
    layer: &Descriptor,
    diff_id: Option<&Digest>,
    budget: &mut Budget,
    visit: &mut dyn FnMut(&LayerEntry, &mut dyn Read) -> Result<(), LayerProblem>,
) -> Result<(), LayerError> {
    let mut name = None;
    read_stream(source, layer, diff_id, budget, &mut name, visit).map_err(|problem| LayerError {
        layer: layer.digest().clone(),
        entry: name.map(|name| String::from_utf8_lossy(&name).into_owned()),
        problem: Box::new(problem),
    })
}

fn read_stream(
    source: &dyn BlobSource,
    layer: &Descriptor,
    diff_id: Option<&Digest>,
    budget: &mut Budget,
    name: &mut Option<Vec<u8>>,
    visit: &mut dyn FnMut(&LayerEntry, &mut dyn Read) -> Result<(), LayerProblem>,
) -> Result<(), LayerProblem> {
    if layer.media_type().layer_compression().is_none() {
        return Err(LayerProblem::MediaType(layer.media_type().to_string()));
    }
    let mut blob = open_blob(source, layer)?;
    let state = StreamState::default();
    let hasher = diff_id.map(|diff_id| Hasher::new(diff_id.algorithm()));
    let result = (|| {
        let counted = Counted { inner: &mut blob, state: &state };
        let decoder = decompress(counted).map_err(|error| classify(error, &state))?;
        let mut bounded = Bounded { inner: decoder, state: &state, hasher, budget, produced: 0 };
        let visited = visit_entries(&mut bounded, name, visit)
            .and_then(|()| {
                *name = None;
                io::copy(&mut bounded, &mut io::sink()).map_err(LayerProblem::Io)
            })
            .map(|_| bounded.hasher);
        // An error of a read is known here by what caused it.
        visited.map_err(|problem| match problem {
            LayerProblem::Io(error) => classify(error, &state),
            other => other,
        })
    })();
    // What is not promised content needs no other explanation, so the blob is checked first.
    match (blob.drain(), result) {
        (Err(error), result) => match (blob.failure(), result) {
            (Some(wrong), _) => Err(wrong.clone().into()),
            (None, Ok(_)) => Err(LayerProblem::Io(error)),
            (None, Err(problem)) => Err(problem),
        },
        (Ok(()), Err(problem)) => Err(problem),
        (Ok(()), Ok(hasher)) => match (diff_id, hasher.map(Hasher::finish)) {
            (Some(expected), Some(actual)) if *expected != actual => {
                Err(LayerProblem::DiffId { expected: expected.clone(), actual })
            }
            _ => Ok(()),
        },
    }
}

fn visit_entries(
    reader: &mut Bounded<'_>,
    name: &mut Option<Vec<u8>>,
    visit: &mut dyn FnMut(&LayerEntry, &mut dyn Read) -> Result<(), LayerProblem>,
) -> Result<(), LayerProblem> {
    let mut entries = Entries::new();
    while let Some(entry) = entries.next(reader, name)? {
        reader.budget.spend_entry(&entry)?;
        let mut content = (&mut *reader).take(entry.size);
        visit(&entry, &mut content)?;
        io::copy(&mut content, &mut io::sink()).map_err(LayerProblem::Io)?;
        if content.limit() > 0 {
            return Err(LayerProblem::Truncated);
        }
        let padding = entry.size.next_multiple_of(BLOCK as u64) - entry.size;
        let mut block = [0; BLOCK];
        let padding = usize::try_from(padding).unwrap_or(0);
        // Some tools end a tar after the content of its last file, and runtimes accept that.
        let ended = read_full(reader, &mut block[..padding])? < padding;
        *name = None;
        if ended {
            break;
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the stream ends, and returns how much was read.
pub(super) fn read_full(reader: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, LayerProblem> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(LayerProblem::Io(error)),
        }
    }
    Ok(filled)
}

/// What the readers of one stream note for one another.
#[derive(Debug, Default)]
struct StreamState {
    compressed: Cell<u64>,
    /// The source failed, and not the decompression.
    source_failed: Cell<bool>,
    exceeded: Cell<Option<(LimitKind, u64)>>,
}

/// Says what an error of a read really was.
fn classify(error: io::Error, state: &StreamState) -> LayerProblem {
    if let Some((kind, limit)) = state.exceeded.get() {
        return LayerProblem::Limit { kind, limit };
    }
    if let Some(wrong) = error.get_ref().and_then(|it| it.downcast_ref::<VerifyError>()) {
        return LayerProblem::Wrong(wrong.clone());
    }
    if state.source_failed.get() {
        LayerProblem::Io(error)
    } else {
        LayerProblem::Compression(error.to_string())
    }
}

struct Counted<'a, R> {
    inner: R,
    state: &'a StreamState,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.inner.read(buffer);
        match &result {
            Ok(count) => self.state.compressed.set(self.state.compressed.get() + *count as u64),
            Err(_) => self.state.source_failed.set(true),
        }
        result
    }
}

/// Decompresses a layer. As in runtimes, its first bytes decide how: media types are often wrong.
fn decompress<'a>(mut reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut magic = [0; 4];
    let mut filled = 0;
    while filled < magic.len() {
        match reader.read(&mut magic[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    let whole = Cursor::new(magic).take(filled as u64).chain(reader);
    let buffered = BufReader::with_capacity(64 << 10, whole);
    match magic {
        [0x1f, 0x8b, ..] => Ok(Box::new(flate2::bufread::MultiGzDecoder::new(buffered))),
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Ok(Box::new(decoder))
        }
        _ => Ok(Box::new(buffered)),
    }
}

/// Counts, hashes and bounds what comes out of the decompression.
struct Bounded<'a> {
    inner: Box<dyn Read + 'a>,
    state: &'a StreamState,
    hasher: Option<Hasher>,
    budget: &'a mut Budget,
    /// Bytes of this layer.
    produced: u64,
}

impl Bounded<'_> {
    fn exceeded(&self, kind: LimitKind, limit: u64) -> io::Error {
        self.state.exceeded.set(Some((kind, limit)));
        io::Error::other("a limit is exceeded")
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let limits = &self.budget.limits;
        self.budget.uncompressed_bytes += count as u64;
        self.produced += count as u64;
        if self.budget.uncompressed_bytes > limits.uncompressed_bytes {
            let limit = limits.uncompressed_bytes;
            return Err(self.exceeded(LimitKind::UncompressedBytes, limit));
        }
        let allowed = self.state.compressed.get().saturating_mul(limits.ratio);
        if self.produced.saturating_sub(limits.ratio_free_bytes) > allowed {
            let limit = limits.ratio;
            return Err(self.exceeded(LimitKind::Ratio, limit));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..count]);
        }
        Ok(count)
    }
}
