//! Admission: who may object to a write, or change it, after it was allowed and before it is stored.
//!
//! Every write passes two steps, in the places where Kubernetes has them. [`Api::mutate`] comes when
//! an object is decoded, defaulted and owned, before its name is generated and before it is prepared
//! and validated; [`Api::validate`] comes when nothing about it will change any more. A deletion
//! passes both with the object that goes, an eviction or a binding with what was sent, a connection
//! with its options.
//!
//! The server's own collectors ask like anyone else, under the names their counterparts have in a
//! cluster. Three writes are reviewed by nobody, as upstream: the pod that a reviewed binding or
//! eviction changes, the instances that go with their definition, and the names and conditions of
//! definitions.

pub(crate) mod certificates;

use std::sync::Arc;

pub(crate) use gantry_admission::Operation;
use serde_json::{Value, json};

use crate::access::Caller;
use crate::api::{Api, Ask};
use crate::plugins::Plugin;
use crate::quotas::Reservation;
use crate::resource::Resource;
use crate::rules::Part;
use crate::status::Refusal;
use crate::write::{Write, meta};

/// A write as admission sees it. The object itself goes beside it, because one step may change it.
#[derive(Debug)]
pub(crate) struct Review<'a> {
    pub(crate) operation: Operation,
    pub(crate) resource: &'a Arc<Resource>,
    /// The part of the object that is written; empty for all of it.
    pub(crate) subresource: &'a str,
    /// The name, if it is known yet.
    pub(crate) name: &'a str,
    /// The namespace. A namespace is in itself.
    pub(crate) namespace: &'a str,
    pub(crate) caller: &'a Caller,
    pub(crate) dry_run: bool,
    /// The options of the request as an object; null for a connection.
    pub(crate) options: &'a Value,
    /// What is stored; nothing for what is made.
    pub(crate) old: Option<&'a Value>,
    /// What the caller is told besides the answer.
    pub(crate) warnings: Vec<String>,
    /// What was taken from quotas.
    pub(crate) reserved: Option<Reservation>,
}

impl Review<'_> {
    /// A refusal by a plug-in, which names the object as far as it has a name yet.
    pub(crate) fn forbidden(&self, object: Option<&Value>, why: &str) -> Refusal {
        let Resource { group, plural, .. } = &**self.resource;
        Refusal::forbidden(group, plural, self.shown_name(object), why)
    }

    fn shown_name<'b>(&'b self, object: Option<&'b Value>) -> &'b str {
        let said = |field: &str| object.map(|it| meta(it, field)).filter(|it| !it.is_empty());
        let known = Some(self.name).filter(|it| !it.is_empty());
        known.or_else(|| said("name")).or_else(|| said("generateName")).unwrap_or("Unknown")
    }
}

impl Api {
    /// Asks all who may change a write, then those among them who object. When a webhook has changed
    /// it, those who came before get to see it once more.
    pub(crate) async fn mutate(
        &self,
        review: &mut Review<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), Refusal> {
        self.admit(review, object.as_deref_mut())?;
        if !self.0.settings.plugins.has(Plugin::MutatingAdmissionWebhook) {
            return Ok(());
        }
        let Some(mut rounds) = self.mutating_webhooks(review, object.as_deref()) else {
            return Ok(());
        };
        if Box::pin(self.ask_mutating(&mut rounds, review, object.as_deref_mut())).await? {
            self.admit(review, object.as_deref_mut())?;
            Box::pin(self.ask_mutating(&mut rounds, review, object.as_deref_mut())).await?;
        }
        if let Some(object) = object {
            rounds.keep_ownership(review, object);
        }
        Ok(())
    }

    /// Asks those who are part of the server.
    fn admit(&self, review: &Review<'_>, object: Option<&mut Value>) -> Result<(), Refusal> {
        match (review.operation, object) {
            (Operation::Create, Some(object)) => self.admit_create(review, object),
            (Operation::Update, Some(object)) => {
                self.admit_update(review, object);
                Ok(())
            }
            (Operation::Delete, _) => match review.old {
                Some(old) if review.subresource.is_empty() => {
                    crate::hooks::admit_delete(review.resource, old)
                }
                Some(_) | None => Ok(()),
            },
            (Operation::Create | Operation::Update | Operation::Connect, _) => Ok(()),
        }
    }

