//! Compressed modules: gzip, xz and zstd, as kernels and kmod read them.
//!
//! The signature of a compressed module is inside the compressed stream. What is written here also
//! satisfies the decompressor inside the kernel, which accepts less than user space does: for xz
//! no 64-bit check and no large dictionary.

use std::fmt;
use std::io::{self, Read, Write};

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use lzma_rust2::{CheckType, XzOptions, XzReader, XzWriter};

/// The dictionary of the xz streams we write; the kernel refuses 8 MiB, the default of `xz`.
const XZ_DICTIONARY: u32 = 1 << 20;

/// How much memory the decoder of a foreign xz stream may take, in KiB: `xz -9` needs 65 MiB.
const XZ_DECODER_MEMORY: u32 = 80 << 10;

/// The level of `zstd` without options.
const ZSTD_LEVEL: i32 = 3;

/// The window of the zstd frames we write, as a power of two: 8 MiB, the most a decoder must
/// support by RFC 8878.
const ZSTD_WINDOW_LOG: u32 = 23;

/// The largest window of foreign zstd frames, as a power of two: what `zstd --ultra -22` uses.
const ZSTD_MAX_WINDOW_LOG: u32 = 27;

/// How a module is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, suffix `.gz`.
    Gzip,
    /// xz, suffix `.xz`.
    Xz,
    /// Zstandard, suffix `.zst`.
    Zstd,
}

/// Why a module could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// The stream is damaged or cut.
    #[error("cannot unpack the module: its {compression} stream is damaged; build the image again")]
    Damaged {
        /// What the stream claims to be.
        compression: Compression,
        /// The decoder's own words.
        source: io::Error,
    },
    /// Something follows the stream. A signature there is one that no kernel sees.
    #[error(
        "cannot unpack the module: {bytes} bytes or more follow its {compression} stream; if a \
         tool appended a signature there, sign the uncompressed module instead and compress it then"
    )]
    TrailingBytes {
        /// What the stream is.
        compression: Compression,
        /// How many bytes follow, as far as they were read.
        bytes: usize,
    },
    /// The module is larger than the limit.
    #[error("cannot unpack the module: it has more than {limit} bytes when unpacked")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
}

impl Compression {
    /// The compression of a file, by its first bytes. What is neither gzip, xz nor zstd is not
    /// compressed.
    #[must_use]
    pub fn detect(file: &[u8]) -> Self {
        if file.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if file.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
            Self::Xz
        } else if file.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Self::Zstd
        } else {
            Self::None
        }
    }

    /// What the compression appends to the name `….ko`.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Xz => ".xz",
            Self::Zstd => ".zst",
        }
    }

    /// Unpacks a file of this compression to at most `limit` bytes.
    ///
    /// # Errors
    /// Returns an error for a damaged stream, for bytes after it, and for more bytes than `limit`.
    pub fn decompress(self, file: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
        let mut unpacked = Vec::new();
        self.decode(file, limit, |part| {
            unpacked.extend_from_slice(part);
            true
        })?;
        Ok(unpacked)
    }

    /// Packs a module. The same module gives the same bytes.
    ///
    /// # Errors
    /// Returns the error of the encoder, which has no reason to fail in memory.
    pub fn compress(self, module: &[u8]) -> io::Result<Vec<u8>> {
        let packed = Vec::with_capacity(module.len() / 2);
        match self {
            Self::None => Ok(module.to_vec()),
            Self::Gzip => {
                // Without a name and with the time zero: `GzEncoder` writes neither.
                let mut encoder = GzEncoder::new(packed, flate2::Compression::default());
                encoder.write_all(module)?;
                encoder.finish()
            }
            Self::Xz => {
                let mut options = XzOptions::with_preset(6);
                options.lzma_options.dict_size = XZ_DICTIONARY;
                options.set_check_sum_type(CheckType::Crc32);
                let mut encoder = XzWriter::new(packed, options)?;
                encoder.write_all(module)?;
                encoder.finish()
            }
            Self::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(packed, ZSTD_LEVEL)?;
                encoder.window_log(ZSTD_WINDOW_LOG)?;
                encoder.include_contentsize(true)?;
                encoder.set_pledged_src_size(Some(module.len() as u64))?;
                encoder.write_all(module)?;
                encoder.finish()
            }
        }
    }

    /// Whether a file of this compression unpacks to exactly these bytes. Nothing is kept.
    pub(crate) fn unpacks_to(self, file: &[u8], expected: &[u8]) -> Result<bool, DecompressError> {
        let mut rest = Some(expected);
        self.decode(file, expected.len(), |part| {
            rest = rest.and_then(|rest| rest.strip_prefix(part));
            rest.is_some()
        })?;
        Ok(rest.is_some_and(<[u8]>::is_empty))
    }

    /// Hands the unpacked bytes to `take`, piece by piece, until it returns false.
    fn decode(
        self,
        file: &[u8],
        limit: usize,
        take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), DecompressError> {
        let damaged = |source| DecompressError::Damaged { compression: self, source };
        let trailing = match self {
            Self::None => {
                read_all(file, limit, take).map_err(damaged)?.complete(limit)?;
                0
            }
            Self::Gzip => {
                let mut decoder = GzDecoder::new(file);
                read_all(&mut decoder, limit, take).map_err(damaged)?.complete(limit)?;
                decoder.into_inner().len()
            }
            Self::Xz => {
                let mut decoder = XzReader::new_mem_limit(file, false, XZ_DECODER_MEMORY);
                read_all(&mut decoder, limit, take).map_err(damaged)?.complete(limit)?;
                decoder.into_inner().len()
            }
            Self::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(file).map_err(damaged)?;
                let mut decoder = decoder.single_frame();
                decoder.window_log_max(ZSTD_MAX_WINDOW_LOG).map_err(damaged)?;
                read_all(&mut decoder, limit, take).map_err(damaged)?.complete(limit)?;
                decoder.finish().len()
            }
        };
        match trailing {
            0 => Ok(()),
            bytes => Err(DecompressError::TrailingBytes { compression: self, bytes }),
        }
    }
}

