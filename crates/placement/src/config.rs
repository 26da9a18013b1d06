//! What objects say that configure devices, at the moment a claim is given some.
//!
//! They may be of any kind, so no cache has them. [`ConfigInquiry`] says which of them are to be read: those
//! that claims without devices refer to. What was read is a fact, [`ConfigObject`], about the [`Reference`]:
//! claims that may have the same object copied share it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gantry_api::devices::{
    ClaimSpec, ClassConfig, DeviceAllocation, DeviceClaim, DeviceClass, DevicePrivilegedClaim,
    TermConfig,
};
use gantry_devices::lower::{Catalog, Wanted as WantedDevices};
use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, Wanted};
use gantry_reconcile::{Change, Fact, FactTable, Inquiry, Key, Kind, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::claim::Claim;
use crate::scheduler::scene::listed;
use crate::seen::Seen;

/// The most that one object may say, in bytes.
const LARGEST: usize = 10 << 10;
/// The most that all objects of a claim may say together.
const LARGEST_SUM: usize = 64 << 10;

/// After how long an object is read again while a claim waits for its devices.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// How long one answer may take: three requests with a time-out of their own each, whose messages say more
/// than this one's.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(35);
/// How many objects are read at once, and how many that claims of one namespace name.
const CONCURRENCY: Concurrency = Concurrency { total: 32, per_group: 4 };

/// What is known about an object that configures devices.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigObject {
    /// What it says.
    Found(Value),
    /// There is no such object.
    NotFound,
    /// Why it could not be read or may not be copied. The text follows the name of the object.
    Problem(String),
}

impl Fact for ConfigObject {
    type Subject = Reference;
    const NAME: &'static str = "device-config";
}

/// An object that configures devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Who names the object.
    pub named_by: NamedBy,
}

/// Who names an object that configures devices. What is copied into a claim is read by everybody who reads
/// the claim, with the rights of the allocator, so it matters who decided that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamedBy {
    /// A DeviceClass, which an administrator writes.
    Class,
    /// A claim, which a user writes: of kinds with a group only those are copied whose definition says that
    /// they may be ([`CONFIG_LABEL`]).
    Claim,
}

/// The label of a CustomResourceDefinition whose objects users may have copied into their claims.
pub const CONFIG_LABEL: &str = "devmgmtproto.k8s.io/device-config";

impl Reference {
    fn of_class(config: &ClassConfig) -> Self {
        Self {
            api_version: config.api_version.clone(),
            kind: config.kind.clone(),
            namespace: config.namespace.clone(),
            name: config.name.clone(),
            named_by: NamedBy::Class,
        }
    }

    fn of_term(config: &TermConfig, namespace: &str) -> Self {
        Self {
            api_version: config.api_version.clone(),
            kind: config.kind.clone(),
            namespace: namespace.to_owned(),
            name: config.name.clone(),
            named_by: NamedBy::Claim,
        }
    }

    /// Whether its kind has to say that it may be copied.
    #[must_use]
    pub fn needs_label(&self) -> bool {
        self.named_by == NamedBy::Claim && self.api_version.contains('/')
    }

    /// Whether it may be copied to where the claim's readers see it: of the kinds in the core group
    /// only ConfigMaps may.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        match self.api_version.split_once('/') {
            None => self.api_version == "v1" && self.kind == "ConfigMap",
            Some(_) => true,
        }
    }
}

/// Asks for the objects that configure devices, for as long as a claim without devices refers to them.
///
/// Users name the objects, so how many are read at once for one namespace is bounded: a slow read delays no
/// other namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigInquiry;

impl Inquiry for ConfigInquiry {
    type Fact = ConfigObject;

