//! Discovers whether the server has a kind and whether the queue may use it, and watches the
//! objects of a usable kind.

use gantry_controller::discovery::{self, DISCOVERY_BOUNDS, DiscoveryError};
use gantry_controller::external::{BoxFuture, Responder, ResponderContext};
use gantry_controller::read::{self, ReadError};
use gantry_controller::{Filter, ManagerStopped};
use gantry_process::clock::Clock;
use gantry_reconcile::world::AnyStore as _;
use gantry_reconcile::{ApiPath, Kind, Resource, Scope};
use http::Method;
use kube::Client;
use serde_json::json;

use crate::Progress;
use crate::app_wrapper::TypeName;
use crate::item_objects::APP_WRAPPER_LABEL;
use crate::kind_discovery::ServedKind;
use crate::wrapped::WrappedObject;
use gantry_process::error_chain;

/// What the queue does with the objects that it wraps.
const NEEDED_VERBS: [&str; 4] = ["list", "watch", "create", "delete"];

/// Whether the queue has to ask for its own permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnRights {
    /// It may do everything.
    Unrestricted,
    /// The server is asked what it may do.
    Reviewed,
}

/// Asks an API server about kinds.
#[derive(Clone)]
pub struct KindResponder {
    client: Client,
    rights: OwnRights,
}

impl std::fmt::Debug for KindResponder {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "KindResponder({:?})", self.rights)
    }
}

/// Why nothing was discovered about a kind.
#[derive(Debug, thiserror::Error)]
enum KindError {
    #[error("could not ask the server whether it has the kind")]
    Discovery(#[from] DiscoveryError),
    #[error("could not ask the server what the queue may do with {resource}")]
    Review { resource: String, source: Box<ReadError> },
    #[error("could not watch its objects")]
    Follow(#[from] ManagerStopped),
}

impl Responder<ServedKind> for KindResponder {
    fn answer<'a>(
        &'a self,
        question: &'a TypeName,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<ServedKind, String>> {
        Box::pin(async move {
            let found =
                self.discover(question, context).await.map_err(|error| error_chain(&error))?;
            let TypeName { api_version, kind } = question;
            match &found {
                ServedKind::Usable(_) => {
                    tracing::info!(%api_version, %kind, "AppWrappers may wrap this kind");
                }
                ServedKind::MissingRights { verbs, .. } => {
                    let verbs = verbs.join(", ");
                    tracing::warn!(
                        %api_version, %kind, verbs,
                        "AppWrappers cannot wrap this kind: rights are missing"
                    );
                }
                ServedKind::NotServed => {
                    tracing::info!(%api_version, %kind, "the server does not have this kind");
                }
            }
            Ok(found)
        })
    }
}

impl KindResponder {
    /// Asks as the account that creates the wrapped objects.
    #[must_use]
    pub fn new(client: Client, rights: OwnRights) -> Self {
        Self { client, rights }
    }

    /// Asks the server about a kind; if it is usable, returns when all its wrapped objects were
    /// observed.
    async fn discover(
        &self,
        name: &TypeName,
        context: &ResponderContext,
    ) -> Result<ServedKind, KindError> {
        let ResponderContext { handle, clock } = context;
        let shelves = handle.world().stores_with_view::<WrappedObject>();
        let mut followed = shelves.iter().filter(|it| it.has_synced()).map(|it| it.resource());
        if let Some(resource) = followed.find(|it| TypeName::of(it) == *name) {
            return Ok(ServedKind::Usable(resource));
        }
        let kind = (&*name.api_version, &*name.kind);
        let found = match discovery::find(&self.client, clock, kind, DISCOVERY_BOUNDS).await {
            // Users write it: no server serves an invalid group and version.
            Err(DiscoveryError::InvalidApiVersion(_)) => return Ok(ServedKind::NotServed),
            found => found?,
        };
        let Some(served) = found else { return Ok(ServedKind::NotServed) };
        // Statuses of wrapped objects are never written.
        let resource = served.resource.clone().without_status();
        if resource.scope == Scope::Cluster {
            return Ok(ServedKind::Usable(resource));
        }
        let mut verbs: Vec<String> = Vec::new();
        for verb in NEEDED_VERBS {
            if !served.has_verb(verb) || !self.is_allowed(clock, verb, &resource).await? {
                verbs.push(verb.to_owned());
            }
        }
        if !verbs.is_empty() {
            return Ok(ServedKind::MissingRights { resource, verbs });
        }
        let filter = Filter { labels: APP_WRAPPER_LABEL.to_owned(), ..Filter::default() };
        handle
            .add_watch(
                Progress::NAME,
                &Kind::with_resource::<WrappedObject>(resource.clone()),
                filter,
            )
            .await?;
        Ok(ServedKind::Usable(resource))
    }

    /// Returns whether the queue may do this with all objects of a kind.
    async fn is_allowed(
        &self,
        clock: &Clock,
        verb: &str,
        resource: &Resource,
    ) -> Result<bool, KindError> {
        if self.rights == OwnRights::Unrestricted {
            return Ok(true);
        }
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": verb, "group": resource.group, "version": resource.version,
                "resource": resource.plural,
            } },
        });
        let path = ApiPath::from_static("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let body = ("application/json", Some(&body));
        let answer = read::send(&self.client, clock, Method::POST, &path, body, DISCOVERY_BOUNDS);
        let answer = answer.await.map_err(|source| KindError::Review {
            resource: resource.to_string(),
            source: Box::new(source),
        })?;
        Ok(answer["status"]["allowed"] == true)
    }
}

#[cfg(test)]
mod tests;
