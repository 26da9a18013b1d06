//! Requests that create or change an object: create, update, patch.

use std::sync::Arc;

use bytes::Bytes;
use gantry_patch::ownership::{ApplyError, Conflict, Conflicts};
use gantry_patch::strategic::StrategicError;
use gantry_schema::FieldError;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::api::{Api, ResourceRequest};
use crate::request::body::Body;
use crate::request::decode;
use crate::request::negotiate::{self, Content, PatchType};
use crate::request::query::{FieldValidation, WriteOptions};
use crate::resource::Resource;
use crate::resource::conversion_errors::{conversion_message, go_map, sorted_by_name};
use crate::resource::rules::WrittenSubresource;
use crate::response;
use crate::response::render::{self, Rendering};
use crate::response::status::{Cause, StatusError};
use crate::verbs::write::{ModifiedObject, Ownership, Write, Written, meta, namespace_mismatch};

/// How often an object may appear and disappear during an upsert before the caller gets a conflict.
const MAX_UPSERT_ATTEMPTS: usize = 100;

impl Api {
    /// `POST` to a collection.
    pub(crate) async fn create(&self, ask: ResourceRequest) -> Result<Response<Body>, StatusError> {
        if let Some(response) = self.handle_review(&ask).await? {
            return Ok(response);
        }
        let options = WriteOptions::read(&ask.query, "CreateOptions")?;
        let mut write = Write::of(&ask, &options);
        let decoded = decode::body(&ask, options.validation)?;
        write.warnings = decoded.warnings;
        let written = self.insert(&mut write, decoded.object).await;
        respond(&ask, &write, StatusCode::CREATED, written)
    }

    /// `PUT` of an object.
    pub(crate) async fn update(&self, ask: ResourceRequest) -> Result<Response<Body>, StatusError> {
        self.update_subresource(ask, WrittenSubresource::Main).await
    }

    /// `PUT` of an object or of a subresource that has the same kind.
    pub(crate) async fn update_subresource(
        &self,
        ask: ResourceRequest,
        part: WrittenSubresource,
    ) -> Result<Response<Body>, StatusError> {
        let options = WriteOptions::read(&ask.query, "UpdateOptions")?;
        let decoded = decode::body(&ask, options.validation)?;
        check_names(&ask, &decoded.object)?;
        let creates = part == WrittenSubresource::Main && ask.resource.allows_create_on_update();
        for _ in 0..MAX_UPSERT_ATTEMPTS {
            let mut write = Write::of(&ask, &options);
            write.subresource = part;
            let known = self.exists(&ask);
            let (status, written) = if !known && creates {
                write.warnings.clone_from(&decoded.warnings);
                write.is_update = true;
                let written = self.insert(&mut write, decoded.object.clone()).await;
                (StatusCode::CREATED, written)
            } else {
                let make = |_: &Self, write: &Write, live: &Value| {
                    let mut object = decoded.object.clone();
                    check_uid(write, live, &object)?;
                    write.resource.update_managed_fields(write, Some(live), &mut object);
                    Ok(ModifiedObject { object, warnings: decoded.warnings.clone() })
                };
                (StatusCode::OK, self.modify(&mut write, make).await)
            };
            if !(creates && Self::lost_upsert_race(&ask, known, &written)) {
                return respond(&ask, &write, status, written);
            }
        }
        Err(StatusError::modified(&ask.resource.group, &ask.resource.plural, &ask.target.name))
    }

    /// `PATCH` of an object.
    pub(crate) async fn patch(&self, ask: ResourceRequest) -> Result<Response<Body>, StatusError> {
        self.patch_subresource(ask, WrittenSubresource::Main).await
    }

