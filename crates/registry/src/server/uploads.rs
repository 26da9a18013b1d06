//! Requests that upload blobs.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gantry_oci::Digest;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, LOCATION, RANGE};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body as HttpBody;

use super::response::{
    Body, DOCKER_CONTENT_DIGEST, DOCKER_UPLOAD_UUID, ErrorCode, Failure, empty, set,
};
use super::route::digest;
use super::{Access, BoxError, Registry, Verb};
use crate::name::RepositoryName;
use crate::path_query::parameter;
use crate::range::ByteRange;
use crate::storage::uploads::Upload;

/// How many bytes are collected before they are written.
const WRITE_BYTES: usize = 256 << 10;

impl<A: Access> Registry<A> {
    /// Starts an upload; or mounts a blob of another repository; or stores a whole blob at once.
    pub(super) async fn start_upload<Incoming>(
        &self,
        repository: RepositoryName,
        user: Option<&A::User>,
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<Body>, Failure>
    where
        Incoming: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        let query = parts.uri.query();
        if let Some(mount) = parameter(query, "mount") {
            let wanted = digest(&mount)?;
            if self.mount(&repository, user, query, &wanted).await? {
                return Ok(created(&repository, &wanted));
            }
        }
        let whole = match parameter(query, "digest") {
            None => None,
            Some(text) => Some(digest(&text)?),
        };
        let place = repository.clone();
        let upload = self
            .blocking(move |contents| Ok(contents.uploads.start(&contents.storage, &place)?))
            .await?;
        match whole {
            None => Ok(accepted(&repository, &upload, StatusCode::ACCEPTED)),
            Some(digest) => {
                let contents = Arc::clone(&self.0.contents);
                let mut unnamed = UnnamedUpload { contents, upload: Some(Arc::clone(&upload)) };
                let done = self.finish(repository, upload, digest, parts, body).await;
                let unnamed = unnamed.upload.take();
                if let Some(upload) = unnamed.filter(|_| done.is_err()) {
                    self.blocking(move |contents| {
                        contents.uploads.cancel(&contents.storage, &upload);
                        Ok(())
                    })
                    .await?;
                }
                done
            }
        }
    }

    /// Mounts a blob; `false` if the other repository does not have it or the user may not read it,
    /// in which case the client uploads it.
    pub(super) async fn mount(
        &self,
        repository: &RepositoryName,
        user: Option<&A::User>,
        query: Option<&str>,
        wanted: &Digest,
    ) -> Result<bool, Failure> {
        let Some(from) = parameter(query, "from") else { return Ok(false) };
        let Ok(from) = from.parse::<RepositoryName>() else { return Ok(false) };
        let allowed = self.0.access.authorize(user, Verb::Pull, Some(&from)).await;
        if !allowed.map_err(|error| super::unavailable(&error))? {
            return Ok(false);
        }
        let (to, wanted, now) = (repository.clone(), wanted.clone(), self.0.clock.now());
        self.blocking(move |contents| Ok(contents.storage.mount_blob(&from, &to, &wanted, now)?))
            .await
    }

    pub(super) fn upload_status(
        &self,
        repository: &RepositoryName,
        id: &str,
    ) -> Result<Response<Body>, Failure> {
        let upload = self.0.contents.uploads.find(repository, id)?;
        Ok(accepted(repository, &upload, StatusCode::NO_CONTENT))
    }

    pub(super) async fn patch_upload<Incoming>(
        &self,
        repository: RepositoryName,
        id: &str,
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<Body>, Failure>
    where
        Incoming: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        let upload = self.0.contents.uploads.find(&repository, id)?;
        self.receive(&repository, &upload, parts, body).await?;
        Ok(accepted(&repository, &upload, StatusCode::ACCEPTED))
    }

    pub(super) async fn put_upload<Incoming>(
        &self,
        repository: RepositoryName,
        id: &str,
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<Body>, Failure>
    where
        Incoming: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        let upload = self.0.contents.uploads.find(&repository, id)?;
        let text = parameter(parts.uri.query(), "digest").unwrap_or_default();
        let digest = digest(&text)?;
        self.finish(repository, upload, digest, parts, body).await
    }

    pub(super) async fn cancel_upload(
        &self,
        repository: RepositoryName,
        id: &str,
    ) -> Result<Response<Body>, Failure> {
        let upload = self.0.contents.uploads.find(&repository, id)?;
        self.blocking(move |contents| {
            contents.uploads.cancel(&contents.storage, &upload);
            Ok(empty(StatusCode::NO_CONTENT))
        })
        .await
    }

    /// Receives the last bytes, if there are any, and makes the upload a blob.
    async fn finish<Incoming>(
        &self,
        repository: RepositoryName,
        upload: Arc<Upload>,
        digest: Digest,
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<Body>, Failure>
    where
        Incoming: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        self.receive(&repository, &upload, parts, body).await?;
        let response = created(&repository, &digest);
        self.blocking(move |contents| {
            contents.uploads.finish(&contents.storage, &upload, &digest)?;
            contents.leases.renew(&digest);
            Ok(response)
        })
        .await
    }

