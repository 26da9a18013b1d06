//! Requests that make or change an object: create, update, patch.

use std::sync::Arc;

use bytes::Bytes;
use gantry_patch::ownership::{ApplyError, Conflict, Conflicts};
use gantry_patch::strategic::StrategicError;
use gantry_schema::Invalid;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::answer;
use crate::api::{Api, Ask};
use crate::body::Body;
use crate::decode;
use crate::misfit::{by_name, go_map, unconvertible};
use crate::negotiate::{self, Content, PatchType};
use crate::query::{FieldValidation, WriteOptions};
use crate::render::{self, Rendering};
use crate::resource::Resource;
use crate::rules::Part;
use crate::status::{Cause, Refusal};
use crate::write::{Changed, Ownership, Write, Written, meta, namespace_mismatch};

/// How often an object may come and go before who wants to make or change it is told to try later.
const TURNS: usize = 100;

impl Api {
    /// `POST` to a collection.
    pub(crate) async fn create(&self, ask: Ask) -> Result<Response<Body>, Refusal> {
        if let Some(answer) = self.review(&ask).await? {
            return Ok(answer);
        }
        let options = WriteOptions::read(&ask.query, "CreateOptions")?;
        let mut write = Write::of(&ask, &options);
        let decoded = decode::body(&ask, options.validation)?;
        write.warnings = decoded.warnings;
        let written = self.insert(&mut write, decoded.object).await;
        respond(&ask, &write, StatusCode::CREATED, written)
    }

    /// `PUT` of an object.
    pub(crate) async fn update(&self, ask: Ask) -> Result<Response<Body>, Refusal> {
        self.update_part(ask, Part::Whole).await
    }

    /// `PUT` of an object or a part of it that has the same kind.
    pub(crate) async fn update_part(
        &self,
        ask: Ask,
        part: Part,
    ) -> Result<Response<Body>, Refusal> {
        let options = WriteOptions::read(&ask.query, "UpdateOptions")?;
        let decoded = decode::body(&ask, options.validation)?;
        check_names(&ask, &decoded.object)?;
        let creates = part == Part::Whole && ask.resource.creates_on_update();
        for _ in 0..TURNS {
            let mut write = Write::of(&ask, &options);
            write.part = part;
            let known = self.knows(&ask);
            let (status, written) = if !known && creates {
                write.warnings.clone_from(&decoded.warnings);
                write.changes = true;
                let written = self.insert(&mut write, decoded.object.clone()).await;
                (StatusCode::CREATED, written)
            } else {
                let make = |_: &Self, write: &Write, live: &Value| {
                    let mut object = decoded.object.clone();
                    check_uid(write, live, &object)?;
                    write.resource.own(write, Some(live), &mut object);
                    Ok(Changed { object, warnings: decoded.warnings.clone() })
                };
                (StatusCode::OK, self.modify(&mut write, make).await)
            };
            if !(creates && Self::came_or_went(&ask, known, &written)) {
                return respond(&ask, &write, status, written);
            }
        }
        Err(Refusal::modified(&ask.resource.group, &ask.resource.plural, &ask.target.name))
    }

    /// `PATCH` of an object.
    pub(crate) async fn patch(&self, ask: Ask) -> Result<Response<Body>, Refusal> {
        self.patch_part(ask, Part::Whole).await
    }

    /// `PATCH` of an object or a part of it that has the same kind.
    pub(crate) async fn patch_part(&self, ask: Ask, part: Part) -> Result<Response<Body>, Refusal> {
        let kind = negotiate::patch_type(&ask.headers, ask.resource.custom().is_some())?;
        let options = patch_options(&ask, kind)?;
        if kind == PatchType::Apply {
            return self.apply(ask, part, &options).await;
        }
        let mut write = Write::of(&ask, &options);
        write.part = part;
        let patch = Patch::read(kind, &ask.body)?;
        let written = self
            .modify(&mut write, |_, write, live| {
                let patched = patch.apply(&write.resource, live)?;
                let mut changed = patch.decode(write, patched, options.validation)?;
                check_names_unchanged(write, &changed.object)?;
                write.resource.own(write, Some(live), &mut changed.object);
                Ok(changed)
            })
            .await;
        respond(&ask, &write, StatusCode::OK, written)
    }

