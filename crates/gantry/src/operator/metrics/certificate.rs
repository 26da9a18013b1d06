//! The certificate of the metrics server: from files, or one of our own.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gantry_serve::pki::{Identity, Sealed};
use gantry_serve::tls::ServerCertificate;
use jiff::Timestamp;

use crate::config::operator::MetricsServer;

/// The largest file that is read: many times the longest chain of certificates.
const LARGEST: u64 = 1 << 20;

/// Where the certificate is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Two files of somebody who renews them, such as a Secret of cert-manager that is mounted.
    Files {
        /// The certificate.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// Made at the start and never kept. Clients that want to verify it need files.
    SelfSigned {
        /// What it is for.
        names: Vec<String>,
    },
}

/// What is shown now.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) identity: Identity,
    /// When another must be made; never for files, which are simply read again.
    renew_at: Timestamp,
    /// Whether the last try to renew it failed: one line in the log for each time that it breaks.
    failing: bool,
}

impl Source {
    /// The files of the settings; without, our own for the service of the metrics.
    pub(super) fn new(settings: &MetricsServer, namespace: Option<&str>) -> Self {
        let MetricsServer { cert_file, key_file, .. } = settings;
        if !cert_file.is_empty() && !key_file.is_empty() {
            return Self::Files { certificate: cert_file.into(), key: key_file.into() };
        }
        let service = crate::manifests::METRICS_SERVICE;
        let names = namespace.map(|it| [format!("{service}.{it}.svc"), format!("{service}.{it}")]);
        Self::SelfSigned { names: names.into_iter().flatten().collect() }
    }

    /// The certificate as it is now.
    ///
    /// # Errors
    /// A file cannot be read, or the machine gave no randomness.
    pub(super) fn load(&self, now: Timestamp) -> anyhow::Result<Shown> {
        let (identity, renew_at) = match self {
            Self::Files { certificate, key } => {
                (Identity { certificate: read(certificate)?, key: read(key)? }, Timestamp::MAX)
            }
            Self::SelfSigned { names } => {
                let Sealed { identity, renew_at, .. } = Sealed::create(names, now)?;
                (identity, renew_at)
            }
        };
        Ok(Shown { identity, renew_at, failing: false })
    }

    /// Shows another certificate if there is one, or if it is time for one. What cannot be used leaves
    /// the old one in place.
    pub(super) fn renew(
        &self,
        shown: Shown,
        certificate: &ServerCertificate,
        now: Timestamp,
    ) -> Shown {
        if matches!(self, Self::SelfSigned { .. }) && now < shown.renew_at {
            return shown;
        }
        let renewed = self.load(now).and_then(|fresh| {
            if fresh.identity != shown.identity {
                certificate.replace(&fresh.identity)?;
                tracing::info!(certificate = %self, "metrics are served with another certificate");
            }
            Ok(fresh)
        });
        renewed.unwrap_or_else(|error| {
            if !shown.failing {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "could not renew the certificate of metrics; the one before stays in use"
                );
            }
            Shown { failing: true, ..shown }
        })
    }
}

impl fmt::Display for Source {
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
        match file.take(LARGEST + 1).read_to_string(&mut text)? as u64 {
            0..=LARGEST => Ok(text),
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
    fn our_own_is_renewed_before_it_ends() {
        let source = Source::SelfSigned { names: vec!["manager-metrics.a.svc".to_owned()] };
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
    fn files_are_followed_and_broken_ones_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let now = at("2026-01-01T00:00:00Z");
        let source = Source::Files {
            certificate: folder.path().join("tls.crt"),
            key: folder.path().join("tls.key"),
        };
        assert!(format!("{:#}", source.load(now).unwrap_err()).contains("tls.crt"));
        let write = |identity: &Identity| {
            std::fs::write(folder.path().join("tls.crt"), &identity.certificate).unwrap();
            std::fs::write(folder.path().join("tls.key"), &identity.key).unwrap();
        };
        let [one, two] = [(); 2].map(|()| Sealed::create(&[], now).unwrap().identity);
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
