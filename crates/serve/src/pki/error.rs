//! Why certificates cannot be loaded, created or signed.

use super::*;

/// Why certificates cannot be used or created.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// An error of the directory or a file in it.
    #[error(transparent)]
    File(#[from] FileError),
    /// The authority exists and cannot be used.
    #[error(
        "cannot use the certificate authority in {}: {why}; restore the file, or delete it to make \
         a new one, after which every kubeconfig made before stops working", path.display()
    )]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The key for tokens exists and cannot be used.
    #[error(
        "cannot use the service-account key in {}: it is not a P-256 key in PEM; restore the file, \
         or delete it to make a new one, after which every token made before stops working",
        path.display()
    )]
    SigningKey {
        /// The file.
        path: PathBuf,
    },
    /// No server has created keys in this directory.
    #[error(
        "cannot find a certificate authority in {}: start the server with this data directory \
         once, or name the directory it uses with --data-dir", path.display()
    )]
    NoAuthority {
        /// The directory.
        path: PathBuf,
    },
    /// The list of users exists and cannot be read.
    #[error(
        "cannot read the list of users in {}: restore the file, or delete it; certificates \
         stay valid whether they are listed or not", path.display()
    )]
    UserList {
        /// The file.
        path: PathBuf,
    },
    /// The authority is not valid yet.
    #[error(
        "cannot use the certificate authority in {}: it is not valid before {not_before} and the \
         clock says {now}; set the clock", path.display()
    )]
    NotYetValid {
        /// The file.
        path: PathBuf,
        /// The current time.
        now: Timestamp,
        /// The start of its validity.
        not_before: Timestamp,
    },
    /// The name is neither a DNS name nor an address.
    #[error("cannot put {name:?} in a certificate: write a DNS name or an IP address")]
    Name {
        /// The name.
        name: String,
    },
    /// A request asks for a key usage that is not signed here.
    #[error("cannot sign a certificate for the usage {usage:?}")]
    Usage {
        /// The usage.
        usage: String,
    },
    /// The name of a user is empty.
    #[error("cannot issue a client certificate without a common name")]
    NoName,
    /// A newly created certificate is not as wanted.
    #[error("cannot use the new certificate for {what}: {why}")]
    InvalidCertificate {
        /// Which certificate.
        what: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The system has no random numbers, or a date cannot be encoded.
    #[error("could not make a certificate")]
    Generate(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<rcgen::Error> for PkiError {
    fn from(error: rcgen::Error) -> Self {
        Self::Generate(Box::new(error))
    }
}

impl From<der::Error> for PkiError {
    fn from(error: der::Error) -> Self {
        Self::Generate(Box::new(error))
    }
}

impl From<TlsError> for PkiError {
    fn from(error: TlsError) -> Self {
        Self::Generate(Box::new(error))
    }
}
