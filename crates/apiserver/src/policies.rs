//! Admission policies: compiled when they are stored, and asked about every write.
//!
//! A policy or binding takes effect when it is stored: whoever gets the answer to its creation is
//! under it at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use gantry_admission::authorizer::{Authorizer, Check, Decision};
use gantry_admission::decide::Reason;
use gantry_admission::{Binding, Denial, ParamKind, ParamScope, Policy, Request, View, World};
use http::StatusCode;
use serde_json::Value;

use crate::access::{Attributes, Caller};
use crate::admission::Review;
use crate::api::{Api, Entry};
use crate::parts::resource;
use crate::resource::Resource;
use crate::status::{Cause, Refusal};

/// Where policies are stored.
pub(crate) const SPACE: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
/// Where bindings are stored.
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

/// What nobody may stand in the way of: questions, and what would undo a policy.
const UNASKED: [(&str, &str); 10] = [
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

/// A policy and the bindings that put it into effect.
type Hook = (Arc<Policy>, Vec<Arc<Binding>>);

/// The policies in effect.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    known: Mutex<Known>,
    hooks: ArcSwap<Vec<Hook>>,
}

/// What was made of stored objects, by name, and the revisions it was made from.
#[derive(Debug, Default)]
struct Known {
    policies: HashMap<String, (u64, Arc<Policy>)>,
    bindings: HashMap<String, (u64, Arc<Binding>)>,
}

impl Policies {
    /// Whether a change of what is stored in a space changes the policies in effect.
    pub(crate) fn concern(space: &str) -> bool {
        space == SPACE || space == BINDINGS
    }

    /// Brings the policies in effect in line with what is stored.
    pub(crate) fn refresh(&self, api: &Api) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = api.0.store.snapshot();
        known.policies = kept(&known.policies, snapshot.space(SPACE).iter(), Policy::compile);
        known.bindings = kept(&known.bindings, snapshot.space(BINDINGS).iter(), Binding::read);
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
        self.hooks.store(Arc::new(hooks));
    }
}

/// What was made of objects, made anew only where they changed.
fn kept<'e, T>(
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
    /// Asks the policies about a write.
    pub(crate) fn ask_policies(
        &self,
        review: &mut Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), Refusal> {
        let hooks = self.0.policies.hooks.load();
        let Resource { group, plural, .. } = &**review.resource;
        if hooks.is_empty() || UNASKED.contains(&(group.as_str(), plural.as_str())) {
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
        let here = Here { api: self, resource: review.resource, subresource: review.subresource };
        let outcome = gantry_admission::decide(&hooks, &request, &here);
        review.warnings.extend(outcome.warnings);
        for (key, value) in &outcome.annotations {
            tracing::info!(target: "audit", key, value, "a policy noted something");
        }
        match outcome.denied {
            None => Ok(()),
            Some(denial) => Err(denied(review, object, &denial)),
        }
    }
}

/// The refusal of what a policy objects to.
fn denied(review: &Review<'_>, object: Option<&Value>, denial: &Denial) -> Refusal {
    let mut refusal = review.forbidden(object, &denial.message);
    (refusal.code, refusal.reason) = match denial.reason {
        Reason::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
        Reason::Forbidden => (StatusCode::FORBIDDEN, "Forbidden"),
        Reason::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        Reason::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
    };
    let cause = Cause { message: denial.message.clone(), ..Cause::default() };
    refusal.details.get_or_insert_default().causes.push(cause);
    refusal
}

/// A resource, or a part of it, as admission names it.
pub(crate) fn view(resource: &Resource, subresource: &str) -> View {
    let part = resource.subresource(subresource);
    let or = |own: &str, else_: &str| if own.is_empty() { else_ } else { own }.to_owned();
    View {
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

/// The server as policies see it while they decide about one request.
#[derive(Debug)]
pub(crate) struct Here<'a> {
    pub(crate) api: &'a Api,
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
}

impl Here<'_> {
    /// The resource whose objects are of a kind.
    fn param_resource(&self, kind: &ParamKind) -> Option<Arc<Resource>> {
        let registry = self.api.registry();
        registry.by_kind(&kind.api_version, &kind.kind).filter(|it| it.has_verb("list")).cloned()
    }
}

impl World for Here<'_> {
    fn namespace(&self, name: &str) -> Option<Value> {
        self.api.look("", "v1", "namespaces", "", name)
    }

    fn equivalents(&self) -> Vec<View> {
        let registry = self.api.registry();
        let versions = registry.groups.iter().flat_map(|group| &group.versions);
        let siblings = versions.flat_map(|version| &version.resources).filter(|other| {
            let has_part =
                self.subresource.is_empty() || other.subresource(self.subresource).is_some();
            other.space == self.resource.space && has_part
        });
        siblings.map(|other| view(other, self.subresource)).collect()
    }

    fn convert(&self, object: &Value, view: &View) -> Option<Value> {
        let other = resource(self.api, &view.group, &view.version, &view.resource)?;
        // What is sent to a part is of the part's own kind, which all views share.
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
            let entry = self.api.stored(&resource, namespace, name);
            return entry.map(|entry| resource.tree(&entry)).into_iter().collect();
        }
        let prefix = if resource.namespaced { format!("{namespace}/") } else { String::new() };
        let space = self.api.0.store.space(&resource.space);
        let below = space.iter().filter(|entry| entry.key.starts_with(prefix.as_bytes()));
        below.map(|entry| resource.tree(entry)).collect()
    }

    fn authorizer(&self) -> Arc<dyn Authorizer> {
        Arc::new(Rights(self.api.clone()))
    }
}

/// What callers may do, as expressions ask for it.
#[derive(Debug)]
struct Rights(Api);

impl Authorizer for Rights {
    fn authorize(&self, user: &Value, check: &Check) -> Decision {
        let groups = user["groups"].as_array().into_iter().flatten();
        let caller = Caller {
            name: user["username"].as_str().unwrap_or_default().to_owned(),
            groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
            ..Caller::default()
        };
        // Roles know no selectors: whoever may see all may see some.
        let asked = match check {
            Check::Path { path, verb } => Attributes::path(verb, path),
            Check::Resource { group, resource, subresource, namespace, name, verb, .. } => {
                let asked = Attributes::resource(verb, group, resource);
                asked.part(subresource).inside(namespace).named(name)
            }
        };
        let decision = self.0.authorize(&caller, &asked);
        Decision { allowed: decision.allowed, reason: decision.reason, error: None }
    }
}
