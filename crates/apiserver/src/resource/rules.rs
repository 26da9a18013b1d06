//! The behaviour of kinds at each step of a request, for built-in and custom kinds alike.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use gantry_kinds::behaviour::{self, Behaviour, Deletion};
use gantry_patch::ownership::{self, ApplyError, Context, VersionConverter};
use gantry_patch::{FieldSet, Path};
use gantry_schema::{FieldError, Schema};
use serde_json::{Value, json};

use crate::resource::custom::CustomResource;
use crate::resource::custom::schemas::LazySchema;
use crate::resource::strategy::UnownedFields;
use crate::resource::{KindSource, Resource};
use crate::response::status::StatusError;
use crate::verbs::write::Write;

/// The part of an object a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenSubresource {
    Main,
    Status,
    Scale,
    Finalize,
    Approval,
    EphemeralContainers,
    Resize,
    /// The node of a pod. The server writes it after it has checked the pod.
    Binding,
    /// A token of a service account, which is not stored.
    Token,
}

impl WrittenSubresource {
    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "status" => Self::Status,
            "scale" => Self::Scale,
            "finalize" => Self::Finalize,
            "approval" => Self::Approval,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "resize" => Self::Resize,
            "binding" => Self::Binding,
            "token" => Self::Token,
            _ => Self::Main,
        }
    }

    /// Returns its name in paths and managed fields.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
            Self::Approval => "approval",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
            Self::Binding => "binding",
            Self::Token => "token",
        }
    }

    /// Returns the subresource as kinds know it; `None` when they do not handle it.
    fn behaviour_part(self) -> Option<behaviour::SubresourceKind> {
        Some(match self {
            Self::Main => behaviour::SubresourceKind::Main,
            Self::Status => behaviour::SubresourceKind::Status,
            Self::Scale => behaviour::SubresourceKind::Scale,
            Self::Finalize => behaviour::SubresourceKind::Finalize,
            Self::Approval => behaviour::SubresourceKind::Approval,
            Self::EphemeralContainers => behaviour::SubresourceKind::EphemeralContainers,
            Self::Resize => behaviour::SubresourceKind::Resize,
            Self::Binding | Self::Token => return None,
        })
    }
}

static NO_FIELDS: LazyLock<FieldSet> = LazyLock::new(FieldSet::default);
static STATUS: LazyLock<FieldSet> = LazyLock::new(|| set(&[&["status"]]));
static SPEC: LazyLock<FieldSet> = LazyLock::new(|| set(&[&["spec"]]));
static SPEC_AND_STATUS: LazyLock<FieldSet> = LazyLock::new(|| set(&[&["spec"], &["status"]]));
static SPEC_AND_LABELS: LazyLock<FieldSet> =
    LazyLock::new(|| set(&[&["spec"], &["metadata", "labels"]]));
static ALL_BUT_STATUS: LazyLock<FieldSet> = LazyLock::new(|| {
    let metadata = [
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "labels",
        "annotations",
        "ownerReferences",
    ];
    let metadata: Vec<[&str; 2]> = metadata.iter().map(|name| ["metadata", *name]).collect();
    let mut paths: Vec<&[&str]> = metadata.iter().map(|it| &it[..]).collect();
    paths.push(&["spec"]);
    set(&paths)
});

fn set(paths: &[&[&str]]) -> FieldSet {
    let mut set = FieldSet::new();
    for names in paths {
        set.insert(&Path::fields(names).0);
    }
    set
}

