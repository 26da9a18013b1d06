//! Why a call came to nothing, in the words of the Go client.

use std::error::Error;
use std::io;

use gantry_http_client::ClientError;
use rustls::CertificateError;

use crate::dial::ResolveError;

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was sent, or could not be, and no answer came.
    #[error("Post \"{url}\": {why}")]
    NoAnswer {
        /// Whom it was sent to.
        url: String,
        /// What happened.
        why: String,
    },
    /// An answer came that is no success, or not one that can be read.
    #[error("{0}")]
    Answer(String),
    /// Nobody could be believed.
    #[error("{0}")]
    Authority(String),
}

/// The time was up.
pub(crate) const TOO_LATE: &str = "context deadline exceeded";

/// What happened to a request that was not answered.
pub(crate) fn no_answer(error: &ClientError, server_name: &str) -> String {
    match error {
        ClientError::Resolve { host, source } => match source.downcast_ref::<ResolveError>() {
            Some(error) => error.to_string(),
            None => format!("dial tcp: lookup {host}: no such host"),
        },
        ClientError::Refused { address, why } => format!("dial tcp {address}: {why}"),
        ClientError::Connect { address, source } => {
            format!("dial tcp {address}: connect: {}", reason(source))
        }
        ClientError::Handshake { source, .. } => match error.tls() {
            Some(error) => tls(error, server_name),
            None => io_words(source),
        },
        ClientError::Late { .. } => TOO_LATE.to_owned(),
        ClientError::BrokenOff(source) => broken_off(&**source, server_name),
        ClientError::Url { .. } | ClientError::TooLarge { .. } | ClientError::Redirects(_) => {
            error.to_string()
        }
    }
}

/// The reason as Go names it.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

/// How a connection ended: the innermost cause that has a name.
fn broken_off(error: &(dyn Error + 'static), server_name: &str) -> String {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(fault) = error.downcast_ref::<rustls::Error>() {
            return tls(fault, server_name);
        }
        if let Some(fault) = error.downcast_ref::<hyper::Error>()
            && (fault.is_incomplete_message() || fault.is_closed())
        {
            return "EOF".to_owned();
        }
        if let Some(fault) = error.downcast_ref::<io::Error>() {
            // An error inside an io::Error is not its source but its content.
            match fault.get_ref() {
                Some(inner) if fault.kind() != io::ErrorKind::UnexpectedEof => {
                    let inner: &(dyn Error + 'static) = inner;
                    next = Some(inner);
                    continue;
                }
                Some(_) | None => return io_words(fault),
            }
        }
        if error.source().is_none() {
            return error.to_string();
        }
        next = error.source();
    }
    error.to_string()
}

fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "write: broken pipe".to_owned(),
        _ => error.to_string(),
    }
}

fn tls(error: &rustls::Error, server_name: &str) -> String {
    let rustls::Error::InvalidCertificate(why) = error else { return format!("tls: {error}") };
    let is_address = server_name.parse::<std::net::IpAddr>().is_ok();
    let words = match why {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForName if is_address => no_address(server_name),
        CertificateError::NotValidForName => other_name("", server_name),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names = names(presented, is_address);
            match (names.is_empty(), is_address) {
                (true, true) => no_address(server_name),
                (true, false) => no_name(),
                (false, _) => other_name(&names, server_name),
            }
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate specifies an incompatible key usage".to_owned()
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {words}")
}

fn no_address(server_name: &str) -> String {
    format!("cannot validate certificate for {server_name} because it doesn't contain any IP SANs")
}

fn no_name() -> String {
    "certificate is not valid for any names".to_owned()
}

fn other_name(names: &str, server_name: &str) -> String {
    if names.is_empty() {
        format!("certificate is not valid for {server_name}")
    } else {
        format!("certificate is valid for {names}, not {server_name}")
    }
}

/// The names of a certificate that are of the kind that was asked for. They come as
/// `DnsName("a.b")` and `IpAddress(127.0.0.1)`.
fn names(presented: &[String], addresses: bool) -> String {
    let kind = if addresses { "IpAddress(" } else { "DnsName(" };
    let of_kind = presented.iter().filter_map(|it| it.strip_prefix(kind)?.strip_suffix(')'));
    of_kind.map(|it| it.trim_matches('"')).collect::<Vec<_>>().join(", ")
}
