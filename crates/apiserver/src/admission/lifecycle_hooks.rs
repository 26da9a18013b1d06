//! What the server adds to objects of single kinds before and after they are stored.

use std::sync::Arc;

use gantry_kinds::{admission_plugins, service};
use gantry_store::Revision;
use serde_json::{Value, json};

use crate::access::Caller;
use crate::admission::admission_plugins::AdmissionPlugin;
use crate::admission::{Operation, Review};
use crate::api::{Api, Entry};
use crate::resource::Resource;
use crate::resource::rules::WrittenSubresource;
use crate::resource::stored::Metadata;
use crate::resource::strategy::{AdmissionRules, DerivedState, Preparation, ProtectedObjects};
use crate::response::status::StatusError;
use crate::verbs::subresources::resource;
use crate::verbs::write::{Write, meta};

/// Namespaces that always exist.
pub(crate) const SYSTEM_NAMESPACES: [&str; 4] =
    ["default", "kube-system", "kube-public", "kube-node-lease"];
/// The priority classes that every cluster has.
pub(crate) const SYSTEM_PRIORITIES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

impl Api {
    /// Checks whether a new object may be created in its namespace, and adds what the server adds
    /// to it.
    pub(crate) fn admit_create(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), StatusError> {
        let Resource { group, plural, .. } = &**review.resource;
        if review.resource.custom().is_some_and(|custom| custom.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(review.forbidden(Some(object), why));
        }
        let plugins = &self.0.settings.plugins;
        if review.resource.namespaced && plugins.is_enabled(AdmissionPlugin::NamespaceLifecycle) {
            let Some(namespace) = self.namespace(review.namespace) else {
                return Err(StatusError::not_found("", "namespaces", review.namespace));
            };
            let metadata = namespace.extra.metadata(&namespace.value);
            if metadata.deletion_timestamp.is_some() {
                let name = meta(object, "name");
                return Err(StatusError::terminating(group, plural, name, review.namespace));
            }
        }
        if !review.subresource.is_empty() {
            return Ok(());
        }
        if plugins.is_enabled(AdmissionPlugin::LimitRanger) {
            self.apply_limit_defaults(review, object);
        }
        self.admit_kind(review, object)
    }

    pub(crate) fn namespace(&self, name: &str) -> Option<Arc<Entry>> {
        self.0.store.space("namespaces").get(name.as_bytes()).cloned()
    }

    /// Adds defaults to new objects of single kinds.
    fn admit_kind(&self, review: &Review<'_>, object: &mut Value) -> Result<(), StatusError> {
        let plugins = &self.0.settings.plugins;
        let rules = review.resource.strategy.admission;
        match rules {
            AdmissionRules::Pod => {
                if plugins.is_enabled(AdmissionPlugin::ServiceAccount) {
                    let name = admission_plugins::service_account_name(object).to_owned();
                    let account =
                        self.stored_value("", "v1", "serviceaccounts", review.namespace, &name);
                    admission_plugins::service_account(object, account.as_ref(), &random_suffix())
                        .map_err(|why| review.forbidden(Some(object), &why.to_string()))?;
                }
                if plugins.is_enabled(AdmissionPlugin::Priority) {
                    let class = self.priority_class(object);
                    admission_plugins::priority(object, class.as_ref())
                        .map_err(|why| review.forbidden(Some(object), &why.to_string()))?;
                }
                if plugins.is_enabled(AdmissionPlugin::DefaultTolerationSeconds) {
                    admission_plugins::default_tolerations(object);
                }
            }
            AdmissionRules::Node => {
                if plugins.is_enabled(AdmissionPlugin::TaintNodesByCondition) {
                    admission_plugins::taint_new_node(object);
                }
            }
            AdmissionRules::PersistentVolume | AdmissionRules::PersistentVolumeClaim => {
                if plugins.is_enabled(AdmissionPlugin::StorageObjectInUseProtection) {
                    admission_plugins::protect_storage(object, &review.resource.plural);
                }
                if plugins.is_enabled(AdmissionPlugin::DefaultStorageClass)
                    && rules == AdmissionRules::PersistentVolumeClaim
                {
                    let classes = self.stored_values("storage.k8s.io", "v1", "storageclasses");
                    admission_plugins::default_storage_class(object, classes.iter());
                }
            }
            AdmissionRules::None
            | AdmissionRules::PriorityClass
            | AdmissionRules::CertificateSigningRequest => {}
        }
        Ok(())
    }

