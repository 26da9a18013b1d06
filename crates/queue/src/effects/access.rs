//! Asks the API server what the authors of AppWrappers may create, and whether it has them
//! recorded.

use std::time::Duration;

use gantry_controller::discovery::{self, DISCOVERY_BOUNDS, DiscoveryError};
use gantry_controller::external::{BoxFuture, Responder, ResponderContext};
use gantry_controller::read::{self, ReadBounds};
use gantry_reconcile::{ApiPath, Resource};
use http::Method;
use jiff::Timestamp;
use kube::Client;

use crate::access::{
    AccessQuestion, AccessReview, AuthorRecording, RequiredPermission, ResourceAttributes,
};
use crate::app_wrapper::TypeName;
use crate::author::{Author, CONFIGURATION};
use crate::kind_discovery::{self, ServedKind};
use gantry_process::error_chain;

/// The limits of one review.
const REVIEW_BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(10), bytes: 1 << 20 };

/// Asks an API server about the permissions of authors.
#[derive(Clone)]
pub struct AccessResponder {
    client: Client,
}

impl std::fmt::Debug for AccessResponder {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("AccessResponder")
    }
}

impl AccessResponder {
    /// Asks through this client, which must be allowed to create SubjectAccessReviews.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    async fn review(
        &self,
        question: &AccessQuestion,
        context: &ResponderContext,
    ) -> Result<AccessReview, String> {
        let AccessQuestion { author, namespace, permission: need } = question;
        let Some(author) = Author::read(author) else {
            return Err("the recorded author cannot be read".to_owned());
        };
        let asked = match need {
            RequiredPermission::Privilege(privilege) => ResourceAttributes::of(privilege),
            RequiredPermission::Create(name) => match self.resource(name, context).await {
                Ok(Some(resource)) => ResourceAttributes::create(&resource),
                Ok(None) => return Ok(AccessReview::NoSuchKind),
                Err(error) => return Err(error_chain(&error)),
            },
        };
        let body = author.access_review(namespace, &asked);
        let path = ApiPath::from_static("/apis/authorization.k8s.io/v1/subjectaccessreviews");
        let body = ("application/json", Some(&body));
        let (client, clock) = (&self.client, &context.clock);
        let answer = read::send(client, clock, Method::POST, &path, body, REVIEW_BOUNDS).await;
        answer.map(|it| AccessReview::read(&it, asked)).map_err(|error| error_chain(&error))
    }

    /// Returns the resource of a kind, as it was discovered. A kind that is not known yet is
    /// discovered here, so that no question waits for another.
    async fn resource(
        &self,
        name: &TypeName,
        context: &ResponderContext,
    ) -> Result<Option<Resource>, DiscoveryError> {
        let ResponderContext { handle, clock } = context;
        match kind_discovery::served_kind(handle.world(), name, Timestamp::MIN) {
            Some(ServedKind::Usable(resource) | ServedKind::MissingRights { resource, .. }) => {
                return Ok(Some(resource));
            }
            Some(ServedKind::NotServed) => return Ok(None),
            None => {}
        }
        let kind = (&*name.api_version, &*name.kind);
        match discovery::find(&self.client, clock, kind, DISCOVERY_BOUNDS).await {
            // Users write it: no server serves an invalid group and version.
            Err(DiscoveryError::InvalidApiVersion(_)) => Ok(None),
            found => Ok(found?.map(|it| it.resource)),
        }
    }
}

impl Responder<AccessReview> for AccessResponder {
    fn answer<'a>(
        &'a self,
        question: &'a AccessQuestion,
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<AccessReview, String>> {
        Box::pin(self.review(question, context))
    }
}

/// Reads the webhook configuration that has authors recorded.
#[derive(Clone)]
pub struct RecordingResponder {
    client: Client,
}

impl std::fmt::Debug for RecordingResponder {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("RecordingResponder")
    }
}

impl RecordingResponder {
    /// Reads through this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    async fn recording(&self, context: &ResponderContext) -> Result<AuthorRecording, String> {
        const CONFIGURATIONS: ApiPath = ApiPath::from_static(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        );
        let path = CONFIGURATIONS.item(CONFIGURATION).map_err(|error| error_chain(&error))?;
        match read::get(&self.client, &context.clock, &path, REVIEW_BOUNDS).await {
            Ok(object) => Ok(AuthorRecording::read(&object)),
            Err(error) if error.is_not_found() || error.is_forbidden() => {
                tracing::warn!(
                    error = error_chain(&error),
                    CONFIGURATION,
                    "authors are not recorded: the MutatingWebhookConfiguration is missing or \
                     cannot be read"
                );
                Ok(AuthorRecording { since: None })
            }
            Err(error) => Err(error_chain(&error)),
        }
    }
}

impl Responder<AuthorRecording> for RecordingResponder {
    fn answer<'a>(
        &'a self,
        (): &'a (),
        context: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<AuthorRecording, String>> {
        Box::pin(self.recording(context))
    }
}
