//! ValidatingAdmissionPolicies: compiled when they are stored, and evaluated for every write.
//!
//! A policy or binding takes effect when it is stored: it applies as soon as the create request
//! returns.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use gantry_admission::authorizer::{AccessCheck, Authorizer, Decision};
use gantry_admission::policy_evaluation::DenialReason;
use gantry_admission::{
    AdmissionContext, Binding, Denial, ParamKind, ParamScope, Policy, Request, ResourceView,
};
use http::StatusCode;
use serde_json::Value;

use crate::access::{Attributes, Caller};
use crate::admission::Review;
use crate::api::{Api, Entry};
use crate::resource::Resource;
use crate::response::status::{Cause, StatusError};
use crate::verbs::subresources::resource;

/// The space in which policies are stored.
const SPACE: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
/// The space in which bindings are stored.
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

/// Resources that policies do not apply to: reviews, and the objects needed to remove a policy.
const EXEMPT_RESOURCES: [(&str, &str); 10] = [
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// A policy and its bindings.
type BoundPolicy = (Arc<Policy>, Vec<Arc<Binding>>);

/// The policies in effect.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    compiled: Mutex<CompiledPolicies>,
    active: ArcSwap<Vec<BoundPolicy>>,
}

/// The compiled stored objects, by name, and the revisions they were compiled from.
#[derive(Debug, Default)]
struct CompiledPolicies {
    policies: HashMap<String, (u64, Arc<Policy>)>,
    bindings: HashMap<String, (u64, Arc<Binding>)>,
}

impl Policies {
    /// Updates the policies in effect from what is stored.
    pub(crate) fn refresh(&self, api: &Api) {
        let mut known = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = api.0.store.snapshot();
        known.policies =
            compile_changed(&known.policies, snapshot.space(SPACE).iter(), Policy::compile);
        known.bindings =
            compile_changed(&known.bindings, snapshot.space(BINDINGS).iter(), Binding::read);
        let mut bound: BTreeMap<&str, Vec<(&String, &Arc<Binding>)>> = BTreeMap::new();
        for (name, (_, binding)) in &known.bindings {
            bound.entry(binding.policy()).or_default().push((name, binding));
        }
        let mut hooks = Vec::new();
        for (policy, mut bindings) in bound {
            let Some((_, policy)) = known.policies.get(policy) else { continue };
            bindings.sort_by_key(|(name, _)| *name);
            let bindings = bindings.into_iter().map(|(_, binding)| Arc::clone(binding));
            hooks.push((Arc::clone(policy), bindings.collect()));
        }
        self.active.store(Arc::new(hooks));
    }
}

/// Compiles objects, again only where they changed.
fn compile_changed<'e, T>(
    before: &HashMap<String, (u64, Arc<T>)>,
    entries: impl Iterator<Item = &'e Arc<Entry>>,
    make: impl Fn(&Value) -> T,
) -> HashMap<String, (u64, Arc<T>)> {
    let made = entries.map(|entry| {
        let name = String::from_utf8_lossy(&entry.key).into_owned();
        let revision = entry.revision.get();
        let same = before.get(&name).filter(|(known, _)| *known == revision);
        let value = match same {
            Some((_, value)) => Arc::clone(value),
            None => Arc::new(make(&serde_json::from_slice(&entry.value).unwrap_or_default())),
        };
        (name, (revision, value))
    });
    made.collect()
}

impl Api {
    /// Evaluates the policies for a write.
    pub(crate) fn check_policies(
        &self,
        review: &mut Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), StatusError> {
        let hooks = self.0.policies.active.load();
        let Resource { group, plural, .. } = &**review.resource;
        if hooks.is_empty() || EXEMPT_RESOURCES.contains(&(group.as_str(), plural.as_str())) {
            return Ok(());
        }
        let view = view(review.resource, review.subresource);
        let user = review.caller.user_info();
        let request = Request {
            operation: review.operation,
            view: &view,
            subresource: review.subresource,
            name: review.name,
            namespace: review.namespace,
            user: &user,
            dry_run: review.dry_run,
            options: review.options,
            object,
            old: review.old,
        };
        let here =
            PolicyContext { api: self, resource: review.resource, subresource: review.subresource };
        let outcome = gantry_admission::evaluate_policies(&hooks, &request, &here);
        review.warnings.extend(outcome.warnings);
        for (key, value) in &outcome.annotations {
            tracing::info!(target: "audit", key, value, "audit annotation of a policy");
        }
        match outcome.denied {
            None => Ok(()),
            Some(denial) => Err(denial_error(review, object, &denial)),
        }
    }
}

