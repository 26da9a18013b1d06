//! What the kinds' own rules do at each step of a request, whichever sort of kind it is.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use gantry_kinds::behaviour::{self, Behaviour, Deletion};
use gantry_patch::ownership::{self, ApplyError, Context, Versions};
use gantry_patch::{Path, Set};
use gantry_schema::{Invalid, Schema};
use serde_json::{Value, json};

use crate::custom::Custom;
use crate::custom::schemas::LazySchema;
use crate::resource::{Nature, Resource};
use crate::status::Refusal;
use crate::webhooks::Webhooks;
use crate::write::Write;

/// The part of an object a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Status,
    Scale,
    Finalize,
    Approval,
    EphemeralContainers,
    Resize,
    /// The node of a pod. It is written by the server after it checked the pod.
    Binding,
    /// A token of a service account, which is stored nowhere.
    Token,
}

impl Part {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "status" => Self::Status,
            "scale" => Self::Scale,
            "finalize" => Self::Finalize,
            "approval" => Self::Approval,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "resize" => Self::Resize,
            "binding" => Self::Binding,
            "token" => Self::Token,
            _ => Self::Whole,
        }
    }

    /// Its name in paths and managed fields.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Whole => "",
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

    /// The same part as kinds know it; `None` when they have no say.
    fn of_kind(self) -> Option<behaviour::Part> {
        Some(match self {
            Self::Whole => behaviour::Part::Main,
            Self::Status => behaviour::Part::Status,
            Self::Scale => behaviour::Part::Scale,
            Self::Finalize => behaviour::Part::Finalize,
            Self::Approval => behaviour::Part::Approval,
            Self::EphemeralContainers => behaviour::Part::EphemeralContainers,
            Self::Resize => behaviour::Part::Resize,
            Self::Binding | Self::Token => return None,
        })
    }
}

/// Where requests for certificates are stored; nobody owns what they ask for.
pub(crate) const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

static NOTHING: LazyLock<Set> = LazyLock::new(Set::default);
static STATUS: LazyLock<Set> = LazyLock::new(|| set(&[&["status"]]));
static SPEC: LazyLock<Set> = LazyLock::new(|| set(&[&["spec"]]));
static SPEC_AND_STATUS: LazyLock<Set> = LazyLock::new(|| set(&[&["spec"], &["status"]]));
static SPEC_AND_LABELS: LazyLock<Set> =
    LazyLock::new(|| set(&[&["spec"], &["metadata", "labels"]]));
