//! Admission webhooks: which ones are called for a write, and how their responses are applied.
//!
//! A configuration takes effect when it is stored: it applies as soon as the create request
//! returns. Mutating webhooks are called one after another, configurations by name and webhooks in
//! list order; each sees the object as the previous ones left it. Validating webhooks are called
//! concurrently. Writes during the server's own start skip webhooks, and so do the configurations
//! themselves.

mod in_process;
mod reinvocation;
mod review;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use gantry_admission::match_conditions::{MatchConditions, MatchResult};
use gantry_admission::matching::Criteria;
use gantry_admission::{AdmissionContext as _, Request, ResourceView};
use gantry_webhook::{CallTimeout, ClientConfigError, WebhookClientConfig};
use serde_json::Value;

use crate::access::Caller;
use crate::admission::Review;
use crate::admission::policies::{PolicyContext, view};
use crate::api::Api;
use crate::resource::Resource;
use crate::resource::names;
use crate::response::status::StatusError;
use crate::verbs::subresources::resource;

use in_process::InProcessWebhooks;
pub(crate) use reinvocation::Reinvocation;
use review::{ReviewVersion, WebhookResponse, WebhookType};

const GROUP: &str = "admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// Resources without webhooks: a webhook must not be able to keep itself in place.
const EXEMPT_RESOURCES: [&str; 6] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
];

/// The webhooks in effect.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    mutating: ArcSwap<Vec<Webhook>>,
    validating: ArcSwap<Vec<Webhook>>,
    /// The webhooks of this process.
    in_process: InProcessWebhooks,
    /// Held while configurations are read: an older state must not replace a newer one.
    reading: Mutex<()>,
}

/// One webhook of a configuration.
#[derive(Debug)]
struct Webhook {
    name: String,
    /// Distinguishes it from others of the same name.
    id: String,
    criteria: Criteria,
    conditions: MatchConditions,
    hook: Result<WebhookClientConfig, ClientConfigError>,
    version: Option<ReviewVersion>,
    timeout: Duration,
    /// Whether a write goes on when the call fails.
    ignores_failure: bool,
    /// Whether it may be called for a dry run.
    takes_dry_runs: bool,
    /// Whether it is called again when later webhooks change the object.
    reinvoke_if_needed: bool,
}

impl Webhooks {
    /// Updates the webhooks in effect from what is stored.
    pub(crate) fn refresh(&self, api: &Api) {
        let _alone = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = api.0.store.snapshot();
        for (space, hooks) in [(MUTATING, &self.mutating), (VALIDATING, &self.validating)] {
            let configurations = snapshot.space(space);
            // Keys are names, in order.
            let read = configurations.iter().flat_map(|entry| {
                Webhook::of(&serde_json::from_slice(&entry.value).unwrap_or_default())
            });
            hooks.store(Arc::new(read.collect()));
        }
    }
}

impl Webhook {
    /// Reads the webhooks of a configuration.
    fn of(configuration: &Value) -> Vec<Self> {
        let of = configuration["metadata"]["name"].as_str().unwrap_or_default();
        let hooks = configuration["webhooks"].as_array().into_iter().flatten().enumerate();
        hooks.map(|(place, hook)| Self::read(hook, format!("{of}/{place}"))).collect()
    }

