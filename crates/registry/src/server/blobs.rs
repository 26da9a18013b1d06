//! Requests for blobs.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use gantry_oci::Digest;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;

use super::response::{Body, DOCKER_CONTENT_DIGEST, ErrorCode, Failure, empty, set};
use super::{Access, Registry};
use crate::name::RepositoryName;
use crate::range::{ByteRange, RequestedRange, requested_range};
use crate::storage::disk::DiskFile;

/// How much of a blob is in memory at once.
const READ_BYTES: usize = 256 << 10;

impl<A: Access> Registry<A> {
    pub(super) async fn blob(
        &self,
        repository: RepositoryName,
        digest: Digest,
        parts: &Parts,
    ) -> Result<Response<Body>, Failure> {
        let wanted = digest.clone();
        let found = self
            .blocking(move |contents| {
                let found = contents.storage.blob(&repository, &wanted)?;
                if found.is_some() {
                    contents.leases.renew(&wanted);
                }
                Ok(found)
            })
            .await?;
        let unknown = || Failure::new(ErrorCode::BlobUnknown, format!("there is no blob {digest}"));
        let blob = found.ok_or_else(unknown)?;
        let header = parts.headers.get(RANGE).and_then(|it| it.to_str().ok());
        let range = match header.filter(|_| parts.method == Method::GET) {
            None => RequestedRange::Whole,
            Some(header) => requested_range(header, blob.size),
        };
        let (status, first, length) = match range {
            RequestedRange::Whole => (StatusCode::OK, 0, blob.size),
            RequestedRange::Part(range) => {
                (StatusCode::PARTIAL_CONTENT, range.first, range.length())
            }
            RequestedRange::Unsatisfiable => {
                let message = format!("the blob has {} bytes", blob.size);
                let all = format!("bytes */{}", blob.size);
                let failure = Failure::new(ErrorCode::RangeInvalid, message);
                return Err(failure.with(CONTENT_RANGE, all));
            }
        };
        let mut response = empty(status);
        set(&mut response, CONTENT_TYPE, "application/octet-stream");
        set(&mut response, CONTENT_LENGTH, &length.to_string());
        set(&mut response, DOCKER_CONTENT_DIGEST, digest.as_str());
        set(&mut response, ETAG, &format!("\"{digest}\""));
        set(&mut response, ACCEPT_RANGES, "bytes");
        set(&mut response, CACHE_CONTROL, "max-age=31536000, immutable");
        if let RequestedRange::Part(ByteRange { first, last }) = range {
            set(&mut response, CONTENT_RANGE, &format!("bytes {first}-{last}/{}", blob.size));
        }
        if parts.method == Method::GET {
            *response.body_mut() = file_body(blob.file, first, length);
        }
        Ok(response)
    }

    pub(super) async fn delete_blob(
        &self,
        repository: RepositoryName,
        digest: Digest,
    ) -> Result<Response<Body>, Failure> {
        let wanted = digest.clone();
        let delete = move |contents: &super::Contents| {
            Ok(contents.storage.delete_blob(&repository, &wanted)?)
        };
        match self.blocking(delete).await? {
            true => Ok(empty(StatusCode::ACCEPTED)),
            false => {
                Err(Failure::new(ErrorCode::BlobUnknown, format!("there is no blob {digest}")))
            }
        }
    }
}

/// Sends a part of a file, piece by piece.
fn file_body(file: Arc<dyn DiskFile>, first: u64, length: u64) -> Body {
    let pieces = stream::try_unfold((file, first, length), |(file, offset, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let limit = READ_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
        let reader = Arc::clone(&file);
        let read = tokio::task::spawn_blocking(move || reader.read_at(offset, limit)).await;
        let bytes = read.map_err(io::Error::other)??;
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let next = (file, offset + count, left - count.min(left));
        Ok(Some((Frame::data(Bytes::from(bytes)), next)))
    });
    StreamBody::new(pieces).boxed_unsync()
}