static ALL_BUT_STATUS: LazyLock<Set> = LazyLock::new(|| {
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

fn set(paths: &[&[&str]]) -> Set {
    let mut set = Set::new();
    for names in paths {
        set.insert(&Path::fields(names).0);
    }
    set
}

impl Resource {
    pub(crate) fn behaviour(&self) -> &'static Behaviour {
        match &self.nature {
            Nature::Builtin(builtin) => builtin.behaviour,
            Nature::Custom(custom) => behaviour::custom(custom.has_status),
        }
    }

    /// The type of its objects.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        match &self.nature {
            Nature::Builtin(builtin) => gantry_builtin::schema(builtin.type_id),
            Nature::Custom(custom) => custom.schema.schema(),
        }
    }

    /// A tree as the kind has it, and the fields the kind does not have.
    pub(crate) fn clean(&self, tree: Value) -> Result<(Value, Vec<String>), Refusal> {
        // An empty list of owners is a wish to forget them, and an empty list is not written.
        let forget = tree["metadata"]["managedFields"].as_array().is_some_and(Vec::is_empty);
        let (mut object, unknown) = self.typed(tree)?;
        if forget && object["metadata"].is_object() {
            object["metadata"]["managedFields"] = json!([]);
        }
        Ok((object, unknown))
    }

    fn typed(&self, mut tree: Value) -> Result<(Value, Vec<String>), Refusal> {
        match &self.nature {
            Nature::Builtin(builtin) => {
                let read = gantry_builtin::read(builtin.type_id, tree).map_err(|fault| {
                    let Self { kind, version, .. } = self;
                    Refusal::bad_request(format!(
                        "{kind} in version \"{version}\" cannot be handled as a {kind}: {fault}"
                    ))
                })?;
                Ok((read.value, read.unknown))
            }
            Nature::Custom(custom) => {
                let unknown = gantry_schema::prune(&custom.schema.schema(), &mut tree);
                normalise_metadata(&mut tree);
                Ok((tree, unknown))
            }
        }
    }

    /// An object in the form its kind is written in, after the server changed something in it.
    pub(crate) fn normal(&self, object: Value) -> Result<Value, Refusal> {
        match &self.nature {
            Nature::Builtin(builtin) => match gantry_builtin::read(builtin.type_id, object) {
                Ok(read) => Ok(read.value),
                Err(fault) => Err(Refusal::internal(&format!("{}: {fault}", self.kind))),
            },
            Nature::Custom(_) => Ok(object),
        }
    }

    /// Whether its table is the one of kinds that have none of their own.
    pub(crate) fn has_default_columns(&self) -> bool {
        let own = || gantry_kinds::print::columns(&self.group, &self.plural);
        self.custom().is_none() && std::ptr::eq(own(), gantry_kinds::print::default_columns())
    }

    pub(crate) fn default(&self, object: &mut Value) {
        match &self.nature {
            Nature::Builtin(builtin) => {
                builtin.behaviour.default(object);
                if self.space == crate::definitions::SPACE {
                    gantry_schema::default_definition(object);
                }
            }
            Nature::Custom(custom) => gantry_schema::default(&custom.schema.schema(), object),
        }
    }

    /// What is wrong with a new object, and what deserves a warning.
    pub(crate) fn validate_create(&self, object: &Value) -> (Vec<Invalid>, Vec<String>) {
        let behaviour = self.behaviour();
        let (mut faults, mut warnings) =
            gantry_kinds::validate_metadata(object, None, self.namespaced, behaviour);
        match &self.nature {
            Nature::Builtin(_) => {
                if self.space == REQUESTS {
                    faults.extend(crate::admission::certificates::request_fault(object));
                }
                faults.extend(behaviour.validate_create(object));
                warnings.extend(behaviour.warnings(object, None));
                if self.space == crate::definitions::SPACE {
                    faults.extend(gantry_schema::validate_definition(object, None));
                    warnings.extend(gantry_schema::definition_warnings(object, None));
                }
                if self.space == crate::policies::SPACE {
                    faults.extend(gantry_admission::validate_policy(object, None));
                }
                if Webhooks::concern(&self.space) {
                    faults.extend(gantry_admission::conditions::validate_webhooks(object, None));
                }
            }
            Nature::Custom(custom) => {
                warnings.extend(custom.validate(self, object, None, Part::Whole, &mut faults));
            }
        }
        (faults, warnings)
    }

    /// What is wrong with a change, and what deserves a warning.
    pub(crate) fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        part: Part,
    ) -> (Vec<Invalid>, Vec<String>) {
        let Some(of_kind) = part.of_kind() else { return (Vec::new(), Vec::new()) };
        let behaviour = self.behaviour();
        let (mut faults, mut warnings) =
            gantry_kinds::validate_metadata(new, Some(old), self.namespaced, behaviour);
        match &self.nature {
            Nature::Builtin(_) => {
                faults.extend(behaviour.validate_update(new, old, of_kind));
                warnings.extend(behaviour.warnings(new, Some(old)));
                if self.space == crate::definitions::SPACE && part == Part::Whole {
                    faults.extend(gantry_schema::validate_definition(new, Some(old)));
                    warnings.extend(gantry_schema::definition_warnings(new, Some(old)));
                }
                if self.space == crate::policies::SPACE && part == Part::Whole {
                    faults.extend(gantry_admission::validate_policy(new, Some(old)));
                }
                if Webhooks::concern(&self.space) && part == Part::Whole {
                    let old = Some(old);
                    faults.extend(gantry_admission::conditions::validate_webhooks(new, old));
                }
            }
            Nature::Custom(custom) => {
                warnings.extend(custom.validate(self, new, Some(old), part, &mut faults));
            }
        }
        (faults, warnings)
    }

    pub(crate) fn prepare_new(&self, object: &mut Value, now: &str) {
        self.behaviour().prepare_create(object, now);
    }

    pub(crate) fn prepare_change(&self, new: &mut Value, old: &Value, part: Part, now: &str) {
        if let Some(part) = part.of_kind() {
            self.behaviour().prepare_update(new, old, part, now);
        }
    }

    /// Whether an update may leave out the revision.
    pub(crate) fn may_update_blindly(&self) -> bool {
        self.behaviour().unconditional_update
    }

    /// Whether an update of what is not there makes it.
    pub(crate) fn creates_on_update(&self) -> bool {
        self.behaviour().create_on_update
    }

    pub(crate) fn delete_returns_object(&self) -> bool {
        self.behaviour().delete_returns_object
    }

    /// How long an object has before it goes.
    pub(crate) fn grace(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        gantry_kinds::deletion::grace(object, asked, self.behaviour())
    }

    /// Whether a deleted object says how long it has.
    pub(crate) fn marks_grace(&self) -> bool {
        self.behaviour().deletion != Deletion::Unmentioned
    }

    /// Whether being asked to go counts as a change of the specification.
    pub(crate) fn marking_is_a_generation(&self) -> bool {
        self.space != crate::definitions::SPACE
    }

    /// Whether its specification keeps a deleted object.
    pub(crate) fn is_held_by_spec(&self, object: &Value) -> bool {
        let namespace = self.space == "namespaces"
            && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        namespace || self.space == crate::definitions::SPACE
    }

    /// What a deleted object's status says.
    pub(crate) fn mark_status(&self, object: &mut Value, now: &str) {
        if self.space == "namespaces" {
            object["status"]["phase"] = json!("Terminating");
        }
        if self.space == crate::definitions::SPACE {
            crate::definitions::mark(object, now);
        }
    }

    /// Records who said which field of a new or changed object.
    pub(crate) fn own(&self, write: &Write, live: Option<&Value>, object: &mut Value) {
        let schema = self.schema();
        let (version, now) = (self.api_version(), write.stamp());
        let empty = self.empty();
        let versions = ServedVersions::of(write);
        let context = self.context(write, &versions, &schema, &version, &now, &empty);
        // A server that cannot work out ownership stores the object all the same.
        if let Err(error) = ownership::update(&context, live, object) {
            tracing::debug!(%error, kind = self.kind, "ownership is not recorded");
        }
    }

    /// The object after its manager said what it wants of it.
    pub(crate) fn apply(
        &self,
        write: &Write,
        live: Option<&Value>,
        config: &Value,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let schema = self.schema();
        let (version, now) = (self.api_version(), write.stamp());
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
            subresource: write.part.name(),
            now,
            reset_fields: self.reset_fields(write.part),
            empty,
            versions,
        }
    }

    pub(crate) fn empty(&self) -> Value {
        match &self.nature {
            Nature::Builtin(builtin) => builtin.empty.clone(),
            Nature::Custom(_) => json!({ "apiVersion": self.api_version(), "kind": self.kind }),
        }
    }

    /// What a write to a part does not change.
    fn reset_fields(&self, part: Part) -> &'static Set {
        let behaviour = self.behaviour();
        match part {
            Part::Whole if self.space == REQUESTS => &SPEC_AND_STATUS,
            Part::Whole if behaviour.has_status() => &STATUS,
            Part::Status => match behaviour.status {
                // What a status write says of metadata is ignored, and yet recorded upstream.
                behaviour::Status::KeepsAll if self.custom().is_some() => &SPEC,
                behaviour::Status::KeepsAll | behaviour::Status::Absent => &ALL_BUT_STATUS,
                behaviour::Status::KeepsSpecAndLabels => &SPEC_AND_LABELS,
                behaviour::Status::KeepsSpec
                | behaviour::Status::KeepsSpecAndOwners
                | behaviour::Status::BroughtAtCreation => &SPEC,
            },
            Part::Whole
            | Part::Scale
            | Part::Finalize
            | Part::Approval
            | Part::EphemeralContainers
            | Part::Resize
            | Part::Binding
            | Part::Token => &NOTHING,
        }
    }
}

