//! Pulling, pushing and removing manifests.

use bytes::Bytes;
use gantry_oci::{Algorithm, Digest, MediaType, Reference, Repository, VerifyError};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};

use super::error::{Operation, RegistryError};
use super::exchange::{Reply, RequestSpec};
use super::{Call, Client, scope};
use crate::manifest_content::ManifestContent;
use crate::server::DOCKER_CONTENT_DIGEST;

/// A manifest or an index as a registry has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledManifest {
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its media type.
    pub media_type: MediaType,
    /// Its bytes.
    pub bytes: Bytes,
}

/// What a registry says about a manifest without sending it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestHead {
    /// Its digest.
    pub digest: Digest,
    /// Its media type, if the registry states one that is known.
    pub media_type: Option<MediaType>,
    /// Its size in bytes, if the registry states it.
    pub size: Option<u64>,
}

impl Client {
    /// Returns digest, type and size of a manifest.
    ///
    /// A registry that does not say the digest, or says that there is no such manifest, is asked
    /// for the manifest itself: only then it says why.
    ///
    /// # Errors
    /// As [`RegistryError`] says; [`RegistryError::NotFound`] only if the registry itself says so.
    pub async fn head_manifest(
        &self,
        reference: &Reference,
    ) -> Result<ManifestHead, RegistryError> {
        let mut last = None;
        for repository in self.sources(reference.repository())? {
            match Box::pin(self.head_manifest_at(&repository, reference)).await {
                Ok(found) => return Ok(found),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| no_source(reference)))
    }

