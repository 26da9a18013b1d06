//! Requests for manifests.

use bytes::Bytes;
use gantry_oci::Digest;
use http::header::{CONTENT_TYPE, ETAG, HeaderName, LOCATION};
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::body::Body as HttpBody;

use super::response::{Body, DOCKER_CONTENT_DIGEST, ErrorCode, Failure, document, empty, set};
use super::route::ManifestName;
use super::{Access, BoxError, Contents, Registry, shown};
use crate::manifest_content::ManifestContent;
use crate::name::RepositoryName;
use crate::storage::StoredManifest;

/// Tells a client that the registry lists the manifest among the referrers of its subject.
const OCI_SUBJECT: HeaderName = HeaderName::from_static("oci-subject");

impl<A: Access> Registry<A> {
    pub(super) async fn manifest(
        &self,
        repository: RepositoryName,
        name: ManifestName,
    ) -> Result<Response<Body>, Failure> {
        let found = self.blocking(move |contents| find(contents, &repository, &name)).await?;
        let StoredManifest { digest, media_type, bytes } = found;
        let mut response = document(StatusCode::OK, &media_type, bytes);
        set(&mut response, DOCKER_CONTENT_DIGEST, digest.as_str());
        set(&mut response, ETAG, &format!("\"{digest}\""));
        Ok(response)
    }

    pub(super) async fn put_manifest<Incoming>(
        &self,
        repository: RepositoryName,
        name: ManifestName,
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<Body>, Failure>
    where
        Incoming: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        let bytes = self.read_manifest(body).await?;
        let content_type = parts.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let content = ManifestContent::parse(&bytes, content_type)?;
        let (digest, tag) = match name {
            ManifestName::Tag(tag) => (Digest::sha256(&bytes), Some(tag)),
            ManifestName::Digest(digest) => {
                let actual = Digest::compute(digest.algorithm(), &bytes);
                if actual != digest {
                    let message = format!("the manifest has the digest {actual}, not {digest}");
                    return Err(Failure::new(ErrorCode::DigestInvalid, message));
                }
                (digest, None)
            }
        };
        let location = format!("/v2/{repository}/manifests/{digest}");
        let subject = content.subject.clone();
        let media_type = content.media_type.as_str().to_owned();
        let manifest = StoredManifest { digest: digest.clone(), media_type, bytes };
        let now = self.0.clock.now();
        self.blocking(move |contents| {
            let storage = &contents.storage;
            Ok(storage.put_manifest(&repository, &manifest, &content, tag.as_ref(), now)?)
        })
        .await?;
        let mut response = empty(StatusCode::CREATED);
        set(&mut response, LOCATION, &location);
        set(&mut response, DOCKER_CONTENT_DIGEST, digest.as_str());
        if let Some(subject) = subject {
            set(&mut response, OCI_SUBJECT, subject.as_str());
        }
        Ok(response)
    }

    async fn read_manifest<Incoming>(&self, mut body: Incoming) -> Result<Bytes, Failure>
    where
        Incoming: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        let limit = self.0.contents.storage.limits().manifest_bytes;
        let too_large = || {
            let message = format!("the manifest is larger than {limit} bytes");
            Failure::new(ErrorCode::TooLarge, message)
        };
        if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(piece) = self.next_piece(&mut body).await? {
            if bytes.len() + piece.len() > limit {
                return Err(too_large());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.into())
    }

    pub(super) async fn delete_manifest(
        &self,
        repository: RepositoryName,
        name: ManifestName,
    ) -> Result<Response<Body>, Failure> {
        self.blocking(move |contents| {
            let removed = match &name {
                ManifestName::Tag(tag) => contents.storage.delete_tag(&repository, tag)?,
                ManifestName::Digest(it) => contents.storage.delete_manifest(&repository, it)?,
            };
            match removed {
                true => Ok(empty(StatusCode::ACCEPTED)),
                false => Err(unknown(&repository, &name)),
            }
        })
        .await
    }
}

/// Finds a manifest by tag or digest.
fn find(
    contents: &Contents,
    repository: &RepositoryName,
    name: &ManifestName,
) -> Result<StoredManifest, Failure> {
    let digest = match name {
        ManifestName::Digest(digest) => Some(digest.clone()),
        ManifestName::Tag(tag) => contents.storage.tag(repository, tag)?,
    };
    let manifest = match digest {
        Some(digest) => contents.storage.manifest(repository, &digest)?,
        None => None,
    };
    manifest.ok_or_else(|| unknown(repository, name))
}

fn unknown(repository: &RepositoryName, name: &ManifestName) -> Failure {
    let message = format!("{repository} has no manifest with the {}", shown(name));
    Failure::new(ErrorCode::ManifestUnknown, message)
}
