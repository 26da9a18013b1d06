//! Admission webhooks: who is asked about a write, and what becomes of their answers.
//!
//! A configuration takes effect when it is stored: whoever gets the answer to its creation is under
//! it at once. Mutating webhooks are asked one after another, configurations by name and webhooks
//! as they are listed; each sees what those before it made of the object. Validating ones are asked
//! all at once. The server's own start is nobody's business, nor are the configurations themselves.

mod residents;
mod review;
mod rounds;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use gantry_admission::conditions::{Conditions, Verdict};
use gantry_admission::matching::Criteria;
use gantry_admission::{Request, View, World as _};
use gantry_webhook::{Hook, HookError, Wait};
use serde_json::Value;

use crate::access::Caller;
use crate::admission::Review;
use crate::api::Api;
use crate::names;
use crate::parts::resource;
use crate::policies::{Here, view};
use crate::resource::Resource;
use crate::status::Refusal;

use residents::Residents;
use review::{Answer, ReviewVersion, Side};
pub(crate) use rounds::Rounds;

const GROUP: &str = "admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// Kinds that nobody is asked about: a webhook must not be able to keep itself in place.
const EXEMPT: [&str; 6] = [
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
    /// Those that are in this process.
    residents: Residents,
    /// Held while they are read anew: an older look must not replace a newer one.
    reading: Mutex<()>,
}

/// One webhook of a configuration.
#[derive(Debug)]
struct Webhook {
    name: String,
    /// Tells it from others of the same name.
    id: String,
    criteria: Criteria,
    conditions: Conditions,
    hook: Result<Hook, HookError>,
    version: Option<ReviewVersion>,
    timeout: Duration,
    /// Whether a write goes on when it cannot be asked.
    ignores_failure: bool,
    /// Whether it may be asked about what is not stored.
    takes_dry_runs: bool,
    /// Whether it wants to see what others make of its result.
    is_asked_again: bool,
}

impl Webhooks {
    /// Whether a change of what is stored in a space changes the webhooks in effect.
    pub(crate) fn concern(space: &str) -> bool {
        space == MUTATING || space == VALIDATING
    }

    /// Brings the webhooks in effect in line with what is stored.
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
    /// The webhooks of a configuration.
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
            conditions: Conditions::of_webhook(&hook["matchConditions"]),
            hook: Hook::read(&hook["clientConfig"]),
            version: versions.filter_map(Value::as_str).find_map(ReviewVersion::named),
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10)),
            ignores_failure: hook["failurePolicy"] == "Ignore",
            takes_dry_runs: matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            is_asked_again: hook["reinvocationPolicy"] == "IfNeeded",
        }
    }

    /// The view in which it wants to be asked, if it does.
    fn wants(
        &self,
        request: &Request<'_>,
        review: &Review<'_>,
        here: &Here<'_>,
    ) -> Result<Option<View>, Refusal> {
        let view = self
            .criteria
            .matches(request, here)
            .map_err(|missing| Refusal::not_found("", "namespaces", &missing.0))?;
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
        match self.conditions.ask(&request, &view, here.authorizer()) {
            Verdict::Met => Ok(Some(view)),
            Verdict::Unmet(_) => Ok(None),
            Verdict::Failed(_) if self.ignores_failure => Ok(None),
            Verdict::Failed(why) => Err(review.forbidden(request.object, &why)),
        }
    }

    /// Asks it about a request, whose objects are in the view it wants.
    ///
    /// # Errors
    /// Why it could not be asked, or what it said cannot be used.
    async fn ask(
        &self,
        api: &Api,
        side: Side,
        request: &Request<'_>,
        view: &View,
    ) -> Result<Answer, Failure> {
        if request.dry_run && !self.takes_dry_runs {
            return Err(Failure::NoDryRun);
        }
        let hook = self
            .hook
            .as_ref()
            .map_err(|fault| Failure::Call(format!("could not get REST client: {fault}")))?;
        let Some(version) = self.version else {
            let words = "could not create admission objects: webhook does not accept known \
                         AdmissionReview versions (v1, v1beta1)";
            return Err(Failure::Call(words.to_owned()));
        };
        let uid = names::uid();
        let question = review::question(version, &uid, request, view);
        let answer = match api.resident(&hook.place) {
            Some(resident) => Bytes::from(resident(&hook.path, &question).to_string()),
            None => {
                let body = Bytes::from(question.to_string());
                let answer = api.0.webhooks.post(hook, body, Wait::Told(self.timeout)).await;
                answer.map_err(|fault| Failure::called(&fault.to_string()))?
            }
        };
        let document = review::read(version, &answer).map_err(|why| Failure::called(&why))?;
        review::verify(version, side, &uid, document)
            .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))
    }

    /// The refusal of a write about which it could not be asked; none if that does not matter.
    fn failed(&self, failure: &Failure) -> Result<(), Refusal> {
        let name = Value::from(self.name.as_str());
        match failure {
            Failure::NoDryRun => Err(Refusal::bad_request(format!(
                "admission webhook {name} does not support dry run"
            ))),
            Failure::Call(why) if self.ignores_failure => {
                tracing::warn!(webhook = self.name, why, "a webhook is ignored: it was not asked");
                Ok(())
            }
            Failure::Call(why) => {
                Err(Refusal::internal(&format!("failed calling webhook {name}: {why}")))
            }
            Failure::Internal(why) => Err(Refusal::internal(why)),
        }
    }
}

