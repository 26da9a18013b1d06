//! Describes how one kind differs from the others, as data and functions.

use gantry_schema::FieldError;
use serde_json::{Map, Value};

use crate::names::NameRule;
use crate::tree::{at, copy_field, equal, int, is_set, put, remove, same};

mod table;

pub use table::behaviour;

/// How a server treats the objects of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// The rule that names follow.
    pub name_rule: NameRule,
    /// When `metadata.generation` is incremented.
    pub generation: Generation,
    /// Whether an update may leave out the resource version.
    pub unconditional_update: bool,
    /// Whether an update of a missing object creates it.
    pub create_on_update: bool,
    /// Whether a deletion returns the object instead of a Status.
    pub delete_returns_object: bool,
    /// Whether there is a status subresource, and which other fields a write to it may change.
    pub status: StatusSubresource,
    /// The default propagation policy of deletions.
    pub default_propagation: Propagation,
    /// Whether a deletion has a grace period.
    pub deletion: Deletion,
    /// The rule that finalizers follow.
    pub finalizer_names: FinalizerNames,
    /// How often the layers below the common one check metadata on an update.
    pub metadata_checks: MetadataChecks,
    /// The functions that the kind adds.
    pub rules: Rules,
}

/// When `metadata.generation` is incremented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Never set by the server.
    Never,
    /// Set to one at creation, and never incremented.
    Once,
    /// Starts at one; incremented by a change of one of these fields.
    On(&'static [&'static str]),
    /// Unset at first; incremented by a change of one of these fields.
    AfterFirst(&'static [&'static str]),
    /// Starts at one; incremented by a change outside `metadata`, or of the labels.
    OnContentAndLabels,
    /// Starts at one; incremented by a change outside `metadata` and, with a status subresource,
    /// `status`.
    OnContent,
}

/// Whether there is a `/status` subresource, and which fields a write to it preserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSubresource {
    /// There is none: the status is a field like any other.
    Absent,
    /// A write preserves everything but status and metadata.
    KeepsSpec,
    /// A write preserves the labels as well.
    KeepsSpecAndLabels,
    /// A write preserves the owners as well: old kubelets corrupt them in a way that breaks garbage
    /// collection.
    KeepsSpecAndOwners,
    /// A write changes the status only.
    KeepsAll,
    /// Like `KeepsSpec`, and a creation may set a status: nodes register themselves with one.
    SetAtCreation,
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The owner is deleted first, and its dependents afterwards.
    Background,
    /// Dependents are deleted first.
    Foreground,
    /// Dependents are kept.
    Orphan,
}

/// Whether a deletion has a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// No grace period, which the object records as zero.
    Immediate,
    /// A grace period that another component ends, as the kubelet does for pods.
    Graceful,
    /// No grace period, and none is recorded in the object.
    ImmediateUnrecorded,
}

/// The rule that finalizers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalizerNames {
    /// Names with a domain, or one of the well-known ones.
    Qualified,
    /// Any qualified name, domain or not.
    AnyQualified,
    /// Any qualified name, with a warning for those without a domain.
    WarnUnqualified,
}

/// How often the layers below the common one check metadata on an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataChecks {
    /// Checks of what changed.
    pub updates: u8,
    /// Checks of the new object as if it were created.
    pub objects: u8,
}

/// The subresource that a request writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubresourceKind {
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

impl SubresourceKind {
    /// Returns the subresource of a path, `None` for one that is not written as a whole object.
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

/// The functions that a kind adds to the common behaviour. All of them are pure.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub(crate) default: fn(&mut Value),
    pub(crate) create: fn(&mut Value, &str),
    pub(crate) update: fn(&mut Value, &Value),
    pub(crate) status: fn(&mut Value, &Value, &str),
    pub(crate) validate: fn(&Value) -> Vec<FieldError>,
    pub(crate) validate_update: fn(&Value, &Value) -> Vec<FieldError>,
    pub(crate) validate_status: fn(&Value, &Value) -> Vec<FieldError>,
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
    /// Kinds that add no functions.
    pub(crate) const PLAIN: Self = Self {
        name_rule: NameRule::DnsSubdomain,
        generation: Generation::Never,
        unconditional_update: true,
        create_on_update: false,
        delete_returns_object: false,
        status: StatusSubresource::Absent,
        default_propagation: Propagation::Background,
        deletion: Deletion::Immediate,
        finalizer_names: FinalizerNames::Qualified,
        metadata_checks: MetadataChecks { updates: 1, objects: 0 },
        rules: Rules::NONE,
    };

