//! What sets one kind apart from the others, as data, and the functions it adds.

use gantry_schema::Invalid;
use serde_json::{Map, Value};

use crate::names::NameRule;
use crate::tree::{at, carry, equal, int, is_set, put, remove, same};

mod table;

pub use table::behaviour;

/// How a server treats the objects of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// What names look like.
    pub name_rule: NameRule,
    /// When `metadata.generation` counts.
    pub generation: Generation,
    /// Whether an update may leave out the resource version.
    pub unconditional_update: bool,
    /// Whether an update of what does not exist creates it.
    pub create_on_update: bool,
    /// Whether deleting answers with the object instead of a Status.
    pub delete_returns_object: bool,
    /// Whether there is a status of its own, and what a write to it may touch besides.
    pub status: Status,
    /// What happens to dependents when a deletion does not say.
    pub default_propagation: Propagation,
    /// Whether a deletion gives the object time.
    pub deletion: Deletion,
    /// What finalizers may be called.
    pub finalizer_names: FinalizerNames,
    /// How often the layers below the common one check metadata on an update.
    pub metadata_checks: MetadataChecks,
    /// What the kind adds.
    pub rules: Rules,
}

/// When `metadata.generation` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Never set by the server.
    Never,
    /// One from the beginning, and never more.
    Once,
    /// Starts at one; every change of one of these fields counts.
    On(&'static [&'static str]),
    /// Unset at first; every change of one of these fields counts.
    AfterFirst(&'static [&'static str]),
    /// Starts at one; every change outside `metadata` counts, and of it the labels.
    OnContentAndLabels,
    /// Starts at one; every change outside `metadata` and, with a status, `status` counts.
    OnContent,
}

/// Whether there is a `/status`, and what a write to it leaves as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// There is none: a status is a field like any other.
    Absent,
    /// Everything but status and metadata stays.
    KeepsSpec,
    /// Labels stay as well.
    KeepsSpecAndLabels,
    /// Owners stay as well: old kubelets corrupt them in a way that breaks garbage collection.
    KeepsSpecAndOwners,
    /// Only the status changes.
    KeepsAll,
    /// Like `KeepsSpec`, and a creation may bring a status: nodes register themselves with one.
    BroughtAtCreation,
}

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The owner goes, dependents follow.
    Background,
    /// Dependents go first.
    Foreground,
    /// Dependents stay.
    Orphan,
}

/// Whether a deletion gives the object time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// No grace period, which the object says with a zero.
    AtOnce,
    /// A grace period that someone else ends.
    Graceful,
    /// No grace period, and the object does not mention one.
    Unmentioned,
}

/// What finalizers may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalizerNames {
    /// With a domain, or one of the well-known ones.
    Qualified,
    /// Any qualified name, domain or not.
    Free,
    /// Any qualified name, with a warning for those without a domain.
    Advised,
}

/// How often the layers below the common one check metadata on an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataChecks {
    /// Checks of what changed.
    pub updates: u8,
    /// Checks of the new object as if it were created.
    pub objects: u8,
}

/// The part of an object that a request writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object itself.
    Main,
    /// `/status`
    Status,
    /// `/scale`, after the replicas were written into the object.
    Scale,
    /// `/finalize` of a namespace.
    Finalize,
    /// `/ephemeralcontainers` of a pod.
    EphemeralContainers,
    /// `/resize` of a pod.
    Resize,
    /// `/approval` of a certificate signing request.
    Approval,
}

impl Part {
    /// The part a path names, `None` for one that is not written as a whole object.
    #[must_use]
    pub fn of(subresource: &str) -> Option<Self> {
        Some(match subresource {
            "" => Self::Main,
            "status" => Self::Status,
            "scale" => Self::Scale,
            "finalize" => Self::Finalize,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "resize" => Self::Resize,
            "approval" => Self::Approval,
            _ => return None,
        })
    }
}