    /// Asks all who may object to a write as it will be stored.
    pub(crate) async fn validate(
        &self,
        review: &mut Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), Refusal> {
        let plugins = &self.0.settings.plugins;
        if plugins.has(Plugin::LimitRanger) {
            self.check_limits(review, object)?;
        }
        if plugins.has(Plugin::Priority) {
            self.check_default_class(review, object)?;
        }
        self.check_certificates(review, object)?;
        if plugins.has(Plugin::ValidatingAdmissionPolicy) {
            self.ask_policies(review, object)?;
        }
        if plugins.has(Plugin::ValidatingAdmissionWebhook) && self.has_validating_webhooks(review) {
            Box::pin(self.ask_validating(review, object)).await?;
        }
        // The last: what everyone else agrees to is what counts.
        if plugins.has(Plugin::ResourceQuota) {
            review.reserved = self.ask_quotas(review, object).await?;
        }
        Ok(())
    }

    /// The first step for a new or changed object.
    pub(crate) async fn mutate_write(
        &self,
        write: &mut Write,
        old: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), Refusal> {
        let Some(operation) = reviewed(write, old) else { return Ok(()) };
        let options = options_of(write, operation);
        let (outcome, warnings) = if write.part == Part::Scale {
            let old = old.map(|old| write.resource.scale_of(old)).transpose()?;
            let mut scale = write.resource.scale_of(object)?;
            let before = scale["spec"]["replicas"].clone();
            let mut review = review_of(write, operation, &options, old.as_ref());
            let outcome = self.mutate(&mut review, Some(&mut scale)).await;
            let warnings = review.warnings;
            if scale["spec"]["replicas"] != before {
                write.resource.set_scale(object, scale["spec"]["replicas"].as_i64().unwrap_or(0));
            }
            (outcome, warnings)
        } else {
            let mut review = review_of(write, operation, &options, old);
            let outcome = self.mutate(&mut review, Some(object)).await;
            (outcome, review.warnings)
        };
        write.warnings.extend(warnings);
        outcome
    }

    /// The second step for a new or changed object.
    pub(crate) async fn validate_write(
        &self,
        write: &mut Write,
        old: Option<&Value>,
        object: &Value,
    ) -> Result<(), Refusal> {
        let Some(operation) = reviewed(write, old) else { return Ok(()) };
        let options = options_of(write, operation);
        let (outcome, warnings, reserved) = if write.part == Part::Scale {
            let old = old.map(|old| write.resource.scale_of(old)).transpose()?;
            let scale = write.resource.scale_of(object)?;
            let mut review = review_of(write, operation, &options, old.as_ref());
            let outcome = self.validate(&mut review, Some(&scale)).await;
            (outcome, review.warnings, review.reserved)
        } else {
            let mut review = review_of(write, operation, &options, old);
            let outcome = self.validate(&mut review, Some(object)).await;
            (outcome, review.warnings, review.reserved)
        };
        write.warnings.extend(warnings);
        write.reserved = reserved;
        outcome
    }

    /// Both steps for what is sent to a part of an object and not stored itself: a binding, an
    /// eviction, a request for a token. Returns what the caller is told besides the answer.
    pub(crate) async fn review_part(
        &self,
        ask: &Ask,
        subresource: &str,
        options: &Value,
        dry_run: bool,
        object: &mut Value,
    ) -> Result<Vec<String>, Refusal> {
        let mut review = Review {
            operation: Operation::Create,
            resource: &ask.resource,
            subresource,
            name: &ask.target.name,
            namespace: &ask.target.namespace,
            caller: &ask.caller,
            dry_run,
            options,
            old: None,
            warnings: Vec::new(),
            reserved: None,
        };
        self.both(&mut review, object).await
    }