    async fn head_manifest_at(
        &self,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<ManifestHead, RegistryError> {
        let call = self.manifest_call(repository, reference, Operation::CheckManifest)?;
        let mut request = manifest_request(&call, Method::HEAD, reference)?;
        request.limit = self.0.settings.manifest_bytes;
        let reply = self.send(&call, &request).await?;
        if reply.status.is_success() {
            let digest = stated_digest(&reply).or_else(|| reference.digest().cloned());
            if let Some(digest) = digest {
                check_stated(&call, reference, &digest)?;
                let stated = reply.header(&CONTENT_TYPE).map(MediaType::from_content_type);
                let media_type = stated.filter(|it| MediaType::DOCUMENTS.contains(it));
                let size = reply.header(&CONTENT_LENGTH).and_then(|it| it.parse().ok());
                return Ok(ManifestHead { digest, media_type, size });
            }
        }
        let PulledManifest { digest, media_type, bytes } =
            self.pull_manifest_with(&call, reference).await?;
        let size = u64::try_from(bytes.len()).ok();
        Ok(ManifestHead { digest, media_type: Some(media_type), size })
    }

    /// Pulls a manifest or an index, from the first mirror that has it or from the registry.
    ///
    /// # Errors
    /// As [`RegistryError`] says, about the registry itself.
    pub async fn pull_manifest(
        &self,
        reference: &Reference,
    ) -> Result<PulledManifest, RegistryError> {
        let mut last = None;
        for repository in self.sources(reference.repository())? {
            let call = self.manifest_call(&repository, reference, Operation::PullManifest);
            let pulled = match call {
                Ok(call) => Box::pin(self.pull_manifest_with(&call, reference)).await,
                Err(error) => Err(error),
            };
            match pulled {
                Ok(manifest) => return Ok(manifest),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| no_source(reference)))
    }

    async fn pull_manifest_with(
        &self,
        call: &Call,
        reference: &Reference,
    ) -> Result<PulledManifest, RegistryError> {
        let mut request = manifest_request(call, Method::GET, reference)?;
        request.limit = self.0.settings.manifest_bytes;
        let reply = self.send(call, &request).await?;
        let reply = self.expect_success(call, reply)?;
        let wanted = reference.digest().cloned().or_else(|| stated_digest(&reply));
        let algorithm = wanted.as_ref().map_or(Algorithm::Sha256, Digest::algorithm);
        let digest = Digest::compute(algorithm, &reply.body);
        for expected in wanted.into_iter().chain(stated_digest(&reply)) {
            if expected.algorithm() == algorithm && expected != digest {
                let source = VerifyError::Mismatch { expected, actual: digest };
                let at = Box::new(call.subject.clone());
                return Err(RegistryError::DigestMismatch { at, source });
            }
        }
        let media_type = media_type(call, &reply)?;
        Ok(PulledManifest { digest, media_type, bytes: reply.body })
    }

    /// Pushes a manifest or an index, whose contents must be there, and returns its digest.
    ///
    /// With a tag the tag means it afterwards; with a digest, that must be its digest.
    ///
    /// # Errors
    /// As [`RegistryError`] says.
    pub async fn push_manifest(
        &self,
        reference: &Reference,
        media_type: &MediaType,
        bytes: Bytes,
    ) -> Result<Digest, RegistryError> {
        let algorithm = reference.digest().map_or(Algorithm::Sha256, Digest::algorithm);
        let digest = Digest::compute(algorithm, &bytes);
        let repository = reference.repository();
        let (name, actions) = (reference.manifest_name(), scope(repository, "pull,push"));
        let time = self.0.settings.time;
        let call = self.call(repository, Operation::PushManifest, actions, name, time)?;
        let limit = self.0.settings.manifest_bytes;
        if bytes.len() > limit {
            let (at, limit) = (Box::new(call.subject.clone()), limit as u64);
            return Err(RegistryError::TooLarge { at, limit });
        }
        check_stated(&call, reference, &digest)?;
        let mut request = manifest_request(&call, Method::PUT, reference)?;
        request.headers.remove(ACCEPT);
        let value = HeaderValue::from_str(media_type.as_str());
        let value = value.map_err(|_| call.protocol("the media type cannot be sent"))?;
        request.headers.insert(CONTENT_TYPE, value);
        request.body = bytes;
        let reply = self.send(&call, &request).await?;
        let reply = self.expect_success(&call, reply)?;
        match stated_digest(&reply).filter(|it| it.algorithm() == algorithm) {
            Some(stored) if stored != digest => {
                let source = VerifyError::Mismatch { expected: digest, actual: stored };
                Err(RegistryError::DigestMismatch { at: Box::new(call.subject), source })
            }
            Some(_) | None => Ok(digest),
        }
    }

    /// Removes a manifest, by its digest, or a tag.
    ///
    /// # Errors
    /// As [`RegistryError`] says.
    pub async fn delete_manifest(&self, reference: &Reference) -> Result<(), RegistryError> {
        let repository = reference.repository();
        let (name, actions) = (reference.manifest_name(), scope(repository, "delete"));
        let time = self.0.settings.time;
        let call = self.call(repository, Operation::DeleteManifest, actions, name, time)?;
        let mut request = manifest_request(&call, Method::DELETE, reference)?;
        request.headers.remove(ACCEPT);
        let reply = self.send(&call, &request).await?;
        self.expect_success(&call, reply).map(drop)
    }

    fn manifest_call(
        &self,
        repository: &Repository,
        reference: &Reference,
        operation: Operation,
    ) -> Result<Call, RegistryError> {
        let (name, actions) = (reference.manifest_name(), scope(repository, "pull"));
        self.call(repository, operation, actions, name, self.0.settings.time)
    }
}

/// There is always the registry itself, so this is never returned.
fn no_source(reference: &Reference) -> RegistryError {
    RegistryError::InvalidMirror(format!("{reference} has no source"))
}

fn manifest_request(
    call: &Call,
    method: Method,
    reference: &Reference,
) -> Result<RequestSpec, RegistryError> {
    let path = call.repository().path();
    let uri = call.url(&format!("/v2/{path}/manifests/{}", reference.manifest_name()))?;
    let mut request = RequestSpec::new(method, uri);
    for accepted in MediaType::DOCUMENTS {
        if let Ok(value) = HeaderValue::from_str(accepted.as_str()) {
            request.headers.append(ACCEPT, value);
        }
    }
    Ok(request)
}

fn stated_digest(reply: &Reply) -> Option<Digest> {
    reply.header(&DOCKER_CONTENT_DIGEST)?.parse().ok()
}

/// Checks a digest against that of the reference, if it has one of the same algorithm.
fn check_stated(call: &Call, reference: &Reference, found: &Digest) -> Result<(), RegistryError> {
    match reference.digest() {
        Some(expected) if expected.algorithm() == found.algorithm() && expected != found => {
            let source =
                VerifyError::Mismatch { expected: expected.clone(), actual: found.clone() };
            Err(RegistryError::DigestMismatch { at: Box::new(call.subject.clone()), source })
        }
        Some(_) | None => Ok(()),
    }
}

/// The media type that the registry states, else that of the content.
fn media_type(call: &Call, reply: &Reply) -> Result<MediaType, RegistryError> {
    let stated = reply.header(&CONTENT_TYPE).map(MediaType::from_content_type);
    match stated {
        Some(found) if MediaType::DOCUMENTS.contains(&found) => Ok(found),
        Some(found) if found.is_schema1() => {
            Err(call.protocol(&format!("it has the type {found}, which is not supported")))
        }
        Some(_) | None => match ManifestContent::parse(&reply.body, None) {
            Ok(content) => Ok(content.media_type),
            Err(why) if reply.status == StatusCode::OK => Err(call.protocol(&why.to_string())),
            Err(_) => Err(call.protocol("it is not a manifest")),
        },
    }
}
