//! The embedded registry: serves the OCI distribution protocol, version 1.1.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::Clock;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Body as HttpBody;

mod access;
mod blobs;
mod listings;
mod manifests;
mod response;
mod route;
#[cfg(test)]
mod tests;
mod uploads;

pub use access::{Access, AccessUnavailable, PresentedCredentials, Verb, presented_credentials};
pub use response::Body;
pub(crate) use response::DOCKER_CONTENT_DIGEST;

use crate::name::RepositoryName;
use crate::storage::uploads::{Leases, UploadLimits, Uploads};
use crate::storage::{GarbageCollection, GarbageReport, Storage, StorageError};
use response::{ErrorCode, Failure, complete, document};
use route::{ManifestName, Resource, Route, route};

/// An error of any type, as bodies of requests return it.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How a registry serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The name that users see when they are asked for credentials.
    pub realm: &'static str,
    /// The limits of uploads.
    pub uploads: UploadLimits,
    /// The longest time in which a client sends nothing of a body it has announced.
    pub body_idle: Duration,
    /// How long garbage collection leaves a blob alone that a client has asked for.
    pub lease: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            realm: "Gantry registry",
            uploads: UploadLimits::default(),
            body_idle: Duration::from_secs(60),
            lease: Duration::from_secs(60 * 60),
        }
    }
}

/// A registry over a [`Storage`]. Clones are the same registry.
#[derive(Debug)]
pub struct Registry<A>(Arc<Inner<A>>);

impl<A> Clone for Registry<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<A> {
    access: A,
    contents: Arc<Contents>,
    clock: Clock,
    settings: ServerSettings,
}

/// What the file system and memory hold; used on threads where it may block.
#[derive(Debug)]
struct Contents {
    storage: Storage,
    uploads: Uploads,
    leases: Leases,
}

impl<A: Access> Registry<A> {
    /// Makes a registry. `random` gives uploads their names.
    #[must_use]
    pub fn new(
        storage: Storage,
        access: A,
        clock: Clock,
        random: fastrand::Rng,
        settings: ServerSettings,
    ) -> Self {
        let uploads = Uploads::new(clock.clone(), settings.uploads, random);
        let leases = Leases::new(clock.clone(), settings.lease);
        let contents = Arc::new(Contents { storage, uploads, leases });
        Self(Arc::new(Inner { access, contents, clock, settings }))
    }

