//! What the server adds to single kinds before and after they are stored.

use std::net::Ipv4Addr;
use std::sync::Arc;

use gantry_kinds::admit;
use gantry_schema::Invalid;
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
    pub(crate) fn prepare_create(&self, write: &Write, object: &mut Value) -> Result<(), Refusal> {
        write.resource.prepare_new(object, &write.stamp());
        if write.resource.space == "services" {
            self.allocate(object, None, write.dry_run)?;
        }
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
        write: &Write,
        live: &Value,
        new: &mut Value,
    ) -> Result<(), Refusal> {
        write.resource.prepare_change(new, live, write.part, &write.stamp());
        if write.resource.space == "services" {
            self.allocate(new, Some(live), write.dry_run)?;
        }
        if write.resource.space == definitions::SPACE && write.part == Part::Whole {
            gantry_schema::prepare_definition(new, Some(live));
        }
        Ok(())
    }

    /// Takes back what a new object got, since it is not stored.
    pub(crate) fn forget_create(&self, write: &Write, object: &Value) {
        if write.resource.space == "services" && !write.dry_run {
            self.0.addresses.release(&addresses(object), &ports(object));
        }
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
        if write.resource.space == "services" {
            let kept = (addresses(new), ports(new));
            let gone: Vec<Ipv4Addr> =
                addresses(live).into_iter().filter(|it| !kept.0.contains(it)).collect();
            let closed: Vec<u16> =
                ports(live).into_iter().filter(|it| !kept.1.contains(it)).collect();
            self.0.addresses.release(&gone, &closed);
        }
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
        if resource.space == "services" {
            let object = resource.tree(entry);
            self.0.addresses.release(&addresses(&object), &ports(&object));
        }
        if resource.space == definitions::SPACE {
            self.0.definitions.refresh(self);
        }
    }

    /// Gives a service the addresses and ports it asks for.
    fn allocate(
        &self,
        service: &mut Value,
        live: Option<&Value>,
        dry_run: bool,
    ) -> Result<(), Refusal> {
        let had = live.map(addresses).unwrap_or_default();
        let kind = service["spec"]["type"].as_str().unwrap_or_default().to_owned();
        let asked = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        if kind != "ExternalName" && asked != "None" {
            match asked.parse::<Ipv4Addr>() {
                Ok(address) if had.contains(&address) => {}
                Ok(address) => {
                    if !dry_run && !self.0.addresses.take(address) {
                        let why = "failed to allocate IP: provided IP is already allocated or not \
                                   in the valid range";
                        return Err(no_address(service, &asked, why));
                    }
                }
                Err(_) => {
                    let address = if dry_run {
                        self.0.addresses.server()
                    } else {
                        self.0.addresses.any().ok_or_else(|| {
                            Refusal::internal("failed to allocate a serviceIP: range is full")
                        })?
                    };
                    service["spec"]["clusterIP"] = json!(address.to_string());
                }
            }
            service["spec"]["clusterIPs"] = json!([service["spec"]["clusterIP"]]);
        }
        if !matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            return Ok(());
        }
        let had = live.map(ports).unwrap_or_default();
        let mut list = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        for (place, port) in list.iter_mut().enumerate() {
            let asked =
                port["nodePort"].as_u64().and_then(|it| u16::try_from(it).ok()).unwrap_or(0);
            if asked == 0 {
                let given = if dry_run { Some(30000) } else { self.0.addresses.any_port() };
                let given = given.ok_or_else(|| Refusal::internal("no free node port"))?;
                port["nodePort"] = json!(given);
            } else if !had.contains(&asked) && !dry_run && !self.0.addresses.take_port(asked) {
                let field = format!("spec.ports[{place}].nodePort");
                let fault =
                    Invalid::value(field, &json!(asked), "provided port is already allocated");
                return Err(Refusal::invalid("", "Service", meta(service, "name"), &[fault]));
            }
        }
        service["spec"]["ports"] = Value::Array(list);
        Ok(())
    }

    /// Remembers what stored services have, when the server starts.
    pub(crate) fn remember_addresses(&self) {
        let Some(services) = resource(self, "", "v1", "services") else { return };
        for entry in self.0.store.space(&services.space).iter() {
            let service = services.tree(entry);
            for address in addresses(&service) {
                self.0.addresses.take(address);
            }
            for port in ports(&service) {
                self.0.addresses.take_port(port);
            }
        }
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

fn no_address(service: &Value, asked: &str, why: &str) -> Refusal {
    let fault = Invalid::value("spec.clusterIPs", &json!([asked]), why);
    Refusal::invalid("", "Service", meta(service, "name"), &[fault])
}

fn addresses(service: &Value) -> Vec<Ipv4Addr> {
    let list = service["spec"]["clusterIPs"].as_array().into_iter().flatten();
    list.filter_map(|it| it.as_str()?.parse().ok()).collect()
}

fn ports(service: &Value) -> Vec<u16> {
    let list = service["spec"]["ports"].as_array().into_iter().flatten();
    list.filter_map(|it| it["nodePort"].as_u64())
        .filter_map(|it| u16::try_from(it).ok())
        .filter(|it| *it > 0)
        .collect()
}

/// Letters that make a name unique.
fn suffix() -> String {
    crate::names::generate("")
}
