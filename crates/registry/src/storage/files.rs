//! The files of a storage: where each is, and how it is written and removed durably.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gantry_oci::{Algorithm, Digest};

use super::disk::{DiskFile, read_small};
use super::record::{MAX_RECORD_BYTES, StoredRecord};
use super::{OpenBlob, RepositoryPart, Storage, StorageError, TEMPORARY};
use crate::name::RepositoryName;

impl Storage {
    /// Creates a temporary file.
    pub(crate) fn create_temporary(&self) -> Result<(String, Box<dyn DiskFile>), StorageError> {
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        let path = format!("{TEMPORARY}/{number}");
        let file = self.disk.create_file(&path).map_err(StorageError::at(&path))?;
        Ok((path, file))
    }

    /// Removes a temporary file that is not needed. If that fails, the next start does it.
    pub(crate) fn discard_temporary(&self, path: &str) {
        if let Err(error) = self.disk.remove_file(path) {
            tracing::warn!(path, %error, "could not remove a temporary file of the registry");
        }
    }

    pub(super) fn open_content(&self, digest: &Digest) -> Result<Option<OpenBlob>, StorageError> {
        let path = blob_path(digest);
        let Some(file) = self.disk.open_file(&path).map_err(StorageError::at(&path))? else {
            return Ok(None);
        };
        let size = file.length().map_err(StorageError::at(&path))?;
        Ok(Some(OpenBlob { file: Arc::from(file), size }))
    }

    /// Writes a file so that after a crash it is there as a whole, or as it was before.
    pub(super) fn write(
        &self,
        directory: &str,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), StorageError> {
        let (temporary, mut file) = self.create_temporary()?;
        let filled = file.append(bytes).and_then(|()| file.sync());
        let placed = filled
            .map_err(StorageError::at(&temporary))
            .and_then(|()| self.rename_synced(&temporary, directory, name));
        if placed.is_err() {
            self.discard_temporary(&temporary);
        }
        placed
    }

    pub(super) fn rename_synced(
        &self,
        temporary: &str,
        directory: &str,
        name: &str,
    ) -> Result<(), StorageError> {
        let path = join(directory, name);
        self.disk.rename(temporary, &path).map_err(StorageError::at(&path))?;
        self.sync(directory)
    }

    pub(super) fn remove_synced(&self, directory: &str, name: &str) -> Result<bool, StorageError> {
        let removed = self.remove(&join(directory, name))?;
        if removed {
            self.sync(directory)?;
        }
        Ok(removed)
    }

    pub(super) fn remove(&self, path: &str) -> Result<bool, StorageError> {
        self.disk.remove_file(path).map_err(StorageError::at(path))
    }

    pub(super) fn sync(&self, directory: &str) -> Result<(), StorageError> {
        self.disk.sync_directory(directory).map_err(StorageError::at(directory))
    }

    pub(super) fn names(&self, directory: &str) -> Result<Vec<String>, StorageError> {
        let names = self.disk.names(directory).map_err(StorageError::at(directory))?;
        Ok(names.unwrap_or_default())
    }

    pub(super) fn directory_exists(&self, path: &str) -> Result<bool, StorageError> {
        Ok(self.disk.names(path).map_err(StorageError::at(path))?.is_some())
    }

    pub(super) fn exists(&self, path: &str) -> Result<bool, StorageError> {
        Ok(self.disk.open_file(path).map_err(StorageError::at(path))?.is_some())
    }

    pub(super) fn record<Record: StoredRecord>(
        &self,
        path: &str,
    ) -> Result<Option<Record>, StorageError> {
        let bytes = read_small(&*self.disk, path, MAX_RECORD_BYTES);
        let Some(bytes) = bytes.map_err(StorageError::at(path))? else { return Ok(None) };
        Record::from_bytes(&bytes).map(Some).map_err(StorageError::at(path))
    }
}

pub(super) fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

pub(super) fn blob_directory(algorithm: Algorithm) -> String {
    format!("blobs/{}", algorithm.name())
}

pub(super) fn blob_path(digest: &Digest) -> String {
    format!("{}/{}", blob_directory(digest.algorithm()), digest.hex())
}

pub(super) fn link_name(digest: &Digest) -> String {
    format!("{}-{}", digest.algorithm().name(), digest.hex())
}

pub(super) fn link_path(
    part: RepositoryPart,
    repository: &RepositoryName,
    digest: &Digest,
) -> String {
    format!("{}/{}", part.of(repository), link_name(digest))
}

pub(super) fn digest_of_link(name: &str) -> Option<Digest> {
    name.replacen('-', ":", 1).parse().ok()
}
