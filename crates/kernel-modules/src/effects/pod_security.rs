//! Discovers how the cluster decides which pods may run.

use std::time::Duration;

use gantry_controller::discovery::{self, DISCOVERY_BOUNDS, DiscoveryError};
use gantry_process::clock::Clock;
use kube::Client;

use crate::settings::PodSecurity;

/// The API of security context constraints, and their kind.
const CONSTRAINTS: (&str, &str) = ("security.openshift.io/v1", "SecurityContextConstraints");
/// The delay after a failed attempt.
const DISCOVERY_RETRY_DELAY: Duration = Duration::from_secs(2);
/// How often a server is asked that does not answer.
const MAX_DISCOVERY_ATTEMPTS: u32 = 30;

/// Asks a server for security context constraints. Discovery is open to every user, so that no
/// permission is needed. A server that does not answer is asked again.
///
/// # Errors
/// It never answered, or it refused.
pub async fn discover_pod_security(
    client: &Client,
    clock: &Clock,
) -> Result<PodSecurity, DiscoveryError> {
    for attempt in 1.. {
        match discovery::find(client, clock, CONSTRAINTS, DISCOVERY_BOUNDS).await {
            Ok(Some(_)) => return Ok(PodSecurity::SecurityContextConstraints),
            Ok(None) => break,
            Err(error) if attempt >= MAX_DISCOVERY_ATTEMPTS || is_final(&error) => {
                return Err(error);
            }
            Err(error) => {
                let (api, _) = CONSTRAINTS;
                tracing::warn!(%error, api, "could not discover an API; asks again");
                clock.sleep(DISCOVERY_RETRY_DELAY).await;
            }
        }
    }
    Ok(PodSecurity::Admission)
}

/// Whether asking again cannot help.
fn is_final(error: &DiscoveryError) -> bool {
    match error {
        DiscoveryError::Refused { code, .. } => code.is_client_error(),
        DiscoveryError::NoResponse(_) | DiscoveryError::Malformed(_) => false,
        DiscoveryError::InvalidApiVersion(_) => true,
    }
}

#[cfg(test)]
mod tests;