    /// `PATCH` of an object or of a subresource that has the same kind.
    pub(crate) async fn patch_subresource(
        &self,
        ask: ResourceRequest,
        part: WrittenSubresource,
    ) -> Result<Response<Body>, StatusError> {
        let kind = negotiate::patch_type(&ask.headers, ask.resource.custom().is_some())?;
        let options = patch_options(&ask, kind)?;
        if kind == PatchType::Apply {
            return self.apply(ask, part, &options).await;
        }
        let mut write = Write::of(&ask, &options);
        write.subresource = part;
        let patch = Patch::read(kind, &ask.body)?;
        let written = self
            .modify(&mut write, |_, write, live| {
                let patched = patch.apply(&write.resource, live)?;
                let mut changed = patch.decode(write, patched, options.validation)?;
                check_names_unchanged(write, &changed.object)?;
                write.resource.update_managed_fields(write, Some(live), &mut changed.object);
                Ok(changed)
            })
            .await;
        respond(&ask, &write, StatusCode::OK, written)
    }

    /// Server-side apply.
    async fn apply(
        &self,
        ask: ResourceRequest,
        part: WrittenSubresource,
        options: &WriteOptions,
    ) -> Result<Response<Body>, StatusError> {
        let (config, duplicates) = decode::tree(Content::Yaml, &ask.body, &ask.resource.kind)
            .map_err(|refusal| {
                StatusError::bad_request(format!("error decoding YAML: {}", refusal.message))
            })?;
        let validation = options.validation;
        let mut notes = Vec::new();
        match (validation, duplicates.yaml_error()) {
            (FieldValidation::Strict, Some(fault)) => {
                return Err(StatusError::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: {fault}"
                )));
            }
            (FieldValidation::Warn, Some(_)) => {
                notes.extend_from_slice(duplicates.duplicate_keys());
            }
            (FieldValidation::Strict | FieldValidation::Warn | FieldValidation::Ignore, _) => {}
        }
        check_apply_configuration(&ask, &config)?;
        let force = options.force.unwrap_or(false);
        for _ in 0..MAX_UPSERT_ATTEMPTS {
            let mut write = Write::of(&ask, options);
            write.subresource = part;
            let known = self.exists(&ask);
            let (status, written) = if !known && part == WrittenSubresource::Main {
                let mut object = owned_by_apply(&write, None, &config, force)?;
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.shift_remove("resourceVersion");
                }
                let (mut object, _) = write.resource.prune(object)?;
                write.resource.default(&mut object);
                write.ownership = Ownership::Applied;
                write.is_update = true;
                write.warnings.clone_from(&notes);
                (StatusCode::CREATED, self.insert(&mut write, object).await)
            } else {
                let make = |_: &Self, write: &Write, live: &Value| {
                    let object = owned_by_apply(write, Some(live), &config, force)?;
                    let (mut object, _) = write.resource.prune(object)?;
                    write.resource.default(&mut object);
                    Ok(ModifiedObject { object, warnings: notes.clone() })
                };
                (StatusCode::OK, self.modify(&mut write, make).await)
            };
            if !(part == WrittenSubresource::Main && Self::lost_upsert_race(&ask, known, &written))
            {
                return respond(&ask, &write, status, written);
            }
        }
        Err(StatusError::modified(&ask.resource.group, &ask.resource.plural, &ask.target.name))
    }

    fn exists(&self, ask: &ResourceRequest) -> bool {
        self.stored_entry(&ask.resource, &ask.target.namespace, &ask.target.name).is_some()
    }

    /// Whether an upsert was refused because another caller created the object meanwhile, or
    /// deleted it: then it is retried as the other operation.
    fn lost_upsert_race(
        ask: &ResourceRequest,
        known: bool,
        written: &Result<Written, StatusError>,
    ) -> bool {
        let Resource { group, plural, .. } = &*ask.resource;
        let make = if known { StatusError::not_found } else { StatusError::already_exists };
        let expected = make(group, plural, &ask.target.name);
        // The message is compared too: webhooks and policies may refuse with the same reason and
        // another meaning.
        written.as_ref().is_err_and(|refusal| {
            (refusal.reason, &refusal.message) == (expected.reason, &expected.message)
        })
    }
}

