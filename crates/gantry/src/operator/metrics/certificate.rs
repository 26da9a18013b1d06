//! The certificate of the metrics server: from files, or self-signed.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gantry_serve::pki::{Identity, StandaloneCertificate};
use gantry_serve::tls::ServerCertificate;
use jiff::Timestamp;

use crate::config::operator::MetricsServer;

/// The maximum size of a file: many times the longest chain of certificates.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The source of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CertificateSource {
    /// Two files that are renewed externally, such as a mounted Secret of cert-manager.
    Files {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// Created at the start and never stored. Clients that verify certificates need files.
    SelfSigned {
        /// The names in the certificate.
        names: Vec<String>,
    },
}

/// The certificate that is served now.
#[derive(Debug)]
pub(super) struct ServedCertificate {
    pub(super) identity: Identity,
    /// When it must be renewed; never for files, which are simply read again.
    renew_at: Timestamp,
    /// Whether the last renewal failed: each failure is logged once.
    failing: bool,
}

impl CertificateSource {
    /// Returns the files of the settings; without them, a self-signed certificate for the metrics
    /// service.
    pub(super) fn new(settings: &MetricsServer, namespace: Option<&str>) -> Self {
        let MetricsServer { cert_file, key_file, .. } = settings;
        if !cert_file.is_empty() && !key_file.is_empty() {
            return Self::Files { certificate: cert_file.into(), key: key_file.into() };
        }
        let service = crate::manifests::METRICS_SERVICE;
        let names = namespace.map(|it| [format!("{service}.{it}.svc"), format!("{service}.{it}")]);
        Self::SelfSigned { names: names.into_iter().flatten().collect() }
    }

    /// Loads the current certificate.
    ///
    /// # Errors
    /// A file cannot be read, or there is no source of randomness.
    pub(super) fn load(&self, now: Timestamp) -> anyhow::Result<ServedCertificate> {
        let (identity, renew_at) = match self {
            Self::Files { certificate, key } => {
                (Identity { certificate: read(certificate)?, key: read(key)? }, Timestamp::MAX)
            }
            Self::SelfSigned { names } => {
                let StandaloneCertificate { identity, renew_at, .. } =
                    StandaloneCertificate::create(names, now)?;
                (identity, renew_at)
            }
        };
        Ok(ServedCertificate { identity, renew_at, failing: false })
    }

    /// Serves a new certificate if there is one, or if it is time to renew it. If that fails, the
    /// old one stays in use.
    pub(super) fn renew(
        &self,
        shown: ServedCertificate,
        certificate: &ServerCertificate,
        now: Timestamp,
    ) -> ServedCertificate {
        if matches!(self, Self::SelfSigned { .. }) && now < shown.renew_at {
            return shown;
        }
        let renewed = self.load(now).and_then(|fresh| {
            if fresh.identity != shown.identity {
                certificate.replace(&fresh.identity)?;
                tracing::info!(certificate = %self, "metrics are served with a new certificate");
            }
            Ok(fresh)
        });
        renewed.unwrap_or_else(|error| {
            if !shown.failing {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "could not renew the certificate of metrics; the previous one stays in use"
                );
            }
            ServedCertificate { failing: true, ..shown }
        })
    }
}

impl fmt::Display for CertificateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { certificate, key } => write!(
                f,
                "metrics.certFile {} with metrics.keyFile {}",
                certificate.display(),
                key.display()
            ),
            Self::SelfSigned { .. } => f.write_str("a self-signed certificate"),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let read = || {
        let mut text = String::new();
        let file = std::fs::File::open(path)?;
        match file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)? as u64 {
            0..=MAX_FILE_BYTES => Ok(text),
            _ => Err(io::Error::other("it is larger than a megabyte")),
        }
    };
    read().with_context(|| format!("could not read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn self_signed_certificates_are_renewed_in_time() {
        let source =
            CertificateSource::SelfSigned { names: vec!["manager-metrics.a.svc".to_owned()] };
        let shown = source.load(at("2026-01-01T00:00:00Z")).unwrap();
        let (before, certificate) =
            (shown.identity.clone(), ServerCertificate::new(&shown.identity).unwrap());
        let shown = source.renew(shown, &certificate, at("2026-06-01T00:00:00Z"));
        assert_eq!(shown.identity, before, "it is good for long yet");
        let shown = source.renew(shown, &certificate, at("2026-11-01T00:00:00Z"));
        assert_ne!(shown.identity, before);
        assert!(!shown.failing);
    }

    #[test]
    fn certificate_files_are_reloaded_unless_broken() {
        let folder = tempfile::tempdir().unwrap();
        let now = at("2026-01-01T00:00:00Z");
        let source = CertificateSource::Files {
            certificate: folder.path().join("tls.crt"),
            key: folder.path().join("tls.key"),
        };
        assert!(format!("{:#}", source.load(now).unwrap_err()).contains("tls.crt"));
        let write = |identity: &Identity| {
            std::fs::write(folder.path().join("tls.crt"), &identity.certificate).unwrap();
            std::fs::write(folder.path().join("tls.key"), &identity.key).unwrap();
        };
        let [one, two] =
            [(); 2].map(|()| StandaloneCertificate::create(&[], now).unwrap().identity);
        write(&one);
        let shown = source.load(now).unwrap();
        let certificate = ServerCertificate::new(&shown.identity).unwrap();
        // The key of another certificate, as between two writes.
        write(&Identity { certificate: two.certificate.clone(), key: one.key.clone() });
        let shown = source.renew(shown, &certificate, now);
        assert_eq!((&shown.identity, shown.failing), (&one, true));
        write(&two);
        let shown = source.renew(shown, &certificate, now);
        assert_eq!((&shown.identity, shown.failing), (&two, false));
    }
}