    fn read(hook: &Value, id: String) -> Self {
        let versions = hook["admissionReviewVersions"].as_array().into_iter().flatten();
        Self {
            name: hook["name"].as_str().unwrap_or_default().to_owned(),
            id,
            criteria: Criteria::of_webhook(hook),
            conditions: MatchConditions::of_webhook(&hook["matchConditions"]),
            hook: WebhookClientConfig::read(&hook["clientConfig"]),
            version: versions.filter_map(Value::as_str).find_map(ReviewVersion::from_name),
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10)),
            ignores_failure: hook["failurePolicy"] == "Ignore",
            takes_dry_runs: matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            reinvoke_if_needed: hook["reinvocationPolicy"] == "IfNeeded",
        }
    }

    /// Returns the version in which it wants to be called, if it matches the request.
    fn matching_view(
        &self,
        request: &Request<'_>,
        review: &Review<'_>,
        here: &PolicyContext<'_>,
    ) -> Result<Option<ResourceView>, StatusError> {
        let view = self
            .criteria
            .matches(request, here)
            .map_err(|missing| StatusError::not_found("", "namespaces", &missing.0))?;
        let Some(view) = view else { return Ok(None) };
        if self.conditions.is_empty() {
            return Ok(Some(view));
        }
        let shown = |object: Option<&Value>| object.and_then(|it| here.convert(it, &view));
        let (object, old) = if view == *request.view {
            (request.object.cloned(), request.old.cloned())
        } else {
            (shown(request.object), shown(request.old))
        };
        let request = Request { object: object.as_ref(), old: old.as_ref(), ..request.clone() };
        match self.conditions.evaluate_for_webhook(&request, &view, here.authorizer()) {
            MatchResult::Met => Ok(Some(view)),
            MatchResult::Unmet(_) => Ok(None),
            MatchResult::Failed(_) if self.ignores_failure => Ok(None),
            MatchResult::Failed(why) => Err(review.forbidden(request.object, &why)),
        }
    }

    /// Calls it with a request, whose objects are in the version it wants.
    ///
    /// # Errors
    /// The call failed, or the response cannot be used.
    async fn call(
        &self,
        api: &Api,
        side: WebhookType,
        request: &Request<'_>,
        view: &ResourceView,
    ) -> Result<WebhookResponse, WebhookFailure> {
        if request.dry_run && !self.takes_dry_runs {
            return Err(WebhookFailure::NoDryRun);
        }
        let hook = self
            .hook
            .as_ref()
            .map_err(|fault| WebhookFailure::Call(format!("could not get REST client: {fault}")))?;
        let Some(version) = self.version else {
            let words = "could not create admission objects: webhook does not accept known \
                         AdmissionReview versions (v1, v1beta1)";
            return Err(WebhookFailure::Call(words.to_owned()));
        };
        let uid = names::uid();
        let question = review::admission_review(version, &uid, request, view);
        let answer = match api.in_process_handler(&hook.target) {
            Some(resident) => Bytes::from(resident(&hook.path, &question).to_string()),
            None => {
                let body = Bytes::from(question.to_string());
                let answer =
                    api.0.webhooks.post(hook, body, CallTimeout::Announced(self.timeout)).await;
                answer.map_err(|fault| WebhookFailure::call_failed(&fault.to_string()))?
            }
        };
        let document = review::read_response(version, &answer)
            .map_err(|why| WebhookFailure::call_failed(&why))?;
        review::verify_response(version, side, &uid, document).map_err(|why| {
            WebhookFailure::Call(format!("received invalid webhook response: {why}"))
        })
    }

    /// Returns the refusal of a write for which the call failed; `None` if failures are ignored.
    fn failure_error(&self, failure: &WebhookFailure) -> Result<(), StatusError> {
        let name = Value::from(self.name.as_str());
        match failure {
            WebhookFailure::NoDryRun => Err(StatusError::bad_request(format!(
                "admission webhook {name} does not support dry run"
            ))),
            WebhookFailure::Call(why) if self.ignores_failure => {
                tracing::warn!(webhook = self.name, why, "failed to call a webhook, ignored");
                Ok(())
            }
            WebhookFailure::Call(why) => {
                Err(StatusError::internal(&format!("failed calling webhook {name}: {why}")))
            }
            WebhookFailure::Internal(why) => Err(StatusError::internal(why)),
        }
    }
}

/// Why there is no usable response.
#[derive(Debug)]
enum WebhookFailure {
    /// The call failed, or the response is invalid. It may be ignored.
    Call(String),
    /// It does not support dry runs.
    NoDryRun,
    /// The response cannot be applied. It may not be ignored.
    Internal(String),
}

impl WebhookFailure {
    fn call_failed(why: &str) -> Self {
        Self::Call(format!("failed to call webhook: {why}"))
    }
}

