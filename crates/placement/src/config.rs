//! Reads the objects that configure devices at the moment a claim is allocated.
//!
//! They may be of any kind, so no cache has them. [`ConfigInquiry`] decides which of them are read:
//! those that unallocated claims refer to. The result is a fact, [`ConfigObject`], about the
//! [`DeviceConfigReference`]: claims that may have the same object copied share it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gantry_api::devices::{
    ClaimSpec, ClassConfig, DeviceAllocation, DeviceClaim, DeviceClass, DevicePrivilegedClaim,
    TermConfig,
};
use gantry_devices::lower::{Catalog, ClaimSpecRef as WantedDevices};
use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, WantedQuestions};
use gantry_reconcile::{Change, Fact, FactTable, Inquiry, Key, Kind, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::claim::Claim;
use crate::scheduler::cycle_state::catalog_of;
use crate::views::DeviceObject;

/// The largest size of one object's configuration, in bytes.
const MAX_CONFIG_BYTES: usize = 10 << 10;
/// The largest size of the configuration of all objects of a claim together.
const MAX_CLAIM_CONFIG_BYTES: usize = 64 << 10;

/// After how long an object is read again while a claim is pending.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// How long one answer may take: three requests with a timeout of their own each, whose messages
/// are more precise than this one's.
const READ_TIMEOUT: Duration = Duration::from_secs(35);
/// How many objects are read at once, and how many of them for claims of one namespace.
const CONCURRENCY: Concurrency = Concurrency { total: 32, per_group: 4 };

/// The result of reading an object that configures devices.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigObject {
    /// The content of the object.
    Found(Value),
    /// There is no such object.
    NotFound,
    /// The reason why it could not be read or may not be copied. The text follows the name of the
    /// object.
    Problem(String),
}

impl Fact for ConfigObject {
    type Subject = DeviceConfigReference;
    const NAME: &'static str = "device-config";
}

/// A reference to an object that configures devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceConfigReference {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Which kind of object contains the reference.
    pub referenced_by: ReferencedBy,
}

/// Which kind of object refers to an object that configures devices. What is copied into a claim
/// can be read by every user that can read the claim, and is read with the rights of the allocator,
/// so it matters which user decided that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReferencedBy {
    /// A DeviceClass, which an administrator writes.
    Class,
    /// A claim, which a user writes: objects of kinds with a group are copied only if their
    /// definition allows it ([`CONFIG_LABEL`]).
    Claim,
}

/// The label of a CustomResourceDefinition whose objects users may have copied into their claims.
pub const CONFIG_LABEL: &str = "devmgmtproto.k8s.io/device-config";

impl DeviceConfigReference {
    fn from_class(config: &ClassConfig) -> Self {
        Self {
            api_version: config.api_version.clone(),
            kind: config.kind.clone(),
            namespace: config.namespace.clone(),
            name: config.name.clone(),
            referenced_by: ReferencedBy::Class,
        }
    }

    fn from_term(config: &TermConfig, namespace: &str) -> Self {
        Self {
            api_version: config.api_version.clone(),
            kind: config.kind.clone(),
            namespace: namespace.to_owned(),
            name: config.name.clone(),
            referenced_by: ReferencedBy::Claim,
        }
    }

    /// Whether the definition of its kind must allow copying.
    #[must_use]
    pub fn needs_label(&self) -> bool {
        self.referenced_by == ReferencedBy::Claim && self.api_version.contains('/')
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

/// Asks for the objects that configure devices, for as long as an unallocated claim refers to them.
///
/// Users name the objects, so the number of concurrent reads for one namespace is bounded: a slow
/// read delays no other namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigInquiry;

impl Inquiry for ConfigInquiry {
    type Fact = ConfigObject;

    fn name(&self) -> &'static str {
        "device-configs"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<DeviceObject<DeviceClaim>>(),
            Kind::of::<DeviceObject<DevicePrivilegedClaim>>(),
            Kind::of::<DeviceObject<DeviceClass>>(),
        ]
    }