    /// Returns whether there is a `/status` subresource.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.status != StatusSubresource::Absent
    }

    /// Returns whether a deletion has a grace period.
    #[must_use]
    pub fn is_graceful(&self) -> bool {
        self.deletion == Deletion::Graceful
    }

    /// Sets the defaults of missing fields. It is idempotent.
    pub fn default(&self, object: &mut Value) {
        (self.rules.default)(object);
    }

    /// Prepares a new object for storage: its status is set by the server, not by the client.
    ///
    /// `metadata.name` and `metadata.uid` are set by then; `now` is a time in the format of
    /// objects.
    pub fn prepare_create(&self, object: &mut Value, now: &str) {
        match self.status {
            StatusSubresource::Absent | StatusSubresource::SetAtCreation => {}
            StatusSubresource::KeepsSpec
            | StatusSubresource::KeepsSpecAndLabels
            | StatusSubresource::KeepsSpecAndOwners
            | StatusSubresource::KeepsAll => drop(remove(object, "status")),
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

    /// Prepares an update for validation: reverts changes of fields that this subresource may not
    /// write, and increments the generation.
    pub fn prepare_update(&self, new: &mut Value, old: &Value, part: SubresourceKind, now: &str) {
        copy_field(new, old, "metadata.generation");
        match part {
            SubresourceKind::Main | SubresourceKind::Scale => {
                if self.has_status() {
                    copy_field(new, old, "status");
                }
                (self.rules.update)(new, old);
            }
            SubresourceKind::Status => {
                self.preserve_all_but_status(new, old);
                (self.rules.status)(new, old, now);
            }
            SubresourceKind::Finalize => copy_field(new, old, "status"),
            SubresourceKind::EphemeralContainers => {
                crate::pod::preserve_except(new, old, &["spec.ephemeralContainers"]);
            }
            SubresourceKind::Resize => crate::pod::preserve_except_resources(new, old),
            SubresourceKind::Approval => {
                copy_field(new, old, "spec");
                let conditions = at(new, "status.conditions").clone();
                copy_field(new, old, "status");
                put(new, "status.conditions", conditions);
                crate::certificates::set_condition_times(new, old, now);
            }
        }
        if self.bumps_generation(new, old, part) {
            let generation = int(old, "metadata.generation").unwrap_or_default();
            put(new, "metadata.generation", generation + 1);
        }
        preserve_server_metadata(new, old);
    }

    /// Validates a new object, without its metadata.
    #[must_use]
    pub fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        (self.rules.validate)(object)
    }

    /// Validates an update, without metadata.
    #[must_use]
    pub fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        part: SubresourceKind,
    ) -> Vec<FieldError> {
        match part {
            SubresourceKind::Main | SubresourceKind::Scale => {
                (self.rules.validate_update)(new, old)
            }
            SubresourceKind::Status => (self.rules.validate_status)(new, old),
            SubresourceKind::Approval => crate::certificates::validate_approval(new, old),
            SubresourceKind::Finalize => Vec::new(),
            SubresourceKind::EphemeralContainers => {
                crate::pod::validate_ephemeral_containers(new, old)
            }
            SubresourceKind::Resize => (self.rules.validate)(new),
        }
    }

    /// Returns warnings about a valid object.
    #[must_use]
    pub fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        (self.rules.warnings)(new, old)
    }

    fn preserve_all_but_status(&self, new: &mut Value, old: &Value) {
        match self.status {
            // Without a status subresource nothing calls this; the whole object is preserved all
            // the same.
            StatusSubresource::Absent | StatusSubresource::KeepsAll => {
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
            StatusSubresource::KeepsSpec | StatusSubresource::SetAtCreation => {}
            StatusSubresource::KeepsSpecAndLabels => copy_field(new, old, "metadata.labels"),
            StatusSubresource::KeepsSpecAndOwners => {
                copy_field(new, old, "metadata.ownerReferences");
            }
        }
        copy_field(new, old, "spec");
    }

    fn bumps_generation(&self, new: &Value, old: &Value, part: SubresourceKind) -> bool {
        if matches!(
            part,
            SubresourceKind::Status | SubresourceKind::Finalize | SubresourceKind::Approval
        ) {
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
        finalizer_names: FinalizerNames::WarnUnqualified,
        ..Behaviour::PLAIN
    };
    const WITH: Behaviour = Behaviour { status: StatusSubresource::KeepsAll, ..WITHOUT };
    if has_status { &WITH } else { &WITHOUT }
}

/// Preserves the metadata that an update cannot change and need not repeat.
fn preserve_server_metadata(new: &mut Value, old: &Value) {
    if !is_set(new, "metadata.uid") {
        copy_field(new, old, "metadata.uid");
    }
    copy_field(new, old, "metadata.creationTimestamp");
    remove(new, "metadata.selfLink");
    if is_set(old, "metadata.deletionTimestamp") {
        copy_field(new, old, "metadata.deletionTimestamp");
    }
    if !is_set(new, "metadata.deletionGracePeriodSeconds") {
        copy_field(new, old, "metadata.deletionGracePeriodSeconds");
    }
}

/// Returns everything outside `metadata`, and outside `status` if that is a subresource.
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