    /// Server-side apply.
    async fn apply(
        &self,
        ask: Ask,
        part: Part,
        options: &WriteOptions,
    ) -> Result<Response<Body>, Refusal> {
        let (config, duplicates) = decode::tree(Content::Yaml, &ask.body, &ask.resource.kind)
            .map_err(|refusal| {
                Refusal::bad_request(format!("error decoding YAML: {}", refusal.message))
            })?;
        let validation = options.validation;
        let mut notes = Vec::new();
        match (validation, duplicates.yaml_fault()) {
            (FieldValidation::Strict, Some(fault)) => {
                return Err(Refusal::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: {fault}"
                )));
            }
            (FieldValidation::Warn, Some(_)) => notes.extend_from_slice(duplicates.lines()),
            (FieldValidation::Strict | FieldValidation::Warn | FieldValidation::Ignore, _) => {}
        }
        check_config(&ask, &config)?;
        let force = options.force.unwrap_or(false);
        for _ in 0..TURNS {
            let mut write = Write::of(&ask, options);
            write.part = part;
            let known = self.knows(&ask);
            let (status, written) = if !known && part == Part::Whole {
                let mut object = owned_by_apply(&write, None, &config, force)?;
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.shift_remove("resourceVersion");
                }
                let (mut object, _) = write.resource.clean(object)?;
                write.resource.default(&mut object);
                write.ownership = Ownership::Said;
                write.changes = true;
                write.warnings.clone_from(&notes);
                (StatusCode::CREATED, self.insert(&mut write, object).await)
            } else {
                let make = |_: &Self, write: &Write, live: &Value| {
                    let object = owned_by_apply(write, Some(live), &config, force)?;
                    let (mut object, _) = write.resource.clean(object)?;
                    write.resource.default(&mut object);
                    Ok(Changed { object, warnings: notes.clone() })
                };
                (StatusCode::OK, self.modify(&mut write, make).await)
            };
            if !(part == Part::Whole && Self::came_or_went(&ask, known, &written)) {
                return respond(&ask, &write, status, written);
            }
        }
        Err(Refusal::modified(&ask.resource.group, &ask.resource.plural, &ask.target.name))
    }

    fn knows(&self, ask: &Ask) -> bool {
        self.stored(&ask.resource, &ask.target.namespace, &ask.target.name).is_some()
    }

    /// Whether a change that makes what is not there was refused because, meanwhile, somebody else
    /// made it, or removed what was to be changed: then it is another change now.
    fn came_or_went(ask: &Ask, known: bool, written: &Result<Written, Refusal>) -> bool {
        let Resource { group, plural, .. } = &*ask.resource;
        let make = if known { Refusal::not_found } else { Refusal::already_exists };
        let expected = make(group, plural, &ask.target.name);
        // The words too: others may refuse for the same reason, and mean something else by it.
        written.as_ref().is_err_and(|refusal| {
            (refusal.reason, &refusal.message) == (expected.reason, &expected.message)
        })
    }
}

/// Answers with what was written.
pub(crate) fn respond(
    ask: &Ask,
    write: &Write,
    status: StatusCode,
    written: Result<Written, Refusal>,
) -> Result<Response<Body>, Refusal> {
    let written = match written {
        Ok(written) => written,
        // What was odd about the request is said also when it is refused.
        Err(mut refusal) => {
            refusal.warnings.extend(write.warnings.iter().cloned());
            return Err(refusal);
        }
    };
    let rendering = match &written {
        Written::Stored(entry) => Rendering::Entry(entry),
        Written::Gone(tree) => Rendering::Tree(tree),
    };
    let mut response = render::object(ask, status, &rendering)?;
    answer::warn(&mut response, &write.warnings);
    Ok(response)
}

pub(crate) fn owned_by_apply(
    write: &Write,
    live: Option<&Value>,
    config: &Value,
    force: bool,
) -> Result<Value, Refusal> {
    write.resource.apply(write, live, config, force).map_err(|fault| refused_apply(&fault))
}

/// The refusal of a configuration.
pub(crate) fn refused_apply(fault: &ApplyError) -> Refusal {
    match fault {
        ApplyError::Conflict(conflicts) => apply_conflict(conflicts),
        ApplyError::ManagedFields => Refusal::bad_request(fault.to_string()),
        ApplyError::Typed(_) | ApplyError::Entries(_) => Refusal::failure(fault.to_string()),
    }
}

