//! Errors of webhook calls, in the words of the Go client.

use std::error::Error;
use std::io;

use gantry_http_client::ClientError;
use rustls::CertificateError;

use crate::resolve::ResolveError;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The request could not be sent, or no response arrived.
    #[error("Post \"{url}\": {why}")]
    NoResponse {
        /// The URL.
        url: String,
        /// What happened.
        why: String,
    },
    /// The response has no success status, or cannot be read.
    #[error("{0}")]
    BadResponse(String),
    /// No certificate could be trusted.
    #[error("{0}")]
    BadCaBundle(String),
}

/// The time limit was exceeded.
pub(crate) const DEADLINE_EXCEEDED: &str = "context deadline exceeded";

/// Why a request has no response.
pub(crate) fn failure_message(error: &ClientError, server_name: &str) -> String {
    match error {
        ClientError::Resolve { host, source } => match source.downcast_ref::<ResolveError>() {
            Some(error) => error.to_string(),
            None => format!("dial tcp: lookup {host}: no such host"),
        },
        ClientError::AddressRefused { address, why } => format!("dial tcp {address}: {why}"),
        ClientError::Connect { address, source } => {
            format!("dial tcp {address}: connect: {}", dial_error_message(source))
        }
        ClientError::Handshake { source, .. } => match error.tls() {
            Some(error) => tls_error_message(error, server_name),
            None => io_error_message(source),
        },
        ClientError::Timeout { .. } => DEADLINE_EXCEEDED.to_owned(),
        ClientError::ConnectionLost(source) => connection_error_message(&**source, server_name),
        ClientError::InvalidUrl { .. }
        | ClientError::TooLarge { .. }
        | ClientError::TooManyRedirects(_) => error.to_string(),
    }
}

/// Formats the reason as Go does.
fn dial_error_message(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns how a connection ended: the innermost cause that has a name.
fn connection_error_message(error: &(dyn Error + 'static), server_name: &str) -> String {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(fault) = error.downcast_ref::<rustls::Error>() {
            return tls_error_message(fault, server_name);
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
                Some(_) | None => return io_error_message(fault),
            }
        }
        if error.source().is_none() {
            return error.to_string();
        }
        next = error.source();
    }
    error.to_string()
}

fn io_error_message(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "write: broken pipe".to_owned(),
        _ => error.to_string(),
    }
}

fn tls_error_message(error: &rustls::Error, server_name: &str) -> String {
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
        CertificateError::NotValidForName if is_address => no_ip_sans_message(server_name),
        CertificateError::NotValidForName => name_mismatch_message("", server_name),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names = listed_names(presented, is_address);
            match (names.is_empty(), is_address) {
                (true, true) => no_ip_sans_message(server_name),
                (true, false) => no_names_message(),
                (false, _) => name_mismatch_message(&names, server_name),
            }
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate specifies an incompatible key usage".to_owned()
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {words}")
}

fn no_ip_sans_message(server_name: &str) -> String {
    format!("cannot validate certificate for {server_name} because it doesn't contain any IP SANs")
}

fn no_names_message() -> String {
    "certificate is not valid for any names".to_owned()
}

fn name_mismatch_message(names: &str, server_name: &str) -> String {
    if names.is_empty() {
        format!("certificate is not valid for {server_name}")
    } else {
        format!("certificate is valid for {names}, not {server_name}")
    }
}

/// Returns the names of a certificate of the requested kind. They come as `DnsName("a.b")` and
/// `IpAddress(127.0.0.1)`.
fn listed_names(presented: &[String], addresses: bool) -> String {
    let kind = if addresses { "IpAddress(" } else { "DnsName(" };
    let of_kind = presented.iter().filter_map(|it| it.strip_prefix(kind)?.strip_suffix(')'));
    of_kind.map(|it| it.trim_matches('"')).collect::<Vec<_>>().join(", ")
}
