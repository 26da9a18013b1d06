//! What the server adds to single kinds before and after they are stored.

use std::sync::Arc;

use gantry_kinds::{admit, service};
use serde_json::{Value, json};

use crate::access::Caller;
use crate::admission::{Operation, Review};
use crate::api::{Api, Entry};
use crate::authority::CLUSTER_ROLES;
use crate::definitions;
use crate::parts::resource;
use crate::plugins::Plugin;
use crate::policies::Policies;
use crate::resource::Resource;
use crate::rules::{Part, REQUESTS};
use crate::status::Refusal;
use crate::stored::Metadata;
use crate::webhooks::Webhooks;
use crate::write::{Write, meta};

/// Namespaces that always exist.
pub(crate) const PERMANENT: [&str; 4] =
    ["default", "kube-system", "kube-public", "kube-node-lease"];

impl Api {
    /// Whether a new object may be made where it should be, and what the server adds to it.
    pub(crate) fn admit_create(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), Refusal> {
        let Resource { group, plural, .. } = &**review.resource;
        if review.resource.custom().is_some_and(|custom| custom.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(review.forbidden(Some(object), why));
        }
        let plugins = &self.0.settings.plugins;
        if review.resource.namespaced && plugins.has(Plugin::NamespaceLifecycle) {
            let Some(namespace) = self.namespace(review.namespace) else {
                return Err(Refusal::not_found("", "namespaces", review.namespace));
            };
            let metadata = namespace.extra.metadata(&namespace.value);
            if metadata.deletion_timestamp.is_some() {
                let name = meta(object, "name");
                return Err(Refusal::terminating(group, plural, name, review.namespace));
            }
        }
        if !review.subresource.is_empty() {
            return Ok(());
        }
        if plugins.has(Plugin::LimitRanger) {
            self.fill_limits(review, object);
        }
        self.admit_kind(review, object)
    }

    pub(crate) fn namespace(&self, name: &str) -> Option<Arc<Entry>> {
        self.0.store.space("namespaces").get(name.as_bytes()).cloned()
    }