/// The refusal of an apply that would take fields from others.
fn apply_conflict(conflicts: &Conflicts) -> Refusal {
    let causes = conflicts.iter().map(|conflict| Cause {
        reason: Conflict::REASON.to_owned(),
        message: conflict.message(),
        field: conflict.field(),
    });
    Refusal::apply_conflict(conflicts.to_string(), causes.collect())
}

/// The options of a patch; `force` belongs to apply, and apply must say who applies.
fn patch_options(ask: &Ask, kind: PatchType) -> Result<WriteOptions, Refusal> {
    let options = WriteOptions::read(&ask.query, "PatchOptions")?;
    let mut faults = Vec::new();
    if kind == PatchType::Apply {
        if options.manager.is_empty() {
            faults.push(Invalid::required("fieldManager", "is required for apply patch"));
        }
    } else if options.force.is_some() {
        faults.push(Invalid::forbidden("force", "may not be specified for non-apply patch"));
    }
    if faults.is_empty() {
        Ok(options)
    } else {
        Err(Refusal::invalid_options("PatchOptions", &faults))
    }
}

/// A replaced object must be the one in the path.
fn check_names(ask: &Ask, object: &Value) -> Result<(), Refusal> {
    let (name, namespace) = (meta(object, "name"), meta(object, "namespace"));
    let wanted = &ask.target.name;
    if name.is_empty() {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be \
             provided"
        )));
    }
    if name != wanted {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    if ask.resource.namespaced && !namespace.is_empty() && namespace != ask.target.namespace {
        return Err(namespace_mismatch());
    }
    Ok(())
}

/// A patch changes an object, not its place.
fn check_names_unchanged(write: &Write, object: &Value) -> Result<(), Refusal> {
    let name = meta(object, "name");
    if name != write.name {
        let wanted = &write.name;
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    if write.resource.namespaced && meta(object, "namespace") != write.namespace {
        return Err(namespace_mismatch());
    }
    Ok(())
}

/// A replaced object with another identity was meant for another object.
fn check_uid(write: &Write, live: &Value, object: &Value) -> Result<(), Refusal> {
    let (known, said) = (meta(live, "uid"), meta(object, "uid"));
    if said.is_empty() || said == known {
        return Ok(());
    }
    let Resource { group, plural, space, .. } = &*write.resource;
    let key = write.resource.key(&write.namespace, &write.name);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{space}/{key}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {said}, UID in object meta: \
         {known}"
    );
    Err(Refusal::conflict(group, plural, &write.name, &why))
}