impl Resource {
    pub(crate) fn behaviour(&self) -> &'static Behaviour {
        match &self.source {
            KindSource::Builtin(builtin) => builtin.behaviour,
            KindSource::Custom(custom) => behaviour::custom(custom.has_status),
        }
    }

    /// Returns the type of its objects.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        match &self.source {
            KindSource::Builtin(builtin) => gantry_builtin::schema(builtin.type_id),
            KindSource::Custom(custom) => custom.schema.schema(),
        }
    }

    /// Decodes a tree as the kind, together with the fields the kind does not have.
    pub(crate) fn prune(&self, tree: Value) -> Result<(Value, Vec<String>), StatusError> {
        // An empty list of owners means to remove them, and an empty list is not serialized.
        let forget = tree["metadata"]["managedFields"].as_array().is_some_and(Vec::is_empty);
        let (mut object, unknown) = self.prune_builtin(tree)?;
        if forget && object["metadata"].is_object() {
            object["metadata"]["managedFields"] = json!([]);
        }
        Ok((object, unknown))
    }

    fn prune_builtin(&self, mut tree: Value) -> Result<(Value, Vec<String>), StatusError> {
        match &self.source {
            KindSource::Builtin(builtin) => {
                let read = gantry_builtin::read(builtin.type_id, tree).map_err(|fault| {
                    let Self { kind, version, .. } = self;
                    StatusError::bad_request(format!(
                        "{kind} in version \"{version}\" cannot be handled as a {kind}: {fault}"
                    ))
                })?;
                Ok((read.value, read.unknown))
            }
            KindSource::Custom(custom) => {
                let unknown = gantry_schema::prune(&custom.schema.schema(), &mut tree);
                normalise_metadata(&mut tree);
                Ok((tree, unknown))
            }
        }
    }

    /// Normalizes an object to the form of its kind, after the server changed something in it.
    pub(crate) fn normalize(&self, object: Value) -> Result<Value, StatusError> {
        match &self.source {
            KindSource::Builtin(builtin) => match gantry_builtin::read(builtin.type_id, object) {
                Ok(read) => Ok(read.value),
                Err(fault) => Err(StatusError::internal(&format!("{}: {fault}", self.kind))),
            },
            KindSource::Custom(_) => Ok(object),
        }
    }

    /// Whether it has the default table of kinds without one of their own.
    pub(crate) fn has_default_columns(&self) -> bool {
        let own = || gantry_kinds::print::columns(&self.group, &self.plural);
        self.custom().is_none() && std::ptr::eq(own(), gantry_kinds::print::default_columns())
    }

    pub(crate) fn default(&self, object: &mut Value) {
        match &self.source {
            KindSource::Builtin(builtin) => {
                builtin.behaviour.default(object);
                (self.strategy.default)(object);
            }
            KindSource::Custom(custom) => gantry_schema::default(&custom.schema.schema(), object),
        }
    }

    /// Validates a new object; also returns warnings.
    pub(crate) fn validate_create(&self, object: &Value) -> (Vec<FieldError>, Vec<String>) {
        let behaviour = self.behaviour();
        let (mut faults, mut warnings) =
            gantry_kinds::validate_metadata(object, None, self.namespaced, behaviour);
        match &self.source {
            KindSource::Builtin(_) => {
                faults.extend((self.strategy.validate_new)(object));
                faults.extend(behaviour.validate_create(object));
                faults.extend((self.strategy.validate)(object, None));
                warnings.extend(behaviour.warnings(object, None));
                warnings.extend((self.strategy.warnings)(object, None));
            }
            KindSource::Custom(custom) => {
                warnings.extend(custom.validate(
                    self,
                    object,
                    None,
                    WrittenSubresource::Main,
                    &mut faults,
                ));
            }
        }
        (faults, warnings)
    }

    /// Validates a change; also returns warnings.
    pub(crate) fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        part: WrittenSubresource,
    ) -> (Vec<FieldError>, Vec<String>) {
        let Some(of_kind) = part.behaviour_part() else { return (Vec::new(), Vec::new()) };
        let behaviour = self.behaviour();
        let (mut faults, mut warnings) =
            gantry_kinds::validate_metadata(new, Some(old), self.namespaced, behaviour);
        match &self.source {
            KindSource::Builtin(_) => {
                faults.extend(behaviour.validate_update(new, old, of_kind));
                warnings.extend(behaviour.warnings(new, Some(old)));
                if part == WrittenSubresource::Main {
                    faults.extend((self.strategy.validate)(new, Some(old)));
                    warnings.extend((self.strategy.warnings)(new, Some(old)));
                }
            }
            KindSource::Custom(custom) => {
                warnings.extend(custom.validate(self, new, Some(old), part, &mut faults));
            }
        }
        (faults, warnings)
    }

    pub(crate) fn prepare_new(&self, object: &mut Value, now: &str) {
        self.behaviour().prepare_create(object, now);
    }

    pub(crate) fn prepare_change(
        &self,
        new: &mut Value,
        old: &Value,
        part: WrittenSubresource,
        now: &str,
    ) {
        if let Some(part) = part.behaviour_part() {
            self.behaviour().prepare_update(new, old, part, now);
        }
    }

    /// Whether an update may omit the resource version.
    pub(crate) fn allows_unconditional_update(&self) -> bool {
        self.behaviour().unconditional_update
    }

    /// Whether an update of an absent object creates it.
    pub(crate) fn allows_create_on_update(&self) -> bool {
        self.behaviour().create_on_update
    }

    pub(crate) fn delete_returns_object(&self) -> bool {
        self.behaviour().delete_returns_object
    }

    /// Returns the grace period of an object.
    pub(crate) fn grace_period(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        gantry_kinds::deletion::grace_period(object, asked, self.behaviour())
    }

    /// Whether a deleted object shows its grace period.
    pub(crate) fn records_grace_period(&self) -> bool {
        self.behaviour().deletion != Deletion::ImmediateUnrecorded
    }

    /// Records the managers of the fields of a new or changed object.
    pub(crate) fn update_managed_fields(
        &self,
        write: &Write,
        live: Option<&Value>,
        object: &mut Value,
    ) {
        let schema = self.schema();
        let (version, now) = (self.api_version(), write.timestamp());
        let empty = self.empty();
        let versions = ServedVersions::of(write);
        let context = self.context(write, &versions, &schema, &version, &now, &empty);
        // An object is stored even if its field ownership cannot be computed.
        if let Err(error) = ownership::update(&context, live, object) {
            tracing::debug!(%error, kind = self.kind, "could not record field owners");
        }
    }

    /// Applies the configuration of a manager to an object.
    pub(crate) fn apply(
        &self,
        write: &Write,
        live: Option<&Value>,
        config: &Value,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let schema = self.schema();
        let (version, now) = (self.api_version(), write.timestamp());
        let empty = self.empty();
        let versions = ServedVersions::of(write);
        let context = self.context(write, &versions, &schema, &version, &now, &empty);
        ownership::apply(&context, live, config, force)
    }

    fn context<'a>(
        &'a self,
        write: &'a Write,
        versions: &'a ServedVersions<'a>,
        schema: &'a Schema,
        version: &'a str,
        now: &'a str,
        empty: &'a Value,
    ) -> Context<'a> {
        Context {
            schema,
            api_version: version,
            manager: &write.manager,
            subresource: write.subresource.name(),
            now,
            reset_fields: self.reset_fields(write.subresource),
            empty,
            versions,
        }
    }

    pub(crate) fn empty(&self) -> Value {
        match &self.source {
            KindSource::Builtin(builtin) => builtin.empty.clone(),
            KindSource::Custom(_) => json!({ "apiVersion": self.api_version(), "kind": self.kind }),
        }
    }

    /// Restores what a write to a subresource does not change.
    fn reset_fields(&self, part: WrittenSubresource) -> &'static FieldSet {
        let behaviour = self.behaviour();
        match part {
            WrittenSubresource::Main => match self.strategy.unowned {
                UnownedFields::Spec => &SPEC_AND_STATUS,
                UnownedFields::None if behaviour.has_status() => &STATUS,
                UnownedFields::None => &NO_FIELDS,
            },
            WrittenSubresource::Status => match behaviour.status {
                // Metadata in a status write is ignored, and yet recorded upstream.
                behaviour::StatusSubresource::KeepsAll if self.custom().is_some() => &SPEC,
                behaviour::StatusSubresource::KeepsAll | behaviour::StatusSubresource::Absent => {
                    &ALL_BUT_STATUS
                }
                behaviour::StatusSubresource::KeepsSpecAndLabels => &SPEC_AND_LABELS,
                behaviour::StatusSubresource::KeepsSpec
                | behaviour::StatusSubresource::KeepsSpecAndOwners
                | behaviour::StatusSubresource::SetAtCreation => &SPEC,
            },
            WrittenSubresource::Scale
            | WrittenSubresource::Finalize
            | WrittenSubresource::Approval
            | WrittenSubresource::EphemeralContainers
            | WrittenSubresource::Resize
            | WrittenSubresource::Binding
            | WrittenSubresource::Token => &NO_FIELDS,
        }
    }
}

