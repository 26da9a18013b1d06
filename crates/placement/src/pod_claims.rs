//! Resolves the claims of a pod.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_api::devices::{
    ClaimSource, ClaimSpec, DEVICE_ANNOTATIONS, DeviceClaim, DeviceClaimTemplate,
    DevicePrivilegedClaim, PodClaims, PodDeviceClaims, PodDevices, PrivilegedClaimSpec,
    TemplateMetadata, TemplateSource,
};
use gantry_devices::lower::generated_name;
use gantry_pods::view::{Container, Pod};
use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{Event, Key, ObjectReference, Resource, Step, View, World, Write, names};
use serde_json::{Value, json};

use crate::claim::{Claim, FINALIZER, POD_CLAIM_NAME_ANNOTATION};
use crate::views::DeviceObject;

/// Why a pod is pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingReason {
    /// The reason, in CamelCase.
    pub(crate) reason: &'static str,
    /// The reason, as a sentence.
    pub(crate) message: String,
}

impl PendingReason {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Whether a pod claims devices.
pub(crate) fn claims_devices(pod: &Pod) -> bool {
    DEVICE_ANNOTATIONS.iter().any(|name| pod.metadata.annotations.contains_key(*name))
}

/// Returns what a pod says about devices, in any of the supported places; empty for most pods.
fn read(world: &World, pod: &Pod) -> Result<Arc<PodClaims>, PendingReason> {
    if !claims_devices(pod) {
        return Ok(Arc::default());
    }
    let invalid = |text: String| PendingReason::new("InvalidDeviceClaims", text);
    match world.derived::<ParsedClaimsCache>().get_or_parse(pod) {
        ParsedClaims::Empty => Ok(Arc::default()),
        ParsedClaims::Claims(claims) => Ok(claims),
        ParsedClaims::Reference(name) => {
            let key = pod.metadata.key().in_same_namespace(&name);
            let Some(beside) = world.store::<DeviceObject<PodDevices>>().get(&key) else {
                let text = format!("PodDevices \"{name}\" not found");
                return Err(PendingReason::new("PodDevicesNotFound", text));
            };
            match &beside.object {
                Ok(object) => Ok(Arc::new(object.spec.clone())),
                Err(why) => Err(invalid(format!("PodDevices \"{name}\": {why}"))),
            }
        }
        ParsedClaims::Invalid(text) => Err(invalid(text.to_string())),
    }
}

/// Caches the parsed claims of pods by their text: pods of one template have the same, every plan
/// reads all pending pods, and parsing takes far longer than a lookup.
#[derive(Debug, Default)]
struct ParsedClaimsCache(Mutex<HashMap<ClaimsCacheKey, ParsedClaims>>);

/// How many are cached. Beyond that the cache is cleared: those in use are parsed again at once.
const MAX_CACHED_CLAIMS: usize = 4_096;

/// Everything that the claims of a pod depend on: its annotations about devices, and its
/// containers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ClaimsCacheKey {
    annotations: [Option<String>; 3],
    containers: Vec<String>,
    init_containers: Vec<String>,
}

/// The source of a pod's claims.
#[derive(Clone, Debug)]
enum ParsedClaims {
    Empty,
    Claims(Arc<PodClaims>),
    /// The name of the object that has the claims.
    Reference(Arc<str>),
    Invalid(Arc<str>),
}

impl ParsedClaimsCache {
    fn get_or_parse(&self, pod: &Pod) -> ParsedClaims {
        let names = |list: &[Container]| list.iter().map(|it| it.name.clone()).collect();
        let words = ClaimsCacheKey {
            annotations: DEVICE_ANNOTATIONS.map(|name| pod.metadata.annotations.get(name).cloned()),
            containers: names(&pod.spec.containers),
            init_containers: names(&pod.spec.init_containers),
        };
        // No caller's code runs under the lock, so a poisoned lock still guards consistent data.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(saying) = known.get(&words) {
            return saying.clone();
        }
        if known.len() >= MAX_CACHED_CLAIMS {
            known.clear();
        }
        let saying = words.parse();
        known.insert(words, saying.clone());
        saying
    }
}