    /// The storage, for listing and removing images. Its functions block.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.0.contents.storage
    }

    /// The number of open uploads.
    #[must_use]
    pub fn open_uploads(&self) -> usize {
        self.0.contents.uploads.count()
    }

    /// Removes what nothing needs. Pushes and pulls go on meanwhile.
    ///
    /// # Errors
    /// The disk failed. What was not removed is still there and consistent.
    pub async fn collect_garbage(
        &self,
        settings: GarbageCollection,
    ) -> Result<GarbageReport, StorageError> {
        let (contents, now) = (Arc::clone(&self.0.contents), self.0.clock.now());
        let collect = move || {
            let leased = |digest: &_| contents.leases.is_leased(digest);
            contents.storage.collect_garbage(settings, now, leased)
        };
        let done = tokio::task::spawn_blocking(collect).await;
        done.unwrap_or_else(|lost| {
            let source = std::io::Error::other(lost);
            Err(StorageError::Disk { path: "garbage collection".to_owned(), source })
        })
    }

    /// Serves a request whose path begins with `/v2/`.
    ///
    /// `user` is a user that the connection identifies, for instance by a client certificate;
    /// without one, the header `Authorization` is used.
    ///
    /// The future may be dropped at any time: what was acknowledged is stored, and everything else
    /// is as if the request had not been sent, but for the bytes of an upload that can be resumed.
    pub async fn handle<Incoming>(
        &self,
        request: Request<Incoming>,
        user: Option<A::User>,
    ) -> Response<Body>
    where
        Incoming: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        let (parts, body) = request.into_parts();
        let head = parts.method == Method::HEAD;
        let served = Box::pin(self.serve(&parts, body, user)).await;
        complete(served.unwrap_or_else(|failure| failure.response()), head)
    }

    async fn serve<Incoming>(
        &self,
        parts: &Parts,
        body: Incoming,
        user: Option<A::User>,
    ) -> Result<Response<Body>, Failure>
    where
        Incoming: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        let user = match user {
            Some(user) => Some(user),
            None => self.authenticate(parts).await?,
        };
        if user.is_none() && !self.0.access.anonymous() {
            return Err(self.challenge());
        }
        let user = user.as_ref();
        let route = route(parts.uri.path())?;
        let method = parts.method.as_str();
        let (repository, resource) = match route {
            Route::Base => {
                allow(method, &["GET", "HEAD"])?;
                self.authorize(user, Verb::Ping, None).await?;
                return Ok(document(StatusCode::OK, "application/json", "{}"));
            }
            Route::Catalog => {
                allow(method, &["GET"])?;
                self.authorize(user, Verb::List, None).await?;
                return self.catalog(parts).await;
            }
            Route::Repository(repository, resource) => (repository, resource),
        };
        let allowed: &[&str] = match &resource {
            Resource::Manifest(_) => &["GET", "HEAD", "PUT", "DELETE"],
            Resource::Blob(_) => &["GET", "HEAD", "DELETE"],
            Resource::Uploads => &["POST"],
            Resource::Upload(_) => &["GET", "PATCH", "PUT", "DELETE"],
            Resource::Tags | Resource::Referrers(_) => &["GET"],
        };
        allow(method, allowed)?;
        let verb = match (&resource, method) {
            (Resource::Uploads | Resource::Upload(_), _) | (_, "PUT") => Verb::Push,
            (_, "DELETE") => Verb::Delete,
            (_, _) => Verb::Pull,
        };
        self.authorize(user, verb, Some(&repository)).await?;
        match (resource, method) {
            (Resource::Manifest(name), "GET" | "HEAD") => self.manifest(repository, name).await,
            (Resource::Manifest(name), "PUT") => {
                self.put_manifest(repository, name, parts, body).await
            }
            (Resource::Manifest(name), _) => self.delete_manifest(repository, name).await,
            (Resource::Blob(digest), "GET" | "HEAD") => self.blob(repository, digest, parts).await,
            (Resource::Blob(digest), _) => self.delete_blob(repository, digest).await,
            (Resource::Uploads, _) => self.start_upload(repository, user, parts, body).await,
            (Resource::Upload(id), "GET") => self.upload_status(&repository, &id),
            (Resource::Upload(id), "PATCH") => {
                self.patch_upload(repository, &id, parts, body).await
            }
            (Resource::Upload(id), "PUT") => self.put_upload(repository, &id, parts, body).await,
            (Resource::Upload(id), _) => self.cancel_upload(repository, &id).await,
            (Resource::Tags, _) => self.tags(repository, parts).await,
            (Resource::Referrers(digest), _) => self.referrers(repository, digest, parts).await,
        }
    }

    async fn authenticate(&self, parts: &Parts) -> Result<Option<A::User>, Failure> {
        let Some(header) = parts.headers.get(AUTHORIZATION) else { return Ok(None) };
        let presented = header.to_str().ok().and_then(presented_credentials);
        let Some(presented) = presented else { return Err(self.challenge()) };
        match self.0.access.authenticate(presented).await.map_err(|error| unavailable(&error))? {
            Some(user) => Ok(Some(user)),
            // Wrong credentials are never treated as none.
            None => Err(self.challenge()),
        }
    }

    async fn authorize(
        &self,
        user: Option<&A::User>,
        verb: Verb,
        repository: Option<&RepositoryName>,
    ) -> Result<(), Failure> {
        let decided = self.0.access.authorize(user, verb, repository).await;
        match (decided.map_err(|error| unavailable(&error))?, user) {
            (true, _) => Ok(()),
            (false, None) => Err(self.challenge()),
            (false, Some(_)) => {
                let what = match verb {
                    Verb::Ping => "use",
                    Verb::List => "list repositories of",
                    Verb::Pull => "pull from",
                    Verb::Push => "push to",
                    Verb::Delete => "delete from",
                };
                let place = repository.map_or("this registry", RepositoryName::as_str);
                Err(Failure::new(ErrorCode::Denied, format!("the user may not {what} {place}")))
            }
        }
    }

    fn challenge(&self) -> Failure {
        Failure::challenge(self.0.settings.realm)
    }

    /// Runs a function that blocks. It runs to its end even if the caller is dropped.
    async fn blocking<Output, Work>(&self, work: Work) -> Result<Output, Failure>
    where
        Output: Send + 'static,
        Work: FnOnce(&Contents) -> Result<Output, Failure> + Send + 'static,
    {
        let contents = Arc::clone(&self.0.contents);
        let done = tokio::task::spawn_blocking(move || work(&contents)).await;
        done.unwrap_or_else(|lost| {
            tracing::error!(error = %lost, "a request to the registry failed");
            Err(Failure::new(ErrorCode::Unknown, "the registry failed; see its log"))
        })
    }
}

fn unavailable(error: &AccessUnavailable) -> Failure {
    Failure::new(ErrorCode::Unavailable, error.to_string())
}

fn allow(method: &str, allowed: &[&str]) -> Result<(), Failure> {
    if allowed.contains(&method) {
        return Ok(());
    }
    let allowed = allowed.join(", ");
    let message = format!("the method {method} is not allowed here; allowed are {allowed}");
    Err(Failure::new(ErrorCode::MethodNotAllowed, message).with(http::header::ALLOW, allowed))
}

/// What a manifest is called in messages.
fn shown(name: &ManifestName) -> String {
    match name {
        ManifestName::Tag(tag) => format!("tag {tag}"),
        ManifestName::Digest(digest) => format!("digest {digest}"),
    }
}