/// Normalizes metadata: nothing empty, times to the second.
fn normalise_metadata(tree: &mut Value) {
    static TYPE: LazyLock<Option<gantry_builtin::TypeId>> = LazyLock::new(|| {
        gantry_builtin::named_type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    });
    let Some(type_id) = *TYPE else { return };
    let Some(metadata) = tree.get_mut("metadata") else { return };
    if let Ok(mut read) = gantry_builtin::read(type_id, metadata.clone()) {
        if let Some(fields) = read.value.as_object_mut()
            && fields.get("creationTimestamp").is_some_and(Value::is_null)
        {
            fields.shift_remove("creationTimestamp");
        }
        *metadata = read.value;
    }
}

/// The served versions, because ownership is recorded in the version of each write. Their schemas
/// are held for the duration of the write.
struct ServedVersions<'a> {
    write: &'a Write,
    schemas: BTreeMap<&'a str, (&'a LazySchema, OnceLock<Arc<Schema>>)>,
}

impl<'a> ServedVersions<'a> {
    fn of(write: &'a Write) -> Self {
        let siblings = write.resource.custom().map(|custom| custom.served_schemas.iter());
        let schemas = siblings.into_iter().flatten();
        let schemas =
            schemas.map(|(version, schema)| (version.as_str(), (schema, OnceLock::new())));
        Self { write, schemas: schemas.collect() }
    }
}

