//! The start of a server: what it serves, and the objects that are always there.

use std::sync::Arc;

use arc_swap::ArcSwap;
use gantry_process::tasks::{OnLoss, Tasks};
use serde_json::{Value, json};

use crate::access::Caller;
use crate::addresses::Allocator;
use crate::api::{Api, Inner, Settings, Shelf};
use crate::authority::Authority;
use crate::collect::Collector;
use crate::definitions::Definitions;
use crate::hooks::PERMANENT;
use crate::janitor::Janitor;
use crate::parts::resource;
use crate::resource::{Builtin, Nature, Resource, Subresource};
use crate::rules::Part;
use crate::status::Refusal;
use crate::write::{Ownership, Write};

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[error("could not create {what}: {}", refusal.message)]
pub struct StartError {
    pub(crate) what: String,
    pub(crate) refusal: Refusal,
}

impl Api {
    /// Starts a server on a store. Its own tasks belong to `tasks`.
    ///
    /// # Errors
    /// If an object that must always be there cannot be stored.
    pub async fn start(
        store: Shelf,
        settings: Settings,
        tasks: &mut Tasks,
    ) -> Result<Self, StartError> {
        let definitions = Definitions::new(builtin());
        let registry = ArcSwap::from_pointee(definitions.base());
        let services = Arc::new(crate::services::Services::of(&store));
        let clock = tasks.clock().clone();
        let agent = "kube-apiserver-admission";
        let (network, bits) = settings.service_network;
        let api = Self(Arc::new(Inner {
            admission_webhooks: crate::webhooks::Webhooks::default(),
            webhooks: gantry_webhook::Client::new(clock, services, agent),
            allocator: Allocator::new(network, bits, store.clone()),
            store,
            registry,
            definitions,
            collector: Collector::default(),
            janitor: Janitor::default(),
            clock: tasks.clock().clone(),
            stop: tasks.token().clone(),
            authority: Authority::new(settings.authorization.clone()),
            settings,
            policies: crate::policies::Policies::default(),
            quotas: Arc::default(),
            token_secrets: crate::tokens::secrets::TokenSecrets::default(),
            openapi: gantry_openapi::Documents::new(),
            sessions: Arc::new(tokio::sync::Semaphore::new(crate::streams::SESSIONS)),
            forwarded: Arc::new(tokio::sync::Semaphore::new(crate::streams::CONNECTIONS)),
            pages: crate::pages::Pages::default(),
            aggregations: crate::discovery::aggregation::Aggregations::default(),
            listens: std::sync::OnceLock::new(),
        }));
        api.warn_of_refused_strangers();
        api.0.definitions.refresh(&api);
        api.0.policies.refresh(&api);
        api.0.admission_webhooks.refresh(&api);
        api.make_permanent_objects().await?;
        api.make_policy().await?;
        let collector = api.clone();
        tasks.spawn("garbage collector", OnLoss::EndOwner, |stop| async move {
            collector.collect(stop).await;
            Ok(())
        });
        let keeper = api.clone();
        tasks.spawn("quota keeper", OnLoss::EndOwner, |stop| async move {
            keeper.keep_quotas(stop).await;
            Ok(())
        });
        if api.0.settings.token_secrets {
            let keeper = api.clone();
            tasks.spawn("token controller", OnLoss::EndOwner, |stop| async move {
                keeper.keep_token_secrets(stop).await;
                Ok(())
            });
        }
        let janitor = api.clone();
        tasks.spawn("janitor", OnLoss::EndOwner, |stop| async move {
            janitor.tidy(stop).await;
            Ok(())
        });
        Ok(api)
    }

