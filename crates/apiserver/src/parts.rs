//! Parts of objects that have a path of their own.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::answer;
use crate::api::{Api, Ask};
use crate::body::Body;
use crate::decode;
use crate::delete::{DeleteOptions, Propagation, Removal};
use crate::negotiate::{self, Content};
use crate::query::WriteOptions;
use crate::resource::Resource;
use crate::route::Verb;
use crate::rules::Part;
use crate::status::Refusal;
use crate::write::{Changed, Write, Written, meta};

impl Api {
    /// Hands a request about a part of an object to the one who knows.
    pub(crate) async fn part(&self, verb: Verb, ask: Ask) -> Result<Response<Body>, Refusal> {
        let name = ask.target.subresource.clone();
        let base = name.split('/').next().unwrap_or_default();
        let Some(part) = ask.resource.subresource(base) else {
            // A custom kind without the part answers as if the object were missing.
            let declared = matches!(base, "status" | "scale");
            return Err(if ask.resource.custom().is_some() && declared {
                ask.not_found()
            } else {
                Refusal::unknown_resource()
            });
        };
        let streams = matches!(base, "exec" | "attach" | "portforward" | "proxy" | "log");
        if !streams && !part.verbs.iter().any(|known| known == verb.word()) {
            return Err(Refusal::method_not_allowed());
        }
        match (base, verb) {
            ("scale", _) => self.scale(verb, ask).await,
            ("binding", Verb::Create) => self.bind(ask).await,
            ("eviction", Verb::Create) => self.evict(ask).await,
            ("token", Verb::Create) => self.request_token(&ask).await,
            (_, _) if streams => Box::pin(self.stream(verb, ask)).await,
            (_, Verb::Get) => self.get(&ask).await,
            (_, Verb::Update) => self.update_part(ask, Part::named(&name)).await,
            (_, Verb::Patch) => self.patch_part(ask, Part::named(&name)).await,
            (
                _,
                Verb::List | Verb::Watch | Verb::Create | Verb::Delete | Verb::DeleteCollection,
            ) => Err(not_served(base)),
        }
    }

    /// Puts a pod on a node: `pods/{name}/binding`.
    async fn bind(&self, ask: Ask) -> Result<Response<Body>, Refusal> {
        let options = WriteOptions::read(&ask.query, "CreateOptions")?;
        let content = negotiate::content(&ask.headers, false)?;
        let (mut binding, _) = decode::tree(content, &ask.body, "Binding")?;
        let (said, dry_run) = (create_options(&options), options.dry_run);
        let warnings = self.review_part(&ask, "binding", &said, dry_run, &mut binding).await?;
        self.bind_pod(&ask, &options, &binding).await?;
        let mut response = answer::document(StatusCode::CREATED, ask.style, &created());
        answer::warn(&mut response, &warnings);
        Ok(response)
    }

    /// Puts a pod on a node, wherever the binding came from.
    pub(crate) async fn bind_pod(
        &self,
        ask: &Ask,
        options: &WriteOptions,
        binding: &Value,
    ) -> Result<(), Refusal> {
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        let kind = binding["target"]["kind"].as_str().unwrap_or_default();
        if node.is_empty() {
            let fault = gantry_schema::Invalid::required("target.name", "");
            return Err(Refusal::invalid("", "Binding", meta(binding, "name"), &[fault]));
        }
        if !matches!(kind, "" | "Node") {
            let fault = gantry_schema::Invalid::not_supported(
                "target.kind",
                &json!(kind),
                &["Node", "<empty>"],
            );
            return Err(Refusal::invalid("", "Binding", meta(binding, "name"), &[fault]));
        }
        let mut write = Write::of(ask, options);
        write.part = Part::Binding;
        let now = write.stamp();
        self.modify(&mut write, |_, write, live| {
            let refuse =
                |why: String| Err(Refusal::conflict("", "pods/binding", &write.name, &why));
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
            Ok(Changed::to(pod))
        })
        .await?;
        Ok(())
    }