    /// What single kinds get when they are made.
    fn admit_kind(&self, review: &Review<'_>, object: &mut Value) -> Result<(), Refusal> {
        let Resource { group, plural, .. } = &**review.resource;
        let plugins = &self.0.settings.plugins;
        match (group.as_str(), plural.as_str()) {
            ("", "pods") => {
                if plugins.has(Plugin::ServiceAccount) {
                    let name = admit::service_account_name(object).to_owned();
                    let account = self.look("", "v1", "serviceaccounts", review.namespace, &name);
                    admit::service_account(object, account.as_ref(), &suffix())
                        .map_err(|why| review.forbidden(Some(object), &why.to_string()))?;
                }
                if plugins.has(Plugin::Priority) {
                    let class = self.priority_class(object);
                    admit::priority(object, class.as_ref())
                        .map_err(|why| review.forbidden(Some(object), &why.to_string()))?;
                }
                if plugins.has(Plugin::DefaultTolerationSeconds) {
                    admit::default_tolerations(object);
                }
                Ok(())
            }
            ("", "nodes") if plugins.has(Plugin::TaintNodesByCondition) => {
                admit::taint_new_node(object);
                Ok(())
            }
            ("", "persistentvolumes" | "persistentvolumeclaims") => {
                if plugins.has(Plugin::StorageObjectInUseProtection) {
                    admit::protect_storage(object, plural);
                }
                if plugins.has(Plugin::DefaultStorageClass) && plural == "persistentvolumeclaims" {
                    let classes = self.all("storage.k8s.io", "v1", "storageclasses");
                    admit::default_storage_class(object, classes.iter());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What single kinds keep or get when they are changed.
    ///
    /// Of the plug-ins that Kubernetes asks about changed pods, two change them: `Priority` keeps
    /// what it computed, `DefaultTolerationSeconds` adds what is missing. `ServiceAccount` changes
    /// new pods only.
    pub(crate) fn admit_update(&self, review: &Review<'_>, object: &mut Value) {
        let Resource { group, plural, .. } = &**review.resource;
        let plugins = &self.0.settings.plugins;
        if plugins.has(Plugin::LimitRanger) {
            self.fill_limits(review, object);
        }
        if (group.as_str(), plural.as_str(), review.subresource) != ("", "pods", "") {
            return;
        }
        if let Some(old) = review.old.filter(|_| plugins.has(Plugin::Priority)) {
            admit::keep_priority(object, old);
        }
        if plugins.has(Plugin::DefaultTolerationSeconds) {
            admit::default_tolerations(object);
        }
    }

    /// Refuses a second default PriorityClass.
    pub(crate) fn check_default_class(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), Refusal> {
        let Resource { group, plural, .. } = &**review.resource;
        let meant = (group.as_str(), plural.as_str(), review.subresource)
            == (SCHEDULING, "priorityclasses", "");
        let Some(class) = object.filter(|_| meant) else { return Ok(()) };
        let is_new = match review.operation {
            Operation::Create => true,
            Operation::Update => false,
            Operation::Delete | Operation::Connect => return Ok(()),
        };
        let classes = self.all(SCHEDULING, "v1", "priorityclasses");
        match admit::second_default_class(class, is_new, classes.iter()) {
            None => Ok(()),
            Some(why) => Err(review.forbidden(object, &why)),
        }
    }

    /// The class a pod names, or the default one.
    fn priority_class(&self, pod: &Value) -> Option<Value> {
        let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
        if !name.is_empty() {
            return self.look("scheduling.k8s.io", "v1", "priorityclasses", "", name);
        }
        let mut classes = self.all("scheduling.k8s.io", "v1", "priorityclasses");
        classes.retain(|class| class["globalDefault"] == true);
        classes.sort_by_key(|class| class["value"].as_i64());
        classes.into_iter().next()
    }

    /// A stored object as a tree.
    pub(crate) fn look(
        &self,
        group: &str,
        version: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let resource = resource(self, group, version, plural)?;
        let entry = self.stored(&resource, namespace, name)?;
        Some(resource.tree(&entry))
    }

    /// All stored objects of a resource as trees.
    fn all(&self, group: &str, version: &str, plural: &str) -> Vec<Value> {
        let Some(resource) = resource(self, group, version, plural) else { return Vec::new() };
        self.0.store.space(&resource.space).iter().map(|entry| resource.tree(entry)).collect()
    }

    /// Makes a new object ready to be checked and stored.
    pub(crate) fn prepare_create(
        &self,
        write: &mut Write,
        object: &mut Value,
    ) -> Result<(), Refusal> {
        write.resource.prepare_new(object, &write.stamp());
        self.allocate(write, None, object)?;
        if write.resource.space == definitions::SPACE {
            gantry_schema::prepare_definition(object, None);
        }
        if write.resource.space == REQUESTS {
            // Who asks is what the server knows, not what the request says.
            let Caller { name, uid, groups, extra } = &write.caller;
            let spec = &mut object["spec"];
            spec["username"] = json!(name);
            spec["uid"] = json!(uid);
            spec["groups"] = json!(groups);
            spec["extra"] = json!(extra);
        }
        Ok(())
    }

    /// Makes a change ready to be checked and stored.
    pub(crate) fn prepare_update(
        &self,
        write: &mut Write,
        live: &Value,
        new: &mut Value,
    ) -> Result<(), Refusal> {
        write.resource.prepare_change(new, live, write.part, &write.stamp());
        self.allocate(write, Some(live), new)?;
        if write.resource.space == definitions::SPACE && write.part == Part::Whole {
            gantry_schema::prepare_definition(new, Some(live));
        }
        Ok(())
    }

    /// What follows the creation of an object.
    pub(crate) async fn after_create(
        &self,
        write: &Write,
        object: &Value,
        entry: Arc<Entry>,
    ) -> Result<Arc<Entry>, Refusal> {
        self.noted(&write.resource, object);
        self.quota_note(write, None, object);
        self.token_secret_stored(&write.resource, object);
        self.settle_policies(&write.resource);
        if write.resource.space == definitions::SPACE {
            self.settle(&write.resource, &entry).await?;
        }
        if write.resource.space == CLUSTER_ROLES {
            Box::pin(self.aggregate_roles()).await?;
        }
        Ok(entry)
    }

    /// What follows a change.
    pub(crate) async fn after_update(
        &self,
        write: &Write,
        live: &Value,
        new: &Value,
        entry: Arc<Entry>,
    ) -> Result<Arc<Entry>, Refusal> {
        self.noted(&write.resource, new);
        self.quota_note(write, Some(live), new);
        self.token_secret_stored(&write.resource, new);
        self.settle_policies(&write.resource);
        if write.resource.space == definitions::SPACE {
            self.settle(&write.resource, &entry).await?;
        }
        if write.resource.space == CLUSTER_ROLES {
            Box::pin(self.aggregate_roles()).await?;
        }
        Ok(entry)
    }

    async fn settle(&self, resource: &Resource, entry: &Arc<Entry>) -> Result<(), Refusal> {
        let object = resource.tree(entry);
        self.settle_definitions(object["spec"]["group"].as_str().unwrap_or_default()).await
    }

    fn settle_policies(&self, resource: &Resource) {
        if Policies::concern(&resource.space) {
            self.0.policies.refresh(self);
        }
        if Webhooks::concern(&resource.space) {
            self.0.admission_webhooks.refresh(self);
        }
    }

    fn noted(&self, resource: &Resource, object: &Value) {
        if !self.0.collector.concerns(&resource.space, object) {
            return;
        }
        let metadata = Metadata::of(object);
        self.0.collector.note(&resource.space, &metadata);
        if metadata.deletion_timestamp.is_some() {
            self.0.janitor.wake();
        }
    }

    /// What follows the mark that an object should go.
    pub(crate) fn after_mark(&self, resource: &Resource, object: &Value) {
        self.noted(resource, object);
        if resource.space == definitions::SPACE {
            self.0.definitions.refresh(self);
        }
    }

    /// What follows the end of an object.
    pub(crate) fn after_remove(&self, resource: &Resource, entry: &Arc<Entry>) {
        self.0.collector.gone(&resource.space, entry.extra.metadata(&entry.value));
        self.0.janitor.wake();
        self.settle_policies(resource);
        self.token_account_removed(resource, entry.extra.metadata(&entry.value));
        if resource.namespaced {
            self.recount_inside(&entry.extra.metadata(&entry.value).namespace);
        }
        if resource.space == definitions::SPACE {
            self.0.definitions.refresh(self);
        }
    }

    /// Allocates the addresses and ports that a service asks for. They are the write's until it ends.
    fn allocate(
        &self,
        write: &mut Write,
        live: Option<&Value>,
        service: &mut Value,
    ) -> Result<(), Refusal> {
        // What an earlier try claimed is free again, also for this one.
        write.claims = None;
        if write.resource.space != crate::addresses::SPACE || write.part != Part::Whole {
            return Ok(());
        }
        let mut claims = self.0.allocator.claim(write.dry_run);
        let allocated = service::allocate(service, live, &mut claims);
        write.claims = Some(claims);
        allocated.map_err(|refusal| match refusal {
            service::Refusal::Invalid(faults) => {
                Refusal::invalid("", "Service", meta(service, "name"), &faults)
            }
            service::Refusal::Internal(words) => Refusal::internal(&words),
            service::Refusal::Failure(words) => Refusal::failure(words),
        })
    }
}

const SCHEDULING: &str = "scheduling.k8s.io";
/// The classes that every cluster has.
const SYSTEM_PRIORITIES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

/// Whether an object may be asked to go.
pub(crate) fn admit_delete(resource: &Resource, live: &Value) -> Result<(), Refusal> {
    let name = meta(live, "name");
    if resource.space == "namespaces" && PERMANENT.contains(&name) {
        let why = "this namespace may not be deleted";
        return Err(Refusal::forbidden("", "namespaces", name, why));
    }
    let class = resource.group == SCHEDULING && resource.plural == "priorityclasses";
    if class && SYSTEM_PRIORITIES.contains(&name) {
        let why = "this is a system priority class and cannot be deleted";
        return Err(Refusal::forbidden(SCHEDULING, "priorityclasses", name, why));
    }
    Ok(())
}

/// Letters that make a name unique.
fn suffix() -> String {
    crate::names::generate("")
}
