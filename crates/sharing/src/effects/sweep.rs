//! Takes away namespaces of test runs whose last day is over.

use jiff::civil::Date;

use super::report::{ObjectReport, Outcome};
use super::server::{RequestError, Server};
use super::uninstall::free_pods;
use crate::expiry::{EXPIRES, Verdict, judge};
use crate::finalizers::Which;
use crate::inventory::ObjectKind;

/// Deletes what is due on this day, and frees the pods in it: their controllers go with the namespace,
/// and nobody would be left to let them go. What somebody gave another day meanwhile stays.
///
/// # Errors
/// The namespaces cannot be listed.
pub async fn sweep(server: &Server, today: Date) -> Result<Vec<ObjectReport>, RequestError> {
    let kind = ObjectKind::Namespace;
    let mut lines = Vec::new();
    for namespace in server.list(&kind.collection()).await? {
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
        let Some(verdict) = judge(&namespace, today) else { continue };
        let line = match verdict {
            Verdict::Waits { last } => {
                ObjectReport::new(kind, name, Outcome::Skipped, format!("its last day is {last}"))
            }
            Verdict::Unknown { found } => {
                let why = format!(
                    "annotation {EXPIRES} is {found:?}: it must be its last day, as YYYY-MM-DD"
                );
                ObjectReport::new(kind, name, Outcome::Refused, why)
            }
            Verdict::Going => freed(server, name, "it is going".to_owned()).await,
            Verdict::Due { last, resource_version } => {
                let path = kind.path(name)?;
                match server.delete(&path, &resource_version).await {
                    Ok(()) => freed(server, name, format!("its last day was {last}")).await,
                    Err(RequestError::Conflict(_)) => {
                        let why = "somebody changed it meanwhile; the next sweep looks again";
                        ObjectReport::new(kind, name, Outcome::Skipped, why)
                    }
                    Err(RequestError::NotFound(_)) => {
                        ObjectReport::new(kind, name, Outcome::Deleted, "somebody else deleted it")
                    }
                    Err(fault) => ObjectReport::failed(kind, name, &fault),
                }
            }
        };
        lines.push(line);
    }
    Ok(lines)
}

async fn freed(server: &Server, name: &str, why: String) -> ObjectReport {
    let kind = ObjectKind::Namespace;
    match free_pods(server, name, Which::All).await {
        Ok(freed) if freed.is_empty() => ObjectReport::new(kind, name, Outcome::Deleted, why),
        Ok(freed) => {
            let why = format!("{why}; pods freed: {}", freed.len());
            ObjectReport::new(kind, name, Outcome::Deleted, why)
        }
        Err(fault) => ObjectReport::failed(kind, name, &fault),
    }
}
