//! Reads content of the storage as a stream.

use std::io::{self, Read};

use gantry_oci::Digest;

use super::{OpenBlob, Storage, StorageError};
use crate::name::RepositoryName;

/// How many bytes are read from the disk at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A blob of a repository that is open for reading. It stays readable when it is removed meanwhile.
#[derive(Debug)]
pub struct StoredBlob {
    blob: OpenBlob,
    offset: u64,
    /// What was read from the disk and not given on yet, and how much of it was.
    chunk: Vec<u8>,
    taken: usize,
}

impl StoredBlob {
    /// The number of its bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.blob.size
    }
}

impl Read for StoredBlob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.chunk.len() {
            self.chunk = self.blob.file.read_at(self.offset, CHUNK_BYTES)?;
            self.offset += u64::try_from(self.chunk.len()).unwrap_or(u64::MAX);
            self.taken = 0;
        }
        let rest = &self.chunk[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}

impl Storage {
    /// Opens a blob of a repository; `None` if the repository does not have it.
    ///
    /// # Errors
    /// The disk failed.
    pub fn open_blob(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
    ) -> Result<Option<StoredBlob>, StorageError> {
        let blob = self.blob(repository, digest)?;
        Ok(blob.map(|blob| StoredBlob { blob, offset: 0, chunk: Vec::new(), taken: 0 }))
    }
}