    /// Keeps or adds values when objects of single kinds are changed.
    ///
    /// Of the plug-ins that Kubernetes asks about changed pods, two change them: `Priority` keeps
    /// what it computed, `DefaultTolerationSeconds` adds what is missing. `ServiceAccount` changes
    /// new pods only.
    pub(crate) fn admit_update(&self, review: &Review<'_>, object: &mut Value) {
        let plugins = &self.0.settings.plugins;
        if plugins.is_enabled(AdmissionPlugin::LimitRanger) {
            self.apply_limit_defaults(review, object);
        }
        let rules = review.resource.strategy.admission;
        if (rules, review.subresource) != (AdmissionRules::Pod, "") {
            return;
        }
        if let Some(old) = review.old.filter(|_| plugins.is_enabled(AdmissionPlugin::Priority)) {
            admission_plugins::preserve_priority(object, old);
        }
        if plugins.is_enabled(AdmissionPlugin::DefaultTolerationSeconds) {
            admission_plugins::default_tolerations(object);
        }
    }

    /// Refuses a second default PriorityClass.
    pub(crate) fn check_default_class(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), StatusError> {
        let rules = review.resource.strategy.admission;
        let meant = (rules, review.subresource) == (AdmissionRules::PriorityClass, "");
        let Some(class) = object.filter(|_| meant) else { return Ok(()) };
        let is_new = match review.operation {
            Operation::Create => true,
            Operation::Update => false,
            Operation::Delete | Operation::Connect => return Ok(()),
        };
        let classes = self.stored_values(SCHEDULING, "v1", "priorityclasses");
        match admission_plugins::default_class_conflict(class, is_new, classes.iter()) {
            None => Ok(()),
            Some(why) => Err(review.forbidden(object, &why)),
        }
    }

    /// Returns the class a pod names, or the default one.
    fn priority_class(&self, pod: &Value) -> Option<Value> {
        let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
        if !name.is_empty() {
            return self.stored_value("scheduling.k8s.io", "v1", "priorityclasses", "", name);
        }
        let mut classes = self.stored_values("scheduling.k8s.io", "v1", "priorityclasses");
        classes.retain(|class| class["globalDefault"] == true);
        classes.sort_by_key(|class| class["value"].as_i64());
        classes.into_iter().next()
    }

    /// Returns a stored object as a tree.
    pub(crate) fn stored_value(
        &self,
        group: &str,
        version: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let resource = resource(self, group, version, plural)?;
        let entry = self.stored_entry(&resource, namespace, name)?;
        Some(resource.tree(&entry))
    }

    /// Returns all stored objects of a resource as trees.
    fn stored_values(&self, group: &str, version: &str, plural: &str) -> Vec<Value> {
        let Some(resource) = resource(self, group, version, plural) else { return Vec::new() };
        self.0.store.space(&resource.space).iter().map(|entry| resource.tree(entry)).collect()
    }

    /// Prepares a new object for validation and storage.
    pub(crate) fn prepare_create(
        &self,
        write: &mut Write,
        object: &mut Value,
    ) -> Result<(), StatusError> {
        write.resource.prepare_new(object, &write.timestamp());
        self.prepare(write, None, object)
    }

    /// Prepares a change for validation and storage.
    pub(crate) fn prepare_update(
        &self,
        write: &mut Write,
        live: &Value,
        new: &mut Value,
    ) -> Result<(), StatusError> {
        write.resource.prepare_change(new, live, write.subresource, &write.timestamp());
        self.prepare(write, Some(live), new)
    }

    /// Sets what the server sets in objects of single kinds.
    fn prepare(
        &self,
        write: &mut Write,
        live: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), StatusError> {
        // What an earlier attempt claimed is free again, also for this one.
        write.claims = None;
        let is_main = write.subresource == WrittenSubresource::Main;
        match write.resource.strategy.preparation {
            Preparation::ServiceAddresses if is_main => self.allocate(write, live, object)?,
            Preparation::DefinitionStatus if is_main => {
                gantry_schema::prepare_definition(object, live);
            }
            Preparation::Requester if live.is_none() => set_requester(object, &write.caller),
            Preparation::None
            | Preparation::ServiceAddresses
            | Preparation::DefinitionStatus
            | Preparation::Requester => {}
        }
        Ok(())
    }

    /// Runs after an object was created.
    pub(crate) async fn after_create(
        &self,
        write: &Write,
        object: &Value,
        entry: Arc<Entry>,
    ) -> Result<Arc<Entry>, StatusError> {
        self.notify_collectors(&write.resource, object, entry.revision);
        self.note_quota_change(write, None, object);
        self.update_derived_state(&write.resource, object, &entry).await?;
        Ok(entry)
    }

    /// Runs after an object was changed.
    pub(crate) async fn after_update(
        &self,
        write: &Write,
        live: &Value,
        new: &Value,
        entry: Arc<Entry>,
    ) -> Result<Arc<Entry>, StatusError> {
        self.notify_collectors(&write.resource, new, entry.revision);
        self.note_quota_change(write, Some(live), new);
        self.update_derived_state(&write.resource, new, &entry).await?;
        Ok(entry)
    }

