//! Which claims a pod has.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_api::devices::{
    CARRIER_ANNOTATIONS, Carried, ClaimSource, ClaimSpec, DeviceClaim, DeviceClaimTemplate,
    DevicePrivilegedClaim, PodClaims, PodDevices, PrivilegedClaimSpec, TemplateMetadata,
    TemplateSource,
};
use gantry_devices::lower::generated_name;
use gantry_pods::view::{Container, Pod};
use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{Key, Note, Reference, Resource, Step, View, World, Write, names};
use serde_json::{Value, json};

use crate::claim::{Claim, ENTRY_ANNOTATION, FINALIZER};
use crate::seen::Seen;

/// Why nothing can be done for a pod at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// In one word.
    pub(crate) reason: &'static str,
    /// In a sentence.
    pub(crate) message: String,
}

impl Trouble {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Whether a pod says anything about devices.
pub(crate) fn has_carrier(pod: &Pod) -> bool {
    CARRIER_ANNOTATIONS.iter().any(|name| pod.metadata.annotations.contains_key(*name))
}

/// What a pod says about devices, wherever it says it; nothing for the many that say nothing.
pub(crate) fn read(world: &World, pod: &Pod) -> Result<Arc<PodClaims>, Trouble> {
    if !has_carrier(pod) {
        return Ok(Arc::default());
    }
    let invalid = |text: String| Trouble::new("InvalidDeviceClaims", text);
    match world.kept::<Sayings>().of(pod) {
        Saying::Nothing => Ok(Arc::default()),
        Saying::Claims(claims) => Ok(claims),
        Saying::Named(name) => {
            let key = pod.metadata.key().beside(&name);
            let Some(beside) = world.shelf::<Seen<PodDevices>>().get(&key) else {
                let text = format!("PodDevices \"{name}\" not found");
                return Err(Trouble::new("PodDevicesNotFound", text));
            };
            match &beside.object {
                Ok(object) => Ok(Arc::new(object.spec.clone())),
                Err(why) => Err(invalid(format!("PodDevices \"{name}\": {why}"))),
            }
        }
        Saying::Wrong(text) => Err(invalid(text.to_string())),
    }
}

/// What pods say, by the words they say it in: those of one template say the same, every plan hears all
/// who wait, and reading takes far longer than finding.
#[derive(Debug, Default)]
struct Sayings(Mutex<HashMap<Words, Saying>>);

/// How many are remembered. Past it all are forgotten: those in use come back at once.
const SAYINGS: usize = 4_096;

/// Everything that what a pod says depends on: its annotations about devices, and its containers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Words {
    annotations: [Option<String>; 3],
    containers: Vec<String>,
    init_containers: Vec<String>,
}

/// What somebody says about devices.
#[derive(Clone, Debug)]
enum Saying {
    Nothing,
    Claims(Arc<PodClaims>),
    /// The name of the object that has the claims.
    Named(Arc<str>),
    Wrong(Arc<str>),
}

impl Sayings {
    fn of(&self, pod: &Pod) -> Saying {
        let names = |list: &[Container]| list.iter().map(|it| it.name.clone()).collect();
        let words = Words {
            annotations: CARRIER_ANNOTATIONS
                .map(|name| pod.metadata.annotations.get(name).cloned()),
            containers: names(&pod.spec.containers),
            init_containers: names(&pod.spec.init_containers),
        };
        // No code of others runs under the lock, so a poisoned one is still good.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(saying) = known.get(&words) {
            return saying.clone();
        }
        if known.len() >= SAYINGS {
            known.clear();
        }
        let saying = words.read();
        known.insert(words, saying.clone());
        saying
    }
}

impl Words {
    fn read(&self) -> Saying {
        let named =
            |list: &[String]| -> Value { list.iter().map(|it| json!({"name": it})).collect() };
        let said = CARRIER_ANNOTATIONS.iter().zip(&self.annotations);
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
        match Carried::of(&object) {
            Ok(None) => Saying::Nothing,
            Ok(Some(Carried::Claims(claims))) => Saying::Claims(Arc::new(claims)),
            Ok(Some(Carried::Named(name))) => Saying::Named(name.into()),
            Err(findings) => {
                let texts = findings.errors.iter().map(|it| format!("{}: {}", it.path, it.text));
                Saying::Wrong(texts.collect::<Vec<_>>().join("; ").into())
            }
        }
    }
}

/// What a pod calls its claims: the name of each, or its place.
pub(crate) fn entries(claims: &PodClaims) -> impl Iterator<Item = (String, &ClaimSource)> {
    let named = claims.device_claims.iter().enumerate();
    named.map(|(at, it)| (it.name.clone().unwrap_or_else(|| at.to_string()), &it.source))
}

/// The claims of a pod, and those that are still to be made for it.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// What the pod calls them, and what they are.
    pub(crate) claims: Vec<(String, Claim)>,
    /// The entries of the others: what the pod calls them, and their places.
    pub(crate) missing: Vec<(String, usize)>,
}

/// Finds the claims of a pod.
pub(crate) fn resolve(world: &World, pod: &Pod, claims: &PodClaims) -> Result<Resolved, Trouble> {
    let mut resolved = Resolved::default();
    for (at, (entry, source)) in entries(claims).enumerate() {
        let found = match source {
            ClaimSource::ClaimName(name) => Some(existing(world, pod, name)?),
            ClaimSource::ClaimTemplateName(_)
            | ClaimSource::Claim(_)
            | ClaimSource::Template(_) => made(world, pod, &entry),
        };
        match found {
            Some(claim) if claim.meta().is_going() => return Err(going(claim.name())),
            Some(claim) => resolved.claims.push((entry, claim)),
            None => resolved.missing.push((entry, at)),
        }
    }
    Ok(resolved)
}