    /// Asks a pod to go, if its budgets allow: `pods/{name}/eviction`.
    async fn evict(&self, ask: Ask) -> Result<Response<Body>, Refusal> {
        let content = negotiate::content(&ask.headers, false)?;
        let (mut eviction, _) = decode::tree(content, &ask.body, "Eviction")?;
        if meta(&eviction, "name") != ask.target.name {
            return Err(Refusal::bad_request("name in URL does not match name in Eviction object"));
        }
        let said = WriteOptions::read(&ask.query, "CreateOptions")?;
        let (said, dry_run) = (create_options(&said), said.dry_run);
        let warnings = self.review_part(&ask, "eviction", &said, dry_run, &mut eviction).await?;
        let entry = self.find(&ask)?;
        let pod = ask.resource.tree(&entry);
        let wish = &eviction["deleteOptions"];
        let mut options = DeleteOptions {
            grace: wish["gracePeriodSeconds"].as_i64(),
            uid: wish["preconditions"]["uid"].as_str().map(str::to_owned),
            revision: wish["preconditions"]["resourceVersion"].as_str().map(str::to_owned),
            policy: Some(Propagation::Background),
            dry_run: wish["dryRun"].as_array().is_some_and(|it| !it.is_empty()) || dry_run,
            unnamed: false,
            said: serde_json::Map::new(),
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
        // The eviction was reviewed, not the end of the pod.
        let mut removal = Removal {
            resource: &ask.resource,
            namespace,
            name,
            options: &options,
            caller: None,
            now: ask.now,
            warnings,
        };
        self.delete_object(&mut removal).await?;
        let mut response = answer::document(StatusCode::CREATED, ask.style, &created());
        answer::warn(&mut response, &removal.warnings);
        Ok(response)
    }

    /// Says in a pod's status why it will go. What the eviction was conditional on is so before, and
    /// the revision that is deleted after it is the marked one.
    async fn mark_evicted(&self, ask: &Ask, options: &mut DeleteOptions) -> Result<(), Refusal> {
        let mut write = Write::of(ask, &WriteOptions::default());
        // Like a binding, it was reviewed as what was sent.
        write.part = Part::Binding;
        let now = write.stamp();
        let marked = self
            .modify(&mut write, |_, _, live| {
                let conflict = |what: &str, wanted: &str, known: &str, how: &str| {
                    Refusal::conflict("", "Pod", meta(live, "name"), &format!(
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
                Ok(Changed::to(pod))
            })
            .await?;
        if let (Some(revision), Written::Stored(entry)) = (&mut options.revision, &marked) {
            *revision = entry.revision.get().to_string();
        }
        Ok(())
    }

    /// `…/scale`: how many there are and should be.
    async fn scale(&self, verb: Verb, ask: Ask) -> Result<Response<Body>, Refusal> {
        if verb == Verb::Get {
            let entry = self.seen(&ask.resource, self.find(&ask)?).await?;
            let scale = ask.resource.scale_of(&ask.resource.tree(&entry))?;
            return Ok(answer::document(StatusCode::OK, ask.style, &scale));
        }
        let kind = match verb {
            Verb::Patch => Some(negotiate::patch_type(&ask.headers, false)?),
            _ => None,
        };
        let options = WriteOptions::read(&ask.query, "UpdateOptions")?;
        let mut write = Write::of(&ask, &options);
        write.part = Part::Scale;
        let body = match kind {
            None => decode::tree(negotiate::content(&ask.headers, false)?, &ask.body, "Scale")?.0,
            Some(_) => decode::tree(Content::Yaml, &ask.body, "Scale")?.0,
        };
        let written = self
            .modify(&mut write, |_, write, live| {
                let current = write.resource.scale_of(live)?;
                write.resource.scaled(write, live, &current, kind, &body, &ask.query)
            })
            .await?;
        let tree = match &written {
            Written::Stored(entry) => ask.resource.tree(entry),
            Written::Gone(tree) => tree.clone(),
        };
        let scale = ask.resource.scale_of(&tree)?;
        let mut response = answer::document(StatusCode::OK, ask.style, &scale);
        answer::warn(&mut response, &write.warnings);
        Ok(response)
    }
}

/// The options of a creation as admission shows them.
pub(crate) fn create_options(options: &WriteOptions) -> Value {
    let mut said = json!({ "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" });
    for (name, value) in &options.said {
        said[name] = value.clone();
    }
    said
}

/// The success of what makes nothing one could show.
pub(crate) fn created() -> Value {
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

fn not_served(part: &str) -> Refusal {
    Refusal::unavailable(&format!("this server does not serve \"{part}\" yet"))
}

/// The resource called `plural` in `group`, as it is served now.
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