    /// Updates what the server derives from an object that was created or changed.
    async fn update_derived_state(
        &self,
        resource: &Resource,
        object: &Value,
        entry: &Arc<Entry>,
    ) -> Result<(), StatusError> {
        match resource.strategy.derived {
            DerivedState::ServedKinds => {
                let definition = resource.tree(entry);
                let group = definition["spec"]["group"].as_str().unwrap_or_default();
                self.reconcile_definitions(group).await?;
            }
            DerivedState::AggregatedRoles => Box::pin(self.aggregate_roles()).await?,
            DerivedState::AdmissionPolicies => self.0.policies.refresh(self),
            DerivedState::AdmissionWebhooks => self.0.admission_webhooks.refresh(self),
            DerivedState::TokenSecret => self.token_secret_stored(object),
            DerivedState::AccountTokens | DerivedState::None => {}
        }
        Ok(())
    }

    fn notify_collectors(&self, resource: &Resource, object: &Value, revision: Revision) {
        if !self.0.garbage_collector.is_relevant(&resource.space, object) {
            return;
        }
        let metadata = Metadata::of(object);
        self.0.garbage_collector.observe(&resource.space, &metadata, revision);
        if metadata.deletion_timestamp.is_some() {
            self.0.termination_controller.notify();
        }
    }

    /// Runs after an object got its deletion timestamp.
    pub(crate) fn after_mark_deleting(
        &self,
        resource: &Resource,
        object: &Value,
        revision: Revision,
    ) {
        self.notify_collectors(resource, object, revision);
        match resource.strategy.derived {
            DerivedState::ServedKinds => self.0.definitions.refresh(self),
            DerivedState::None
            | DerivedState::AggregatedRoles
            | DerivedState::AdmissionPolicies
            | DerivedState::AdmissionWebhooks
            | DerivedState::TokenSecret
            | DerivedState::AccountTokens => {}
        }
    }

    /// Runs after an object was deleted whose last state is `object`.
    pub(crate) async fn after_remove(
        &self,
        resource: &Resource,
        object: &Value,
        entry: &Arc<Entry>,
    ) -> Result<(), StatusError> {
        let metadata = entry.extra.metadata(&entry.value);
        self.0.garbage_collector.observe_deleted(&resource.space, metadata);
        self.0.termination_controller.notify();
        if resource.namespaced {
            self.recount_namespace(&metadata.namespace);
        }
        match resource.strategy.derived {
            DerivedState::ServedKinds => {
                self.0.definitions.refresh(self);
                // Names of the definition may be free for others now.
                let group = object["spec"]["group"].as_str().unwrap_or_default();
                Box::pin(self.reconcile_definitions(group)).await?;
            }
            DerivedState::AggregatedRoles => Box::pin(self.aggregate_roles()).await?,
            DerivedState::AdmissionPolicies => self.0.policies.refresh(self),
            DerivedState::AdmissionWebhooks => self.0.admission_webhooks.refresh(self),
            DerivedState::AccountTokens => self.token_account_removed(metadata),
            DerivedState::TokenSecret | DerivedState::None => {}
        }
        Ok(())
    }

    /// Allocates the addresses and ports that a service asks for. The write holds them until it
    /// ends.
    fn allocate(
        &self,
        write: &mut Write,
        live: Option<&Value>,
        service: &mut Value,
    ) -> Result<(), StatusError> {
        let mut claims = self.0.allocator.claim(write.dry_run);
        let allocated = service::allocate(service, live, &mut claims);
        write.claims = Some(claims);
        allocated.map_err(|refusal| match refusal {
            service::ServiceAllocationError::Invalid(faults) => {
                StatusError::invalid("", "Service", meta(service, "name"), &faults)
            }
            service::ServiceAllocationError::Internal(words) => StatusError::internal(&words),
            service::ServiceAllocationError::Failure(words) => StatusError::failure(words),
        })
    }
}

const SCHEDULING: &str = "scheduling.k8s.io";

/// Records the user who creates a CertificateSigningRequest: it is set by the server, not taken
/// from the request.
fn set_requester(object: &mut Value, caller: &Caller) {
    let Caller { name, uid, groups, extra } = caller;
    let spec = &mut object["spec"];
    spec["username"] = json!(name);
    spec["uid"] = json!(uid);
    spec["groups"] = json!(groups);
    spec["extra"] = json!(extra);
}

/// Checks whether an object may be deleted.
pub(crate) fn admit_delete(resource: &Resource, live: &Value) -> Result<(), StatusError> {
    let name = meta(live, "name");
    let ProtectedObjects { names, why } = resource.strategy.protected;
    if names.contains(&name) {
        return Err(StatusError::forbidden(&resource.group, &resource.plural, name, why));
    }
    Ok(())
}

/// Returns random characters that make a name unique.
fn random_suffix() -> String {
    crate::resource::names::generate("")
}