    /// Both steps for a stream.
    pub(crate) async fn review_connection(&self, ask: &Ask) -> Result<(), Refusal> {
        let path = ask.target.subresource.as_str();
        let (subresource, rest) = path.split_once('/').unwrap_or((path, ""));
        let mut review = Review {
            operation: Operation::Connect,
            resource: &ask.resource,
            subresource,
            name: &ask.target.name,
            namespace: &ask.target.namespace,
            caller: &ask.caller,
            dry_run: false,
            options: &Value::Null,
            old: None,
            warnings: Vec::new(),
            reserved: None,
        };
        self.both(&mut review, &mut stream_options(ask, subresource, rest)).await.map(drop)
    }

    async fn both(
        &self,
        review: &mut Review<'_>,
        object: &mut Value,
    ) -> Result<Vec<String>, Refusal> {
        let outcome = match self.mutate(review, Some(object)).await {
            Ok(()) => self.validate(review, Some(object)).await,
            refused => refused,
        };
        let warnings = std::mem::take(&mut review.warnings);
        match outcome {
            Ok(()) => Ok(warnings),
            Err(mut refusal) => {
                refusal.warnings.extend(warnings);
                Err(refusal)
            }
        }
    }

    /// Both steps for an object that is asked to go.
    pub(crate) async fn review_deletion(&self, review: &mut Review<'_>) -> Result<(), Refusal> {
        self.mutate(review, None).await?;
        self.validate(review, None).await
    }
}

/// What a write does, if anyone is asked about it.
fn reviewed(write: &Write, old: Option<&Value>) -> Option<Operation> {
    match (write.part, old) {
        // The binding was reviewed, not the pod.
        (Part::Binding, _) => None,
        (_, None) => Some(Operation::Create),
        (_, Some(_)) => Some(Operation::Update),
    }
}

fn review_of<'a>(
    write: &'a Write,
    operation: Operation,
    options: &'a Value,
    old: Option<&'a Value>,
) -> Review<'a> {
    let is_namespace = write.resource.space == "namespaces";
    Review {
        operation,
        resource: &write.resource,
        subresource: write.part.name(),
        name: &write.name,
        namespace: if is_namespace { &write.name } else { &write.namespace },
        caller: &write.caller,
        dry_run: write.dry_run,
        options,
        old,
        warnings: Vec::new(),
        reserved: None,
    }
}

/// The options of a write as an object. A patch has those of what it turns out to do.
fn options_of(write: &Write, operation: Operation) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update | Operation::Delete | Operation::Connect => "UpdateOptions",
    };
    let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
    for (name, value) in &write.options {
        options[name] = value.clone();
    }
    options
}

/// The options of a stream as an object: its parameters.
fn stream_options(ask: &Ask, subresource: &str, rest: &str) -> Value {
    let kind = match (ask.resource.plural.as_str(), subresource) {
        (_, "exec") => "PodExecOptions",
        (_, "attach") => "PodAttachOptions",
        (_, "portforward") => "PodPortForwardOptions",
        ("nodes", _) => "NodeProxyOptions",
        ("services", _) => "ServiceProxyOptions",
        _ => "PodProxyOptions",
    };
    let mut options = json!({ "kind": kind, "apiVersion": "v1" });
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if ask.query.flag(flag) == Some(true) {
            options[flag] = json!(true);
        }
    }
    if let Some(container) = ask.query.get("container").filter(|it| !it.is_empty()) {
        options["container"] = json!(container);
    }
    match subresource {
        "exec" => {
            let command: Vec<&str> = ask.query.all("command").collect();
            if !command.is_empty() {
                options["command"] = json!(command);
            }
        }
        "portforward" => {
            let ports: Vec<i64> = ask
                .query
                .all("ports")
                .flat_map(|list| list.split(','))
                .filter_map(|port| port.parse().ok())
                .collect();
            if !ports.is_empty() {
                options["ports"] = json!(ports);
            }
        }
        "proxy" => {
            let path = ask.query.get("path").unwrap_or(rest);
            if !path.is_empty() {
                options["path"] = json!(path);
            }
        }
        _ => {}
    }
    options
}
