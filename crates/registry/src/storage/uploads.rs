//! Uploads in progress, and leases on blobs that a push has asked for.
//!
//! Both live as long as the process. After a restart a client starts an upload again; nothing that
//! was acknowledged as stored depends on them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_oci::{Algorithm, Digest, Hasher};
use gantry_process::clock::{Clock, Moment};

use super::disk::DiskFile;
use super::{Storage, StorageError};
use crate::name::RepositoryName;

/// How many uploads may be open, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadLimits {
    /// Open uploads.
    pub open: usize,
    /// How long an upload stays open without a request.
    pub idle: Duration,
}

impl Default for UploadLimits {
    fn default() -> Self {
        Self { open: 256, idle: Duration::from_secs(60 * 60) }
    }
}

/// Why bytes were not added to an upload, or it was not finished.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("there is no such upload; start a new one")]
    Unknown,
    #[error("the registry has {limit} open uploads, which is its limit; try again later")]
    TooMany { limit: usize },
    #[error("the upload continues at byte {expected}, not at {found}")]
    WrongOffset { expected: u64, found: u64 },
    #[error("the blob is larger than {limit} bytes, which is the limit of the registry")]
    TooLarge { limit: u64 },
    #[error("the content has the digest {actual}, not {expected}")]
    DigestMismatch { expected: Digest, actual: Digest },
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The uploads in progress.
#[derive(Debug)]
pub(crate) struct Uploads {
    clock: Clock,
    limits: UploadLimits,
    open: Mutex<OpenUploads>,
}

#[derive(Debug)]
struct OpenUploads {
    by_id: BTreeMap<String, Arc<Upload>>,
    random: fastrand::Rng,
}

/// One upload. Requests for it may come at the same time: each says at which byte it continues, and
/// the one that is wrong about it is refused.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) id: String,
    repository: RepositoryName,
    state: Mutex<UploadState>,
}

#[derive(Debug)]
struct UploadState {
    temporary: String,
    /// `None` once it was finished, cancelled, or cannot be continued.
    file: Option<Box<dyn DiskFile>>,
    length: u64,
    hasher: Hasher,
    last_used: Moment,
}

impl Uploads {
    pub(crate) fn new(clock: Clock, limits: UploadLimits, random: fastrand::Rng) -> Self {
        let open = Mutex::new(OpenUploads { by_id: BTreeMap::new(), random });
        Self { clock, limits, open }
    }

    /// Starts an upload.
    pub(crate) fn start(
        &self,
        storage: &Storage,
        repository: &RepositoryName,
    ) -> Result<Arc<Upload>, UploadError> {
        self.remove_idle(storage);
        let limit = self.limits.open;
        let too_many = |open: &OpenUploads| match open.by_id.len() >= limit {
            true => Err(UploadError::TooMany { limit }),
            false => Ok(()),
        };
        too_many(&lock(&self.open))?;
        let (temporary, file) = storage.create_temporary()?;
        let state = UploadState {
            temporary,
            file: Some(file),
            length: 0,
            hasher: Hasher::new(Algorithm::Sha256),
            last_used: self.clock.moment(),
        };
        let mut open = lock(&self.open);
        if let Err(error) = too_many(&open) {
            drop(open);
            storage.discard_temporary(&state.temporary);
            return Err(error);
        }
        let id = format!("{:032x}", open.random.u128(..));
        let (repository, state) = (repository.clone(), Mutex::new(state));
        let upload = Arc::new(Upload { id: id.clone(), repository, state });
        open.by_id.insert(id, Arc::clone(&upload));
        Ok(upload)
    }

    /// Returns an upload of a repository.
    pub(crate) fn find(
        &self,
        repository: &RepositoryName,
        id: &str,
    ) -> Result<Arc<Upload>, UploadError> {
        let found = lock(&self.open).by_id.get(id).cloned();
        let upload = found.filter(|it| it.repository == *repository).ok_or(UploadError::Unknown)?;
        lock(&upload.state).last_used = self.clock.moment();
        Ok(upload)
    }

    /// Ends an upload and removes its bytes.
    pub(crate) fn cancel(&self, storage: &Storage, upload: &Upload) {
        lock(&self.open).by_id.remove(&upload.id);
        upload.discard(storage);
    }

    /// Verifies an upload, makes it a blob of the repository, and ends it, whether or not that
    /// succeeded: its file may have been renamed when a later step failed.
    pub(crate) fn finish(
        &self,
        storage: &Storage,
        upload: &Upload,
        digest: &Digest,
    ) -> Result<(), UploadError> {
        let done = upload.finish(storage, digest, self.clock.now());
        self.cancel(storage, upload);
        done
    }

    /// The number of open uploads.
    pub(crate) fn count(&self) -> usize {
        lock(&self.open).by_id.len()
    }

