//! The OCI distribution protocol from both sides: a client of container registries, and a registry
//! to embed.
//!
//! [`Client`] pulls and pushes manifests and blobs. Content is verified against its digest and
//! size, broken transfers are resumed, every size and time has a limit, and errors are a
//! [`RegistryError`] whose variants say what the caller can do. [`CredentialFile`] reads files of
//! credentials in the formats of Docker.
//!
//! [`Registry::handle`] serves requests of other clients over content in a directory. It knows
//! nothing of sockets; a host mounts it on a listener, and decides with [`Access`] which users may
//! do what.

mod client;
mod credentials;
mod manifest_content;
mod name;
mod path_query;
mod range;
mod server;
mod storage;

pub use client::{
    BlobPush, BlobReader, BlobSource, Challenge, Client, ClientSettings, Fallback, FileSource,
    ManifestHead, Mirror, Operation, PulledManifest, PushOutcome, ReadFuture, RegistryError,
    RegistrySettings, RequestSubject, TlsVerification, parse_challenges, parse_retry_after,
};
pub use credentials::{Credential, CredentialError, CredentialFile, SecretText, candidates};
pub use manifest_content::{ManifestContent, ManifestInvalid};
pub use name::RepositoryName;
pub use range::{ByteRange, RequestedRange, content_range, requested_range};
pub use server::{
    Access, AccessUnavailable, Body, PresentedCredentials, Registry, ServerSettings, Verb,
    presented_credentials,
};
pub use storage::uploads::UploadLimits;
pub use storage::{
    GarbageCollection, GarbageReport, ManifestRecord, Storage, StorageError, StorageLimits,
    StoredBlob, StoredManifest,
};