/// Responds with the written object.
pub(crate) fn respond(
    ask: &ResourceRequest,
    write: &Write,
    status: StatusCode,
    written: Result<Written, StatusError>,
) -> Result<Response<Body>, StatusError> {
    let written = match written {
        Ok(written) => written,
        // Warnings about the request are returned even when it is refused.
        Err(mut refusal) => {
            refusal.warnings.extend(write.warnings.iter().cloned());
            return Err(refusal);
        }
    };
    let rendering = match &written {
        Written::Stored(entry) => Rendering::Entry(entry),
        Written::NotStored(tree) => Rendering::Tree(tree),
    };
    let mut response = render::object(ask, status, &rendering)?;
    response::add_warnings(&mut response, &write.warnings);
    Ok(response)
}

pub(crate) fn owned_by_apply(
    write: &Write,
    live: Option<&Value>,
    config: &Value,
    force: bool,
) -> Result<Value, StatusError> {
    write.resource.apply(write, live, config, force).map_err(|fault| apply_error(&fault))
}

/// Returns the refusal of an apply configuration.
pub(crate) fn apply_error(fault: &ApplyError) -> StatusError {
    match fault {
        ApplyError::Conflict(conflicts) => apply_conflict(conflicts),
        ApplyError::ManagedFields => StatusError::bad_request(fault.to_string()),
        ApplyError::Typed(_) | ApplyError::Entries(_) => StatusError::failure(fault.to_string()),
    }
}

/// Returns the refusal of an apply that conflicts with other field managers.
fn apply_conflict(conflicts: &Conflicts) -> StatusError {
    let causes = conflicts.iter().map(|conflict| Cause {
        reason: Conflict::REASON.to_owned(),
        message: conflict.message(),
        field: conflict.field(),
    });
    StatusError::apply_conflict(conflicts.to_string(), causes.collect())
}

/// Reads the options of a patch; `force` is for apply only, and apply needs a field manager.
fn patch_options(ask: &ResourceRequest, kind: PatchType) -> Result<WriteOptions, StatusError> {
    let options = WriteOptions::read(&ask.query, "PatchOptions")?;
    let mut faults = Vec::new();
    if kind == PatchType::Apply {
        if options.manager.is_empty() {
            faults.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
    } else if options.force.is_some() {
        faults.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    if faults.is_empty() {
        Ok(options)
    } else {
        Err(StatusError::invalid_options("PatchOptions", &faults))
    }
}

/// Checks that the object of an update is the one in the path.
fn check_names(ask: &ResourceRequest, object: &Value) -> Result<(), StatusError> {
    let (name, namespace) = (meta(object, "name"), meta(object, "namespace"));
    let wanted = &ask.target.name;
    if name.is_empty() {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be \
             provided"
        )));
    }
    if name != wanted {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    if ask.resource.namespaced && !namespace.is_empty() && namespace != ask.target.namespace {
        return Err(namespace_mismatch());
    }
    Ok(())
}