    async fn make_permanent_objects(&self) -> Result<(), StartError> {
        for name in PERMANENT {
            self.make("", "namespaces", "", json!({ "metadata": { "name": name } })).await?;
        }
        let classes = [
            (
                "system-cluster-critical",
                2_000_000_000,
                "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
            ),
            (
                "system-node-critical",
                2_000_001_000,
                "Used for system critical pods that must not be moved from their current node.",
            ),
        ];
        for (name, value, description) in classes {
            let class = json!({
                "metadata": { "name": name }, "value": value, "description": description,
            });
            self.make("scheduling.k8s.io", "priorityclasses", "", class).await?;
        }
        let server = self.0.allocator.server();
        let port = self.0.settings.address.rsplit(':').next().and_then(|it| it.parse::<u16>().ok());
        let service = json!({
            "metadata": {
                "name": "kubernetes",
                "labels": { "component": "apiserver", "provider": "kubernetes" },
            },
            "spec": {
                "type": "ClusterIP", "clusterIP": server.to_string(),
                "ports": [{
                    "name": "https", "port": 443, "protocol": "TCP",
                    "targetPort": port.unwrap_or(6443),
                }],
            },
        });
        self.make("", "services", "default", service).await?;
        let authentication = json!({
            "metadata": { "name": "extension-apiserver-authentication" },
            "data": { "client-ca-file": self.0.settings.client_authority },
        });
        self.make("", "configmaps", "kube-system", authentication).await
    }

    /// Makes an object unless it is there.
    async fn make(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        object: Value,
    ) -> Result<(), StartError> {
        let Some(resource) = resource(self, group, "v1", plural) else { return Ok(()) };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if self.stored(&resource, namespace, &name).is_some() {
            return Ok(());
        }
        let mut write = Write {
            resource: Arc::clone(&resource),
            namespace: namespace.to_owned(),
            name: name.clone(),
            part: Part::Whole,
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
        };
        let made = async {
            let decoded = crate::decode::object(
                &resource,
                object,
                &crate::decode::Duplicates::default(),
                crate::query::FieldValidation::Ignore,
            )?;
            self.insert(&mut write, decoded.object).await
        };
        match made.await {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.reason == "AlreadyExists" => Ok(()),
            Err(refusal) => Err(StartError { what: format!("{plural} {name}"), refusal }),
        }
    }
}

/// The resources of Kubernetes itself.
fn builtin() -> Vec<Arc<Resource>> {
    let groups = gantry_builtin::groups().iter();
    let resources = groups.flat_map(|group| &group.versions).flat_map(|it| &it.resources);
    resources.map(|known| Arc::new(described(known))).collect()
}

fn described(known: &gantry_builtin::Resource) -> Resource {
    let (stored_group, stored_version) = known.stored_as;
    let own = (known.group, known.version) == known.stored_as;
    let api_version = crate::resource::group_version(known.group, known.version);
    let empty = json!({ "kind": known.kind, "apiVersion": api_version });
    let empty = gantry_builtin::read(known.type_id, empty).map(|read| read.value);
    Resource {
        group: known.group.to_owned(),
        version: known.version.to_owned(),
        plural: known.plural.clone(),
        singular: known.singular.clone(),
        kind: known.kind.clone(),
        list_kind: known.list_kind.clone(),
        namespaced: known.namespaced,
        short_names: known.short_names.clone(),
        categories: known.categories.clone(),
        verbs: known.verbs.clone(),
        subresources: known
            .subresources
            .iter()
            .map(|part| Subresource {
                name: part.name.clone(),
                group: part.group.clone(),
                version: part.version.clone(),
                kind: part.kind.clone(),
                verbs: part.verbs.clone(),
            })
            .collect(),
        storage_version_hash: known.storage_version_hash.clone().unwrap_or_default(),
        space: crate::status::qualified(stored_group, &known.plural),
        nature: Nature::Builtin(Builtin {
            type_id: known.type_id,
            behaviour: gantry_kinds::behaviour(known.group, &known.plural),
            empty: empty.unwrap_or_default(),
            stored_as: (!own).then_some((stored_group, stored_version)),
        }),
    }
}