/// Metadata in the form it has everywhere: nothing empty, times to the second.
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

/// Ownership is recorded in the version of each write; these are the versions that are served. Their
/// schemas are held as long as the write is worked on.
struct ServedVersions<'a> {
    write: &'a Write,
    schemas: BTreeMap<&'a str, (&'a LazySchema, OnceLock<Arc<Schema>>)>,
}

impl<'a> ServedVersions<'a> {
    fn of(write: &'a Write) -> Self {
        let siblings = write.resource.custom().map(|custom| custom.siblings.iter());
        let schemas = siblings.into_iter().flatten();
        let schemas =
            schemas.map(|(version, schema)| (version.as_str(), (schema, OnceLock::new())));
        Self { write, schemas: schemas.collect() }
    }
}

impl Versions for ServedVersions<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        let (lazy, held) = self.schemas.get(api_version)?;
        Some(held.get_or_init(|| lazy.schema()))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        self.schemas.get(api_version)?;
        let Write { resource, views, .. } = self.write;
        if resource.converter().is_some() && object["apiVersion"] != api_version {
            return views.find(object, api_version);
        }
        let mut converted = object.clone();
        converted["apiVersion"] = json!(api_version);
        Some(converted)
    }
}

impl Custom {
    /// Adds what is wrong with an object, and returns what deserves a warning.
    fn validate(
        &self,
        resource: &Resource,
        object: &Value,
        old: Option<&Value>,
        part: Part,
        faults: &mut Vec<Invalid>,
    ) -> Vec<String> {
        // The server's collectors change metadata alone, of objects in any version.
        if self.keeps {
            return Vec::new();
        }
        if object["kind"] != json!(resource.kind) {
            let detail = format!("must be {}", resource.kind);
            faults.push(Invalid::value("kind", &object["kind"], &detail));
        }
        if object["apiVersion"] != json!(resource.api_version()) {
            let detail = format!("must be {}", resource.api_version());
            faults.push(Invalid::value("apiVersion", &object["apiVersion"], &detail));
        }
        let compiled = self.schema.get();
        faults.extend(match part {
            Part::Status => gantry_schema::validate_status(&compiled.schema, object, old),
            Part::Whole
            | Part::Scale
            | Part::Finalize
            | Part::Approval
            | Part::EphemeralContainers
            | Part::Resize
            | Part::Binding
            | Part::Token => gantry_schema::validate(&compiled.schema, object, old),
        });
        compiled.rules.ask_after(&compiled.schema, object, old, faults)
    }
}
