//! The storage of the embedded registry: blobs by their digest, and links and tags for each
//! repository, as files below one directory.
//!
//! ```text
//! blobs/sha256/<hex>                 content, shared by all repositories
//! repositories/<name>/blobs/…        which blobs a repository has, and since when
//! repositories/<name>/manifests/…    which manifests, their media types and subjects
//! repositories/<name>/tags/<tag>     which manifest a tag means
//! temporary/<number>                 what is being written
//! ```
//!
//! Everything is written to a temporary file, flushed to disk, renamed, and its directory flushed,
//! before it is acknowledged; content before links, and links before tags. Things are removed in
//! the opposite order. So a crash leaves nothing but temporary files and content without links,
//! which the next start removes.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use gantry_oci::{Algorithm, Digest, Tag};
use jiff::Timestamp;

pub(crate) mod disk;
mod error;
mod files;
mod garbage;
mod record;
mod stored_blob;
#[cfg(test)]
mod tests;
pub(crate) mod uploads;

pub use error::StorageError;
pub use garbage::{GarbageCollection, GarbageReport};
pub use record::ManifestRecord;
pub use stored_blob::StoredBlob;

use crate::manifest_content::ManifestContent;
use crate::name::RepositoryName;
use disk::{Directory, Disk, DiskFile, read_small};
use files::{blob_directory, blob_path, digest_of_link, link_name, link_path};
use record::{BlobRecord, TagRecord};

/// How much a registry may store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageLimits {
    /// The largest manifest, in bytes.
    pub manifest_bytes: usize,
    /// The largest blob, in bytes.
    pub blob_bytes: u64,
    /// Repositories.
    pub repositories: usize,
    /// Manifests in one repository, and also tags in one.
    pub manifests_per_repository: usize,
}

impl Default for StorageLimits {
    fn default() -> Self {
        Self {
            manifest_bytes: 4 << 20,
            blob_bytes: 32 << 30,
            repositories: 10_000,
            manifests_per_repository: 10_000,
        }
    }
}

/// The format of the directory.
const FORMAT: &str = "gantry-registry/1";
const FORMAT_FILE: &str = "format";
const TEMPORARY: &str = "temporary";
const REPOSITORIES: &str = "repositories";
const ALGORITHMS: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sha512];

/// A subdirectory of a repository.
#[derive(Clone, Copy, Debug)]
enum RepositoryPart {
    Blobs,
    Manifests,
    Tags,
}

impl RepositoryPart {
    const ALL: [Self; 3] = [Self::Blobs, Self::Manifests, Self::Tags];

    fn of(self, repository: &RepositoryName) -> String {
        let part = match self {
            Self::Blobs => "blobs",
            Self::Manifests => "manifests",
            Self::Tags => "tags",
        };
        format!("{REPOSITORIES}/{}/{part}", repository.directory())
    }
}

/// Stores the content of a registry.
#[derive(Debug)]
pub struct Storage {
    disk: Arc<dyn Disk>,
    limits: StorageLimits,
    /// Held for writing while links and tags change, so that a manifest is never stored while what
    /// it refers to is being removed.
    links: RwLock<()>,
    next_temporary: AtomicU64,
}

/// A manifest as it was pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredManifest {
    /// Its digest.
    pub digest: Digest,
    /// Its media type.
    pub media_type: String,
    /// Its bytes.
    pub bytes: Bytes,
}

/// Content that is open for reading. It stays readable when it is removed meanwhile.
#[derive(Debug)]
pub(crate) struct OpenBlob {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) size: u64,
}

