//! Pushing blobs: only what is not there, mounted where possible, and resumed after a failure.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_oci::{Digest, Repository};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName, LOCATION, RANGE};
use http::{HeaderValue, Method, StatusCode, Uri};

use super::error::{Operation, RegistryError};
use super::exchange::{Reply, RequestSpec};
use super::location::{resolve, with_parameter};
use super::{Call, Client, scope};
use crate::path_query::encode;
use crate::range::ByteRange;

/// The smallest chunk that a registry accepts, if it says so.
const CHUNK_MIN_LENGTH: HeaderName = HeaderName::from_static("oci-chunk-min-length");
/// The largest chunk that a registry can ask for.
const MAX_CHUNK_BYTES: usize = 64 << 20;

/// A future of bytes.
pub type ReadFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send + 'a>>;

/// Content that can be read at any offset, any number of times.
pub trait BlobSource: Send + Sync + fmt::Debug {
    /// Reads `length` bytes from an offset. Fewer are an error.
    fn read(&self, offset: u64, length: usize) -> ReadFuture<'_>;
}

impl BlobSource for Bytes {
    fn read(&self, offset: u64, length: usize) -> ReadFuture<'_> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(length);
        let found = (end <= self.len()).then(|| self.slice(start..end));
        Box::pin(async move { found.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()) })
    }
}

/// The content of a file.
#[derive(Clone, Debug)]
pub struct FileSource(Arc<std::fs::File>);

impl FileSource {
    /// Reads from an open file. It must not change meanwhile.
    #[must_use]
    pub fn new(file: std::fs::File) -> Self {
        Self(Arc::new(file))
    }
}

impl BlobSource for FileSource {
    fn read(&self, offset: u64, length: usize) -> ReadFuture<'_> {
        let file = Arc::clone(&self.0);
        Box::pin(async move {
            let read = move || {
                let mut bytes = vec![0; length];
                std::os::unix::fs::FileExt::read_exact_at(&*file, &mut bytes, offset)?;
                Ok(Bytes::from(bytes))
            };
            tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
        })
    }
}

/// A blob to push.
#[derive(Clone, Copy, Debug)]
pub struct BlobPush<'a> {
    /// Where to.
    pub repository: &'a Repository,
    /// Its digest.
    pub digest: &'a Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Its content.
    pub source: &'a dyn BlobSource,
    /// Repositories that may have it. Those of the same registry are asked to share it.
    pub mount_from: &'a [Repository],
}

/// How a blob came to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// It was there already.
    AlreadyThere,
    /// It was mounted from another repository.
    Mounted,
    /// It was uploaded.
    Uploaded,
}

/// An upload in progress.
#[derive(Debug)]
struct OpenUpload {
    location: Uri,
    /// The number of bytes that the registry has acknowledged.
    offset: u64,
    chunk: usize,
}

impl Client {
    /// Pushes a blob, unless it is there.
    ///
    /// # Errors
    /// As [`RegistryError`] says.
    pub async fn push_blob(&self, push: BlobPush<'_>) -> Result<PushOutcome, RegistryError> {
        let BlobPush { repository, digest, mount_from, .. } = push;
        let mut actions = scope(repository, "pull,push");
        let mount_from = mount_from
            .iter()
            .filter(|it| it.same_registry(repository) && it.path() != repository.path());
        let mount_from: Vec<&Repository> = mount_from.take(MAX_MOUNT_SOURCES).collect();
        for from in &mount_from {
            actions.push(' ');
            actions.push_str(&scope(from, "pull"));
        }
        let time = self.0.settings.blob_time;
        let call = self.call(repository, Operation::PushBlob, actions, digest.as_str(), time)?;
        if self.has_blob(&call, digest).await? {
            return Ok(PushOutcome::AlreadyThere);
        }
        let mut upload = None;
        for from in mount_from {
            match Box::pin(self.mount(&call, digest, from)).await? {
                None => return Ok(PushOutcome::Mounted),
                // A registry that cannot mount has started an upload instead.
                Some(started) => {
                    if let Some(unused) = upload.replace(started) {
                        self.cancel(&call, &unused).await;
                    }
                }
            }
        }
        Box::pin(self.upload(&call, push, upload)).await?;
        Ok(PushOutcome::Uploaded)
    }