    fn name(&self) -> &'static str {
        "device-configs"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Seen<DeviceClaim>>(),
            Kind::of::<Seen<DevicePrivilegedClaim>>(),
            Kind::of::<Seen<DeviceClass>>(),
        ]
    }

    /// The keys of claims. A DeviceClaim and a DevicePrivilegedClaim of one name share a key, and what either
    /// refers to is asked for.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Seen<DeviceClaim>>() {
            let of_claim = |it: &Seen<DeviceClaim>| !of_plain(it, &Catalog::default()).is_empty();
            // Most clusters have nothing that configures devices, and claims come and go.
            let concerns = change.both::<Seen<DeviceClaim>>().any(of_claim)
                || !classes_with_configs(world).is_empty();
            return if concerns { vec![change.key.clone()] } else { Vec::new() };
        }
        if change.is::<Seen<DevicePrivilegedClaim>>() {
            let mut both = change.both::<Seen<DevicePrivilegedClaim>>();
            let concerns = both.any(|it| !of_privileged(it).is_empty());
            return if concerns { vec![change.key.clone()] } else { Vec::new() };
        }
        if !change.both::<Seen<DeviceClass>>().any(has_configs) {
            return Vec::new();
        }
        let claims = world.shelf::<Seen<DeviceClaim>>().all();
        claims.iter().filter(|it| is_waiting(it)).map(|it| it.metadata.key()).collect()
    }

    fn wanted(&self, world: &World, key: &Key, _: Timestamp) -> Wanted<Reference> {
        let plain = world.shelf::<Seen<DeviceClaim>>().get(key).filter(|it| is_waiting(it));
        let plain = plain.map(|it| of_plain(&it, &listed(&[], &classes_with_configs(world))));
        let privileged = world.shelf::<Seen<DevicePrivilegedClaim>>().get(key);
        let privileged = privileged
            .filter(|it| it.status.allocations.is_empty() && !it.metadata.is_going())
            .map(|it| of_privileged(&it));
        let all = plain.into_iter().chain(privileged).flatten();
        all.filter(Reference::is_allowed).collect()
    }

    fn policy(&self, _: &Reference) -> InquiryPolicy {
        InquiryPolicy {
            refresh_interval: REFRESH_INTERVAL,
            timeout: ANSWER_TIMEOUT,
            ..InquiryPolicy::default()
        }
    }

    fn concurrency(&self) -> Concurrency {
        CONCURRENCY
    }

    /// By namespace, and what classes name apart from what claims name: users of a namespace that a class
    /// refers to do not delay what all users of that class wait for.
    fn group(&self, reference: &Reference) -> String {
        match reference.named_by {
            NamedBy::Class => format!("class/{}", reference.namespace),
            NamedBy::Claim => format!("claim/{}", reference.namespace),
        }
    }
}

fn is_waiting(claim: &Seen<DeviceClaim>) -> bool {
    claim.status.allocations.is_empty() && !claim.metadata.is_going()
}

fn has_configs(class: &Seen<DeviceClass>) -> bool {
    class.object.as_ref().is_ok_and(|it| !it.spec.configs.is_empty())
}

fn classes_with_configs(world: &World) -> Vec<Arc<Seen<DeviceClass>>> {
    let mut classes = world.shelf::<Seen<DeviceClass>>().all();
    classes.retain(|it| has_configs(it));
    classes
}

fn of_privileged(claim: &Seen<DevicePrivilegedClaim>) -> BTreeSet<Reference> {
    let configs = claim.object.iter().flat_map(|it| &it.spec.configs);
    configs.map(|it| Reference::of_term(it, &claim.metadata.namespace)).collect()
}

/// All that a claim may have to copy, whichever way it is satisfied.
fn of_plain(claim: &Seen<DeviceClaim>, catalog: &Catalog) -> BTreeSet<Reference> {
    let Ok(object) = &claim.object else { return BTreeSet::new() };
    let namespace = &claim.metadata.namespace;
    let mut all = BTreeSet::new();
    for ask in object.spec.claims.iter().flat_map(|term| term.alternatives()) {
        let class = ask.device_class.as_deref().and_then(|name| catalog.class(name));
        all.extend(class.into_iter().flat_map(|it| &it.configs).map(Reference::of_class));
        if let Some(device_type) = &ask.device_type {
            let classes = catalog.of_type(device_type);
            all.extend(classes.flat_map(|(_, it)| &it.configs).map(Reference::of_class));
        }
        all.extend(ask.configs.iter().map(|it| Reference::of_term(it, namespace)));
    }
    all
}

/// The copies that go into the status of a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Copies {
    pub(crate) of_classes: Vec<Value>,
    pub(crate) of_claim: Vec<Value>,
}

