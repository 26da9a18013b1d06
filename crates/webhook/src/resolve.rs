//! Finds the address of a webhook: services by a resolver of the cluster, hosts by that of the
//! machine.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use gantry_http_client::{ResolveFuture, SystemResolver};

use crate::client_config::WebhookTarget;

/// Finds the services of a cluster.
pub trait ResolveService: Send + Sync + fmt::Debug {
    /// Returns the address to connect to for a port of a service.
    ///
    /// # Errors
    /// There is no such service or port, or it has no endpoint.
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<SocketAddr, ResolveError>;
}

/// Why a service has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No such service.
    #[error("service \"{0}\" not found")]
    NotFound(String),
    /// It has no such port.
    #[error("no service port {port} found for service \"{name}\"")]
    NoPort {
        /// The service.
        name: String,
        /// The requested port.
        port: u16,
    },
    /// It has no endpoint.
    #[error("no endpoints available for service \"{0}\"")]
    NoEndpoints(String),
    /// It is a service that cannot be connected to from here.
    #[error("unsupported service type \"{0}\"")]
    Unsupported(String),
}

/// Resolves every URI to the addresses of one target: the name in the URI may exist in the cluster
/// only.
#[derive(Clone, Debug)]
pub(crate) struct TargetResolver {
    pub(crate) target: WebhookTarget,
    pub(crate) services: Arc<dyn ResolveService>,
}

impl gantry_http_client::Resolve for TargetResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a> {
        match &self.target {
            WebhookTarget::Service { namespace, name, port } => {
                let found = self.services.resolve(namespace, name, *port);
                Box::pin(async move { Ok(vec![found?]) })
            }
            WebhookTarget::Host { .. } => SystemResolver.resolve(host, port),
        }
    }
}