/// What apply asks of a configuration before it is looked at.
fn check_config(ask: &Ask, config: &Value) -> Result<(), Refusal> {
    let text = |name: &str| config[name].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let expected = ask.resource.api_version();
    if version != expected || kind != ask.resource.kind {
        let (group, plain) = version.split_once('/').unwrap_or(("", version));
        let gv = if group.is_empty() { format!("/{plain}") } else { format!("{group}/{plain}") };
        let gv = if version.is_empty() { "/".to_owned() } else { gv };
        return Err(Refusal::bad_request(format!("invalid object type: {gv}, Kind={kind}")));
    }
    let name = meta(config, "name");
    let wanted = &ask.target.name;
    if !name.is_empty() && name != wanted {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    let namespace = meta(config, "namespace");
    if ask.resource.namespaced && !namespace.is_empty() && namespace != ask.target.namespace {
        return Err(namespace_mismatch());
    }
    Ok(())
}

/// A patch that is no configuration.
#[derive(Debug)]
struct Patch {
    kind: PatchType,
    document: Value,
    duplicates: Vec<String>,
    text: String,
}

impl Patch {
    fn read(kind: PatchType, body: &Bytes) -> Result<Self, Refusal> {
        let (document, duplicates) = gantry_schema::read_json(body)
            .map_err(|fault| Refusal::bad_request(format!("error decoding patch: {fault}")))?;
        let text = String::from_utf8_lossy(body).into_owned();
        Ok(Self { kind, document, duplicates, text })
    }

    fn apply(&self, resource: &Arc<Resource>, live: &Value) -> Result<Value, Refusal> {
        match self.kind {
            PatchType::Json => {
                gantry_patch::json_patch(live, &self.document).map_err(refused_patch)
            }
            PatchType::Merge => {
                gantry_patch::merge_patch(live, &self.document).map_err(refused_patch)
            }
            PatchType::Strategic => {
                let schema = resource.schema();
                gantry_patch::strategic::apply(&schema, live, &self.document)
                    .map_err(|fault| strategic_refusal(&fault))
            }
            PatchType::Apply => Ok(live.clone()),
        }
    }

    /// The patched tree as an object of the kind, with what is wrong in it said as for a patch.
    fn decode(
        &self,
        write: &Write,
        patched: Value,
        validation: FieldValidation,
    ) -> Result<Changed, Refusal> {
        let resource = &write.resource;
        let shown = if resource.custom().is_some() {
            by_name(&patched).to_string()
        } else {
            patched.to_string()
        };
        check_kind_unchanged(write, &patched, &shown)?;
        let (mut object, unknown) =
            resource.clean(patched).map_err(|fault| self.undecodable(&shown, &fault))?;
        let mut problems: Vec<String> =
            self.duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
        problems.extend(gantry_patch::unknown_patch_fields(&self.document));
        // By key, not as written: the patched object is what is read.
        let mut unknown = unknown;
        unknown.sort();
        problems.extend(unknown.iter().map(|path| format!("unknown field \"{path}\"")));
        let warnings = match validation {
            FieldValidation::Ignore => Vec::new(),
            FieldValidation::Warn => problems,
            FieldValidation::Strict if problems.is_empty() => problems,
            FieldValidation::Strict => {
                let shown = match self.kind {
                    PatchType::Strategic => go_map(&self.document),
                    _ if self.duplicates.is_empty() => shown,
                    _ => self.text.clone(),
                };
                let detail = format!("strict decoding error: {}", problems.join(", "));
                let fault = Invalid::value("patch", &json!(shown), &detail);
                return Err(Refusal::invalid("", "", "", &[fault]));
            }
        };
        resource.default(&mut object);
        Ok(Changed { object, warnings })
    }
}

impl Patch {
    /// The refusal of a patch that makes something else of the object.
    fn undecodable(&self, shown: &str, fault: &Refusal) -> Refusal {
        let words = fault.message.split_once(": ").map_or(fault.message.as_str(), |it| it.1);
        // A strategic patch is converted field by field, the others are read as text.
        let (shown, words) = match self.kind {
            PatchType::Strategic => (go_map(&self.document), unconvertible(words)),
            _ => (shown.to_owned(), words.to_owned()),
        };
        let fault = Invalid::value("patch", &json!(shown), &words);
        Refusal::invalid("", "", "", &[fault])
    }
}

/// A patch may not make an object of another kind.
fn check_kind_unchanged(write: &Write, patched: &Value, shown: &str) -> Result<(), Refusal> {
    let resource = &write.resource;
    let (version, kind) = (&patched["apiVersion"], &patched["kind"]);
    if *version == json!(resource.api_version()) && *kind == json!(resource.kind) {
        return Ok(());
    }
    if resource.custom().is_some() {
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(version), text(kind));
    let (group, short) = version.split_once('/').unwrap_or(("", &version));
    let why = match gantry_builtin::kind_type(group, short, &kind) {
        Some(other) => match gantry_builtin::read(other, patched.clone()) {
            Err(fault) => fault.to_string(),
            Ok(_) => {
                let wanted = &resource.kind;
                format!("converting ({short}.{kind}) to (core.{wanted}): unknown conversion")
            }
        },
        None => format!(
            "no kind {} is registered for version {} in scheme \
             \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\"",
            json!(kind),
            json!(version)
        ),
    };
    let fault = Invalid::value("patch", &json!(shown), &why);
    Err(Refusal::invalid("", "", "", &[fault]))
}

fn strategic_refusal(fault: &StrategicError) -> Refusal {
    match fault {
        StrategicError::BadPatch(words) => {
            Refusal::bad_request(format!("error decoding patch: {words}"))
        }
        StrategicError::Unprocessable(_) => Refusal::unprocessable(),
        StrategicError::Failed(words) => Refusal::failure(words.clone()),
    }
}

fn refused_patch(fault: gantry_patch::PatchError) -> Refusal {
    use gantry_patch::PatchError;
    match fault {
        PatchError::Decode(words) => Refusal::bad_request(words),
        PatchError::TooManyOperations(_) => Refusal::too_large(fault.to_string()),
        PatchError::Rejected(_) => Refusal::unprocessable(),
    }
}