impl Storage {
    /// Opens the storage in a directory of this machine, which is created if it is not there, and
    /// removes what a crash has left.
    ///
    /// # Errors
    /// The directory cannot be used, or another process uses it.
    pub fn open(directory: &Path, limits: StorageLimits) -> Result<Self, StorageError> {
        let disk = Directory::open_or_create(directory).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StorageError::Locked,
            _ => StorageError::at(&directory.display().to_string())(error),
        })?;
        Self::on_disk(Arc::new(disk), limits)
    }

    pub(crate) fn on_disk(
        disk: Arc<dyn Disk>,
        limits: StorageLimits,
    ) -> Result<Self, StorageError> {
        let storage =
            Self { disk, limits, links: RwLock::new(()), next_temporary: AtomicU64::new(0) };
        storage.prepare()?;
        storage.remove_leftovers()?;
        Ok(storage)
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> StorageLimits {
        self.limits
    }

    /// Creates the directories, removes temporary files, and checks the format.
    fn prepare(&self) -> Result<(), StorageError> {
        let algorithms = ALGORITHMS.map(blob_directory);
        let [first, second] = &algorithms;
        for path in [TEMPORARY, REPOSITORIES, "blobs", first, second] {
            self.disk.create_directory(path).map_err(StorageError::at(path))?;
        }
        self.sync("blobs")?;
        self.sync("")?;
        // Before anything is written, because a file of a process that died may have its name.
        for name in self.names(TEMPORARY)? {
            self.remove(&format!("{TEMPORARY}/{name}"))?;
        }
        match read_small(&*self.disk, FORMAT_FILE, 100).map_err(StorageError::at(FORMAT_FILE))? {
            Some(found) if found == FORMAT.as_bytes() => Ok(()),
            Some(found) => {
                Err(StorageError::Format { found: String::from_utf8_lossy(&found).into_owned() })
            }
            None => self.write("", FORMAT_FILE, FORMAT.as_bytes()),
        }
    }

    /// Removes content that no repository has a link to.
    fn remove_leftovers(&self) -> Result<(), StorageError> {
        let _links = self.write_links();
        self.sweep_unlinked(|_| true)?;
        Ok(())
    }

    /// Returns the size of a blob of a repository.
    pub(crate) fn blob(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
    ) -> Result<Option<OpenBlob>, StorageError> {
        let _links = self.read_links();
        match self.exists(&link_path(RepositoryPart::Blobs, repository, digest))? {
            true => self.open_content(digest),
            false => Ok(None),
        }
    }

    /// Moves a temporary file, whose bytes are flushed and verified, to its place, and links it.
    pub(crate) fn commit_blob(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        temporary: &str,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let _links = self.write_links();
        self.create_repository(repository)?;
        self.rename_synced(temporary, &blob_directory(digest.algorithm()), digest.hex())?;
        self.link_blob(repository, digest, now)
    }

    /// Links a blob of another repository; whether that has it.
    pub(crate) fn mount_blob(
        &self,
        from: &RepositoryName,
        to: &RepositoryName,
        digest: &Digest,
        now: Timestamp,
    ) -> Result<bool, StorageError> {
        let _links = self.write_links();
        let exists = self.exists(&link_path(RepositoryPart::Blobs, from, digest))?
            && self.open_content(digest)?.is_some();
        if exists {
            self.create_repository(to)?;
            self.link_blob(to, digest, now)?;
        }
        Ok(exists)
    }

    /// Removes a blob from a repository; whether it was there.
    pub(crate) fn delete_blob(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
    ) -> Result<bool, StorageError> {
        let _links = self.write_links();
        self.remove_synced(&RepositoryPart::Blobs.of(repository), &link_name(digest))
    }

    /// Stores a manifest whose digest and media type were checked; the tag is set last.
    pub(crate) fn put_manifest(
        &self,
        repository: &RepositoryName,
        manifest: &StoredManifest,
        content: &ManifestContent,
        tag: Option<&Tag>,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let _links = self.write_links();
        let missing = |digest: &Digest| StorageError::MissingReference { digest: digest.clone() };
        for digest in &content.blobs {
            if !self.exists(&link_path(RepositoryPart::Blobs, repository, digest))? {
                return Err(missing(digest));
            }
        }
        for digest in &content.manifests {
            if !self.exists(&link_path(RepositoryPart::Manifests, repository, digest))? {
                return Err(missing(digest));
            }
        }
        self.create_repository(repository)?;
        let link = link_name(&manifest.digest);
        self.check_count(
            repository,
            RepositoryPart::Manifests,
            &link,
            "manifests in a repository",
        )?;
        if let Some(tag) = tag {
            self.check_count(
                repository,
                RepositoryPart::Tags,
                tag.as_str(),
                "tags in a repository",
            )?;
        }
        let (algorithm, hex) = (manifest.digest.algorithm(), manifest.digest.hex());
        self.write(&blob_directory(algorithm), hex, &manifest.bytes)?;
        let record = ManifestRecord {
            created: now,
            media_type: manifest.media_type.clone(),
            subject: content.subject.clone(),
        };
        self.write(&RepositoryPart::Manifests.of(repository), &link, &record.to_bytes())?;
        match tag {
            None => Ok(()),
            Some(tag) => {
                let record = TagRecord { digest: manifest.digest.clone(), updated: now };
                self.write(&RepositoryPart::Tags.of(repository), tag.as_str(), &record.to_bytes())
            }
        }
    }

    /// Returns the digest that a tag means.
    ///
    /// # Errors
    /// The disk failed.
    pub fn tag(
        &self,
        repository: &RepositoryName,
        tag: &Tag,
    ) -> Result<Option<Digest>, StorageError> {
        let path = format!("{}/{tag}", RepositoryPart::Tags.of(repository));
        Ok(self.record::<TagRecord>(&path)?.map(|record| record.digest))
    }

    /// Returns a manifest of a repository.
    ///
    /// # Errors
    /// The disk failed.
    pub fn manifest(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
    ) -> Result<Option<StoredManifest>, StorageError> {
        let _links = self.read_links();
        self.manifest_linked(repository, digest)
    }

    fn manifest_linked(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
    ) -> Result<Option<StoredManifest>, StorageError> {
        let link = link_path(RepositoryPart::Manifests, repository, digest);
        let Some(record) = self.record::<ManifestRecord>(&link)? else { return Ok(None) };
        let path = blob_path(digest);
        let bytes = read_small(&*self.disk, &path, self.limits.manifest_bytes);
        let Some(bytes) = bytes.map_err(StorageError::at(&path))? else { return Ok(None) };
        let (digest, bytes) = (digest.clone(), Bytes::from(bytes));
        Ok(Some(StoredManifest { digest, media_type: record.media_type, bytes }))
    }

    /// Removes a tag; whether it was there. The manifest stays.
    ///
    /// # Errors
    /// The disk failed.
    pub fn delete_tag(&self, repository: &RepositoryName, tag: &Tag) -> Result<bool, StorageError> {
        let _links = self.write_links();
        self.remove_synced(&RepositoryPart::Tags.of(repository), tag.as_str())
    }

    /// Removes a manifest and all tags that mean it; whether it was there.
    ///
    /// # Errors
    /// The disk failed.
    pub fn delete_manifest(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
    ) -> Result<bool, StorageError> {
        let _links = self.write_links();
        if !self.exists(&link_path(RepositoryPart::Manifests, repository, digest))? {
            return Ok(false);
        }
        let tags = RepositoryPart::Tags.of(repository);
        for name in self.names(&tags)? {
            let record = self.record::<TagRecord>(&format!("{tags}/{name}"))?;
            if record.is_some_and(|record| record.digest == *digest) {
                self.remove(&format!("{tags}/{name}"))?;
            }
        }
        self.sync(&tags)?;
        self.remove_synced(&RepositoryPart::Manifests.of(repository), &link_name(digest))
    }

    /// Removes a repository with all its tags, manifests and links; whether it was there.
    ///
    /// # Errors
    /// The disk failed. What was not removed is still there and consistent.
    pub fn delete_repository(&self, repository: &RepositoryName) -> Result<bool, StorageError> {
        let _links = self.write_links();
        let path = format!("{REPOSITORIES}/{}", repository.directory());
        if !self.directory_exists(&path)? {
            return Ok(false);
        }
        for part in [RepositoryPart::Tags, RepositoryPart::Manifests, RepositoryPart::Blobs] {
            let directory = part.of(repository);
            for name in self.names(&directory)? {
                self.remove(&format!("{directory}/{name}"))?;
            }
            if self.directory_exists(&directory)? {
                self.sync(&directory)?;
                self.disk.remove_directory(&directory).map_err(StorageError::at(&directory))?;
            }
        }
        self.disk.remove_directory(&path).map_err(StorageError::at(&path))?;
        self.sync(REPOSITORIES)?;
        Ok(true)
    }

    /// Returns the names of all repositories, sorted.
    ///
    /// # Errors
    /// The disk failed.
    pub fn repositories(&self) -> Result<Vec<RepositoryName>, StorageError> {
        let names = self.names(REPOSITORIES)?;
        let mut names: Vec<_> =
            names.iter().filter_map(|name| RepositoryName::from_directory(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the tags of a repository, sorted; `None` if there is no such repository.
    ///
    /// # Errors
    /// The disk failed.
    pub fn tags(&self, repository: &RepositoryName) -> Result<Option<Vec<String>>, StorageError> {
        let path = RepositoryPart::Tags.of(repository);
        let names = self.disk.names(&path).map_err(StorageError::at(&path))?;
        Ok(names.map(|names| names.into_iter().filter(|it| it.parse::<Tag>().is_ok()).collect()))
    }

    /// Returns the manifests of a repository and what is recorded of them.
    ///
    /// # Errors
    /// The disk failed.
    pub fn manifests(
        &self,
        repository: &RepositoryName,
    ) -> Result<Vec<(Digest, ManifestRecord)>, StorageError> {
        let directory = RepositoryPart::Manifests.of(repository);
        let mut found = Vec::new();
        for name in self.names(&directory)? {
            let Some(digest) = digest_of_link(&name) else { continue };
            if let Some(record) = self.record(&format!("{directory}/{name}"))? {
                found.push((digest, record));
            }
        }
        Ok(found)
    }

    fn create_repository(&self, repository: &RepositoryName) -> Result<(), StorageError> {
        let path = format!("{REPOSITORIES}/{}", repository.directory());
        // The tags are created last, so that a repository with them is complete.
        if self.directory_exists(&RepositoryPart::Tags.of(repository))? {
            return Ok(());
        }
        let limit = self.limits.repositories;
        if self.names(REPOSITORIES)?.len() >= limit {
            return Err(StorageError::Limit { what: "repositories", limit });
        }
        self.disk.create_directory(&path).map_err(StorageError::at(&path))?;
        self.sync(REPOSITORIES)?;
        for part in RepositoryPart::ALL {
            let path = part.of(repository);
            self.disk.create_directory(&path).map_err(StorageError::at(&path))?;
        }
        self.sync(&path)
    }

    fn check_count(
        &self,
        repository: &RepositoryName,
        part: RepositoryPart,
        name: &str,
        what: &'static str,
    ) -> Result<(), StorageError> {
        let names = self.names(&part.of(repository))?;
        let limit = self.limits.manifests_per_repository;
        match names.len() >= limit && !names.iter().any(|it| it == name) {
            true => Err(StorageError::Limit { what, limit }),
            false => Ok(()),
        }
    }

    fn link_blob(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let record = BlobRecord { created: now }.to_bytes();
        self.write(&RepositoryPart::Blobs.of(repository), &link_name(digest), &record)
    }

    /// The lock protects files and has no data that a panic could leave half changed.
    fn read_links(&self) -> RwLockReadGuard<'_, ()> {
        self.links.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_links(&self) -> RwLockWriteGuard<'_, ()> {
        self.links.write().unwrap_or_else(PoisonError::into_inner)
    }
}
