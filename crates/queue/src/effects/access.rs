//! Asks the server what the authors of AppWrappers may create, and whether it has them recorded.

use std::time::Duration;

use gantry_controller::discovery::{self, DISCOVERY_BOUNDS, DiscoveryError};
use gantry_controller::outside::{Later, Responder, ResponderContext};
use gantry_controller::read::{self, Bounds};
use gantry_reconcile::{ApiPath, Resource};
use http::Method;
use jiff::Timestamp;
use kube::Client;

use crate::access::{AccessQuestion, AccessReview, Attributes, AuthorRecording, Need};
use crate::app_wrapper::TypeName;
use crate::author::{Author, CONFIGURATION};
use crate::kind_discovery::{self, ServedKind};
use gantry_process::error_chain;

/// What one review may take.
const REVIEW_BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), bytes: 1 << 20 };

/// Asks a server about the rights of authors.
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
        let AccessQuestion { author, namespace, need } = question;
        let Some(author) = Author::read(author) else {
            return Err("the recorded author cannot be read".to_owned());
        };
        let asked = match need {
            Need::Privilege(privilege) => Attributes::of(privilege),
            Need::Create(name) => match self.resource(name, context).await {
                Ok(Some(resource)) => Attributes::create(&resource),
                Ok(None) => return Ok(AccessReview::NoSuchKind),
                Err(error) => return Err(error_chain(&error)),
            },
        };
        let body = author.review(namespace, &asked);
        let path = ApiPath::from_static("/apis/authorization.k8s.io/v1/subjectaccessreviews");
        let body = ("application/json", Some(&body));
        let (client, clock) = (&self.client, &context.clock);
        let answer = read::send(client, clock, Method::POST, &path, body, REVIEW_BOUNDS).await;
        answer.map(|it| AccessReview::read(&it, asked)).map_err(|error| error_chain(&error))
    }

    /// The resource of a kind, as it was discovered. Where nothing is known of it yet, it is looked for here, so
    /// that no question waits for another.
    async fn resource(
        &self,
        name: &TypeName,
        context: &ResponderContext,
    ) -> Result<Option<Resource>, DiscoveryError> {
        let ResponderContext { handle, clock } = context;
        match kind_discovery::look(handle.world(), name, Timestamp::MIN) {
            Some(ServedKind::Usable(resource) | ServedKind::MissingRights { resource, .. }) => {
                return Ok(Some(resource));
            }
            Some(ServedKind::NotServed) => return Ok(None),
            None => {}
        }
        let kind = (&*name.api_version, &*name.kind);
        match discovery::find(&self.client, clock, kind, DISCOVERY_BOUNDS).await {
            // Users write it: what is no group and version is served by nobody.
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
    ) -> Later<'a, Result<AccessReview, String>> {
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
                    "authors are not recorded: the MutatingWebhookConfiguration is missing or cannot be read"
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
    ) -> Later<'a, Result<AuthorRecording, String>> {
        Box::pin(self.recording(context))
    }
}