    fn remove_idle(&self, storage: &Storage) {
        let now = self.clock.moment();
        let idle: Vec<Arc<Upload>> = {
            let mut open = lock(&self.open);
            let is_idle = |it: &Upload| now - lock(&it.state).last_used >= self.limits.idle;
            let ids: Vec<String> = open
                .by_id
                .iter()
                .filter(|(_, upload)| is_idle(upload))
                .map(|(id, _)| id.clone())
                .collect();
            ids.iter().filter_map(|id| open.by_id.remove(id)).collect()
        };
        for upload in idle {
            upload.discard(storage);
        }
    }
}

impl Upload {
    /// The number of bytes that were received.
    pub(crate) fn length(&self) -> u64 {
        lock(&self.state).length
    }

    /// Adds bytes that begin at `offset`; returns the new length.
    pub(crate) fn append(
        &self,
        storage: &Storage,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, UploadError> {
        let mut state = lock(&self.state);
        let UploadState { temporary, file, length, hasher, .. } = &mut *state;
        let Some(open) = file else { return Err(UploadError::Unknown) };
        if *length != offset {
            return Err(UploadError::WrongOffset { expected: *length, found: offset });
        }
        let limit = storage.limits().blob_bytes;
        let after = length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if after > limit {
            return Err(UploadError::TooLarge { limit });
        }
        if let Err(error) = open.append(bytes) {
            // A part of the bytes may be there. If they cannot be removed, the upload is over.
            if open.truncate(*length).is_err() {
                *file = None;
            }
            return Err(StorageError::at(temporary)(error).into());
        }
        hasher.update(bytes);
        *length = after;
        Ok(after)
    }

    fn finish(
        &self,
        storage: &Storage,
        digest: &Digest,
        now: jiff::Timestamp,
    ) -> Result<(), UploadError> {
        let mut state = lock(&self.state);
        let UploadState { temporary, file, hasher, .. } = &mut *state;
        let Some(open) = file else { return Err(UploadError::Unknown) };
        let actual = match digest.algorithm() {
            Algorithm::Sha256 => hasher.clone().finish(),
            Algorithm::Sha512 => {
                hash_file(&**open, digest.algorithm()).map_err(StorageError::at(temporary))?
            }
        };
        if actual != *digest {
            return Err(UploadError::DigestMismatch { expected: digest.clone(), actual });
        }
        open.sync().map_err(StorageError::at(temporary))?;
        storage.commit_blob(&self.repository, digest, temporary, now)?;
        // The file has another name now, so it must not be removed.
        *file = None;
        Ok(())
    }

    fn discard(&self, storage: &Storage) {
        let mut state = lock(&self.state);
        if state.file.take().is_some() {
            storage.discard_temporary(&state.temporary);
        }
    }
}

/// How much is read at once.
const READ_BYTES: usize = 256 << 10;

fn hash_file(file: &dyn DiskFile, algorithm: Algorithm) -> std::io::Result<Digest> {
    let (mut hasher, mut offset) = (Hasher::new(algorithm), 0);
    loop {
        let bytes = file.read_at(offset, READ_BYTES)?;
        if bytes.is_empty() {
            return Ok(hasher.finish());
        }
        hasher.update(&bytes);
        offset += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    }
}

/// Blobs that clients have asked for lately. Such a client may refer to them in a manifest instead
/// of pushing them again, so garbage collection leaves them alone for a while.
#[derive(Debug)]
pub(crate) struct Leases {
    clock: Clock,
    duration: Duration,
    until: Mutex<LeaseTable>,
}

#[derive(Debug, Default)]
struct LeaseTable {
    by_digest: BTreeMap<Digest, Moment>,
    /// Until when everything is leased, because there were too many leases to remember each.
    all_until: Moment,
}

/// The largest number of leases that are remembered; beyond it, everything is leased.
const MAX_LEASES: usize = 65_536;

impl Leases {
    pub(crate) fn new(clock: Clock, duration: Duration) -> Self {
        Self { clock, duration, until: Mutex::default() }
    }

    /// Leases a blob from now on.
    pub(crate) fn renew(&self, digest: &Digest) {
        let now = self.clock.moment();
        let until = now + self.duration;
        let mut table = lock(&self.until);
        if table.by_digest.len() >= MAX_LEASES && !table.by_digest.contains_key(digest) {
            table.by_digest.retain(|_, it| *it > now);
            if table.by_digest.len() >= MAX_LEASES {
                table.all_until = until;
                return;
            }
        }
        table.by_digest.insert(digest.clone(), until);
    }

    /// Whether a blob is leased.
    pub(crate) fn is_leased(&self, digest: &Digest) -> bool {
        let now = self.clock.moment();
        let table = lock(&self.until);
        table.all_until > now || table.by_digest.get(digest).is_some_and(|it| *it > now)
    }
}

/// The state is consistent after every statement that changes it, so a poisoned lock is still
/// usable.
fn lock<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
