//! Responses: errors in the form of the specification, and bodies.

use std::io;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;

use crate::manifest_content::ManifestInvalid;
use crate::storage::StorageError;
use crate::storage::uploads::UploadError;

/// The body of a response. An error while it is sent ends the connection, so that a client does not
/// mistake a part for the whole.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The digest of the content of a response or a request.
pub(crate) const DOCKER_CONTENT_DIGEST: HeaderName =
    HeaderName::from_static("docker-content-digest");
/// The identity of an upload.
pub(super) const DOCKER_UPLOAD_UUID: HeaderName = HeaderName::from_static("docker-upload-uuid");
/// The version of the protocol, which old clients look for.
const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");

/// Codes of errors, as the specification has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    BlobUnknown,
    BlobUploadInvalid,
    BlobUploadUnknown,
    Denied,
    DigestInvalid,
    DiskFull,
    ManifestBlobUnknown,
    ManifestInvalid,
    ManifestUnknown,
    MethodNotAllowed,
    NameInvalid,
    NameUnknown,
    NotFound,
    RangeInvalid,
    SizeInvalid,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unknown,
}

impl ErrorCode {
    /// The code in the body.
    fn text(self) -> &'static str {
        match self {
            Self::BlobUnknown => "BLOB_UNKNOWN",
            Self::BlobUploadInvalid | Self::RangeInvalid => "BLOB_UPLOAD_INVALID",
            Self::BlobUploadUnknown => "BLOB_UPLOAD_UNKNOWN",
            Self::Denied => "DENIED",
            Self::DigestInvalid => "DIGEST_INVALID",
            Self::ManifestBlobUnknown => "MANIFEST_BLOB_UNKNOWN",
            Self::ManifestInvalid => "MANIFEST_INVALID",
            Self::ManifestUnknown => "MANIFEST_UNKNOWN",
            Self::NameInvalid => "NAME_INVALID",
            Self::NameUnknown => "NAME_UNKNOWN",
            Self::SizeInvalid | Self::TooLarge => "SIZE_INVALID",
            Self::TooManyRequests => "TOOMANYREQUESTS",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::MethodNotAllowed | Self::NotFound => "UNSUPPORTED",
            Self::DiskFull | Self::Unavailable | Self::Unknown => "UNKNOWN",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::BlobUploadInvalid
            | Self::DigestInvalid
            | Self::ManifestBlobUnknown
            | Self::ManifestInvalid
            | Self::NameInvalid
            | Self::SizeInvalid => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::BlobUnknown
            | Self::BlobUploadUnknown
            | Self::ManifestUnknown
            | Self::NameUnknown
            | Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RangeInvalid => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            // Clients that show nothing but the status still show the cause.
            Self::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: ErrorCode,
    message: String,
    headers: Vec<(HeaderName, String)>,
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), headers: Vec::new() }
    }

    pub(super) fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Asks for credentials. Basic is what every client implements; a client that has a token sends
    /// it as the password, or as Bearer without being asked.
    pub(super) fn challenge(realm: &str) -> Self {
        let message = "authentication is required; log in with any user name and a token as \
                       password";
        let value = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
        Self::new(ErrorCode::Unauthorized, message).with(WWW_AUTHENTICATE, value)
    }

    pub(super) fn response(&self) -> Response<Body> {
        let error = json!({"code": self.code.text(), "message": self.message});
        let body = json!({"errors": [error]}).to_string();
        let mut response = document(self.code.status(), "application/json", body);
        for (name, value) in &self.headers {
            set(&mut response, name.clone(), value);
        }
        response
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        let message = error.to_string();
        match error {
            StorageError::Full { source, .. } => {
                tracing::error!(error = %source, message, "the disk of the registry is full");
                Self::new(ErrorCode::DiskFull, message)
            }
            StorageError::Disk { .. } | StorageError::Locked | StorageError::Format { .. } => {
                let error = gantry_process::error_chain(&error);
                tracing::error!(error, "the storage of the registry failed");
                Self::new(ErrorCode::Unknown, message)
            }
            StorageError::MissingReference { .. } => {
                Self::new(ErrorCode::ManifestBlobUnknown, message)
            }
            StorageError::Limit { .. } => Self::new(ErrorCode::Denied, message),
        }
    }
}

impl From<UploadError> for Failure {
    fn from(error: UploadError) -> Self {
        let message = error.to_string();
        let code = match error {
            UploadError::Storage(error) => return error.into(),
            UploadError::Unknown => ErrorCode::BlobUploadUnknown,
            UploadError::TooMany { .. } => ErrorCode::TooManyRequests,
            UploadError::WrongOffset { .. } => ErrorCode::RangeInvalid,
            UploadError::TooLarge { .. } => ErrorCode::TooLarge,
            UploadError::DigestMismatch { .. } => ErrorCode::DigestInvalid,
        };
        Self::new(code, message)
    }
}

impl From<ManifestInvalid> for Failure {
    fn from(error: ManifestInvalid) -> Self {
        Self::new(ErrorCode::ManifestInvalid, error.to_string())
    }
}

/// Makes a response with a whole body.
pub(super) fn document(
    status: StatusCode,
    content_type: &str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let body: Bytes = body.into();
    let length = body.len();
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    set(&mut response, CONTENT_TYPE, content_type);
    set(&mut response, CONTENT_LENGTH, &length.to_string());
    response
}

/// Makes a response without a body.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Sets a header whose value was made from checked parts. One that cannot be sent is left out.
pub(super) fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Adds what all responses have.
pub(super) fn complete(mut response: Response<Body>, head: bool) -> Response<Body> {
    set(&mut response, API_VERSION, "registry/2.0");
    set(&mut response, HeaderName::from_static("x-content-type-options"), "nosniff");
    // The length of a body that is left out is still stated.
    if head { response.map(|_| full(Bytes::new())) } else { response }
}