/// What a kind adds to what all kinds do. Every function is pure.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub(crate) default: fn(&mut Value),
    pub(crate) create: fn(&mut Value, &str),
    pub(crate) update: fn(&mut Value, &Value),
    pub(crate) status: fn(&mut Value, &Value, &str),
    pub(crate) validate: fn(&Value) -> Vec<Invalid>,
    pub(crate) validate_update: fn(&Value, &Value) -> Vec<Invalid>,
    pub(crate) validate_status: fn(&Value, &Value) -> Vec<Invalid>,
    pub(crate) warnings: fn(&Value, Option<&Value>) -> Vec<String>,
}

impl Rules {
    pub(crate) const NONE: Self = Self {
        default: |_| {},
        create: |_, _| {},
        update: |_, _| {},
        status: |_, _, _| {},
        validate: |_| Vec::new(),
        validate_update: |_, _| Vec::new(),
        validate_status: |_, _| Vec::new(),
        warnings: |_, _| Vec::new(),
    };
}

impl Behaviour {
    /// Kinds that add nothing of their own.
    pub(crate) const PLAIN: Self = Self {
        name_rule: NameRule::DnsSubdomain,
        generation: Generation::Never,
        unconditional_update: true,
        create_on_update: false,
        delete_returns_object: false,
        status: Status::Absent,
        default_propagation: Propagation::Background,
        deletion: Deletion::AtOnce,
        finalizer_names: FinalizerNames::Qualified,
        metadata_checks: MetadataChecks { updates: 1, objects: 0 },
        rules: Rules::NONE,
    };

