//! Ends what ends slowly: namespaces and definitions go when nothing is left in them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::access::Caller;
use crate::api::{Api, Entry};
use crate::definitions::CLEANUP;
use crate::delete::{DeleteOptions, Propagation, Removal};
use crate::parts::{resource, set_condition};
use crate::resource::Resource;
use crate::rules::Part;
use crate::status::Refusal;
use crate::stored::Metadata;
use crate::write::{Changed, Ownership, Write, seconds};

/// Wakes the janitor.
#[derive(Debug, Default)]
pub(crate) struct Janitor {
    wake: Notify,
}

impl Janitor {
    /// Something may have to be ended, or may be able to end now.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
}

/// How long the janitor rests between two looks at something that does not end. Every removal wakes
/// it anyway; this only keeps a storm of removals from being one look each.
const REST: Duration = Duration::from_millis(20);

impl Api {
    /// Ends namespaces and definitions until told to stop.
    pub(crate) async fn tidy(self, stop: CancellationToken) {
        loop {
            for entry in self.ending("", "v1", "namespaces") {
                if let Err(refusal) = self.end_namespace(&entry).await {
                    tracing::debug!(refusal = refusal.message, "a namespace is ended later");
                }
            }
            let group = "apiextensions.k8s.io";
            for entry in self.ending(group, "v1", "customresourcedefinitions") {
                if let Err(refusal) = self.end_definition(&entry).await {
                    tracing::debug!(refusal = refusal.message, "a definition is ended later");
                }
            }
            // Each may be dropped: a wake-up that comes meanwhile is kept by `Notify`.
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.clock.sleep(REST) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.janitor.wake.notified() => {}
            }
        }
    }

    /// The objects of a resource that were asked to go.
    fn ending(&self, group: &str, version: &str, plural: &str) -> Vec<Arc<Entry>> {
        let Some(resource) = resource(self, group, version, plural) else { return Vec::new() };
        let space = self.0.store.space(&resource.space);
        let ending = space
            .iter()
            .filter(|entry| entry.extra.metadata(&entry.value).deletion_timestamp.is_some());
        ending.cloned().collect()
    }

    async fn end_namespace(&self, entry: &Arc<Entry>) -> Result<(), Refusal> {
        let metadata = entry.extra.metadata(&entry.value).clone();
        let Some(namespaces) = resource(self, "", "v1", "namespaces") else { return Ok(()) };
        let mut left = Vec::new();
        let caller = Caller::controller("namespace-controller");
        for kind in self.registry().spaces().values().filter(|it| it.namespaced) {
            let prefix = format!("{}/", metadata.name);
            self.empty(kind, &prefix, Some(&caller)).await?;
            left.extend(self.remaining(kind, &prefix));
        }
        if left.is_empty() {
            return self.finalize_namespace(&namespaces, &metadata).await;
        }
        self.report_remaining(&namespaces, &metadata, &left).await
    }

    /// Asks everything below a prefix to go.
    async fn empty(
        &self,
        kind: &Arc<Resource>,
        prefix: &str,
        caller: Option<&Caller>,
    ) -> Result<(), Refusal> {
        for entry in self.below(kind, prefix) {
            let metadata = entry.extra.metadata(&entry.value);
            if metadata.deletion_timestamp.is_some() {
                continue;
            }
            let options =
                DeleteOptions { policy: Some(Propagation::Background), ..DeleteOptions::default() };
            let (namespace, name) = (&metadata.namespace, &metadata.name);
            let mut removal = Removal {
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

    fn below(&self, kind: &Resource, prefix: &str) -> Vec<Arc<Entry>> {
        let space = self.0.store.space(&kind.space);
        let start = std::ops::Bound::Included(prefix.as_bytes());
        let entries = space.range(start);
        entries.take_while(|it| it.key.starts_with(prefix.as_bytes())).cloned().collect()
    }

    /// What is left of a kind below a prefix, and which finalizers hold it.
    fn remaining(&self, kind: &Resource, prefix: &str) -> Option<Remaining> {
        let entries = self.below(kind, prefix);
        if entries.is_empty() {
            return None;
        }
        let finalizers = entries
            .iter()
            .flat_map(|entry| entry.extra.metadata(&entry.value).finalizers.clone())
            .collect();
        let resource = format!("{}.{}", kind.plural, kind.group);
        Some(Remaining { resource, count: entries.len(), finalizers })
    }

    /// Takes the last finalizer from a namespace's specification, which removes it.
    async fn finalize_namespace(
        &self,
        namespaces: &Arc<Resource>,
        metadata: &Metadata,
    ) -> Result<(), Refusal> {
        let mut write = self.own_write(namespaces, metadata, Part::Finalize);
        self.modify(&mut write, |_, _, live| {
            let mut namespace = live.clone();
            if let Some(spec) = namespace["spec"].as_object_mut() {
                spec.shift_remove("finalizers");
            }
            Ok(Changed::to(namespace))
        })
        .await
        .map(drop)
    }

    async fn report_remaining(
        &self,
        namespaces: &Arc<Resource>,
        metadata: &Metadata,
        left: &[Remaining],
    ) -> Result<(), Refusal> {
        let mut write = self.own_write(namespaces, metadata, Part::Status);
        let now = seconds(self.now());
        self.modify(&mut write, |_, write, live| {
            let mut namespace = live.clone();
            for condition in namespace_conditions(left) {
                keep_transition(live, &mut namespace, condition, &now);
            }
            write.resource.own(write, Some(live), &mut namespace);
            Ok(Changed::to(namespace))
        })
        .await
        .map(drop)
    }

    async fn end_definition(&self, entry: &Arc<Entry>) -> Result<(), Refusal> {
        let group = "apiextensions.k8s.io";
        let Some(definitions) = resource(self, group, "v1", "customresourcedefinitions") else {
            return Ok(());
        };
        let metadata = entry.extra.metadata(&entry.value).clone();
        if !metadata.finalizers.iter().any(|it| it == CLEANUP) {
            return Ok(());
        }
        let kinds = self.0.definitions.instances_of(self, &metadata.name);
        let mut left = 0;
        for kind in kinds {
            // Nobody may object: upstream removes them below admission.
            self.empty(&kind, "", None).await?;
            left += self.below(&kind, "").len();
        }
        let mut write = self.own_write(&definitions, &metadata, Part::Status);
        let now = seconds(self.now());
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
            keep_transition(live, &mut definition, condition, &now);
            write.resource.own(write, Some(live), &mut definition);
            Ok(Changed::to(definition))
        })
        .await?;
        if left == 0 {
            self.drop_finalizer(&definitions, &metadata, CLEANUP).await?;
        }
        Ok(())
    }

    /// A write by the server itself.
    pub(crate) fn own_write(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
        part: Part,
    ) -> Write {
        Write {
            resource: Arc::clone(resource),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            part,
            manager: "kube-apiserver".to_owned(),
            ownership: Ownership::ByChange,
            caller: Caller::server(),
            dry_run: false,
            changes: false,
            by_server: true,
            views: crate::convert::Views::default(),
            options: serde_json::Map::new(),
            reserved: None,
            claims: None,
            now: self.now(),
            warnings: Vec::new(),
        }
    }
}

/// What is left of one resource.
#[derive(Debug)]
struct Remaining {
    resource: String,
    count: usize,
    finalizers: Vec<String>,
}

/// The conditions of a namespace that cannot end yet.
fn namespace_conditions(left: &[Remaining]) -> Vec<Value> {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({ "type": kind, "status": status, "reason": reason, "message": message });
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

/// Sets a condition; the time changes only when its status does.
pub(crate) fn keep_transition(live: &Value, object: &mut Value, mut condition: Value, now: &str) {
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