    /// Whether something can be pushed to a repository: an upload is started and cancelled.
    ///
    /// Registries hide repositories from users that may not see them, also those that do not exist
    /// yet. This tells the two apart.
    ///
    /// # Errors
    /// As [`RegistryError`] says, but for [`RegistryError::Unauthorized`] and
    /// [`RegistryError::Denied`].
    pub async fn can_push(&self, repository: &Repository) -> Result<bool, RegistryError> {
        let (actions, time) = (scope(repository, "pull,push"), self.0.settings.time);
        let call = self.call(repository, Operation::CheckPush, actions, "", time)?;
        match Box::pin(self.start(&call, "")).await {
            Ok(Some(upload)) => {
                self.cancel(&call, &upload).await;
                Ok(true)
            }
            Ok(None) => Ok(true),
            Err(RegistryError::Unauthorized { .. } | RegistryError::Denied { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn has_blob(&self, call: &Call, digest: &Digest) -> Result<bool, RegistryError> {
        let uri = call.url(&format!("/v2/{}/blobs/{digest}", call.repository().path()))?;
        let request = RequestSpec::new(Method::HEAD, uri);
        let reply = self.send(call, &request).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(false),
            _ => self.expect_success(call, reply).map(|_| true),
        }
    }

    /// Mounts a blob; returns an upload if the registry wants the content instead.
    async fn mount(
        &self,
        call: &Call,
        digest: &Digest,
        from: &Repository,
    ) -> Result<Option<OpenUpload>, RegistryError> {
        let query = format!("?mount={}&from={}", encode(digest.as_str()), encode(from.path()));
        self.start(call, &query).await
    }

    /// Starts an upload; `None` if the registry has the content already.
    async fn start(&self, call: &Call, query: &str) -> Result<Option<OpenUpload>, RegistryError> {
        let path = call.repository().path();
        let uri = call.url(&format!("/v2/{path}/blobs/uploads/{query}"))?;
        let mut request = RequestSpec::new(Method::POST, uri);
        request.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        let reply = self.expect_success(call, self.send(call, &request).await?)?;
        if reply.status == StatusCode::CREATED {
            return Ok(None);
        }
        let location = next_location(call, &reply)?;
        let smallest = reply.header(&CHUNK_MIN_LENGTH).and_then(|it| it.parse::<usize>().ok());
        let smallest = smallest.unwrap_or_default().min(MAX_CHUNK_BYTES);
        let chunk = self.0.settings.chunk_bytes.max(smallest).max(1);
        Ok(Some(OpenUpload { location, offset: 0, chunk }))
    }

    /// Ends an upload that is not needed. A registry that does not do so forgets it by itself.
    async fn cancel(&self, call: &Call, upload: &OpenUpload) {
        let mut request = RequestSpec::new(Method::DELETE, upload.location.clone());
        request.repeatable = false;
        if let Err(error) = self.send(call, &request).await {
            tracing::debug!(%error, "could not cancel an upload");
        }
    }

    /// Uploads a blob, in one request if it is small, else in chunks. After a failure the upload
    /// goes on where the registry says, or starts again.
    async fn upload(
        &self,
        call: &Call,
        push: BlobPush<'_>,
        mut open: Option<OpenUpload>,
    ) -> Result<(), RegistryError> {
        let (mut failures, mut furthest) = (0, 0);
        loop {
            let mut upload = match open.take() {
                Some(upload) => upload,
                None => match self.start(call, "").await? {
                    Some(upload) => upload,
                    None => return Ok(()),
                },
            };
            let error = match Box::pin(self.send_rest(call, push, &mut upload)).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // An upload that starts again and again makes no progress.
            if upload.offset > furthest {
                (failures, furthest) = (0, upload.offset);
            }
            let passes = matches!(error, StepError::Passing { .. } | StepError::Restart { .. });
            let wait = error.wait();
            let error = error.into_error();
            let again = passes && failures < self.0.settings.retries;
            if !again || !self.back_off(failures, wait, call.deadline).await {
                return Err(error);
            }
            failures += 1;
            // The response may have been lost after the blob was stored.
            if self.has_blob(call, push.digest).await? {
                return Ok(());
            }
            open = Box::pin(self.resume(call, upload)).await;
        }
    }

    /// Asks where an upload goes on; `None` if it cannot go on.
    async fn resume(&self, call: &Call, upload: OpenUpload) -> Option<OpenUpload> {
        let request = RequestSpec::get(upload.location.clone());
        let reply = self.send(call, &request).await.ok()?;
        if !reply.status.is_success() {
            return None;
        }
        let received = reply.header(&RANGE).and_then(ByteRange::parse)?;
        // `0-0` is what registries answer for none and for one byte. Starting again is cheap then.
        if received.first != 0 || received.last == 0 {
            self.cancel(call, &upload).await;
            return None;
        }
        let location = next_location(call, &reply).unwrap_or(upload.location);
        Some(OpenUpload { location, offset: received.last + 1, chunk: upload.chunk })
    }

    /// Sends what the registry does not have yet, and finishes the upload.
    async fn send_rest(
        &self,
        call: &Call,
        push: BlobPush<'_>,
        upload: &mut OpenUpload,
    ) -> Result<(), StepError> {
        let BlobPush { digest, size, source, .. } = push;
        let left = |upload: &OpenUpload| size.saturating_sub(upload.offset);
        let chunk = u64::try_from(upload.chunk).unwrap_or(u64::MAX);
        if upload.offset > size {
            let why = "the registry has more bytes than were sent";
            return Err(StepError::Final(call.protocol(why)));
        }
        while upload.offset > 0 && left(upload) > 0 || left(upload) > chunk {
            let bytes = read(call, source, upload.offset, left(upload).min(chunk)).await?;
            self.send_chunk(call, upload, bytes).await?;
        }
        // What is left is all of a small blob, or nothing.
        let bytes = read(call, source, upload.offset, left(upload)).await?;
        let uri = with_parameter(&upload.location, "digest", digest.as_str());
        let uri = uri.ok_or_else(|| {
            StepError::Final(call.protocol("the address of the upload is malformed"))
        })?;
        let mut request = RequestSpec::new(Method::PUT, uri);
        request.repeatable = false;
        let length = HeaderValue::from(bytes.len());
        request.headers.insert(CONTENT_LENGTH, length);
        let octets = HeaderValue::from_static("application/octet-stream");
        request.headers.insert(CONTENT_TYPE, octets);
        request.body = bytes;
        let reply = self.send(call, &request).await.map_err(StepError::from)?;
        match reply.status {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE => {
                Err(StepError::Restart { error: self.refused(call, reply) })
            }
            _ => Err(StepError::Final(self.refused(call, reply))),
        }
    }

    async fn send_chunk(
        &self,
        call: &Call,
        upload: &mut OpenUpload,
        bytes: Bytes,
    ) -> Result<(), StepError> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let end = upload.offset + length;
        let mut request = RequestSpec::new(Method::PATCH, upload.location.clone());
        // Sent again only after asking what has arrived.
        request.repeatable = false;
        let range = HeaderValue::from_str(&format!("{}-{}", upload.offset, end.saturating_sub(1)));
        if let Ok(range) = range {
            request.headers.insert(CONTENT_RANGE, range);
        }
        request.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        let octets = HeaderValue::from_static("application/octet-stream");
        request.headers.insert(CONTENT_TYPE, octets);
        request.body = bytes;
        let reply = self.send(call, &request).await.map_err(StepError::from)?;
        match reply.status {
            status if status.is_success() => {}
            StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE => {
                return Err(StepError::Restart { error: self.refused(call, reply) });
            }
            _ => return Err(StepError::Final(self.refused(call, reply))),
        }
        let received = reply.header(&RANGE).and_then(ByteRange::parse);
        let acknowledged = received.map_or(end, |it| it.last + 1);
        if acknowledged > end {
            let why = "the registry has more bytes than were sent";
            return Err(StepError::Final(call.protocol(why)));
        }
        upload.location = next_location(call, &reply).map_err(StepError::Final)?;
        // A registry that took nothing would be sent the same chunk for ever.
        if acknowledged <= upload.offset {
            let why = "the registry takes no bytes of the upload".to_owned();
            return Err(StepError::Restart { error: call.unreachable(why) });
        }
        upload.offset = acknowledged;
        Ok(())
    }

    fn refused(&self, call: &Call, reply: Reply) -> RegistryError {
        let status = reply.status;
        let success = || call.protocol(&format!("the registry responded with {status}"));
        self.expect_success(call, reply).err().unwrap_or_else(success)
    }
}

/// Repositories that are asked for a mount; each is a request.
const MAX_MOUNT_SOURCES: usize = 4;

/// Why an upload did not go on.
#[derive(Debug)]
enum StepError {
    /// It may go on where the registry says.
    Passing { error: RegistryError },
    /// The registry does not know it any more, or is at another byte.
    Restart { error: RegistryError },
    /// It never will.
    Final(RegistryError),
}

impl StepError {
    /// How long the registry wants to be left alone.
    fn wait(&self) -> Duration {
        match self {
            Self::Passing { error: RegistryError::RateLimited { retry_after, .. } } => *retry_after,
            Self::Passing { .. } | Self::Restart { .. } | Self::Final(_) => Duration::ZERO,
        }
    }

    fn into_error(self) -> RegistryError {
        match self {
            Self::Passing { error } | Self::Restart { error } | Self::Final(error) => error,
        }
    }
}

impl From<RegistryError> for StepError {
    fn from(error: RegistryError) -> Self {
        match error.may_pass() {
            true => Self::Passing { error },
            false => Self::Final(error),
        }
    }
}

async fn read(
    call: &Call,
    source: &dyn BlobSource,
    offset: u64,
    length: u64,
) -> Result<Bytes, StepError> {
    let failed = |error: io::Error| {
        let (at, source) = (Box::new(call.subject.clone()), Arc::new(error));
        StepError::Final(RegistryError::Source { at, source })
    };
    let length = usize::try_from(length).map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
    source.read(offset, length).await.map_err(failed)
}

/// Where the next request of an upload is sent.
fn next_location(call: &Call, reply: &Reply) -> Result<Uri, RegistryError> {
    let location = reply.header(&LOCATION);
    let location = location.ok_or_else(|| call.protocol("it did not say where to upload"))?;
    resolve(&reply.uri, location).map_err(|why| call.protocol(why))
}
