//! The roles and bindings the server itself keeps: those every cluster starts with, and those that
//! are made of others.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use gantry_rbac::{Aggregation, Reconciled, Rule, bootstrap, reconcile_binding, reconcile_role};
use gantry_store::Expect;
use serde_json::{Value, json};

use crate::api::Api;
use crate::authority::GROUP;
use crate::bootstrap::StartError;
use crate::parts::resource;
use crate::query::FieldValidation;
use crate::resource::Resource;
use crate::rules::Part;
use crate::status::Refusal;
use crate::stored::Metadata;
use crate::write::{Changed, meta};
use crate::{change, decode, names};

/// Who owns the rules of roles that are made of others.
const AGGREGATOR: &str = "clusterrole-aggregation-controller";
/// Rounds of writing rules that others overtake. A lost round means that somebody else's write went
/// through, and theirs settles the roles too.
const ROUNDS: usize = 100;

/// Compares what is stored with what should be.
type Compare = fn(&Value, &Value) -> Reconciled;

impl Api {
    /// Makes the roles and bindings every cluster starts with, and adds to those that are there what
    /// they lack.
    pub(crate) async fn make_policy(&self) -> Result<(), StartError> {
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
                let stored = self.stored(&resource, namespace, name);
                let outcome = match stored.as_deref().map(|entry| resource.tree(entry)) {
                    None => Reconciled::Recreate,
                    Some(stored) => compare(&stored, &expected),
                };
                match outcome {
                    Reconciled::Fine => {}
                    Reconciled::Protected => {
                        tracing::warn!(what, "lacks what it should have, and asks to be left so");
                    }
                    Reconciled::Update(_) => {
                        let mut write =
                            self.own_write(&resource, &Metadata::of(&expected), Part::Whole);
                        let changed = self.modify(&mut write, |_, write, live| {
                            let mut object = match compare(live, &expected) {
                                Reconciled::Update(object) => object,
                                Reconciled::Fine | Reconciled::Protected | Reconciled::Recreate => {
                                    live.clone()
                                }
                            };
                            write.resource.own(write, Some(live), &mut object);
                            Ok(Changed::to(object))
                        });
                        changed.await.map_err(failed)?;
                    }
                    Reconciled::Recreate => {
                        if let Some(entry) = stored {
                            let expect = Expect::Revision(entry.revision);
                            let key = resource.key(namespace, name);
                            let last = resource.to_storage(&resource.tree(&entry));
                            let removed = self.remove(&resource, key, expect, &last);
                            removed.await.map_err(failed)?;
                        }
                        let object = self.prepared(&resource, expected).map_err(failed)?;
                        new.push((what, Arc::clone(&resource), object));
                    }
                }
            }
        }
        // At once, so that the disk is waited for once.
        let writes = new.into_iter().map(|(what, resource, object)| async move {
            let key = resource.key(meta(&object, "namespace"), meta(&object, "name"));
            let stored = resource.to_storage(&object);
            let made = self.put(&resource, key, Expect::Absent, &stored).await;
            made.map_err(|refusal| StartError { what, refusal })
        });
        for made in together(writes).await {
            made?;
        }
        let what = "the rules of roles that are made of others".to_owned();
        self.aggregate_roles().await.map_err(|refusal| StartError { what, refusal })
    }

    /// A new object of the server's own, ready to be stored.
    fn prepared(&self, resource: &Arc<Resource>, object: Value) -> Result<Value, Refusal> {
        let none = decode::Duplicates::default();
        let mut object = decode::object(resource, object, &none, FieldValidation::Ignore)?.object;
        let write = self.own_write(resource, &Metadata::of(&object), Part::Whole);
        object["metadata"]["uid"] = json!(names::uid());
        object["metadata"]["creationTimestamp"] = json!(write.stamp());
        resource.own(&write, None, &mut object);
        resource.normal(object)
    }

    /// Gives every ClusterRole that is made of others the rules of those others.
    ///
    /// Whoever writes a ClusterRole waits for this, and so sees what it gives at once.
    pub(crate) async fn aggregate_roles(&self) -> Result<(), Refusal> {
        let Some(resource) = resource(self, GROUP, "v1", "clusterroles") else { return Ok(()) };
        for _ in 0..ROUNDS {
            let wanted = self.0.authority.aggregation(&self.0.store, Aggregation::settle);
            if wanted.is_empty() {
                return Ok(());
            }
            for (name, rules) in wanted {
                self.set_rules(&resource, &name, &rules).await?;
            }
        }
        tracing::warn!("roles that are made of others do not settle");
        Ok(())
    }

    /// Writes the rules of one role that is made of others, unless someone was in between.
    async fn set_rules(
        &self,
        resource: &Arc<Resource>,
        name: &str,
        rules: &[Rule],
    ) -> Result<(), Refusal> {
        let Some(entry) = self.stored(resource, "", name) else { return Ok(()) };
        let live = resource.tree(&entry);
        let mut config = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind,
            "metadata": { "name": name },
        });
        if !rules.is_empty() {
            config["rules"] = rules.iter().map(Rule::to_value).collect();
        }
        let metadata = Metadata { name: name.to_owned(), ..Metadata::default() };
        let mut write = self.own_write(resource, &metadata, Part::Whole);
        AGGREGATOR.clone_into(&mut write.manager);
        let object = change::owned_by_apply(&write, Some(&live), &config, true)?;
        let stored = resource.to_storage(&resource.normal(object)?);
        let expect = Expect::Revision(entry.revision);
        self.put(resource, name.to_owned(), expect, &stored).await.map(|_| ())
    }
}

/// Drives futures side by side, and returns what became of them in their order.
async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
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