    /// Adds the body of a request to an upload. What has arrived stays when the connection breaks,
    /// so that the client can go on from there.
    async fn receive<Incoming>(
        &self,
        repository: &RepositoryName,
        upload: &Arc<Upload>,
        parts: &Parts,
        mut body: Incoming,
    ) -> Result<(), Failure>
    where
        Incoming: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        let mut offset = upload.length();
        self.check_range(repository, upload, parts, offset)?;
        let limit = self.0.contents.storage.limits().blob_bytes;
        if offset.saturating_add(body.size_hint().lower()) > limit {
            let message = format!("the blob is larger than {limit} bytes");
            return Err(Failure::new(ErrorCode::TooLarge, message));
        }
        let mut pending = BytesMut::new();
        loop {
            let piece = self.next_piece(&mut body).await;
            if let Ok(Some(piece)) = &piece {
                pending.extend_from_slice(piece);
            }
            let more = matches!(piece, Ok(Some(_)));
            if !pending.is_empty() && (!more || pending.len() >= WRITE_BYTES) {
                let (bytes, upload) = (pending.split().freeze(), Arc::clone(upload));
                let write = move |contents: &super::Contents| {
                    Ok(upload.append(&contents.storage, offset, &bytes)?)
                };
                offset = self.blocking(write).await?;
            }
            piece?;
            if !more {
                return Ok(());
            }
        }
    }

    /// Checks that a chunk begins where the upload ends.
    fn check_range(
        &self,
        repository: &RepositoryName,
        upload: &Upload,
        parts: &Parts,
        offset: u64,
    ) -> Result<(), Failure> {
        let _ = self;
        let Some(header) = parts.headers.get(CONTENT_RANGE) else { return Ok(()) };
        let range = header.to_str().ok().and_then(ByteRange::parse).ok_or_else(|| {
            let message = "the Content-Range of a chunk has the form <first>-<last>";
            Failure::new(ErrorCode::BlobUploadInvalid, message)
        })?;
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
        let length = length.and_then(|it| it.parse::<u64>().ok());
        if length.is_some_and(|length| length != range.length()) {
            let message = "Content-Range and Content-Length of the chunk differ";
            return Err(Failure::new(ErrorCode::SizeInvalid, message));
        }
        if range.first == offset {
            return Ok(());
        }
        let message = format!("the upload continues at byte {offset}, not at {}", range.first);
        Err(Failure::new(ErrorCode::RangeInvalid, message)
            .with(RANGE, received(offset))
            .with(LOCATION, location(repository, upload)))
    }

    /// Returns the next piece of a body; `None` at its end.
    pub(super) async fn next_piece<Incoming>(
        &self,
        body: &mut Incoming,
    ) -> Result<Option<Bytes>, Failure>
    where
        Incoming: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        let idle = self.0.settings.body_idle;
        loop {
            let frame = self.0.clock.timeout(idle, body.frame()).await.map_err(|_| {
                let message = format!("the client sent nothing for {idle:?}");
                Failure::new(ErrorCode::BlobUploadInvalid, message)
            })?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| {
                let error: BoxError = error.into();
                let message = format!("the body of the request is incomplete: {error}");
                Failure::new(ErrorCode::BlobUploadInvalid, message)
            })?;
            // Trailers mean nothing here.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// An upload whose name no client knows, because it is sent with the request that starts it. It
/// cannot be resumed, so it must not occupy the disk after that request.
struct UnnamedUpload {
    contents: Arc<super::Contents>,
    upload: Option<Arc<Upload>>,
}

impl Drop for UnnamedUpload {
    /// Discards an upload whose request was dropped. One that was finished is not affected.
    fn drop(&mut self) {
        let (contents, upload) = (Arc::clone(&self.contents), self.upload.take());
        if let (Some(upload), Ok(runtime)) = (upload, tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || contents.uploads.cancel(&contents.storage, &upload));
        }
    }
}

/// The range that was received. With no bytes it reads as if there were one, as in the registry of
/// the distribution project: the form has no way to say "none".
fn received(length: u64) -> String {
    format!("0-{}", length.saturating_sub(1))
}

fn location(repository: &RepositoryName, upload: &Upload) -> String {
    format!("/v2/{repository}/blobs/uploads/{}", upload.id)
}

fn accepted(repository: &RepositoryName, upload: &Upload, status: StatusCode) -> Response<Body> {
    let mut response = empty(status);
    set(&mut response, LOCATION, &location(repository, upload));
    set(&mut response, RANGE, &received(upload.length()));
    set(&mut response, DOCKER_UPLOAD_UUID, &upload.id);
    set(&mut response, CONTENT_LENGTH, "0");
    response
}

fn created(repository: &RepositoryName, digest: &Digest) -> Response<Body> {
    let mut response = empty(StatusCode::CREATED);
    set(&mut response, LOCATION, &format!("/v2/{repository}/blobs/{digest}"));
    set(&mut response, DOCKER_CONTENT_DIGEST, digest.as_str());
    set(&mut response, CONTENT_LENGTH, "0");
    response
}
