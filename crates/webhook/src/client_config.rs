//! The address of a webhook, as objects specify it: `clientConfig`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Uri;
use serde_json::Value;

/// The address of a webhook, and which certificates are trusted there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WebhookClientConfig {
    /// The host or service.
    pub target: WebhookTarget,
    /// The path, which begins with a slash.
    pub path: String,
    /// Trusted certificates in PEM; empty means the roots of the machine.
    pub ca_bundle: Bytes,
}

/// The host or service of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WebhookTarget {
    /// A host.
    Host {
        /// Its name or address, as it stands in the URL.
        host: String,
        /// The port, if the URL has one.
        port: Option<u16>,
    },
    /// A service of the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
}

/// The port of a service that names none. That of a URL follows from its scheme.
const DEFAULT_PORT: u16 = 443;

impl WebhookClientConfig {
    /// Reads a `clientConfig`.
    ///
    /// # Errors
    /// It names no target, or none that can be called.
    pub fn read(config: &Value) -> Result<Self, ClientConfigError> {
        let authority = match config["caBundle"].as_str() {
            None => Bytes::new(),
            Some(text) => {
                let pem = STANDARD.decode(text).map_err(|_| ClientConfigError::CaBundle)?;
                // Blank means unset.
                let blank = pem.iter().all(u8::is_ascii_whitespace);
                if blank { Bytes::new() } else { Bytes::from(pem) }
            }
        };
        if let Some(service) = config["service"].as_object() {
            let text = |name: &str| service.get(name).and_then(Value::as_str).unwrap_or_default();
            let port = service.get("port").and_then(Value::as_u64);
            let place = WebhookTarget::Service {
                namespace: text("namespace").to_owned(),
                name: text("name").to_owned(),
                port: port.and_then(|it| u16::try_from(it).ok()).unwrap_or(DEFAULT_PORT),
            };
            let path = Some(text("path")).filter(|it| !it.is_empty()).unwrap_or("/");
            return Ok(Self { target: place, path: path.to_owned(), ca_bundle: authority });
        }
        let url = config["url"]
            .as_str()
            .filter(|url| !url.is_empty())
            .ok_or(ClientConfigError::NoTarget)?;
        let uri: Uri = url.parse().map_err(|_| ClientConfigError::Url(url.to_owned()))?;
        let host = uri.host().filter(|host| !host.is_empty());
        let (Some("https"), Some(host)) = (uri.scheme_str(), host) else {
            return Err(ClientConfigError::Url(url.to_owned()));
        };
        let place = WebhookTarget::Host { host: host.to_owned(), port: uri.port_u16() };
        Ok(Self { target: place, path: uri.path().to_owned(), ca_bundle: authority })
    }

    /// Returns scheme, host, port and path, as messages show them.
    pub(crate) fn url(&self) -> String {
        let path = &self.path;
        match &self.target {
            WebhookTarget::Host { host, port: None } => format!("https://{host}{path}"),
            WebhookTarget::Host { host, port: Some(port) } => {
                format!("https://{host}:{port}{path}")
            }
            WebhookTarget::Service { namespace, name, port } => {
                format!("https://{name}.{namespace}.svc:{port}{path}")
            }
        }
    }

    /// Returns the name the certificate must have; addresses without brackets.
    pub(crate) fn server_name(&self) -> String {
        match &self.target {
            WebhookTarget::Host { host, .. } => host.trim_matches(['[', ']']).to_owned(),
            WebhookTarget::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }
}

/// Why a `clientConfig` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientConfigError {
    /// It names no target.
    #[error("webhook configuration must have either service or URL")]
    NoTarget,
    /// The URL is not one that can be called.
    #[error("Unparsable URL: {0}")]
    Url(String),
    /// The certificates are not base64.
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    CaBundle,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn client_configs_have_a_url_and_a_server_name() {
        let table = [
            // why, configuration, url in messages, name in the certificate, port
            ("a URL", json!({"url": "https://a.b:8443/x"}), "https://a.b:8443/x", "a.b", 8443),
            ("no port", json!({"url": "https://a.b/x"}), "https://a.b/x", "a.b", 443),
            ("no path", json!({"url": "https://a.b"}), "https://a.b/", "a.b", 443),
            ("an address", json!({"url": "https://[::1]:1/"}), "https://[::1]:1/", "::1", 1),
            (
                "a service",
                json!({"service": {"namespace": "n", "name": "s", "path": "/p", "port": 8443}}),
                "https://s.n.svc:8443/p",
                "s.n.svc",
                8443,
            ),
            (
                "a service at its usual port",
                json!({"service": {"namespace": "n", "name": "s"}}),
                "https://s.n.svc:443/",
                "s.n.svc",
                443,
            ),
        ];
        for (why, config, url, name, port) in table {
            let hook = WebhookClientConfig::read(&config).unwrap();
            assert_eq!(hook.url(), url, "{why}");
            assert_eq!(hook.server_name(), name, "{why}");
            let called: Uri = hook.url().parse().unwrap();
            assert_eq!(called.port_u16().unwrap_or(443), port, "{why}");
        }
    }

    #[test]
    fn invalid_client_configs_are_refused() {
        let table = [
            (json!({}), ClientConfigError::NoTarget),
            (json!({"url": ""}), ClientConfigError::NoTarget),
            (json!({"url": "http://a.b/"}), ClientConfigError::Url("http://a.b/".to_owned())),
            (json!({"url": "/x"}), ClientConfigError::Url("/x".to_owned())),
            (json!({"url": "https://a", "caBundle": "?"}), ClientConfigError::CaBundle),
        ];
        for (config, expected) in table {
            assert_eq!(WebhookClientConfig::read(&config), Err(expected), "{config}");
        }
        let blank = json!({"url": "https://a", "caBundle": "IAo="});
        assert_eq!(WebhookClientConfig::read(&blank).unwrap().ca_bundle, Bytes::new());
    }
}