    /// Whether there is a `/status`.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.status != Status::Absent
    }

    /// Whether a deletion gives the object time.
    #[must_use]
    pub fn is_graceful(&self) -> bool {
        self.deletion == Deletion::Graceful
    }

    /// Fills in what the object leaves out. Doing it again changes nothing.
    pub fn default(&self, object: &mut Value) {
        (self.rules.default)(object);
    }

    /// Makes a new object ready to be stored: its status is the server's, not the client's.
    ///
    /// `metadata.name` and `metadata.uid` are set by then; `now` is a time as objects write it.
    pub fn prepare_create(&self, object: &mut Value, now: &str) {
        match self.status {
            Status::Absent | Status::BroughtAtCreation => {}
            Status::KeepsSpec
            | Status::KeepsSpecAndLabels
            | Status::KeepsSpecAndOwners
            | Status::KeepsAll => drop(remove(object, "status")),
        }
        match self.generation {
            Generation::Never | Generation::AfterFirst(_) => {}
            Generation::Once
            | Generation::On(_)
            | Generation::OnContentAndLabels
            | Generation::OnContent => put(object, "metadata.generation", 1),
        }
        (self.rules.create)(object, now);
    }

    /// Makes a change ready to be validated: takes back what this part may not touch, and counts
    /// the generation.
    pub fn prepare_update(&self, new: &mut Value, old: &Value, part: Part, now: &str) {
        carry(new, old, "metadata.generation");
        match part {
            Part::Main | Part::Scale => {
                if self.has_status() {
                    carry(new, old, "status");
                }
                (self.rules.update)(new, old);
            }
            Part::Status => {
                self.keep_for_status(new, old);
                (self.rules.status)(new, old, now);
            }
            Part::Finalize => carry(new, old, "status"),
            Part::EphemeralContainers => {
                crate::pod::keep_all_but(new, old, &["spec.ephemeralContainers"]);
            }
            Part::Resize => crate::pod::keep_all_but_resources(new, old),
            Part::Approval => {
                carry(new, old, "spec");
                let conditions = at(new, "status.conditions").clone();
                carry(new, old, "status");
                put(new, "status.conditions", conditions);
                crate::certificates::stamp(new, old, now);
            }
        }
        if self.counts(new, old, part) {
            let generation = int(old, "metadata.generation").unwrap_or_default();
            put(new, "metadata.generation", generation + 1);
        }
        keep_server_metadata(new, old);
    }

    /// What is wrong with a new object, its metadata apart.
    #[must_use]
    pub fn validate_create(&self, object: &Value) -> Vec<Invalid> {
        (self.rules.validate)(object)
    }

    /// What is wrong with a change, metadata apart.
    #[must_use]
    pub fn validate_update(&self, new: &Value, old: &Value, part: Part) -> Vec<Invalid> {
        match part {
            Part::Main | Part::Scale => (self.rules.validate_update)(new, old),
            Part::Status => (self.rules.validate_status)(new, old),
            Part::Approval => crate::certificates::validate_approval(new, old),
            Part::Finalize => Vec::new(),
            Part::EphemeralContainers => crate::pod::validate_ephemeral_containers(new, old),
            Part::Resize => (self.rules.validate)(new),
        }
    }

    /// What a client should know about an object that is fine.
    #[must_use]
    pub fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        (self.rules.warnings)(new, old)
    }

    fn keep_for_status(&self, new: &mut Value, old: &Value) {
        match self.status {
            // Without a status nothing calls this; the whole object is kept all the same.
            Status::Absent | Status::KeepsAll => {
                let status = remove(new, "status");
                let managed = remove(new, "metadata.managedFields");
                let revision = remove(new, "metadata.resourceVersion");
                let uid = remove(new, "metadata.uid");
                new.clone_from(old);
                put(new, "status", status.unwrap_or(Value::Null));
                for (field, value) in
                    [("managedFields", managed), ("resourceVersion", revision), ("uid", uid)]
                {
                    match value {
                        Some(value) => put(new, &format!("metadata.{field}"), value),
                        None => drop(remove(new, &format!("metadata.{field}"))),
                    }
                }
                if !is_set(new, "status") {
                    remove(new, "status");
                }
                return;
            }
            Status::KeepsSpec | Status::BroughtAtCreation => {}
            Status::KeepsSpecAndLabels => carry(new, old, "metadata.labels"),
            Status::KeepsSpecAndOwners => carry(new, old, "metadata.ownerReferences"),
        }
        carry(new, old, "spec");
    }

    fn counts(&self, new: &Value, old: &Value, part: Part) -> bool {
        if matches!(part, Part::Status | Part::Finalize | Part::Approval) {
            return false;
        }
        match self.generation {
            Generation::Never | Generation::Once => false,
            Generation::On(fields) | Generation::AfterFirst(fields) => {
                !fields.iter().all(|field| same(new, old, field))
            }
            Generation::OnContent => {
                let status = self.has_status();
                content(new, status) != content(old, status)
            }
            Generation::OnContentAndLabels => {
                !equal(&content(new, false), &content(old, false))
                    || !same(new, old, "metadata.labels")
            }
        }
    }
}

/// The behaviour of custom resources, with or without a status subresource.
#[must_use]
pub fn custom(has_status: bool) -> &'static Behaviour {
    const WITHOUT: Behaviour = Behaviour {
        generation: Generation::OnContent,
        unconditional_update: false,
        finalizer_names: FinalizerNames::Advised,
        ..Behaviour::PLAIN
    };
    const WITH: Behaviour = Behaviour { status: Status::KeepsAll, ..WITHOUT };
    if has_status { &WITH } else { &WITHOUT }
}

/// What an update may not change and need not repeat.
fn keep_server_metadata(new: &mut Value, old: &Value) {
    if !is_set(new, "metadata.uid") {
        carry(new, old, "metadata.uid");
    }
    carry(new, old, "metadata.creationTimestamp");
    remove(new, "metadata.selfLink");
    if is_set(old, "metadata.deletionTimestamp") {
        carry(new, old, "metadata.deletionTimestamp");
    }
    if !is_set(new, "metadata.deletionGracePeriodSeconds") {
        carry(new, old, "metadata.deletionGracePeriodSeconds");
    }
}

/// Everything outside `metadata`, and outside `status` if that is no content.
fn content(object: &Value, without_status: bool) -> Value {
    let mut fields: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
    fields.shift_remove("metadata");
    if without_status {
        fields.shift_remove("status");
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests;
