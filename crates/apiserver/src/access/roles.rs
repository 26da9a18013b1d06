//! The roles and bindings that the server itself maintains: the bootstrap policy and aggregated
//! ClusterRoles.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use gantry_rbac::{Aggregation, Reconciled, Rule, bootstrap, reconcile_binding, reconcile_role};
use gantry_store::Precondition;
use serde_json::{Value, json};

use crate::access::authorizer::GROUP;
use crate::api::Api;
use crate::bootstrap::StartError;
use crate::request::query::FieldValidation;
use crate::resource::Resource;
use crate::resource::rules::WrittenSubresource;
use crate::resource::stored::Metadata;
use crate::response::status::StatusError;
use crate::verbs::subresources::resource;
use crate::verbs::write::{ModifiedObject, meta};
use crate::{request::decode, resource::names, verbs::change};

/// The field manager of the rules of aggregated roles.
const AGGREGATOR: &str = "clusterrole-aggregation-controller";
/// Rounds of writing rules with conflicts. A conflict means that another write succeeded, and that
/// one updates the roles too.
const MAX_AGGREGATION_ROUNDS: usize = 100;

/// A function that compares a stored object with the expected one.
type Compare = fn(&Value, &Value) -> Reconciled;

impl Api {
    /// Creates the roles and bindings every cluster starts with, and adds what existing ones lack.
    pub(crate) async fn reconcile_bootstrap_policy(&self) -> Result<(), StartError> {
        let all = bootstrap();
        let kinds: [(&str, Vec<Value>, Compare); 4] = [
            ("clusterroles", all.cluster_roles, reconcile_role),
            ("clusterrolebindings", all.cluster_role_bindings, reconcile_binding),
            ("roles", all.roles, reconcile_role),
            ("rolebindings", all.role_bindings, reconcile_binding),
        ];
        let mut new = Vec::new();
        for (plural, objects, compare) in kinds {
            let Some(resource) = resource(self, GROUP, "v1", plural) else { continue };
            for expected in objects {
                let (namespace, name) = (meta(&expected, "namespace"), meta(&expected, "name"));
                let what = format!("{plural} {name}");
                let failed = |refusal| StartError { what: what.clone(), refusal };
                let stored = self.stored_entry(&resource, namespace, name);
                let outcome = match stored.as_deref().map(|entry| resource.tree(entry)) {
                    None => Reconciled::Recreate,
                    Some(stored) => compare(&stored, &expected),
                };
                match outcome {
                    Reconciled::UpToDate => {}
                    Reconciled::Protected => {
                        tracing::warn!(what, "is out of date, and its annotation disables updates");
                    }
                    Reconciled::Update(_) => {
                        let mut write = self.server_write(
                            &resource,
                            &Metadata::of(&expected),
                            WrittenSubresource::Main,
                        );
                        let changed = self.modify(&mut write, |_, write, live| {
                            let mut object = match compare(live, &expected) {
                                Reconciled::Update(object) => object,
                                Reconciled::UpToDate
                                | Reconciled::Protected
                                | Reconciled::Recreate => live.clone(),
                            };
                            write.resource.update_managed_fields(write, Some(live), &mut object);
                            Ok(ModifiedObject::new(object))
                        });
                        changed.await.map_err(failed)?;
                    }
                    Reconciled::Recreate => {
                        if let Some(entry) = stored {
                            let expect = Precondition::Revision(entry.revision);
                            let key = resource.key(namespace, name);
                            let last = resource.to_storage(&resource.tree(&entry));
                            let removed = self.remove(&resource, key, expect, &last);
                            removed.await.map_err(failed)?;
                        }
                        let object = self.prepare_object(&resource, expected).map_err(failed)?;
                        new.push((what, Arc::clone(&resource), object));
                    }
                }
            }
        }
        // Concurrently, so that the disk is flushed once.
        let writes = new.into_iter().map(|(what, resource, object)| async move {
            let key = resource.key(meta(&object, "namespace"), meta(&object, "name"));
            let stored = resource.to_storage(&object);
            let made = self.put(&resource, key, Precondition::Absent, &stored).await;
            made.map_err(|refusal| StartError { what, refusal })
        });
        for made in join_all(writes).await {
            made?;
        }
        let what = "the rules of aggregated ClusterRoles".to_owned();
        self.aggregate_roles().await.map_err(|refusal| StartError { what, refusal })
    }

    /// Prepares a new object of the server's own for storage.
    fn prepare_object(
        &self,
        resource: &Arc<Resource>,
        object: Value,
    ) -> Result<Value, StatusError> {
        let none = decode::Duplicates::default();
        let mut object = decode::object(resource, object, &none, FieldValidation::Ignore)?.object;
        let write = self.server_write(resource, &Metadata::of(&object), WrittenSubresource::Main);
        object["metadata"]["uid"] = json!(names::uid());
        object["metadata"]["creationTimestamp"] = json!(write.timestamp());
        resource.update_managed_fields(&write, None, &mut object);
        resource.normalize(object)
    }

    /// Gives every aggregated ClusterRole the rules of the roles it selects.
    ///
    /// A write of a ClusterRole waits for this, so that its effect is visible when the write
    /// returns.
    pub(crate) async fn aggregate_roles(&self) -> Result<(), StatusError> {
        let Some(resource) = resource(self, GROUP, "v1", "clusterroles") else { return Ok(()) };
        for _ in 0..MAX_AGGREGATION_ROUNDS {
            let wanted =
                self.0.authorizer.with_aggregation(&self.0.store, Aggregation::outdated_rules);
            if wanted.is_empty() {
                return Ok(());
            }
            for (name, rules) in wanted {
                self.set_rules(&resource, &name, &rules).await?;
            }
        }
        tracing::warn!("aggregated ClusterRoles do not converge");
        Ok(())
    }

    /// Writes the rules of one aggregated role, unless there is a conflict.
    async fn set_rules(
        &self,
        resource: &Arc<Resource>,
        name: &str,
        rules: &[Rule],
    ) -> Result<(), StatusError> {
        let Some(entry) = self.stored_entry(resource, "", name) else { return Ok(()) };
        let live = resource.tree(&entry);
        let mut config = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind,
            "metadata": { "name": name },
        });
        if !rules.is_empty() {
            config["rules"] = rules.iter().map(Rule::to_value).collect();
        }
        let metadata = Metadata { name: name.to_owned(), ..Metadata::default() };
        let mut write = self.server_write(resource, &metadata, WrittenSubresource::Main);
        AGGREGATOR.clone_into(&mut write.manager);
        let object = change::owned_by_apply(&write, Some(&live), &config, true)?;
        let stored = resource.to_storage(&resource.normalize(object)?);
        let expect = Precondition::Revision(entry.revision);
        self.put(resource, name.to_owned(), expect, &stored).await.map(|_| ())
    }
}

/// Drives futures concurrently, and returns their results in order.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut ready = Poll::Ready(());
        for (future, result) in waiting.iter_mut().zip(&mut done) {
            if result.is_some() {
                continue;
            }
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *result = Some(value),
                Poll::Pending => ready = Poll::Pending,
            }
        }
        ready
    })
    .await;
    done.into_iter().flatten().collect()
}
