//! Reads ResourceClaims of requesters, each when it is needed: clusters need not have such objects,
//! and controllers that never meet one need no right to read them.

use std::time::Duration;

use gantry_controller::external::{BoxFuture, Responder, ResponderContext};
use gantry_controller::read::{self, ReadBounds};
use gantry_process::error_chain;
use gantry_reconcile::Resource;
use kube::Client;

use crate::facts::{ClaimAllocation, ClaimQuestion};
use crate::view::read_resource_claim;

/// The limits of one request.
const BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(5), bytes: 4 << 20 };

const RESOURCE_CLAIMS: Resource =
    Resource::namespaced("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");

/// Reads ResourceClaims with the controllers' account.
#[derive(Clone)]
pub struct ClaimReader {
    client: Client,
}

impl std::fmt::Debug for ClaimReader {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("ClaimReader").finish_non_exhaustive()
    }
}

impl ClaimReader {
    /// Reads with this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl Responder<ClaimAllocation> for ClaimReader {
    fn answer<'a>(
        &'a self,
        question: &'a ClaimQuestion,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<ClaimAllocation, String>> {
        Box::pin(async move {
            let ClaimQuestion { claim, uid, request, .. } = question;
            let path = RESOURCE_CLAIMS.path(claim).map_err(|error| error_chain(&error))?;
            let object = read::get(&self.client, &context.clock, &path, BOUNDS).await;
            let object = object.map_err(|error| match error.is_forbidden() {
                true => format!(
                    "{}; grant the controllers' account get on resourceclaims.resource.k8s.io",
                    error_chain(&error)
                ),
                false => error_chain(&error),
            })?;
            Ok(ClaimAllocation { devices: read_resource_claim(&object, uid, request)? })
        })
    }
}