impl ClaimsCacheKey {
    fn parse(&self) -> ParsedClaims {
        let named =
            |list: &[String]| -> Value { list.iter().map(|it| json!({"name": it})).collect() };
        let said = DEVICE_ANNOTATIONS.iter().zip(&self.annotations);
        let annotations: BTreeMap<&str, &String> =
            said.filter_map(|(name, text)| Some((*name, text.as_ref()?))).collect();
        let object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"annotations": annotations},
            "spec": {
                "containers": named(&self.containers),
                "initContainers": named(&self.init_containers),
            },
        });
        match PodDeviceClaims::of(&object) {
            Ok(None) => ParsedClaims::Empty,
            Ok(Some(PodDeviceClaims::Claims(claims))) => ParsedClaims::Claims(Arc::new(claims)),
            Ok(Some(PodDeviceClaims::Named(name))) => ParsedClaims::Reference(name.into()),
            Err(findings) => {
                let texts = findings.errors.iter().map(|it| format!("{}: {}", it.path, it.text));
                ParsedClaims::Invalid(texts.collect::<Vec<_>>().join("; ").into())
            }
        }
    }
}

/// Returns the claims of a pod with their names: the given name of each, or its index.
pub(crate) fn named_claims(claims: &PodClaims) -> impl Iterator<Item = (String, &ClaimSource)> {
    let named = claims.device_claims.iter().enumerate();
    named.map(|(at, it)| (it.name.clone().unwrap_or_else(|| at.to_string()), &it.source))
}

/// The claims of a pod, and those that must still be created for it.
#[derive(Debug, Default)]
pub(crate) struct ResolvedClaims {
    /// What the pod requests.
    pub(crate) requested: Arc<PodClaims>,
    /// The claims, with their names in the pod.
    pub(crate) claims: Vec<(String, Claim)>,
    /// The entries without a claim: their names in the pod, and their indexes.
    pub(crate) missing: Vec<(String, usize)>,
}

/// Reads what a pod requests, and finds its claims.
pub(crate) fn resolve(world: &World, pod: &Pod) -> Result<ResolvedClaims, PendingReason> {
    let requested = read(world, pod)?;
    let mut resolved = ResolvedClaims { requested, ..ResolvedClaims::default() };
    let claims = Arc::clone(&resolved.requested);
    for (at, (entry, source)) in named_claims(&claims).enumerate() {
        let found = match source {
            ClaimSource::ClaimName(name) => Some(existing_claim(world, pod, name)?),
            ClaimSource::ClaimTemplateName(_)
            | ClaimSource::Claim(_)
            | ClaimSource::Template(_) => generated_claim(world, pod, &entry),
        };
        match found {
            Some(claim) if claim.meta().is_terminating() => {
                return Err(deleting_reason(claim.name()));
            }
            Some(claim) => resolved.claims.push((entry, claim)),
            None => resolved.missing.push((entry, at)),
        }
    }
    Ok(resolved)
}

/// Creates the missing claims of a pod.
pub(crate) fn create_missing(
    world: &World,
    pod: &Pod,
    resolved: &ResolvedClaims,
) -> Result<Vec<Step>, PendingReason> {
    let mut steps = Vec::new();
    for (entry, at) in &resolved.missing {
        let step = match &resolved.requested.device_claims[*at].source {
            // A claim that is referred to by name exists, or the pod waits for it.
            ClaimSource::ClaimName(_) => continue,
            ClaimSource::ClaimTemplateName(name) => create_from_template(world, pod, entry, name)?,
            ClaimSource::Claim(spec) => {
                create_claim(pod, entry, None, GeneratedClaimSpec::Plain(spec))
            }
            ClaimSource::Template(template) => create_claim(
                pod,
                entry,
                template.metadata.as_ref(),
                GeneratedClaimSpec::Plain(&template.spec),
            ),
        };
        steps.push(step);
    }
    Ok(steps)
}

fn existing_claim(world: &World, pod: &Pod, name: &str) -> Result<Claim, PendingReason> {
    let key = pod.metadata.key().in_same_namespace(name);
    let Some(claim) = Claim::by_key(world, &key).into_iter().next() else {
        return Err(PendingReason::new("ClaimNotFound", format!("claim \"{name}\" not found")));
    };
    let owner = claim.meta().controller().filter(|it| it.kind == "Pod");
    if owner.is_some_and(|it| it.uid != pod.metadata.uid) {
        let text = format!("claim \"{name}\" belongs to another pod");
        return Err(PendingReason::new("ClaimOfAnotherPod", text));
    }
    if claim.meta().is_terminating() {
        return Err(deleting_reason(name));
    }
    Ok(claim)
}

fn deleting_reason(name: &str) -> PendingReason {
    PendingReason::new("ClaimGoing", format!("claim \"{name}\" is being deleted"))
}