/// Whether a stream ended before the limit.
enum StreamEnd {
    Reached,
    BeyondLimit,
}

impl StreamEnd {
    fn complete(self, limit: usize) -> Result<(), DecompressError> {
        match self {
            Self::Reached => Ok(()),
            Self::BeyondLimit => Err(DecompressError::TooLarge { limit }),
        }
    }
}

/// Reads a stream to its end. Its own claims about its size are not believed: a small file that
/// unpacks to terabytes costs one buffer.
fn read_all(
    mut stream: impl Read,
    limit: usize,
    mut take: impl FnMut(&[u8]) -> bool,
) -> io::Result<StreamEnd> {
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0usize;
    loop {
        let length = match stream.read(&mut buffer) {
            Ok(0) => return Ok(StreamEnd::Reached),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        total = total.saturating_add(length);
        if total > limit {
            return Ok(StreamEnd::BeyondLimit);
        }
        if !take(&buffer[..length]) {
            return Ok(StreamEnd::Reached);
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "uncompressed",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Compression; 4] =
        [Compression::None, Compression::Gzip, Compression::Xz, Compression::Zstd];

    #[test]
    fn kms_56_headers_are_those_the_kernel_accepts() {
        let module = vec![7; 10_000];
        let gzip = Compression::Gzip.compress(&module).unwrap();
        // Deflate, no flags (so no name), time zero.
        assert_eq!(gzip[..8], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
        let xz = Compression::Xz.compress(&module).unwrap();
        // Stream flags: check 1 is CRC32.
        assert_eq!(xz[6..8], [0, 1]);
        // Block header: one filter, neither size present; LZMA2 with a dictionary of 1 MiB.
        assert_eq!(xz[13] & 0b11, 0);
        assert_eq!(xz[14..17], [0x21, 1, 16]);
        let zstd = Compression::Zstd.compress(&module).unwrap();
        // The content size is present (flag not zero, or a single segment).
        assert_ne!(zstd[4] & 0b1110_0000, 0);
    }

    #[test]
    fn bombs_are_refused() {
        let module = vec![0; 256 << 10];
        for compression in ALL {
            let packed = compression.compress(&module).unwrap();
            assert_eq!(compression.decompress(&packed, 256 << 10).unwrap(), module);
            let refused = compression.decompress(&packed, (256 << 10) - 1);
            assert!(
                matches!(refused, Err(DecompressError::TooLarge { limit: 262_143 })),
                "{compression}: {refused:?}"
            );
        }
    }

    #[test]
    fn an_xz_stream_with_a_huge_dictionary_is_refused_without_allocating_it() {
        let mut options = XzOptions::with_preset(0);
        options.lzma_options.dict_size = 128 << 20;
        let mut encoder = XzWriter::new(Vec::new(), options).unwrap();
        encoder.write_all(b"module").unwrap();
        let packed = encoder.finish().unwrap();
        let refused = Compression::Xz.decompress(&packed, 100);
        assert!(matches!(refused, Err(DecompressError::Damaged { .. })), "{refused:?}");
    }

    #[test]
    fn kms_56_a_signature_after_the_stream_is_refused() {
        for compression in [Compression::Gzip, Compression::Xz, Compression::Zstd] {
            let mut packed = compression.compress(b"module").unwrap();
            packed.extend_from_slice(b"cms~Module signature appended~\n");
            let refused = compression.decompress(&packed, 100);
            assert!(
                matches!(refused, Err(DecompressError::TrailingBytes { bytes: 31, .. })),
                "{compression}: {refused:?}"
            );
        }
    }

    #[test]
    fn cut_streams_are_refused() {
        for compression in [Compression::Gzip, Compression::Xz, Compression::Zstd] {
            let packed = compression.compress(b"a module of some length").unwrap();
            for length in 6..packed.len() {
                let refused = compression.decompress(&packed[..length], 100);
                assert!(
                    matches!(refused, Err(DecompressError::Damaged { .. })),
                    "{compression} cut to {length}: {refused:?}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_packed_unpacks(
            module in prop::collection::vec(any::<u8>(), 0..5000),
            which in 0..4usize,
        ) {
            let compression = ALL[which];
            let packed = compression.compress(&module).unwrap();
            prop_assert_eq!(&compression.compress(&module).unwrap(), &packed);
            prop_assert_eq!(&compression.decompress(&packed, module.len()).unwrap(), &module);
            prop_assert!(compression.unpacks_to(&packed, &module).unwrap());
            if which > 0 {
                prop_assert_eq!(Compression::detect(&packed), compression);
            }
            let mut longer = module;
            longer.push(0);
            prop_assert!(!compression.unpacks_to(&packed, &longer).unwrap());
        }

        #[test]
        fn no_stream_panics(
            start in 0..3usize,
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let compression = ALL[start + 1];
            let mut packed = compression.compress(b"module").unwrap();
            packed.truncate(packed.len().min(rest.len()));
            packed.extend_from_slice(&rest);
            let _ = compression.decompress(&packed, 10_000);
        }
    }
}
