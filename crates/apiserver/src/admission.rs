//! Admission: plug-ins, webhooks and policies that can change or refuse an authorized write before
//! it is stored.
//!
//! Every write goes through two steps, in the places where Kubernetes has them. [`Api::mutate`]
//! runs when an object is decoded, defaulted and has its field owners, before its name is generated
//! and before it is prepared and validated; [`Api::validate`] runs when the object will not change
//! any more. A deletion goes through both with the object that is deleted, an eviction or a binding
//! with the submitted object, a connection with its options.
//!
//! The server's own controllers go through admission like any client, under the names their
//! counterparts have in a cluster. Three kinds of writes skip admission, as upstream: the pod that
//! an admitted binding or eviction changes, the instances that are deleted with their definition,
//! and the names and conditions of definitions.

pub(crate) mod admission_plugins;
pub(crate) mod certificates;
pub(crate) mod disruption_budgets;
pub(crate) mod lifecycle_hooks;
pub(crate) mod policies;
pub(crate) mod quotas;
pub(crate) mod webhook_response;
pub(crate) mod webhooks;

use std::sync::Arc;

pub(crate) use gantry_admission::Operation;
use serde_json::{Value, json};

use crate::access::Caller;
use crate::admission::admission_plugins::AdmissionPlugin;
use crate::admission::quotas::Reservation;
use crate::api::{Api, ResourceRequest};
use crate::resource::Resource;
use crate::resource::rules::WrittenSubresource;
use crate::response::status::StatusError;
use crate::verbs::write::{Write, meta};

/// The attributes of a write for admission. The object is passed separately, because the first step
/// may change it.
#[derive(Debug)]
pub(crate) struct Review<'a> {
    pub(crate) operation: Operation,
    pub(crate) resource: &'a Arc<Resource>,
    /// The subresource that is written; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The name, if it is known yet.
    pub(crate) name: &'a str,
    /// The namespace; for a Namespace object its own name.
    pub(crate) namespace: &'a str,
    pub(crate) caller: &'a Caller,
    pub(crate) dry_run: bool,
    /// The options of the request as an object; null for a connection.
    pub(crate) options: &'a Value,
    /// The stored object; `None` for a creation.
    pub(crate) old: Option<&'a Value>,
    /// Warnings for the caller.
    pub(crate) warnings: Vec<String>,
    /// The quota that was reserved.
    pub(crate) reservation: Option<Reservation>,
}

impl Review<'_> {
    /// Returns the refusal of a plug-in, which names the object as far as it has a name yet.
    pub(crate) fn forbidden(&self, object: Option<&Value>, why: &str) -> StatusError {
        let Resource { group, plural, .. } = &**self.resource;
        StatusError::forbidden(group, plural, self.shown_name(object), why)
    }

    fn shown_name<'b>(&'b self, object: Option<&'b Value>) -> &'b str {
        let said = |field: &str| object.map(|it| meta(it, field)).filter(|it| !it.is_empty());
        let known = Some(self.name).filter(|it| !it.is_empty());
        known.or_else(|| said("name")).or_else(|| said("generateName")).unwrap_or("Unknown")
    }
}

impl Api {
    /// Runs mutating admission: plug-ins and webhooks that may change a write, including their
    /// refusals. When a webhook has changed the object, earlier ones that ask for it see it once
    /// more.
    pub(crate) async fn mutate(
        &self,
        review: &mut Review<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), StatusError> {
        self.run_builtin_plugins(review, object.as_deref_mut())?;
        if !self.0.settings.plugins.is_enabled(AdmissionPlugin::MutatingAdmissionWebhook) {
            return Ok(());
        }
        let Some(mut rounds) = self.mutating_webhooks(review, object.as_deref()) else {
            return Ok(());
        };
        if Box::pin(self.call_mutating_webhooks(&mut rounds, review, object.as_deref_mut())).await?
        {
            self.run_builtin_plugins(review, object.as_deref_mut())?;
            Box::pin(self.call_mutating_webhooks(&mut rounds, review, object.as_deref_mut()))
                .await?;
        }
        if let Some(object) = object {
            rounds.restore_invalid_ownership(review, object);
        }
        Ok(())
    }

    /// Runs the mutating plug-ins that are built into the server.
    fn run_builtin_plugins(
        &self,
        review: &Review<'_>,
        object: Option<&mut Value>,
    ) -> Result<(), StatusError> {
        match (review.operation, object) {
            (Operation::Create, Some(object)) => self.admit_create(review, object),
            (Operation::Update, Some(object)) => {
                self.admit_update(review, object);
                Ok(())
            }
            (Operation::Delete, _) => match review.old {
                Some(old) if review.subresource.is_empty() => {
                    lifecycle_hooks::admit_delete(review.resource, old)
                }
                Some(_) | None => Ok(()),
            },
            (Operation::Create | Operation::Update | Operation::Connect, _) => Ok(()),
        }
    }

