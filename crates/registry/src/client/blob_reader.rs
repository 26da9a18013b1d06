//! Pulling blobs: verified, and resumed after a broken connection.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gantry_http_client::ResponseBody;
use gantry_oci::{Digest, Repository, Verifier, VerifyError};
use http::header::{CONTENT_RANGE, RANGE};
use http::{HeaderValue, StatusCode};

use super::error::{Operation, RegistryError};
use super::exchange::RequestSpec;
use super::retry::error_may_pass;
use super::{Call, Client, scope};
use crate::range::content_range;

impl Client {
    /// Starts to pull a blob, from the first mirror that has it or from the registry.
    ///
    /// # Errors
    /// As [`RegistryError`] says, about the registry itself.
    pub async fn pull_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        size: u64,
    ) -> Result<BlobReader, RegistryError> {
        let mut sources: VecDeque<Repository> = self.sources(repository)?.into();
        let mut last = None;
        while let Some(source) = sources.pop_front() {
            let (actions, time) = (scope(&source, "pull"), self.0.settings.blob_time);
            let started =
                match self.call(&source, Operation::PullBlob, actions, digest.as_str(), time) {
                    Ok(call) => Box::pin(BlobReader::open(self, call, digest, size)).await,
                    Err(error) => Err(error),
                };
            match started {
                Ok(reader) => return Ok(reader),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| RegistryError::InvalidMirror(repository.to_string())))
    }

    /// Pulls a whole blob of at most `limit` bytes, for instance the configuration of an image.
    ///
    /// # Errors
    /// As [`RegistryError`] says; [`RegistryError::TooLarge`] before anything is sent.
    pub async fn pull_small_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        size: u64,
        limit: u64,
    ) -> Result<Bytes, RegistryError> {
        if size > limit {
            let subject =
                super::RequestSubject::new(repository, Operation::PullBlob, digest.as_str());
            return Err(RegistryError::TooLarge { at: Box::new(subject), limit });
        }
        let mut reader = self.pull_blob(repository, digest, size).await?;
        // Not allocated by the size, which is a claim.
        let mut bytes = BytesMut::new();
        while let Some(piece) = Box::pin(reader.chunk()).await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }
}

/// A blob that is being pulled.
///
/// Nothing that was read may be used before [`BlobReader::chunk`] has returned `None`: only then
/// digest and size are known to be right.
#[derive(Debug)]
pub struct BlobReader {
    client: Client,
    call: Call,
    digest: Digest,
    size: u64,
    /// `None` at the end.
    verifier: Option<Verifier>,
    body: Option<ResponseBody>,
    /// Bytes that the registry sends again, although they were not asked for.
    skip: u64,
    /// Failures since the last byte.
    failures: u32,
}

impl BlobReader {
    async fn open(
        client: &Client,
        call: Call,
        digest: &Digest,
        size: u64,
    ) -> Result<Self, RegistryError> {
        let (client, digest) = (client.clone(), digest.clone());
        let verifier = Some(Verifier::new(digest.clone(), size));
        let mut reader =
            Self { client, call, digest, size, verifier, body: None, skip: 0, failures: 0 };
        reader.request().await?;
        Ok(reader)
    }

    /// The number of bytes that were read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.verifier.as_ref().map_or(self.size, Verifier::received)
    }

    /// Returns the next piece; `None` after the last, when the blob was verified.
    ///
    /// # Errors
    /// As [`RegistryError`] says. The blob is useless then.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, RegistryError> {
        loop {
            let Some(verifier) = &mut self.verifier else { return Ok(None) };
            let Some(body) = &mut self.body else {
                Box::pin(self.request()).await?;
                continue;
            };
            let failure = match body.chunk().await {
                Ok(Some(mut piece)) => {
                    let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX);
                    let skipped = skipped.min(piece.len());
                    self.skip -= u64::try_from(skipped).unwrap_or(u64::MAX);
                    let piece = piece.split_off(skipped);
                    if piece.is_empty() {
                        continue;
                    }
                    if let Err(error) = verifier.update(&piece) {
                        return Err(self.damaged(error));
                    }
                    self.failures = 0;
                    return Ok(Some(piece));
                }
                Ok(None) if verifier.received() >= self.size => {
                    let checked = self.verifier.take().map_or(Ok(()), Verifier::finish);
                    self.body = None;
                    return checked.map(|()| None).map_err(|error| self.damaged(error));
                }
                Ok(None) => self.call.unreachable("the content ended early".to_owned()),
                Err(error) if error_may_pass(&error) => self.call.failed(error),
                Err(error) => return Err(self.call.failed(error)),
            };
            self.body = None;
            let client = self.client.clone();
            let again = self.failures < client.0.settings.retries;
            if !again || !client.back_off(self.failures, Duration::ZERO, self.call.deadline).await {
                return Err(failure);
            }
            self.failures += 1;
        }
    }

    /// Asks for what is missing.
    async fn request(&mut self) -> Result<(), RegistryError> {
        let (call, position) = (&self.call, self.position());
        let path = call.repository().path();
        let mut request = RequestSpec::get(call.url(&format!("/v2/{path}/blobs/{}", self.digest))?);
        if position > 0 {
            let range = HeaderValue::from_str(&format!("bytes={position}-"));
            let range = range.map_err(|_| call.protocol("the range cannot be sent"))?;
            request.headers.insert(RANGE, range);
        }
        let (reply, body) = Box::pin(self.client.send_streamed(call, &request, true)).await?;
        // There is nothing behind what was read, although the size promises more.
        if position > 0 && reply.status == StatusCode::RANGE_NOT_SATISFIABLE {
            let (digest, size) = (self.digest.clone(), self.size);
            let short = VerifyError::TooShort { digest, size, received: position };
            return Err(self.damaged(short));
        }
        let reply = self.client.expect_success(call, reply)?;
        self.skip = match reply.status {
            StatusCode::PARTIAL_CONTENT => {
                let stated = reply.header(&CONTENT_RANGE).and_then(content_range);
                match stated {
                    Some((range, size))
                        if range.first == position && size.is_none_or(|it| it == self.size) =>
                    {
                        0
                    }
                    Some(_) | None => {
                        return Err(call.protocol("it sent another part than it was asked for"));
                    }
                }
            }
            _ => position,
        };
        self.body = body;
        Ok(())
    }

    fn damaged(&mut self, source: VerifyError) -> RegistryError {
        self.body = None;
        RegistryError::DigestMismatch { at: Box::new(self.call.subject.clone()), source }
    }
}
