//! Subresources: requests for parts of objects that have a path of their own.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::api::{Api, ResourceRequest};
use crate::request::body::Body;
use crate::request::decode;
use crate::request::negotiate::{self, Content};
use crate::request::query::WriteOptions;
use crate::request::route::Verb;
use crate::resource::Resource;
use crate::resource::rules::WrittenSubresource;
use crate::response;
use crate::response::status::StatusError;
use crate::verbs::delete::{DeleteOptions, DeletionRequest, Propagation};
use crate::verbs::write::{ModifiedObject, Write, Written, meta};

impl Api {
    /// Dispatches a request for a subresource to its handler.
    pub(crate) async fn dispatch_subresource(
        &self,
        verb: Verb,
        ask: ResourceRequest,
    ) -> Result<Response<Body>, StatusError> {
        let name = ask.target.subresource.clone();
        let base = name.split('/').next().unwrap_or_default();
        let Some(part) = ask.resource.subresource(base) else {
            // A custom kind without the subresource responds as if the object were missing.
            let declared = matches!(base, "status" | "scale");
            return Err(if ask.resource.custom().is_some() && declared {
                ask.not_found()
            } else {
                StatusError::unknown_resource()
            });
        };
        let streams = matches!(base, "exec" | "attach" | "portforward" | "proxy" | "log");
        if !streams && !part.verbs.iter().any(|known| known == verb.as_str()) {
            return Err(StatusError::method_not_allowed());
        }
        match (base, verb) {
            ("scale", _) => self.scale(verb, ask).await,
            ("binding", Verb::Create) => self.bind(ask).await,
            ("eviction", Verb::Create) => self.evict(ask).await,
            ("token", Verb::Create) => self.request_token(&ask).await,
            (_, _) if streams => Box::pin(self.stream(verb, ask)).await,
            (_, Verb::Get) => self.get(&ask).await,
            (_, Verb::Update) => {
                self.update_subresource(ask, WrittenSubresource::from_name(&name)).await
            }
            (_, Verb::Patch) => {
                self.patch_subresource(ask, WrittenSubresource::from_name(&name)).await
            }
            (
                _,
                Verb::List | Verb::Watch | Verb::Create | Verb::Delete | Verb::DeleteCollection,
            ) => Err(subresource_not_served(base)),
        }
    }

    /// Binds a pod to a node: `pods/{name}/binding`.
    async fn bind(&self, ask: ResourceRequest) -> Result<Response<Body>, StatusError> {
        let options = WriteOptions::read(&ask.query, "CreateOptions")?;
        let content = negotiate::content(&ask.headers, false)?;
        let (mut binding, _) = decode::tree(content, &ask.body, "Binding")?;
        let (said, dry_run) = (create_options(&options), options.dry_run);
        let warnings =
            self.review_subresource(&ask, "binding", &said, dry_run, &mut binding).await?;
        self.bind_pod(&ask, &options, &binding).await?;
        let mut response = response::document(StatusCode::CREATED, ask.style, &created_status());
        response::add_warnings(&mut response, &warnings);
        Ok(response)
    }