    /// Returns the keys of claims. A DeviceClaim and a DevicePrivilegedClaim of one name share a
    /// key, and the references of both are read.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<DeviceObject<DeviceClaim>>() {
            let of_claim = |it: &DeviceObject<DeviceClaim>| {
                !claim_references(it, &Catalog::default()).is_empty()
            };
            // Most clusters have nothing that configures devices, and claims come and go.
            let concerns = change.both::<DeviceObject<DeviceClaim>>().any(of_claim)
                || !classes_with_configs(world).is_empty();
            return if concerns { vec![change.key.clone()] } else { Vec::new() };
        }
        if change.is::<DeviceObject<DevicePrivilegedClaim>>() {
            let mut both = change.both::<DeviceObject<DevicePrivilegedClaim>>();
            let concerns = both.any(|it| !privileged_claim_references(it).is_empty());
            return if concerns { vec![change.key.clone()] } else { Vec::new() };
        }
        if !change.both::<DeviceObject<DeviceClass>>().any(has_configs) {
            return Vec::new();
        }
        let claims = world.store::<DeviceObject<DeviceClaim>>().list();
        claims.iter().filter(|it| is_unallocated(it)).map(|it| it.metadata.key()).collect()
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        _: Timestamp,
    ) -> WantedQuestions<DeviceConfigReference> {
        let plain =
            world.store::<DeviceObject<DeviceClaim>>().get(key).filter(|it| is_unallocated(it));
        let plain =
            plain.map(|it| claim_references(&it, &catalog_of(&[], &classes_with_configs(world))));
        let privileged = world.store::<DeviceObject<DevicePrivilegedClaim>>().get(key);
        let privileged = privileged
            .filter(|it| it.status.allocations.is_empty() && !it.metadata.is_terminating())
            .map(|it| privileged_claim_references(&it));
        let all = plain.into_iter().chain(privileged).flatten();
        all.filter(DeviceConfigReference::is_allowed).collect()
    }

    fn policy(&self, _: &DeviceConfigReference) -> InquiryPolicy {
        InquiryPolicy {
            refresh_interval: REFRESH_INTERVAL,
            timeout: READ_TIMEOUT,
            ..InquiryPolicy::default()
        }
    }

    fn concurrency(&self) -> Concurrency {
        CONCURRENCY
    }

    /// Groups references by namespace, with those of classes apart from those of claims: users of a
    /// namespace that a class refers to do not delay what all users of that class wait for.
    fn group(&self, reference: &DeviceConfigReference) -> String {
        match reference.referenced_by {
            ReferencedBy::Class => format!("class/{}", reference.namespace),
            ReferencedBy::Claim => format!("claim/{}", reference.namespace),
        }
    }
}

fn is_unallocated(claim: &DeviceObject<DeviceClaim>) -> bool {
    claim.status.allocations.is_empty() && !claim.metadata.is_terminating()
}

fn has_configs(class: &DeviceObject<DeviceClass>) -> bool {
    class.object.as_ref().is_ok_and(|it| !it.spec.configs.is_empty())
}

fn classes_with_configs(world: &World) -> Vec<Arc<DeviceObject<DeviceClass>>> {
    let mut classes = world.store::<DeviceObject<DeviceClass>>().list();
    classes.retain(|it| has_configs(it));
    classes
}

fn privileged_claim_references(
    claim: &DeviceObject<DevicePrivilegedClaim>,
) -> BTreeSet<DeviceConfigReference> {
    let configs = claim.object.iter().flat_map(|it| &it.spec.configs);
    configs.map(|it| DeviceConfigReference::from_term(it, &claim.metadata.namespace)).collect()
}