/// Whether a write skips webhooks.
fn is_exempt(review: &Review<'_>) -> bool {
    let Resource { group, plural, .. } = &**review.resource;
    (group == GROUP && EXEMPT_RESOURCES.contains(&plural.as_str()))
        || *review.caller == Caller::server()
}

impl Api {
    /// Returns the mutating webhooks for this write; `None` if there are none.
    pub(crate) fn mutating_webhooks(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Option<Reinvocation> {
        let hooks = self.0.admission_webhooks.mutating.load();
        if hooks.is_empty() || is_exempt(review) {
            return None;
        }
        Some(Reinvocation::new(Arc::clone(&hooks), object))
    }

    /// Calls the mutating webhooks. Returns whether the object was changed, so that a second round
    /// is due.
    pub(crate) async fn call_mutating_webhooks(
        &self,
        rounds: &mut Reinvocation,
        review: &mut Review<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<bool, StatusError> {
        let own = view(review.resource, review.subresource);
        let user = review.caller.user_info();
        let here =
            PolicyContext { api: self, resource: review.resource, subresource: review.subresource };
        let hooks = rounds.begin(object.as_deref());
        let mut changed_any = false;
        for webhook in hooks.iter() {
            let request = request(review, &own, &user, object.as_deref());
            let Some(view) = webhook.matching_view(&request, review, &here)? else { continue };
            if !rounds.includes(&webhook.id) {
                continue;
            }
            let shown = self.review_objects(&request, &own, &view).await?;
            let asked = shown.request(&request);
            let answer = webhook.call(self, WebhookType::Mutating, &asked, &view).await;
            let outcome = match answer {
                Ok(answer) => {
                    review.warnings.extend(answer.warnings);
                    if let Some(refusal) = review::denial_error(&webhook.name, answer.verdict) {
                        return Err(refusal);
                    }
                    let patch = answer.patch.as_ref();
                    patch
                        .map_or(Ok(None), |patch| review::apply_patch(&webhook.name, &asked, patch))
                }
                Err(failure) => Err(failure),
            };
            let changed = match outcome {
                Ok(None) => false,
                Err(failure) => {
                    webhook.failure_error(&failure)?;
                    false
                }
                Ok(Some(patched)) => {
                    let patched = self.decode_mutated(review, &own, &view, patched).await?;
                    match object.as_deref_mut() {
                        Some(object) if *object != patched => {
                            *object = patched;
                            true
                        }
                        Some(_) | None => false,
                    }
                }
            };
            rounds.record_call(webhook.reinvoke_if_needed, &webhook.id, changed);
            changed_any |= changed;
        }
        rounds.end(object.as_deref());
        Ok(changed_any)
    }

    /// Whether there are validating webhooks for this write.
    pub(crate) fn has_validating_webhooks(&self, review: &Review<'_>) -> bool {
        !self.0.admission_webhooks.validating.load().is_empty() && !is_exempt(review)
    }

    /// Calls the validating webhooks concurrently. Of several refusals the caller gets the first in
    /// order.
    pub(crate) async fn call_validating_webhooks(
        &self,
        review: &mut Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), StatusError> {
        let hooks = self.0.admission_webhooks.validating.load_full();
        let own = view(review.resource, review.subresource);
        let user = review.caller.user_info();
        let here =
            PolicyContext { api: self, resource: review.resource, subresource: review.subresource };
        let mut calls: Vec<WebhookCall<'_>> = Vec::new();
        {
            let request = request(review, &own, &user, object);
            for webhook in hooks.iter() {
                let Some(view) = webhook.matching_view(&request, review, &here)? else { continue };
                let shown = self.review_objects(&request, &own, &view).await?;
                let request = request.clone();
                calls.push(Box::pin(async move {
                    let asked = shown.request(&request);
                    (webhook, webhook.call(self, WebhookType::Validating, &asked, &view).await)
                }));
            }
        }
        let mut outcome = Ok(());
        for (webhook, answer) in join_all(calls).await {
            let verdict = match answer {
                Ok(answer) => {
                    review.warnings.extend(answer.warnings);
                    review::denial_error(&webhook.name, answer.verdict).map_or(Ok(()), Err)
                }
                Err(failure) => webhook.failure_error(&failure),
            };
            outcome = outcome.and(verdict);
        }
        outcome
    }

    /// Returns the objects of a request in the version a webhook wants.
    async fn review_objects(
        &self,
        request: &Request<'_>,
        own: &ResourceView,
        view: &ResourceView,
    ) -> Result<ReviewObjects, StatusError> {
        if own == view {
            return Ok(ReviewObjects::Original);
        }
        Ok(ReviewObjects::Converted {
            object: self.convert_to_view(request.object, own, view).await?,
            old: self.convert_to_view(request.old, own, view).await?,
        })
    }

    /// Converts an object from one version to another.
    async fn convert_to_view(
        &self,
        object: Option<&Value>,
        from: &ResourceView,
        to: &ResourceView,
    ) -> Result<Option<Value>, StatusError> {
        let Some(object) = object else { return Ok(None) };
        let find = |view: &ResourceView| resource(self, &view.group, &view.version, &view.resource);
        let unknown = || StatusError::internal("the resource of a webhook is no longer served");
        let (from, to) = (find(from).ok_or_else(unknown)?, find(to).ok_or_else(unknown)?);
        let subresource = "";
        let here = PolicyContext { api: self, resource: &from, subresource };
        if let Some(converted) = self.converted_to(&from, object, &to.api_version()).await? {
            return Ok(Some(converted));
        }
        Ok(here.convert(object, &view(&to, subresource)))
    }

    /// Decodes the object that a webhook returned, as its kind has it, defaulted, in the version of
    /// the request.
    async fn decode_mutated(
        &self,
        review: &Review<'_>,
        own: &ResourceView,
        view: &ResourceView,
        patched: Value,
    ) -> Result<Value, StatusError> {
        let resource = resource(self, &view.group, &view.version, &view.resource);
        let Some(resource) = resource.filter(|it| patched["kind"] == it.kind.as_str()) else {
            // An object sent to a subresource has the subresource's own kind.
            return Ok(patched);
        };
        let (mut object, _) = resource.prune(patched).map_err(|refusal| {
            let why = refusal.message.split_once(": ").map_or("", |(_, why)| why);
            StatusError::internal(why)
        })?;
        resource.default(&mut object);
        if own == view {
            return Ok(object);
        }
        let back = self.convert_to_view(Some(&object), view, own).await?;
        Ok(back.unwrap_or_else(|| review.old.cloned().unwrap_or_default()))
    }
}

type WebhookCall<'a> = Pin<
    Box<dyn Future<Output = (&'a Webhook, Result<WebhookResponse, WebhookFailure>)> + Send + 'a>,
>;

/// Waits for all calls concurrently; the results are in the order of the calls.
async fn join_all(
    mut calls: Vec<WebhookCall<'_>>,
) -> Vec<(&Webhook, Result<WebhookResponse, WebhookFailure>)> {
    let mut done: Vec<Option<_>> = calls.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for (call, done) in calls.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            match call.as_mut().poll(context) {
                Poll::Ready(result) => *done = Some(result),
                Poll::Pending => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// The objects of a request to a webhook.
enum ReviewObjects {
    Original,
    Converted { object: Option<Value>, old: Option<Value> },
}

impl ReviewObjects {
    fn request<'a>(&'a self, request: &Request<'a>) -> Request<'a> {
        match self {
            Self::Original => request.clone(),
            Self::Converted { object, old } => {
                Request { object: object.as_ref(), old: old.as_ref(), ..request.clone() }
            }
        }
    }
}

fn request<'a>(
    review: &Review<'a>,
    own: &'a ResourceView,
    user: &'a Value,
    object: Option<&'a Value>,
) -> Request<'a> {
    Request {
        operation: review.operation,
        view: own,
        subresource: review.subresource,
        name: review.name,
        namespace: review.namespace,
        user,
        dry_run: review.dry_run,
        options: review.options,
        object,
        old: review.old,
    }
}