    /// Binds a pod to a node, for either form of the binding request.
    pub(crate) async fn bind_pod(
        &self,
        ask: &ResourceRequest,
        options: &WriteOptions,
        binding: &Value,
    ) -> Result<(), StatusError> {
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        let kind = binding["target"]["kind"].as_str().unwrap_or_default();
        if node.is_empty() {
            let fault = gantry_schema::FieldError::required("target.name", "");
            return Err(StatusError::invalid("", "Binding", meta(binding, "name"), &[fault]));
        }
        if !matches!(kind, "" | "Node") {
            let fault = gantry_schema::FieldError::not_supported(
                "target.kind",
                &json!(kind),
                &["Node", "<empty>"],
            );
            return Err(StatusError::invalid("", "Binding", meta(binding, "name"), &[fault]));
        }
        let mut write = Write::of(ask, options);
        write.subresource = WrittenSubresource::Binding;
        let now = write.timestamp();
        self.modify(&mut write, |_, write, live| {
            let refuse =
                |why: String| Err(StatusError::conflict("", "pods/binding", &write.name, &why));
            if live["metadata"]["deletionTimestamp"].is_string() {
                let name = &write.name;
                return refuse(format!(
                    "pod {name} is being deleted, cannot be assigned to a host"
                ));
            }
            if let Some(taken) = live["spec"]["nodeName"].as_str().filter(|it| !it.is_empty()) {
                let name = &write.name;
                return refuse(format!("pod {name} is already assigned to node \"{taken}\""));
            }
            if live["spec"]["schedulingGates"].as_array().is_some_and(|it| !it.is_empty()) {
                let name = &write.name;
                return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
            }
            let mut pod = live.clone();
            pod["spec"]["nodeName"] = json!(node);
            if let Some(annotations) = binding["metadata"]["annotations"].as_object() {
                for (name, value) in annotations {
                    pod["metadata"]["annotations"][name] = value.clone();
                }
            }
            let condition = json!({
                "type": "PodScheduled", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": now, "observedGeneration": live["metadata"]["generation"],
            });
            set_condition(&mut pod, condition);
            Ok(ModifiedObject::new(pod))
        })
        .await?;
        Ok(())
    }