/// Why there is no answer that can be used.
#[derive(Debug)]
enum Failure {
    /// It could not be asked, or its answer makes no sense. It may be ignored.
    Call(String),
    /// It does not want to be asked about what is not stored.
    NoDryRun,
    /// What it said cannot be carried out. It may not be ignored.
    Internal(String),
}

impl Failure {
    fn called(why: &str) -> Self {
        Self::Call(format!("failed to call webhook: {why}"))
    }
}

/// Whether nobody is asked about a write.
fn is_exempt(review: &Review<'_>) -> bool {
    let Resource { group, plural, .. } = &**review.resource;
    (group == GROUP && EXEMPT.contains(&plural.as_str())) || *review.caller == Caller::server()
}

impl Api {
    /// The webhooks that may change this write; nothing if there are none.
    pub(crate) fn mutating_webhooks(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Option<Rounds> {
        let hooks = self.0.admission_webhooks.mutating.load();
        if hooks.is_empty() || is_exempt(review) {
            return None;
        }
        Some(Rounds::new(Arc::clone(&hooks), object))
    }

    /// Asks those who may change a write. Whether it was changed, so that a second round is due.
    pub(crate) async fn ask_mutating(
        &self,
        rounds: &mut Rounds,
        review: &mut Review<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<bool, Refusal> {
        let own = view(review.resource, review.subresource);
        let user = review.caller.user_info();
        let here = Here { api: self, resource: review.resource, subresource: review.subresource };
        let hooks = rounds.begin(object.as_deref());
        let mut changed_any = false;
        for webhook in hooks.iter() {
            let request = request(review, &own, &user, object.as_deref());
            let Some(view) = webhook.wants(&request, review, &here)? else { continue };
            if !rounds.includes(&webhook.id) {
                continue;
            }
            let shown = self.in_view(&request, &own, &view).await?;
            let asked = shown.request(&request);
            let answer = webhook.ask(self, Side::Mutating, &asked, &view).await;
            let outcome = match answer {
                Ok(answer) => {
                    review.warnings.extend(answer.warnings);
                    if let Some(refusal) = review::denied(&webhook.name, answer.verdict) {
                        return Err(refusal);
                    }
                    let patch = answer.patch.as_ref();
                    patch.map_or(Ok(None), |patch| review::apply(&webhook.name, &asked, patch))
                }
                Err(failure) => Err(failure),
            };
            let changed = match outcome {
                Ok(None) => false,
                Err(failure) => {
                    webhook.failed(&failure)?;
                    false
                }
                Ok(Some(patched)) => {
                    let patched = self.typed(review, &own, &view, patched).await?;
                    match object.as_deref_mut() {
                        Some(object) if *object != patched => {
                            *object = patched;
                            true
                        }
                        Some(_) | None => false,
                    }
                }
            };
            rounds.asked(webhook.is_asked_again, &webhook.id, changed);
            changed_any |= changed;
        }
        rounds.end(object.as_deref());
        Ok(changed_any)
    }

    /// Whether anybody may object to this write.
    pub(crate) fn has_validating_webhooks(&self, review: &Review<'_>) -> bool {
        !self.0.admission_webhooks.validating.load().is_empty() && !is_exempt(review)
    }

    /// Asks those who may object to a write, all at once. Of several refusals the caller gets that
    /// of the first in line.
    pub(crate) async fn ask_validating(
        &self,
        review: &mut Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), Refusal> {
        let hooks = self.0.admission_webhooks.validating.load_full();
        let own = view(review.resource, review.subresource);
        let user = review.caller.user_info();
        let here = Here { api: self, resource: review.resource, subresource: review.subresource };
        let mut calls: Vec<Call<'_>> = Vec::new();
        {
            let request = request(review, &own, &user, object);
            for webhook in hooks.iter() {
                let Some(view) = webhook.wants(&request, review, &here)? else { continue };
                let shown = self.in_view(&request, &own, &view).await?;
                let request = request.clone();
                calls.push(Box::pin(async move {
                    let asked = shown.request(&request);
                    (webhook, webhook.ask(self, Side::Validating, &asked, &view).await)
                }));
            }
        }
        let mut outcome = Ok(());
        for (webhook, answer) in all(calls).await {
            let verdict = match answer {
                Ok(answer) => {
                    review.warnings.extend(answer.warnings);
                    review::denied(&webhook.name, answer.verdict).map_or(Ok(()), Err)
                }
                Err(failure) => webhook.failed(&failure),
            };
            outcome = outcome.and(verdict);
        }
        outcome
    }

    /// The objects of a request in the view a webhook wants.
    async fn in_view(
        &self,
        request: &Request<'_>,
        own: &View,
        view: &View,
    ) -> Result<Shown, Refusal> {
        if own == view {
            return Ok(Shown::AsSent);
        }
        Ok(Shown::Converted {
            object: self.converted(request.object, own, view).await?,
            old: self.converted(request.old, own, view).await?,
        })
    }

    /// An object of one view in another.
    async fn converted(
        &self,
        object: Option<&Value>,
        from: &View,
        to: &View,
    ) -> Result<Option<Value>, Refusal> {
        let Some(object) = object else { return Ok(None) };
        let find = |view: &View| resource(self, &view.group, &view.version, &view.resource);
        let unknown = || Refusal::internal("the resource of a webhook is no longer served");
        let (from, to) = (find(from).ok_or_else(unknown)?, find(to).ok_or_else(unknown)?);
        let subresource = "";
        let here = Here { api: self, resource: &from, subresource };
        if let Some(converted) = self.in_version(&from, object, &to.api_version()).await? {
            return Ok(Some(converted));
        }
        Ok(here.convert(object, &view(&to, subresource)))
    }

    /// What a webhook made of an object, as its kind has it, defaulted, in the version of the
    /// request.
    async fn typed(
        &self,
        review: &Review<'_>,
        own: &View,
        view: &View,
        patched: Value,
    ) -> Result<Value, Refusal> {
        let resource = resource(self, &view.group, &view.version, &view.resource);
        let Some(resource) = resource.filter(|it| patched["kind"] == it.kind.as_str()) else {
            // What is sent to a part is of the part's own kind.
            return Ok(patched);
        };
        let (mut object, _) = resource.clean(patched).map_err(|refusal| {
            let why = refusal.message.split_once(": ").map_or("", |(_, why)| why);
            Refusal::internal(why)
        })?;
        resource.default(&mut object);
        if own == view {
            return Ok(object);
        }
        let back = self.converted(Some(&object), view, own).await?;
        Ok(back.unwrap_or_else(|| review.old.cloned().unwrap_or_default()))
    }
}

type Call<'a> = Pin<Box<dyn Future<Output = (&'a Webhook, Result<Answer, Failure>)> + Send + 'a>>;

/// Waits for all at once; the results are in the order of the calls.
async fn all(mut calls: Vec<Call<'_>>) -> Vec<(&Webhook, Result<Answer, Failure>)> {
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

/// The objects a webhook is shown.
enum Shown {
    AsSent,
    Converted { object: Option<Value>, old: Option<Value> },
}

impl Shown {
    fn request<'a>(&'a self, request: &Request<'a>) -> Request<'a> {
        match self {
            Self::AsSent => request.clone(),
            Self::Converted { object, old } => {
                Request { object: object.as_ref(), old: old.as_ref(), ..request.clone() }
            }
        }
    }
}

fn request<'a>(
    review: &Review<'a>,
    own: &'a View,
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
