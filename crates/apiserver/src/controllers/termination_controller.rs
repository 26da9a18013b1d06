//! Finishes the deletion of namespaces and definitions when nothing is left in them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::access::Caller;
use crate::api::{Api, Entry};
use crate::resource::Resource;
use crate::resource::definitions::CLEANUP_FINALIZER;
use crate::resource::rules::WrittenSubresource;
use crate::resource::stored::Metadata;
use crate::response::status::StatusError;
use crate::verbs::delete::{DeleteOptions, DeletionRequest, Propagation};
use crate::verbs::subresources::{resource, set_condition};
use crate::verbs::write::{ModifiedObject, Ownership, Write, format_seconds};

/// Wakes the termination controller.
#[derive(Debug, Default)]
pub(crate) struct TerminationController {
    wake: Notify,
}

impl TerminationController {
    /// Reports that something has to be terminated, or may be able to terminate now.
    pub(crate) fn notify(&self) {
        self.wake.notify_one();
    }
}

/// The shortest time between two passes over something that does not terminate. Every deletion
/// wakes the controller anyway; this only keeps a burst of deletions from causing one pass each.
const TERMINATION_INTERVAL: Duration = Duration::from_millis(20);

impl Api {
    /// Terminates namespaces and definitions until it is stopped.
    pub(crate) async fn run_termination_controller(self, stop: CancellationToken) {
        loop {
            for entry in self.terminating_entries("", "v1", "namespaces") {
                if let Err(refusal) = self.terminate_namespace(&entry).await {
                    tracing::debug!(refusal = refusal.message, "namespace deletion is retried");
                }
            }
            let group = "apiextensions.k8s.io";
            for entry in self.terminating_entries(group, "v1", "customresourcedefinitions") {
                if let Err(refusal) = self.terminate_definition(&entry).await {
                    tracing::debug!(refusal = refusal.message, "definition deletion is retried");
                }
            }
            // Cancel-safe: a wake-up that comes meanwhile is kept by `Notify`.
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.clock.sleep(TERMINATION_INTERVAL) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.termination_controller.wake.notified() => {}
            }
        }
    }

    /// Returns the objects of a resource with a deletion timestamp.
    fn terminating_entries(&self, group: &str, version: &str, plural: &str) -> Vec<Arc<Entry>> {
        let Some(resource) = resource(self, group, version, plural) else { return Vec::new() };
        let space = self.0.store.space(&resource.space);
        let ending = space
            .iter()
            .filter(|entry| entry.extra.metadata(&entry.value).deletion_timestamp.is_some());
        ending.cloned().collect()
    }

    async fn terminate_namespace(&self, entry: &Arc<Entry>) -> Result<(), StatusError> {
        let metadata = entry.extra.metadata(&entry.value).clone();
        let Some(namespaces) = resource(self, "", "v1", "namespaces") else { return Ok(()) };
        let mut left = Vec::new();
        let caller = Caller::controller("namespace-controller");
        for kind in self.registry().resources_by_space().values().filter(|it| it.namespaced) {
            let prefix = format!("{}/", metadata.name);
            self.delete_contents(kind, &prefix, Some(&caller)).await?;
            left.extend(self.remaining_objects(kind, &prefix));
        }
        if left.is_empty() {
            return self.finalize_namespace(&namespaces, &metadata).await;
        }
        self.report_remaining(&namespaces, &metadata, &left).await
    }

    /// Deletes everything below a prefix.
    async fn delete_contents(
        &self,
        kind: &Arc<Resource>,
        prefix: &str,
        caller: Option<&Caller>,
    ) -> Result<(), StatusError> {
        for entry in self.entries_with_prefix(kind, prefix) {
            let metadata = entry.extra.metadata(&entry.value);
            if metadata.deletion_timestamp.is_some() {
                continue;
            }
            let options =
                DeleteOptions { policy: Some(Propagation::Background), ..DeleteOptions::default() };
            let (namespace, name) = (&metadata.namespace, &metadata.name);
            let mut removal = DeletionRequest {
                resource: kind,
                namespace,
                name,
                options: &options,
                caller,
                now: self.now(),
                warnings: Vec::new(),
            };
            match self.delete_object(&mut removal).await {
                Ok(_) => {}
                Err(refusal) if refusal.reason == "NotFound" => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(())
    }

    fn entries_with_prefix(&self, kind: &Resource, prefix: &str) -> Vec<Arc<Entry>> {
        let space = self.0.store.space(&kind.space);
        let start = std::ops::Bound::Included(prefix.as_bytes());
        let entries = space.range(start);
        entries.take_while(|it| it.key.starts_with(prefix.as_bytes())).cloned().collect()
    }

    /// Returns what is left of a kind below a prefix, and which finalizers hold it.
    fn remaining_objects(&self, kind: &Resource, prefix: &str) -> Option<RemainingObjects> {
        let entries = self.entries_with_prefix(kind, prefix);
        if entries.is_empty() {
            return None;
        }
        let finalizers = entries
            .iter()
            .flat_map(|entry| entry.extra.metadata(&entry.value).finalizers.clone())
            .collect();
        let resource = format!("{}.{}", kind.plural, kind.group);
        Some(RemainingObjects { resource, count: entries.len(), finalizers })
    }

    /// Removes the last finalizer from a namespace's specification, which deletes it.
    async fn finalize_namespace(
        &self,
        namespaces: &Arc<Resource>,
        metadata: &Metadata,
    ) -> Result<(), StatusError> {
        let mut write = self.server_write(namespaces, metadata, WrittenSubresource::Finalize);
        self.modify(&mut write, |_, _, live| {
            let mut namespace = live.clone();
            if let Some(spec) = namespace["spec"].as_object_mut() {
                spec.shift_remove("finalizers");
            }
            Ok(ModifiedObject::new(namespace))
        })
        .await
        .map(drop)
    }

    async fn report_remaining(
        &self,
        namespaces: &Arc<Resource>,
        metadata: &Metadata,
        left: &[RemainingObjects],
    ) -> Result<(), StatusError> {
        let mut write = self.server_write(namespaces, metadata, WrittenSubresource::Status);
        let now = format_seconds(self.now());
        self.modify(&mut write, |_, write, live| {
            let mut namespace = live.clone();
            for condition in namespace_conditions(left) {
                set_condition_keeping_time(live, &mut namespace, condition, &now);
            }
            write.resource.update_managed_fields(write, Some(live), &mut namespace);
            Ok(ModifiedObject::new(namespace))
        })
        .await
        .map(drop)
    }

    async fn terminate_definition(&self, entry: &Arc<Entry>) -> Result<(), StatusError> {
        let group = "apiextensions.k8s.io";
        let Some(definitions) = resource(self, group, "v1", "customresourcedefinitions") else {
            return Ok(());
        };
        let metadata = entry.extra.metadata(&entry.value).clone();
        if !metadata.finalizers.iter().any(|it| it == CLEANUP_FINALIZER) {
            return Ok(());
        }
        let kinds = self.0.definitions.instance_resources(self, &metadata.name);
        let mut left = 0;
        for kind in kinds {
            // Without admission: upstream deletes them below admission.
            self.delete_contents(&kind, "", None).await?;
            left += self.entries_with_prefix(&kind, "").len();
        }
        let mut write = self.server_write(&definitions, &metadata, WrittenSubresource::Status);
        let now = format_seconds(self.now());
        let (reason, message) = if left > 0 {
            ("InstanceDeletionInProgress", "CustomResource deletion is in progress")
        } else {
            ("InstanceDeletionCompleted", "removed all instances")
        };
        self.modify(&mut write, |_, write, live| {
            let mut definition = live.clone();
            let status = if left > 0 { "True" } else { "False" };
            let condition = json!({
                "type": "Terminating", "status": status, "reason": reason, "message": message,
            });
            set_condition_keeping_time(live, &mut definition, condition, &now);
            write.resource.update_managed_fields(write, Some(live), &mut definition);
            Ok(ModifiedObject::new(definition))
        })
        .await?;
        if left == 0 {
            self.remove_finalizer(&definitions, &metadata, CLEANUP_FINALIZER).await?;
        }
        Ok(())
    }

    /// Makes a write by the server itself.
    pub(crate) fn server_write(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
        part: WrittenSubresource,
    ) -> Write {
        Write {
            resource: Arc::clone(resource),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            subresource: part,
            manager: "kube-apiserver".to_owned(),
            ownership: Ownership::ByChange,
            caller: Caller::server(),
            dry_run: false,
            is_update: false,
            by_server: true,
            versions: crate::resource::convert::ConvertedVersions::default(),
            options: serde_json::Map::new(),
            reservation: None,
            claims: None,
            now: self.now(),
            warnings: Vec::new(),
        }
    }
}

/// The remaining objects of one resource.
#[derive(Debug)]
struct RemainingObjects {
    resource: String,
    count: usize,
    finalizers: Vec<String>,
}

/// Returns the conditions of a namespace that cannot be deleted yet.
fn namespace_conditions(left: &[RemainingObjects]) -> Vec<Value> {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
        })
    };
    let mut finalizers: Vec<(String, usize)> = Vec::new();
    for name in left.iter().flat_map(|it| &it.finalizers) {
        match finalizers.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => finalizers.push((name.clone(), 1)),
        }
    }
    finalizers.sort();
    let mut resources: Vec<String> = left
        .iter()
        .map(|it| format!("{} has {} resource instances", it.resource, it.count))
        .collect();
    resources.sort();
    let content = format!("Some resources are remaining: {}", resources.join(", "));
    let held: Vec<String> = finalizers
        .iter()
        .map(|(name, count)| format!("{name} in {count} resource instances"))
        .collect();
    let mut conditions = vec![
        condition(
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        condition(
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", &content),
    ];
    if held.is_empty() {
        conditions.push(condition(
            "NamespaceFinalizersRemaining",
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ));
    } else {
        let message =
            format!("Some content in the namespace has finalizers remaining: {}", held.join(", "));
        conditions.push(condition(
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            &message,
        ));
    }
    conditions
}

/// Sets a condition; the transition time changes only when its status does.
pub(crate) fn set_condition_keeping_time(
    live: &Value,
    object: &mut Value,
    mut condition: Value,
    now: &str,
) {
    let known = live["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|known| known["type"] == condition["type"]);
    let when = match known {
        Some(known) if known["status"] == condition["status"] => {
            known["lastTransitionTime"].clone()
        }
        Some(_) | None => json!(now),
    };
    condition["lastTransitionTime"] = when;
    set_condition(object, condition);
}
