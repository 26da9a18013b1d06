//! Starts a server: its resources, and the objects that always exist.

use std::sync::Arc;

use arc_swap::ArcSwap;
use gantry_process::tasks::{OnLoss, Tasks};
use serde_json::{Value, json};

use crate::access::Caller;
use crate::access::authorizer::Authorizer;
use crate::admission::lifecycle_hooks::SYSTEM_NAMESPACES;
use crate::api::{Api, Inner, ObjectStore, Settings};
use crate::controllers::garbage_collector::OwnershipGraph;
use crate::controllers::termination_controller::TerminationController;
use crate::resource::definitions::Definitions;
use crate::resource::rules::WrittenSubresource;
use crate::resource::strategy::strategy;
use crate::resource::{Builtin, KindSource, Resource, Subresource};
use crate::response::status::StatusError;
use crate::services::service_allocator::ServiceAllocator;
use crate::verbs::subresources::resource;
use crate::verbs::write::{Ownership, Write};

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[error("could not create {what}: {}", refusal.message)]
pub struct StartError {
    pub(crate) what: String,
    pub(crate) refusal: StatusError,
}

impl Api {
    /// Starts a server on a store. Its background tasks belong to `tasks`.
    ///
    /// # Errors
    /// An object that must always exist cannot be stored.
    pub async fn start(
        store: ObjectStore,
        settings: Settings,
        tasks: &mut Tasks,
    ) -> Result<Self, StartError> {
        let definitions = Definitions::new(builtin_resources());
        let registry = ArcSwap::from_pointee(definitions.builtin_registry());
        let services = Arc::new(crate::services::StoreServiceResolver::of(&store));
        let clock = tasks.clock().clone();
        let agent = "kube-apiserver-admission";
        let (network, bits) = settings.service_network;
        let api = Self(Arc::new(Inner {
            admission_webhooks: crate::admission::webhooks::Webhooks::default(),
            webhooks: gantry_webhook::Client::new(clock, services, agent),
            allocator: ServiceAllocator::new(network, bits, store.clone()),
            store,
            registry,
            definitions,
            garbage_collector: OwnershipGraph::default(),
            termination_controller: TerminationController::default(),
            clock: tasks.clock().clone(),
            stop: tasks.token().clone(),
            authorizer: Authorizer::new(settings.authorization.clone()),
            settings,
            policies: crate::admission::policies::Policies::default(),
            quotas: Arc::default(),
            token_secrets: crate::tokens::secrets::TokenSecrets::default(),
            openapi: gantry_openapi::Documents::new(),
            session_permits: Arc::new(tokio::sync::Semaphore::new(crate::streams::MAX_SESSIONS)),
            forward_permits: Arc::new(tokio::sync::Semaphore::new(crate::streams::MAX_CONNECTIONS)),
            non_resource_pages: crate::discovery::non_resource_pages::NonResourcePages::default(),
            aggregated_apis: crate::discovery::aggregation::AggregatedApis::default(),
            listen_address: std::sync::OnceLock::new(),
        }));
        api.warn_if_anonymous_denied();
        api.0.definitions.refresh(&api);
        api.0.policies.refresh(&api);
        api.0.admission_webhooks.refresh(&api);
        api.create_system_objects().await?;
        api.reconcile_bootstrap_policy().await?;
        let collector = api.clone();
        tasks.spawn("garbage collector", OnLoss::EndOwner, |stop| async move {
            collector.run_garbage_collector(stop).await;
            Ok(())
        });
        let quota = api.clone();
        tasks.spawn("quota controller", OnLoss::EndOwner, |stop| async move {
            quota.run_quota_controller(stop).await;
            Ok(())
        });
        if api.0.settings.token_secrets {
            let tokens = api.clone();
            tasks.spawn("token controller", OnLoss::EndOwner, |stop| async move {
                tokens.run_token_controller(stop).await;
                Ok(())
            });
        }
        let termination = api.clone();
        tasks.spawn("termination controller", OnLoss::EndOwner, |stop| async move {
            termination.run_termination_controller(stop).await;
            Ok(())
        });
        Ok(api)
    }

    async fn create_system_objects(&self) -> Result<(), StartError> {
        for name in SYSTEM_NAMESPACES {
            self.create_if_absent("", "namespaces", "", json!({ "metadata": { "name": name } }))
                .await?;
        }
        let classes = [
            (
                "system-cluster-critical",
                2_000_000_000,
                "Used for system critical pods that must run in the cluster, but can be moved to \
                 another node if necessary.",
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
            self.create_if_absent("scheduling.k8s.io", "priorityclasses", "", class).await?;
        }
        let server = self.0.allocator.server_address();
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
        self.create_if_absent("", "services", "default", service).await?;
        let authentication = json!({
            "metadata": { "name": "extension-apiserver-authentication" },
            "data": { "client-ca-file": self.0.settings.client_ca },
        });
        self.create_if_absent("", "configmaps", "kube-system", authentication).await
    }

    /// Creates an object unless it exists.
    async fn create_if_absent(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        object: Value,
    ) -> Result<(), StartError> {
        let Some(resource) = resource(self, group, "v1", plural) else { return Ok(()) };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if self.stored_entry(&resource, namespace, &name).is_some() {
            return Ok(());
        }
        let mut write = Write {
            resource: Arc::clone(&resource),
            namespace: namespace.to_owned(),
            name: name.clone(),
            subresource: WrittenSubresource::Main,
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
        };
        let made = async {
            let decoded = crate::request::decode::object(
                &resource,
                object,
                &crate::request::decode::Duplicates::default(),
                crate::request::query::FieldValidation::Ignore,
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

/// Returns the built-in resources of Kubernetes.
pub(crate) fn builtin_resources() -> Vec<Arc<Resource>> {
    let groups = gantry_builtin::groups().iter();
    let resources = groups.flat_map(|group| &group.versions).flat_map(|it| &it.resources);
    resources.map(|known| Arc::new(describe_builtin(known))).collect()
}

fn describe_builtin(known: &gantry_builtin::Resource) -> Resource {
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
        space: crate::response::status::qualified(stored_group, &known.plural),
        strategy: strategy(known.group, &known.plural),
        source: KindSource::Builtin(Builtin {
            type_id: known.type_id,
            behaviour: gantry_kinds::behaviour(known.group, &known.plural),
            empty: empty.unwrap_or_default(),
            stored_as: (!own).then_some((stored_group, stored_version)),
        }),
    }
}