/// Makes the claims of a pod that are missing.
pub(crate) fn supply(
    world: &World,
    pod: &Pod,
    claims: &PodClaims,
    missing: &[(String, usize)],
) -> Result<Vec<Step>, Trouble> {
    let mut steps = Vec::new();
    for (entry, at) in missing {
        let step = match &claims.device_claims[*at].source {
            // Who has this name is there, or the pod waits for it.
            ClaimSource::ClaimName(_) => continue,
            ClaimSource::ClaimTemplateName(name) => from_template(world, pod, entry, name)?,
            ClaimSource::Claim(spec) => make(pod, entry, None, Wish::Plain(spec)),
            ClaimSource::Template(template) => {
                make(pod, entry, template.metadata.as_ref(), Wish::Plain(&template.spec))
            }
        };
        steps.push(step);
    }
    Ok(steps)
}

fn existing(world: &World, pod: &Pod, name: &str) -> Result<Claim, Trouble> {
    let key = pod.metadata.key().beside(name);
    let Some(claim) = Claim::all(world, &key).into_iter().next() else {
        return Err(Trouble::new("ClaimNotFound", format!("claim \"{name}\" not found")));
    };
    let owner = claim.meta().controller().filter(|it| it.kind == "Pod");
    if owner.is_some_and(|it| it.uid != pod.metadata.uid) {
        let text = format!("claim \"{name}\" belongs to another pod");
        return Err(Trouble::new("ClaimOfAnotherPod", text));
    }
    if claim.meta().is_going() {
        return Err(going(name));
    }
    Ok(claim)
}

fn going(name: &str) -> Trouble {
    Trouble::new("ClaimGoing", format!("claim \"{name}\" is being deleted"))
}

/// The claim that was made for an entry of a pod. Of several, which only a stranger can have made,
/// always the same.
pub(crate) fn made(world: &World, pod: &Pod, entry: &str) -> Option<Claim> {
    let uid = &pod.metadata.uid;
    let plain = world.shelf::<Seen<DeviceClaim>>().owned_by(uid).into_iter().map(Claim::Plain);
    let privileged = world.shelf::<Seen<DevicePrivilegedClaim>>().owned_by(uid);
    let all = plain.chain(privileged.into_iter().map(Claim::Privileged));
    let of_entry = |it: &Claim| {
        let meta = it.meta();
        meta.namespace == pod.metadata.namespace
            && meta.annotations.get(ENTRY_ANNOTATION).is_some_and(|name| name == entry)
    };
    all.filter(of_entry).min_by_key(|it| it.name().to_owned())
}

fn from_template(world: &World, pod: &Pod, entry: &str, name: &str) -> Result<Step, Trouble> {
    let key = pod.metadata.key().beside(name);
    let wrong = |why: &String| Trouble::new("InvalidClaim", format!("\"{name}\": {why}"));
    if let Some(template) = world.shelf::<Seen<DeviceClaimTemplate>>().get(&key) {
        let object = template.object.as_ref().map_err(wrong)?;
        let metadata = object.spec.metadata.as_ref();
        let wish = match &object.spec.source {
            TemplateSource::ClaimSpec(spec) => Wish::Plain(spec),
            TemplateSource::PrivilegedClaimSpec(spec) => Wish::Privileged(spec),
        };
        return Ok(make(pod, entry, metadata, wish));
    }
    let Some(claim) = world.shelf::<Seen<DeviceClaim>>().get(&key) else {
        let text = format!("claim template \"{name}\" not found");
        return Err(Trouble::new("TemplateNotFound", text));
    };
    let claim: Arc<Seen<DeviceClaim>> = claim;
    let object = claim.object.as_ref().map_err(wrong)?;
    let text = format!("claim \"{name}\" is used as a template; it is never allocated itself");
    let about = Reference::to(&Pod::RESOURCE, &pod.metadata);
    let step = make(pod, entry, None, Wish::Plain(&object.spec));
    Ok(step.done(Note::warning(about, "ClaimUsedAsTemplate", text)))
}

#[derive(Clone, Copy)]
enum Wish<'a> {
    Plain(&'a ClaimSpec),
    Privileged(&'a PrivilegedClaimSpec),
}

/// Makes a claim for an entry of a pod. Its name follows from both, so that it is made once.
fn make(pod: &Pod, entry: &str, metadata: Option<&TemplateMetadata>, wish: Wish<'_>) -> Step {
    let (resource, spec): (Resource, Value) = match wish {
        Wish::Plain(spec) => (<Seen<DeviceClaim> as View>::RESOURCE, json!(spec)),
        Wish::Privileged(spec) => (<Seen<DevicePrivilegedClaim> as View>::RESOURCE, json!(spec)),
    };
    let key = generated_key(pod, entry);
    let metadata = metadata.cloned().unwrap_or_default();
    let mut annotations = metadata.annotations;
    annotations.insert(ENTRY_ANNOTATION.to_owned(), entry.to_owned());
    let body = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": {
            "name": key.name(),
            "namespace": key.namespace(),
            "labels": metadata.labels,
            "annotations": annotations,
            "ownerReferences": [controlled_by(&Pod::RESOURCE, &pod.metadata)],
            // It is made to be given devices: there is no time without them.
            "finalizers": [FINALIZER],
        },
        "spec": spec,
    });
    // One that is made for a pod that is gone by now goes the way of all that belongs to it.
    Step::new(Write::Create { resource, body })
}

fn generated_key(pod: &Pod, entry: &str) -> Key {
    let base = generated_name(&pod.metadata.name, entry);
    let suffix = names::suffix(&[pod.metadata.uid.as_str(), entry]);
    pod.metadata.key().beside(&format!("{base}{suffix}"))
}