/// Which classes' configs apply to what a term got: one class for each device.
pub(crate) trait Classes {
    /// The names of the classes, in order.
    fn of(&self, term: &str, device_type: &str, got: &[DeviceAllocation]) -> Vec<String>;
}

/// Copies what configures the devices a claim gets.
pub(crate) fn copy(
    claim: &Claim,
    catalog: &Catalog,
    selected: &BTreeMap<String, usize>,
    got: &[DeviceAllocation],
    classes: &dyn Classes,
    objects: &FactTable<ConfigObject>,
) -> Result<Copies, String> {
    let namespace = &claim.meta().namespace;
    let (mut of_classes, mut of_claim) = (Vec::new(), Vec::new());
    match claim.wanted()? {
        WantedDevices::Claim(spec) => references(
            spec,
            catalog,
            selected,
            got,
            classes,
            namespace,
            &mut of_classes,
            &mut of_claim,
        ),
        WantedDevices::Privileged(spec) => {
            of_claim.extend(spec.configs.iter().map(|it| Reference::of_term(it, namespace)));
        }
    }
    let mut sum = 0;
    let mut each = |list: Vec<Reference>| -> Result<Vec<Value>, String> {
        let mut copies = Vec::new();
        for (at, config) in list.iter().enumerate() {
            if !list[..at].contains(config) {
                copies.push(copy_one(config, objects, &mut sum)?);
            }
        }
        Ok(copies)
    };
    Ok(Copies { of_classes: each(of_classes)?, of_claim: each(of_claim)? })
}

#[expect(clippy::too_many_arguments, reason = "two lists are filled from one walk over the terms")]
fn references(
    spec: &ClaimSpec,
    catalog: &Catalog,
    selected: &BTreeMap<String, usize>,
    got: &[DeviceAllocation],
    classes: &dyn Classes,
    namespace: &str,
    of_classes: &mut Vec<Reference>,
    of_claim: &mut Vec<Reference>,
) {
    for term in &spec.claims {
        let nth = selected.get(&term.name).copied().unwrap_or_default();
        let Some(ask) = term.alternatives().nth(nth) else { continue };
        let mut names: Vec<String> = ask.device_class.iter().cloned().collect();
        if let Some(device_type) = &ask.device_type {
            names.extend(classes.of(&term.name, device_type, got));
        }
        for class in names.iter().filter_map(|name| catalog.class(name)) {
            of_classes.extend(class.configs.iter().map(Reference::of_class));
        }
        of_claim.extend(ask.configs.iter().map(|it| Reference::of_term(it, namespace)));
    }
}

fn copy_one(
    config: &Reference,
    objects: &FactTable<ConfigObject>,
    sum: &mut usize,
) -> Result<Value, String> {
    let (kind, name) = (&config.kind, &config.name);
    let place = format!("{kind} {}/{name}", config.namespace);
    if !config.is_allowed() {
        return Err(format!("{place} may not be copied; use a ConfigMap or a kind of your own"));
    }
    let unread = || format!("{place} has not been read yet");
    let state = objects.get(config).ok_or_else(unread)?;
    if let Some(failure) = &state.failure {
        // What was read before may not be what the object says now.
        let message = &failure.message;
        return Err(format!("{place} could not be read; it is tried again: {message}"));
    }
    let object = match state.value().ok_or_else(unread)? {
        ConfigObject::Found(object) => object,
        ConfigObject::NotFound => return Err(format!("{place} not found")),
        ConfigObject::Problem(problem) => return Err(format!("{place} {problem}")),
    };
    let mut copy = object.clone();
    let meta = object["metadata"].as_object();
    let kept = ["name", "namespace", "uid", "resourceVersion"];
    let meta = meta.into_iter().flatten().filter(|(name, _)| kept.contains(&name.as_str()));
    copy["metadata"] = Value::Object(meta.map(|(name, it)| (name.clone(), it.clone())).collect());
    let size = copy.to_string().len();
    *sum += size;
    if size > LARGEST || *sum > LARGEST_SUM {
        return Err(format!("{place} says too much: {size} bytes, {sum} in all for the claim"));
    }
    Ok(copy)
}
