//! Deletes expired namespaces of test runs.

use jiff::civil::Date;

use super::cluster_client::{ClusterClient, RequestError};
use super::report::{ObjectOutcome, ObjectReport};
use super::uninstall::free_pods;
use crate::expiry::{EXPIRES_AT_ANNOTATION, ExpiryVerdict, check_expiry};
use crate::finalizers::PodSelection;
use crate::inventory::ObjectKind;

/// Deletes the namespaces that have expired on this day, and removes the finalizers of the pods in
/// them: their controllers are deleted with the namespace, and would never remove them. A namespace
/// whose expiry date was changed in the meantime stays.
///
/// # Errors
/// The namespaces cannot be listed.
pub async fn sweep(server: &ClusterClient, today: Date) -> Result<Vec<ObjectReport>, RequestError> {
    let kind = ObjectKind::Namespace;
    let mut lines = Vec::new();
    for namespace in server.list(&kind.collection()).await? {
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
        let Some(verdict) = check_expiry(&namespace, today) else { continue };
        let line = match verdict {
            ExpiryVerdict::NotExpired { last } => ObjectReport::new(
                kind,
                name,
                ObjectOutcome::Skipped,
                format!("its last day is {last}"),
            ),
            ExpiryVerdict::InvalidDate { found } => {
                let why = format!(
                    "annotation {EXPIRES_AT_ANNOTATION} is {found:?}: it must be its last day, as \
                     YYYY-MM-DD"
                );
                ObjectReport::new(kind, name, ObjectOutcome::Refused, why)
            }
            ExpiryVerdict::Terminating => {
                free_namespace(server, name, "it is terminating".to_owned()).await
            }
            ExpiryVerdict::Expired { last, resource_version } => {
                let path = kind.path(name)?;
                match server.delete(&path, &resource_version).await {
                    Ok(()) => {
                        free_namespace(server, name, format!("its last day was {last}")).await
                    }
                    Err(RequestError::Conflict(_)) => {
                        let why = "it was changed meanwhile; the next sweep checks it again";
                        ObjectReport::new(kind, name, ObjectOutcome::Skipped, why)
                    }
                    Err(RequestError::NotFound(_)) => ObjectReport::new(
                        kind,
                        name,
                        ObjectOutcome::Deleted,
                        "it was already deleted",
                    ),
                    Err(fault) => ObjectReport::failed(kind, name, &fault),
                }
            }
        };
        lines.push(line);
    }
    Ok(lines)
}

async fn free_namespace(server: &ClusterClient, name: &str, why: String) -> ObjectReport {
    let kind = ObjectKind::Namespace;
    match free_pods(server, name, PodSelection::All).await {
        Ok(freed) if freed.is_empty() => ObjectReport::new(kind, name, ObjectOutcome::Deleted, why),
        Ok(freed) => {
            let why = format!("{why}; pods released from finalizers: {}", freed.len());
            ObjectReport::new(kind, name, ObjectOutcome::Deleted, why)
        }
        Err(fault) => ObjectReport::failed(kind, name, &fault),
    }
}