    /// Runs validating admission on the object as it will be stored.
    pub(crate) async fn validate(
        &self,
        review: &mut Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), StatusError> {
        let plugins = &self.0.settings.plugins;
        if plugins.is_enabled(AdmissionPlugin::LimitRanger) {
            self.check_limits(review, object)?;
        }
        if plugins.is_enabled(AdmissionPlugin::Priority) {
            self.check_default_class(review, object)?;
        }
        self.check_certificates(review, object)?;
        if plugins.is_enabled(AdmissionPlugin::ValidatingAdmissionPolicy) {
            self.check_policies(review, object)?;
        }
        if plugins.is_enabled(AdmissionPlugin::ValidatingAdmissionWebhook)
            && self.has_validating_webhooks(review)
        {
            Box::pin(self.call_validating_webhooks(review, object)).await?;
        }
        // Quota comes last: only writes that all others admit are counted.
        if plugins.is_enabled(AdmissionPlugin::ResourceQuota) {
            review.reservation = self.charge_quotas(review, object).await?;
        }
        Ok(())
    }

    /// Runs mutating admission for a new or changed object.
    pub(crate) async fn mutate_write(
        &self,
        write: &mut Write,
        old: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), StatusError> {
        let Some(operation) = operation_of(write, old) else { return Ok(()) };
        let options = options_of(write, operation);
        let (outcome, warnings) = if write.subresource == WrittenSubresource::Scale {
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

    /// Runs validating admission for a new or changed object.
    pub(crate) async fn validate_write(
        &self,
        write: &mut Write,
        old: Option<&Value>,
        object: &Value,
    ) -> Result<(), StatusError> {
        let Some(operation) = operation_of(write, old) else { return Ok(()) };
        let options = options_of(write, operation);
        let (outcome, warnings, reserved) = if write.subresource == WrittenSubresource::Scale {
            let old = old.map(|old| write.resource.scale_of(old)).transpose()?;
            let scale = write.resource.scale_of(object)?;
            let mut review = review_of(write, operation, &options, old.as_ref());
            let outcome = self.validate(&mut review, Some(&scale)).await;
            (outcome, review.warnings, review.reservation)
        } else {
            let mut review = review_of(write, operation, &options, old);
            let outcome = self.validate(&mut review, Some(object)).await;
            (outcome, review.warnings, review.reservation)
        };
        write.warnings.extend(warnings);
        write.reservation = reserved;
        outcome
    }

    /// Runs both steps for an object that is sent to a subresource and not stored itself: a
    /// binding, an eviction, a token request. Returns warnings for the caller.
    pub(crate) async fn review_subresource(
        &self,
        ask: &ResourceRequest,
        subresource: &str,
        options: &Value,
        dry_run: bool,
        object: &mut Value,
    ) -> Result<Vec<String>, StatusError> {
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
            reservation: None,
        };
        self.mutate_and_validate(&mut review, object).await
    }

    /// Runs both steps for a connection (exec, attach, port-forward, proxy).
    pub(crate) async fn review_connection(&self, ask: &ResourceRequest) -> Result<(), StatusError> {
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
            reservation: None,
        };
        self.mutate_and_validate(&mut review, &mut stream_options(ask, subresource, rest))
            .await
            .map(drop)
    }

    async fn mutate_and_validate(
        &self,
        review: &mut Review<'_>,
        object: &mut Value,
    ) -> Result<Vec<String>, StatusError> {
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

    /// Runs both steps for an object that is to be deleted.
    pub(crate) async fn review_deletion(&self, review: &mut Review<'_>) -> Result<(), StatusError> {
        self.mutate(review, None).await?;
        self.validate(review, None).await
    }
}

/// Returns the operation of a write, if it is subject to admission.
fn operation_of(write: &Write, old: Option<&Value>) -> Option<Operation> {
    match (write.subresource, old) {
        // The binding was reviewed, not the pod.
        (WrittenSubresource::Binding, _) => None,
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
    let review_namespace = write.resource.strategy.review_namespace;
    Review {
        operation,
        resource: &write.resource,
        subresource: write.subresource.name(),
        name: &write.name,
        namespace: review_namespace.of(&write.namespace, &write.name),
        caller: &write.caller,
        dry_run: write.dry_run,
        options,
        old,
        warnings: Vec::new(),
        reservation: None,
    }
}

/// Returns the options of a write as an object. A patch has those of the operation it turns out to
/// be.
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

/// Returns the options of a connection as an object: its parameters.
fn stream_options(ask: &ResourceRequest, subresource: &str, rest: &str) -> Value {
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