/// Returns all references that a claim may need, whichever way it is satisfied.
fn claim_references(
    claim: &DeviceObject<DeviceClaim>,
    catalog: &Catalog,
) -> BTreeSet<DeviceConfigReference> {
    let Ok(object) = &claim.object else { return BTreeSet::new() };
    let namespace = &claim.metadata.namespace;
    let mut all = BTreeSet::new();
    for ask in object.spec.claims.iter().flat_map(|term| term.alternatives()) {
        let class = ask.device_class.as_deref().and_then(|name| catalog.class(name));
        all.extend(
            class.into_iter().flat_map(|it| &it.configs).map(DeviceConfigReference::from_class),
        );
        if let Some(device_type) = &ask.device_type {
            let classes = catalog.of_type(device_type);
            all.extend(
                classes.flat_map(|(_, it)| &it.configs).map(DeviceConfigReference::from_class),
            );
        }
        all.extend(ask.configs.iter().map(|it| DeviceConfigReference::from_term(it, namespace)));
    }
    all
}

/// The copies that go into the status of a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ConfigCopies {
    pub(crate) of_classes: Vec<Value>,
    pub(crate) of_claim: Vec<Value>,
}

/// Decides which classes' configurations apply to the devices of a term: one class for each device.
pub(crate) trait ClassMatcher {
    /// Returns the names of the classes, in order.
    fn matching_classes(
        &self,
        term: &str,
        device_type: &str,
        got: &[DeviceAllocation],
    ) -> Vec<String>;
}

/// Copies the configuration of the devices a claim gets.
pub(crate) fn copy_configs(
    claim: &Claim,
    catalog: &Catalog,
    selected: &BTreeMap<String, usize>,
    got: &[DeviceAllocation],
    classes: &dyn ClassMatcher,
    objects: &FactTable<ConfigObject>,
) -> Result<ConfigCopies, String> {
    let namespace = &claim.meta().namespace;
    let (mut of_classes, mut of_claim) = (Vec::new(), Vec::new());
    match claim.spec()? {
        WantedDevices::Claim(spec) => collect_references(
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
            of_claim.extend(
                spec.configs.iter().map(|it| DeviceConfigReference::from_term(it, namespace)),
            );
        }
    }
    let mut sum = 0;
    let mut each = |list: Vec<DeviceConfigReference>| -> Result<Vec<Value>, String> {
        let mut copies = Vec::new();
        for (at, config) in list.iter().enumerate() {
            if !list[..at].contains(config) {
                copies.push(copy_config(config, objects, &mut sum)?);
            }
        }
        Ok(copies)
    };
    Ok(ConfigCopies { of_classes: each(of_classes)?, of_claim: each(of_claim)? })
}

#[expect(clippy::too_many_arguments, reason = "two lists are filled from one walk over the terms")]
fn collect_references(
    spec: &ClaimSpec,
    catalog: &Catalog,
    selected: &BTreeMap<String, usize>,
    got: &[DeviceAllocation],
    classes: &dyn ClassMatcher,
    namespace: &str,
    of_classes: &mut Vec<DeviceConfigReference>,
    of_claim: &mut Vec<DeviceConfigReference>,
) {
    for term in &spec.claims {
        let nth = selected.get(&term.name).copied().unwrap_or_default();
        let Some(ask) = term.alternatives().nth(nth) else { continue };
        let mut names: Vec<String> = ask.device_class.iter().cloned().collect();
        if let Some(device_type) = &ask.device_type {
            names.extend(classes.matching_classes(&term.name, device_type, got));
        }
        for class in names.iter().filter_map(|name| catalog.class(name)) {
            of_classes.extend(class.configs.iter().map(DeviceConfigReference::from_class));
        }
        of_claim
            .extend(ask.configs.iter().map(|it| DeviceConfigReference::from_term(it, namespace)));
    }
}

fn copy_config(
    config: &DeviceConfigReference,
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
        // A result that was read earlier may not be what the object contains now.
        let message = &failure.message;
        return Err(format!("{place} could not be read; the read is retried: {message}"));
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
    if size > MAX_CONFIG_BYTES || *sum > MAX_CLAIM_CONFIG_BYTES {
        return Err(format!("{place} is too large: {size} bytes, {sum} in all for the claim"));
    }
    Ok(copy)
}