    /// Evicts a pod, if its disruption budgets allow it: `pods/{name}/eviction`.
    async fn evict(&self, ask: ResourceRequest) -> Result<Response<Body>, StatusError> {
        let content = negotiate::content(&ask.headers, false)?;
        let (mut eviction, _) = decode::tree(content, &ask.body, "Eviction")?;
        if meta(&eviction, "name") != ask.target.name {
            return Err(StatusError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let said = WriteOptions::read(&ask.query, "CreateOptions")?;
        let (said, dry_run) = (create_options(&said), said.dry_run);
        let warnings =
            self.review_subresource(&ask, "eviction", &said, dry_run, &mut eviction).await?;
        let entry = self.find(&ask)?;
        let pod = ask.resource.tree(&entry);
        let delete_options = &eviction["deleteOptions"];
        let mut options = DeleteOptions {
            grace: delete_options["gracePeriodSeconds"].as_i64(),
            uid: delete_options["preconditions"]["uid"].as_str().map(str::to_owned),
            revision: delete_options["preconditions"]["resourceVersion"]
                .as_str()
                .map(str::to_owned),
            policy: Some(Propagation::Background),
            dry_run: delete_options["dryRun"].as_array().is_some_and(|it| !it.is_empty())
                || dry_run,
            in_collection: false,
            raw: serde_json::Map::new(),
        };
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let free = matches!(phase, "Succeeded" | "Failed" | "Pending")
            || pod["metadata"]["deletionTimestamp"].is_string();
        if !free {
            self.spend_budget(&ask, &pod, options.dry_run).await?;
        }
        if !options.dry_run {
            self.mark_evicted(&ask, &mut options).await?;
        }
        let (namespace, name) = (&ask.target.namespace, &ask.target.name);
        // The eviction was reviewed, not the deletion of the pod.
        let mut removal = DeletionRequest {
            resource: &ask.resource,
            namespace,
            name,
            options: &options,
            caller: None,
            now: ask.now,
            warnings,
        };
        self.delete_object(&mut removal).await?;
        let mut response = response::document(StatusCode::CREATED, ask.style, &created_status());
        response::add_warnings(&mut response, &removal.warnings);
        Ok(response)
    }

    /// Sets the disruption condition in a pod's status. The preconditions of the eviction are
    /// checked before, and the revision that is deleted after it is the one with the condition.
    async fn mark_evicted(
        &self,
        ask: &ResourceRequest,
        options: &mut DeleteOptions,
    ) -> Result<(), StatusError> {
        let mut write = Write::of(ask, &WriteOptions::default());
        // Like a binding, the submitted object was reviewed.
        write.subresource = WrittenSubresource::Binding;
        let now = write.timestamp();
        let marked = self
            .modify(&mut write, |_, _, live| {
                let conflict = |what: &str, wanted: &str, known: &str, how: &str| {
                    StatusError::conflict("", "Pod", meta(live, "name"), &format!(
                        "the {what} in the precondition ({wanted}) does not match the {what} in \
                         record ({known}). The object might have been {how}"
                    ))
                };
                let known = meta(live, "uid");
                if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != known) {
                    return Err(conflict("UID", uid, known, "deleted and then recreated"));
                }
                let known = meta(live, "resourceVersion");
                if let Some(revision) = options.revision.as_deref().filter(|it| *it != known) {
                    return Err(conflict("ResourceVersion", revision, known, "modified"));
                }
                let mut pod = live.clone();
                let condition = json!({
                    "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
                    "lastTransitionTime": now, "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting",
                });
                set_condition(&mut pod, condition);
                Ok(ModifiedObject::new(pod))
            })
            .await?;
        if let (Some(revision), Written::Stored(entry)) = (&mut options.revision, &marked) {
            *revision = entry.revision.get().to_string();
        }
        Ok(())
    }

    /// `…/scale`: the current and desired number of replicas.
    async fn scale(&self, verb: Verb, ask: ResourceRequest) -> Result<Response<Body>, StatusError> {
        if verb == Verb::Get {
            let entry = self.converted_entry(&ask.resource, self.find(&ask)?).await?;
            let scale = ask.resource.scale_of(&ask.resource.tree(&entry))?;
            return Ok(response::document(StatusCode::OK, ask.style, &scale));
        }
        let kind = match verb {
            Verb::Patch => Some(negotiate::patch_type(&ask.headers, false)?),
            _ => None,
        };
        let options = WriteOptions::read(&ask.query, "UpdateOptions")?;
        let mut write = Write::of(&ask, &options);
        write.subresource = WrittenSubresource::Scale;
        let body = match kind {
            None => decode::tree(negotiate::content(&ask.headers, false)?, &ask.body, "Scale")?.0,
            Some(_) => decode::tree(Content::Yaml, &ask.body, "Scale")?.0,
        };
        let written = self
            .modify(&mut write, |_, write, live| {
                let current = write.resource.scale_of(live)?;
                write.resource.update_scale(write, live, &current, kind, &body, &ask.query)
            })
            .await?;
        let tree = match &written {
            Written::Stored(entry) => ask.resource.tree(entry),
            Written::NotStored(tree) => tree.clone(),
        };
        let scale = ask.resource.scale_of(&tree)?;
        let mut response = response::document(StatusCode::OK, ask.style, &scale);
        response::add_warnings(&mut response, &write.warnings);
        Ok(response)
    }
}

/// Returns the options of a creation as admission shows them.
pub(crate) fn create_options(options: &WriteOptions) -> Value {
    let mut said = json!({ "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" });
    for (name, value) in &options.raw {
        said[name] = value.clone();
    }
    said
}

/// Returns the success status of a request that creates no object.
pub(crate) fn created_status() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    })
}

/// Replaces the condition of the same type, or adds it.
pub(crate) fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

fn subresource_not_served(part: &str) -> StatusError {
    StatusError::unavailable(&format!("this server does not serve \"{part}\" yet"))
}

/// Returns the resource called `plural` in `group`, as it is served now.
pub(crate) fn resource(
    api: &Api,
    group: &str,
    version: &str,
    plural: &str,
) -> Option<Arc<Resource>> {
    match api.registry().find(group, version, plural) {
        crate::resource::Lookup::Found(resource) => Some(Arc::clone(resource)),
        crate::resource::Lookup::NotInGroup | crate::resource::Lookup::NoGroup => None,
    }
}