/// Checks that a patch does not change name or namespace.
fn check_names_unchanged(write: &Write, object: &Value) -> Result<(), StatusError> {
    let name = meta(object, "name");
    if name != write.name {
        let wanted = &write.name;
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    if write.resource.namespaced && meta(object, "namespace") != write.namespace {
        return Err(namespace_mismatch());
    }
    Ok(())
}

/// Checks that the UID of an update is that of the stored object.
fn check_uid(write: &Write, live: &Value, object: &Value) -> Result<(), StatusError> {
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
    Err(StatusError::conflict(group, plural, &write.name, &why))
}

/// Checks the metadata of an apply configuration before it is decoded.
fn check_apply_configuration(ask: &ResourceRequest, config: &Value) -> Result<(), StatusError> {
    let text = |name: &str| config[name].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let expected = ask.resource.api_version();
    if version != expected || kind != ask.resource.kind {
        let (group, plain) = version.split_once('/').unwrap_or(("", version));
        let gv = if group.is_empty() { format!("/{plain}") } else { format!("{group}/{plain}") };
        let gv = if version.is_empty() { "/".to_owned() } else { gv };
        return Err(StatusError::bad_request(format!("invalid object type: {gv}, Kind={kind}")));
    }
    let name = meta(config, "name");
    let wanted = &ask.target.name;
    if !name.is_empty() && name != wanted {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    let namespace = meta(config, "namespace");
    if ask.resource.namespaced && !namespace.is_empty() && namespace != ask.target.namespace {
        return Err(namespace_mismatch());
    }
    Ok(())
}

/// A patch other than apply.
#[derive(Debug)]
struct Patch {
    kind: PatchType,
    document: Value,
    duplicates: Vec<String>,
    text: String,
}

impl Patch {
    fn read(kind: PatchType, body: &Bytes) -> Result<Self, StatusError> {
        let (document, duplicates) = gantry_schema::read_json(body)
            .map_err(|fault| StatusError::bad_request(format!("error decoding patch: {fault}")))?;
        let text = String::from_utf8_lossy(body).into_owned();
        Ok(Self { kind, document, duplicates, text })
    }

    fn apply(&self, resource: &Arc<Resource>, live: &Value) -> Result<Value, StatusError> {
        match self.kind {
            PatchType::Json => gantry_patch::json_patch(live, &self.document).map_err(patch_error),
            PatchType::Merge => {
                gantry_patch::merge_patch(live, &self.document).map_err(patch_error)
            }
            PatchType::Strategic => {
                let schema = resource.schema();
                gantry_patch::strategic::apply(&schema, live, &self.document)
                    .map_err(|fault| strategic_merge_error(&fault))
            }
            PatchType::Apply => Ok(live.clone()),
        }
    }

    /// Decodes the patched tree as an object of the kind, with the errors of a patch.
    fn decode(
        &self,
        write: &Write,
        patched: Value,
        validation: FieldValidation,
    ) -> Result<ModifiedObject, StatusError> {
        let resource = &write.resource;
        let shown = if resource.custom().is_some() {
            sorted_by_name(&patched).to_string()
        } else {
            patched.to_string()
        };
        check_kind_unchanged(write, &patched, &shown)?;
        let (mut object, unknown) =
            resource.prune(patched).map_err(|fault| self.decode_error(&shown, &fault))?;
        let mut problems: Vec<String> =
            self.duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
        problems.extend(gantry_patch::unknown_patch_fields(&self.document));
        // By key, not as written: the patched object is what is decoded.
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
                let fault = FieldError::invalid("patch", &json!(shown), &detail);
                return Err(StatusError::invalid("", "", "", &[fault]));
            }
        };
        resource.default(&mut object);
        Ok(ModifiedObject { object, warnings })
    }
}

impl Patch {
    /// Returns the refusal of a patch whose result is not of the kind.
    fn decode_error(&self, shown: &str, fault: &StatusError) -> StatusError {
        let words = fault.message.split_once(": ").map_or(fault.message.as_str(), |it| it.1);
        // A strategic patch is converted field by field, the others are decoded from text.
        let (shown, words) = match self.kind {
            PatchType::Strategic => (go_map(&self.document), conversion_message(words)),
            _ => (shown.to_owned(), words.to_owned()),
        };
        let fault = FieldError::invalid("patch", &json!(shown), &words);
        StatusError::invalid("", "", "", &[fault])
    }
}

/// Checks that a patch does not change the kind of the object.
fn check_kind_unchanged(write: &Write, patched: &Value, shown: &str) -> Result<(), StatusError> {
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
    let fault = FieldError::invalid("patch", &json!(shown), &why);
    Err(StatusError::invalid("", "", "", &[fault]))
}

fn strategic_merge_error(fault: &StrategicError) -> StatusError {
    match fault {
        StrategicError::BadPatch(words) => {
            StatusError::bad_request(format!("error decoding patch: {words}"))
        }
        StrategicError::Unprocessable(_) => StatusError::unprocessable(),
        StrategicError::Failed(words) => StatusError::failure(words.clone()),
    }
}

fn patch_error(fault: gantry_patch::PatchError) -> StatusError {
    use gantry_patch::PatchError;
    match fault {
        PatchError::Decode(words) => StatusError::bad_request(words),
        PatchError::TooManyOperations(_) => StatusError::too_large(fault.to_string()),
        PatchError::Rejected(_) => StatusError::unprocessable(),
    }
}