impl VersionConverter for ServedVersions<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        let (lazy, held) = self.schemas.get(api_version)?;
        Some(held.get_or_init(|| lazy.schema()))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        self.schemas.get(api_version)?;
        let Write { resource, versions: views, .. } = self.write;
        if resource.converter().is_some() && object["apiVersion"] != api_version {
            return views.find(object, api_version);
        }
        let mut converted = object.clone();
        converted["apiVersion"] = json!(api_version);
        Some(converted)
    }
}

impl CustomResource {
    /// Adds validation errors of an object, and returns warnings.
    fn validate(
        &self,
        resource: &Resource,
        object: &Value,
        old: Option<&Value>,
        part: WrittenSubresource,
        faults: &mut Vec<FieldError>,
    ) -> Vec<String> {
        // The server's controllers change metadata alone, of objects in any version.
        if self.is_storage_view {
            return Vec::new();
        }
        if object["kind"] != json!(resource.kind) {
            let detail = format!("must be {}", resource.kind);
            faults.push(FieldError::invalid("kind", &object["kind"], &detail));
        }
        if object["apiVersion"] != json!(resource.api_version()) {
            let detail = format!("must be {}", resource.api_version());
            faults.push(FieldError::invalid("apiVersion", &object["apiVersion"], &detail));
        }
        let compiled = self.schema.get();
        faults.extend(match part {
            WrittenSubresource::Status => {
                gantry_schema::validate_status(&compiled.schema, object, old)
            }
            WrittenSubresource::Main
            | WrittenSubresource::Scale
            | WrittenSubresource::Finalize
            | WrittenSubresource::Approval
            | WrittenSubresource::EphemeralContainers
            | WrittenSubresource::Resize
            | WrittenSubresource::Binding
            | WrittenSubresource::Token => gantry_schema::validate(&compiled.schema, object, old),
        });
        compiled.rules.evaluate_unless_blocked(&compiled.schema, object, old, faults)
    }
}
