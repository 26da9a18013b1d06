//! Finding an endpoint: services of the cluster by their own resolver, hosts by that of the machine.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use gantry_http_client::{Resolved, SystemResolver};

use crate::hook::Place;

/// Finds the services of a cluster.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// Where to connect for a port of a service.
    ///
    /// # Errors
    /// There is no such service or port, or nobody serves it.
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<SocketAddr, ResolveError>;
}

/// Why a service is nowhere.
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
        /// The port that was asked for.
        port: u16,
    },
    /// Nobody serves it.
    #[error("no endpoints available for service \"{0}\"")]
    NoEndpoints(String),
    /// It is a service that nobody can connect to from here.
    #[error("unsupported service type \"{0}\"")]
    Unsupported(String),
}

/// Finds the addresses of one place, whatever the URI says: the name in it may exist in the cluster
/// only.
#[derive(Clone, Debug)]
pub(crate) struct PlaceResolver {
    pub(crate) place: Place,
    pub(crate) services: Arc<dyn Resolve>,
}

impl gantry_http_client::Resolve for PlaceResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolved<'a> {
        match &self.place {
            Place::Service { namespace, name, port } => {
                let found = self.services.resolve(namespace, name, *port);
                Box::pin(async move { Ok(vec![found?]) })
            }
            Place::Host { .. } => SystemResolver.resolve(host, port),
        }
    }
}