/// Returns the claim that was created for an entry of a pod. If there are several, which only
/// another client can have created, it is always the same one.
pub(crate) fn generated_claim(world: &World, pod: &Pod, entry: &str) -> Option<Claim> {
    let uid = &pod.metadata.uid;
    let plain =
        world.store::<DeviceObject<DeviceClaim>>().owned_by(uid).into_iter().map(Claim::Plain);
    let privileged = world.store::<DeviceObject<DevicePrivilegedClaim>>().owned_by(uid);
    let all = plain.chain(privileged.into_iter().map(Claim::Privileged));
    let of_entry = |it: &Claim| {
        let meta = it.meta();
        meta.namespace == pod.metadata.namespace
            && meta.annotations.get(POD_CLAIM_NAME_ANNOTATION).is_some_and(|name| name == entry)
    };
    all.filter(of_entry).min_by_key(|it| it.name().to_owned())
}

fn create_from_template(
    world: &World,
    pod: &Pod,
    entry: &str,
    name: &str,
) -> Result<Step, PendingReason> {
    let key = pod.metadata.key().in_same_namespace(name);
    let wrong = |why: &String| PendingReason::new("InvalidClaim", format!("\"{name}\": {why}"));
    if let Some(template) = world.store::<DeviceObject<DeviceClaimTemplate>>().get(&key) {
        let object = template.object.as_ref().map_err(wrong)?;
        let metadata = object.spec.metadata.as_ref();
        let wish = match &object.spec.source {
            TemplateSource::ClaimSpec(spec) => GeneratedClaimSpec::Plain(spec),
            TemplateSource::PrivilegedClaimSpec(spec) => GeneratedClaimSpec::Privileged(spec),
        };
        return Ok(create_claim(pod, entry, metadata, wish));
    }
    let Some(claim) = world.store::<DeviceObject<DeviceClaim>>().get(&key) else {
        let text = format!("claim template \"{name}\" not found");
        return Err(PendingReason::new("TemplateNotFound", text));
    };
    let claim: Arc<DeviceObject<DeviceClaim>> = claim;
    let object = claim.object.as_ref().map_err(wrong)?;
    let text = format!("claim \"{name}\" is used as a template; it is never allocated itself");
    let about = ObjectReference::to(&Pod::RESOURCE, &pod.metadata);
    let step = create_claim(pod, entry, None, GeneratedClaimSpec::Plain(&object.spec));
    Ok(step.on_success(Event::warning(about, "ClaimUsedAsTemplate", text)))
}

#[derive(Clone, Copy)]
enum GeneratedClaimSpec<'a> {
    Plain(&'a ClaimSpec),
    Privileged(&'a PrivilegedClaimSpec),
}

/// Creates a claim for an entry of a pod. Its name follows from both, so that it is created once.
fn create_claim(
    pod: &Pod,
    entry: &str,
    metadata: Option<&TemplateMetadata>,
    wish: GeneratedClaimSpec<'_>,
) -> Step {
    let (resource, spec): (Resource, Value) = match wish {
        GeneratedClaimSpec::Plain(spec) => {
            (<DeviceObject<DeviceClaim> as View>::RESOURCE, json!(spec))
        }
        GeneratedClaimSpec::Privileged(spec) => {
            (<DeviceObject<DevicePrivilegedClaim> as View>::RESOURCE, json!(spec))
        }
    };
    let key = generated_key(pod, entry);
    let metadata = metadata.cloned().unwrap_or_default();
    let mut annotations = metadata.annotations;
    annotations.insert(POD_CLAIM_NAME_ANNOTATION.to_owned(), entry.to_owned());
    let body = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": {
            "name": key.name(),
            "namespace": key.namespace(),
            "labels": metadata.labels,
            "annotations": annotations,
            "ownerReferences": [controller_reference(&Pod::RESOURCE, &pod.metadata)],
            // It is created to be allocated, so it has the finalizer from the start.
            "finalizers": [FINALIZER],
        },
        "spec": spec,
    });
    // If the pod is gone by now, the claim is garbage collected with everything it owns.
    Step::new(Write::Create { resource, body })
}

fn generated_key(pod: &Pod, entry: &str) -> Key {
    let base = generated_name(&pod.metadata.name, entry);
    let suffix = names::suffix(&[pod.metadata.uid.as_str(), entry]);
    pod.metadata.key().in_same_namespace(&format!("{base}{suffix}"))
}