/// Returns the refusal of a write by a policy.
fn denial_error(review: &Review<'_>, object: Option<&Value>, denial: &Denial) -> StatusError {
    let mut refusal = review.forbidden(object, &denial.message);
    (refusal.code, refusal.reason) = match denial.reason {
        DenialReason::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
        DenialReason::Forbidden => (StatusCode::FORBIDDEN, "Forbidden"),
        DenialReason::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        DenialReason::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
    };
    let cause = Cause { message: denial.message.clone(), ..Cause::default() };
    refusal.details.get_or_insert_default().causes.push(cause);
    refusal
}

/// Returns a resource, or a subresource, as admission names it.
pub(crate) fn view(resource: &Resource, subresource: &str) -> ResourceView {
    let part = resource.subresource(subresource);
    let or = |own: &str, else_: &str| if own.is_empty() { else_ } else { own }.to_owned();
    ResourceView {
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.plural.clone(),
        kind_group: match part {
            Some(part) if !part.version.is_empty() => part.group.clone(),
            Some(_) | None => resource.group.clone(),
        },
        kind_version: or(part.map_or("", |it| &it.version), &resource.version),
        kind: or(part.map_or("", |it| &it.kind), &resource.kind),
    }
}

/// The server as policies see it while they are evaluated for one request.
#[derive(Debug)]
pub(crate) struct PolicyContext<'a> {
    pub(crate) api: &'a Api,
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
}

impl PolicyContext<'_> {
    /// Returns the resource whose objects are of a kind.
    fn param_resource(&self, kind: &ParamKind) -> Option<Arc<Resource>> {
        let registry = self.api.registry();
        registry.by_kind(&kind.api_version, &kind.kind).filter(|it| it.has_verb("list")).cloned()
    }
}

impl AdmissionContext for PolicyContext<'_> {
    fn namespace(&self, name: &str) -> Option<Value> {
        self.api.stored_value("", "v1", "namespaces", "", name)
    }

    fn equivalents(&self) -> Vec<ResourceView> {
        let registry = self.api.registry();
        let versions = registry.groups.iter().flat_map(|group| &group.versions);
        let siblings = versions.flat_map(|version| &version.resources).filter(|other| {
            let has_part =
                self.subresource.is_empty() || other.subresource(self.subresource).is_some();
            other.space == self.resource.space && has_part
        });
        siblings.map(|other| view(other, self.subresource)).collect()
    }

    fn convert(&self, object: &Value, view: &ResourceView) -> Option<Value> {
        let other = resource(self.api, &view.group, &view.version, &view.resource)?;
        // An object sent to a subresource has the subresource's own kind, which all versions share.
        let own = object["kind"] == self.resource.kind.as_str();
        Some(if own {
            other.in_this_version(self.resource.to_storage(object))
        } else {
            object.clone()
        })
    }

    fn param_scope(&self, kind: &ParamKind) -> Option<ParamScope> {
        let resource = self.param_resource(kind)?;
        Some(if resource.namespaced { ParamScope::Namespaced } else { ParamScope::Cluster })
    }

    fn params(&self, kind: &ParamKind, namespace: &str, name: Option<&str>) -> Vec<Value> {
        let Some(resource) = self.param_resource(kind) else { return Vec::new() };
        if let Some(name) = name {
            let entry = self.api.stored_entry(&resource, namespace, name);
            return entry.map(|entry| resource.tree(&entry)).into_iter().collect();
        }
        let prefix = if resource.namespaced { format!("{namespace}/") } else { String::new() };
        let space = self.api.0.store.space(&resource.space);
        let below = space.iter().filter(|entry| entry.key.starts_with(prefix.as_bytes()));
        below.map(|entry| resource.tree(entry)).collect()
    }

    fn authorizer(&self) -> Arc<dyn Authorizer> {
        Arc::new(CallerAuthorizer(self.api.clone()))
    }
}

/// Authorizes callers for expressions.
#[derive(Debug)]
struct CallerAuthorizer(Api);

impl Authorizer for CallerAuthorizer {
    fn authorize(&self, user: &Value, check: &AccessCheck) -> Decision {
        let groups = user["groups"].as_array().into_iter().flatten();
        let caller = Caller {
            name: user["username"].as_str().unwrap_or_default().to_owned(),
            groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
            ..Caller::default()
        };
        // RBAC does not know selectors: a permission for all objects includes selected ones.
        let asked = match check {
            AccessCheck::Path { path, verb } => Attributes::path(verb, path),
            AccessCheck::Resource {
                group, resource, subresource, namespace, name, verb, ..
            } => {
                let asked = Attributes::resource(verb, group, resource);
                asked.with_subresource(subresource).in_namespace(namespace).with_name(name)
            }
        };
        let decision = self.0.authorize(&caller, &asked);
        Decision { allowed: decision.allowed, reason: decision.reason, error: None }
    }
}
