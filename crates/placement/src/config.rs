//! What objects say that configure devices, at the moment a claim is given some.
//!
//! They may be of any kind, so no cache has them. Whoever runs the controllers reads them for each
//! claim that waits, and puts what was found on the shelf of [`Configs`].

use std::collections::BTreeMap;

use gantry_api::devices::{
    ClaimSpec, ClassConfig, DeviceAllocation, DeviceClaim, DeviceClass, DeviceDriver,
    DevicePrivilegedClaim, Term, TermConfig,
};
use gantry_devices::lower::{Catalog, Wanted};
use gantry_reconcile::{Change, Key, Meta, Resource, View, World};
use serde::Deserialize;
use serde_json::Value;

use crate::claim::Claim;
use crate::scheduler::scene::catalog;
use crate::seen::Seen;

/// The most that one object may say, in bytes.
const LARGEST: usize = 10 << 10;
/// The most that all objects of a claim may say together.
const LARGEST_SUM: usize = 64 << 10;

/// What was found for one claim. Its name is the claim's identity: claims of either kind may have the
/// same name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Configs {
    /// Metadata.
    pub metadata: Meta,
    /// What was found, by [`Reference::word`]. What is in neither map was not found.
    pub found: BTreeMap<String, Value>,
    /// Why an object could not be read or may not be copied, by [`Reference::word`].
    pub problems: BTreeMap<String, String>,
}

impl Configs {
    /// Where what was found for a claim is.
    #[must_use]
    pub fn key(claim: &Meta) -> Key {
        Key::new(&claim.namespace, claim.uid.as_str())
    }
}

impl View for Configs {
    /// A kind that no server serves.
    const RESOURCE: Resource =
        Resource::namespaced("local.gantry.dev", "v1", "configs", "Configs").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
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

    /// One word for it. Who names it is part of it where that decides whether it may be copied.
    #[must_use]
    pub fn word(&self) -> String {
        let who = match self.named_by {
            NamedBy::Class if self.needs_label_for_claims() => "class:",
            NamedBy::Class | NamedBy::Claim => "",
        };
        format!("{who}{}/{}/{}/{}", self.api_version, self.kind, self.namespace, self.name)
    }

    fn needs_label_for_claims(&self) -> bool {
        self.api_version.contains('/')
    }

    /// Whether its kind has to say that it may be copied.
    #[must_use]
    pub fn needs_label(&self) -> bool {
        self.named_by == NamedBy::Claim && self.needs_label_for_claims()
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

/// The claims without devices that have to copy something, and all that each may have to copy,
/// whichever way it is satisfied.
#[must_use]
pub fn referred(world: &World) -> Vec<(Meta, Vec<Reference>)> {
    let catalog = catalog(world);
    let plain = world.shelf::<Seen<DeviceClaim>>().all().into_iter();
    let plain = plain.filter(|it| it.status.allocations.is_empty() && !it.metadata.is_going());
    let plain = plain.map(|it| (it.metadata.clone(), of_plain(&it, &catalog)));
    let privileged = world.shelf::<Seen<DevicePrivilegedClaim>>().all().into_iter();
    let privileged =
        privileged.filter(|it| it.status.allocations.is_empty() && !it.metadata.is_going());
    let privileged = privileged.map(|it| (it.metadata.clone(), of_privileged(&it)));
    plain.chain(privileged).filter(|(_, references)| !references.is_empty()).collect()
}

/// Whether a change may be about what is [referred to](referred). It is asked with every claim that comes and
/// goes, and most clusters have nothing that configures devices.
#[must_use]
pub fn concerns(world: &World, change: &Change) -> bool {
    let of_classes = || {
        let classes = world.shelf::<Seen<DeviceClass>>().all();
        classes.iter().any(|it| it.object.as_ref().is_ok_and(|it| !it.spec.configs.is_empty()))
    };
    let plain = |it: &Seen<DeviceClaim>| {
        let asks = it.object.iter().flat_map(|it| &it.spec.claims).flat_map(Term::alternatives);
        asks.into_iter().any(|ask| !ask.configs.is_empty())
    };
    if change.is::<Seen<DeviceClaim>>() {
        return change.both::<Seen<DeviceClaim>>().any(plain) || of_classes();
    }
    if change.is::<Seen<DevicePrivilegedClaim>>() {
        let mut both = change.both::<Seen<DevicePrivilegedClaim>>();
        return both.any(|it| !of_privileged(it).is_empty());
    }
    change.is::<Seen<DeviceClass>>() || change.is::<Seen<DeviceDriver>>()
}

fn of_privileged(claim: &Seen<DevicePrivilegedClaim>) -> Vec<Reference> {
    let configs = claim.object.iter().flat_map(|it| &it.spec.configs);
    configs.map(|it| Reference::of_term(it, &claim.metadata.namespace)).collect()
}

fn of_plain(claim: &Seen<DeviceClaim>, catalog: &Catalog) -> Vec<Reference> {
    let Ok(object) = &claim.object else { return Vec::new() };
    let namespace = &claim.metadata.namespace;
    let mut all = Vec::new();
    for ask in object.spec.claims.iter().flat_map(|term| term.alternatives()) {
        let class = ask.device_class.as_deref().and_then(|name| catalog.class(name));
        all.extend(class.into_iter().flat_map(|it| &it.configs).map(Reference::of_class));
        if let Some(device_type) = &ask.device_type {
            let classes = catalog.of_type(device_type);
            all.extend(classes.flat_map(|(_, it)| &it.configs).map(Reference::of_class));
        }
        all.extend(ask.configs.iter().map(|it| Reference::of_term(it, namespace)));
    }
    all.sort();
    all.dedup();
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
    found: Option<&Configs>,
) -> Result<Copies, String> {
    let namespace = &claim.meta().namespace;
    let (mut of_classes, mut of_claim) = (Vec::new(), Vec::new());
    match claim.wanted()? {
        Wanted::Claim(spec) => references(
            spec,
            catalog,
            selected,
            got,
            classes,
            namespace,
            &mut of_classes,
            &mut of_claim,
        ),
        Wanted::Privileged(spec) => {
            of_claim.extend(spec.configs.iter().map(|it| Reference::of_term(it, namespace)));
        }
    }
    let mut sum = 0;
    let mut each = |list: Vec<Reference>| -> Result<Vec<Value>, String> {
        let mut copies = Vec::new();
        for (at, config) in list.iter().enumerate() {
            if !list[..at].contains(config) {
                copies.push(copy_one(config, found, &mut sum)?);
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

fn copy_one(config: &Reference, found: Option<&Configs>, sum: &mut usize) -> Result<Value, String> {
    let (kind, name) = (&config.kind, &config.name);
    let place = format!("{kind} {}/{name}", config.namespace);
    if !config.is_allowed() {
        return Err(format!("{place} may not be copied; use a ConfigMap or a kind of your own"));
    }
    let found = found.ok_or_else(|| format!("{place} has not been read yet"))?;
    if let Some(problem) = found.problems.get(&config.word()) {
        return Err(format!("{place} {problem}"));
    }
    let object = found.found.get(&config.word());
    let object = object.ok_or_else(|| format!("{place} not found"))?;
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
