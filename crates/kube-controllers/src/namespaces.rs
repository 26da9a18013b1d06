//! The objects every namespace has from the start: a default service account, and the CA
//! certificates of the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Change, Controller, Key, Kind, Plan, Subresource, View, World, Write};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::view::{ConfigMap, Namespace, ServiceAccount};

/// The service account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// Keeps a service account `default` in every active namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceAccountController;

impl ServiceAccountController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "service-account-controller";
}

impl Controller for ServiceAccountController {
    fn name(&self) -> &'static str {
        "service-account"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Namespace>(), Kind::of::<ServiceAccount>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        affected_namespaces::<ServiceAccount>(change, DEFAULT_ACCOUNT)
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let account = Key::new(key.name(), DEFAULT_ACCOUNT);
        plan_account(&ObservedServiceAccount {
            namespace: world.store::<Namespace>().get(key),
            account: world.store::<ServiceAccount>().get(&account),
        })
    }
}

/// The inputs of the decision about the account of one namespace.
#[derive(Clone, Debug, Default)]
pub struct ObservedServiceAccount {
    /// The namespace.
    pub namespace: Option<Arc<Namespace>>,
    /// Its account `default`.
    pub account: Option<Arc<ServiceAccount>>,
}

/// Creates the service account where it is missing.
#[must_use]
pub fn plan_account(observed: &ObservedServiceAccount) -> Plan {
    let mut plan = Plan::default();
    if let Some(namespace) = observed.namespace.as_ref().filter(|it| it.is_active())
        && observed.account.is_none()
    {
        let body = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": DEFAULT_ACCOUNT, "namespace": namespace.metadata.name},
        });
        plan.write(Write::Create { resource: ServiceAccount::RESOURCE, body });
    }
    plan
}

/// Keeps the CA certificates of the API server in every active namespace.
#[derive(Clone, Debug)]
pub struct RootCaCertPublisher {
    certificates: String,
}

impl RootCaCertPublisher {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "root-ca-cert-publisher";

    /// Creates a publisher of these certificates, in PEM.
    #[must_use]
    pub fn new(certificates: String) -> Self {
        Self { certificates }
    }
}

impl Controller for RootCaCertPublisher {
    fn name(&self) -> &'static str {
        "root-certificates"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Namespace>(), Kind::of::<ConfigMap>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        affected_namespaces::<ConfigMap>(change, ConfigMap::ROOT_CA_CONFIG_MAP)
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let published = Key::new(key.name(), ConfigMap::ROOT_CA_CONFIG_MAP);
        plan_certificates(&ObservedRootCertificates {
            namespace: world.store::<Namespace>().get(key),
            published: world.store::<ConfigMap>().get(&published),
            certificates: &self.certificates,
        })
    }
}

/// The inputs of the decision about the certificates in one namespace.
#[derive(Clone, Debug)]
pub struct ObservedRootCertificates<'a> {
    /// The namespace.
    pub namespace: Option<Arc<Namespace>>,
    /// The published ConfigMap.
    pub published: Option<Arc<ConfigMap>>,
    /// The certificates to publish.
    pub certificates: &'a str,
}

/// Publishes the certificates, and reverts changes to them.
#[must_use]
pub fn plan_certificates(observed: &ObservedRootCertificates<'_>) -> Plan {
    const PURPOSE: &str = "kubernetes.io/description";
    const WORDS: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when \
                         using internal endpoints such as the internal service IP or \
                         kubernetes.default.svc. No other usage is guaranteed across distributions \
                         of Kubernetes clusters.";
    const FILE: &str = "ca.crt";
    let mut plan = Plan::default();
    let Some(namespace) = observed.namespace.as_ref().filter(|it| it.is_active()) else {
        return plan;
    };
    let Some(published) = &observed.published else {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": ConfigMap::ROOT_CA_CONFIG_MAP, "namespace": namespace.metadata.name,
                "annotations": {PURPOSE: WORDS},
            },
            "data": {FILE: observed.certificates},
        });
        plan.write(Write::Create { resource: ConfigMap::RESOURCE, body });
        return plan;
    };
    let wanted = BTreeMap::from([(FILE.to_owned(), observed.certificates.to_owned())]);
    let explained = published.metadata.annotations.get(PURPOSE).is_some_and(|it| !it.is_empty());
    if published.data != wanted || !explained {
        let mut data: Map<String, Value> =
            published.data.keys().map(|key| (key.clone(), Value::Null)).collect();
        data.insert(FILE.to_owned(), json!(observed.certificates));
        plan.write(Write::Merge {
            resource: ConfigMap::RESOURCE,
            key: published.metadata.key(),
            subresource: Subresource::Main,
            fence: published.metadata.fence(),
            body: json!({"metadata": {"annotations": {PURPOSE: WORDS}}, "data": data}),
        });
    }
    plan
}

/// Returns the namespace to reconcile when it, or the one object of this name in it, changes.
fn affected_namespaces<V: View>(change: &Change, name: &str) -> Vec<Key> {
    if change.is::<Namespace>() {
        return vec![change.key.clone()];
    }
    let concerned = change.is::<V>() && change.key.name() == name;
    concerned.then(|| Key::cluster(change.key.namespace())).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use gantry_harness::{
        CONFLICTED_PREFIX, Faults, REFUSED_PREFIX, Scenario, Server, UNREADABLE_PREFIX, UserAction,
        prove_worlds,
    };
    use gantry_reconcile::Propagation;

    use super::*;
    use crate::test_world::assert_proof;

    fn namespace(phase: &str) -> Option<Arc<Namespace>> {
        let text = json!({"metadata": {"name": "n"}, "status": {"phase": phase}});
        Some(Arc::new(serde_json::from_value(text).unwrap()))
    }

    fn published(data: &Value, purpose: &str) -> Option<Arc<ConfigMap>> {
        let text = json!({
            "metadata": {
                "name": "kube-root-ca.crt", "namespace": "n", "uid": "u", "resourceVersion": "4",
                "annotations": {"kubernetes.io/description": purpose},
            },
            "data": data,
        });
        Some(Arc::new(serde_json::from_value(text).unwrap()))
    }

    fn verbs(plan: &Plan) -> Vec<&'static str> {
        plan.steps.iter().map(|step| step.write.verb()).collect()
    }

    #[test]
    fn active_namespaces_have_an_account() {
        let account = Some(Arc::new(ServiceAccount::default()));
        let table = [
            ("a new namespace gets one", namespace("Active"), None, vec!["create"]),
            ("one is enough", namespace("Active"), account, vec![]),
            ("not a terminating one", namespace("Terminating"), None, vec![]),
            ("nor a deleted one", None, None, vec![]),
        ];
        for (why, namespace, account, expected) in table {
            assert_eq!(
                verbs(&plan_account(&ObservedServiceAccount { namespace, account })),
                expected,
                "{why}"
            );
        }
    }

    #[test]
    fn certificates_are_published_and_repaired() {
        let right = json!({"ca.crt": "PEM"});
        let table = [
            ("made", namespace("Active"), None, vec!["create"]),
            ("right already", namespace("Active"), published(&right, "why"), vec![]),
            ("changed", namespace("Active"), published(&json!({"ca.crt": ""}), "x"), vec!["patch"]),
            (
                "added to",
                namespace("Active"),
                published(&json!({"ca.crt": "PEM", "more": ""}), "x"),
                vec!["patch"],
            ),
            ("emptied", namespace("Active"), published(&Value::Null, "x"), vec!["patch"]),
            ("not explained", namespace("Active"), published(&right, ""), vec!["patch"]),
            ("going", namespace("Terminating"), None, vec![]),
        ];
        for (why, namespace, published, expected) in table {
            let observed = ObservedRootCertificates { namespace, published, certificates: "PEM" };
            assert_eq!(verbs(&plan_certificates(&observed)), expected, "{why}");
        }
    }

    #[test]
    fn unexpected_keys_are_removed() {
        let observed = ObservedRootCertificates {
            namespace: namespace("Active"),
            published: published(&json!({"more": "x", "ca.crt": "old"}), "x"),
            certificates: "PEM",
        };
        let plan = plan_certificates(&observed);
        let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("a merge") };
        assert_eq!(body["data"], json!({"ca.crt": "PEM", "more": null}));
    }

    #[test]
    fn namespaces_converge() {
        let publisher = RootCaCertPublisher::new("PEM".to_owned());
        let controllers: [&dyn Controller; 2] = [&ServiceAccountController, &publisher];
        let make = |name: &str| (Namespace::RESOURCE, json!({"metadata": {"name": name}}));
        let spoil: UserAction = Box::new(|server: &mut Server| {
            server.delete(
                &ServiceAccount::RESOURCE,
                &Key::new("a", "default"),
                Propagation::Orphan,
            );
            let key = Key::new("b", ConfigMap::ROOT_CA_CONFIG_MAP);
            server.edit(&ConfigMap::RESOURCE, &key, |map| map["data"]["ca.crt"] = json!("x"));
        });
        let end: UserAction = Box::new(|server: &mut Server| {
            server.edit(&Namespace::RESOURCE, &Key::cluster("c"), |it| {
                it["status"]["phase"] = json!("Terminating");
            });
        });
        let scenario = Scenario {
            controllers: &controllers,
            defaults: |resource, object| {
                let odd =
                    object["metadata"]["name"].as_str().unwrap().starts_with(UNREADABLE_PREFIX);
                if *resource == Namespace::RESOURCE && object["status"].is_null() {
                    object["status"] = if odd { json!(5) } else { json!({"phase": "Active"}) };
                }
            },
            objects: vec![make("a"), make("b"), make("c")],
            script: vec![spoil, end],
            replicas: 2,
            horizon: std::time::Duration::from_secs(60),
            ..Scenario::default()
        };
        let shape = |server: &Server| {
            let of = |name: &str| {
                let map = server
                    .get(&ConfigMap::RESOURCE, &Key::new(name, ConfigMap::ROOT_CA_CONFIG_MAP));
                let account = server.get(&ServiceAccount::RESOURCE, &Key::new(name, "default"));
                json!([account.is_some(), map.map(|it| &it["data"])])
            };
            json!([of("a"), of("b")])
        };
        let calm = shape(&scenario.run(0, Faults::none()).unwrap().server);
        let whole = json!([true, {"ca.crt": "PEM"}]);
        assert_eq!(calm, json!([whole, whole]));
        assert_proof(scenario.prove(0..4, shape));
        let bad = [REFUSED_PREFIX, CONFLICTED_PREFIX, UNREADABLE_PREFIX].map(make);
        assert_proof(scenario.prove_isolation(&bad, 0..4, shape));
    }

    #[test]
    fn random_namespaces_converge() {
        let publisher = RootCaCertPublisher::new("PEM".to_owned());
        let controllers: [&dyn Controller; 2] = [&ServiceAccountController, &publisher];
        let world = |seed| {
            let rng = &mut fastrand::Rng::with_seed(seed);
            let names = ["a", "b", "c"];
            let there = &names[..rng.usize(..3)];
            let change = |rng: &mut fastrand::Rng| -> UserAction {
                let (name, what) = (names[rng.usize(..3)], rng.u32(..4));
                Box::new(move |server: &mut Server| match what {
                    0 => {
                        let body = json!({"metadata": {"name": name}});
                        server.create(&Namespace::RESOURCE, body);
                    }
                    1 => {
                        let key = Key::new(name, "default");
                        server.delete(&ServiceAccount::RESOURCE, &key, Propagation::Orphan);
                    }
                    2 => {
                        let key = Key::new(name, ConfigMap::ROOT_CA_CONFIG_MAP);
                        server.delete(&ConfigMap::RESOURCE, &key, Propagation::Orphan);
                    }
                    _ => {
                        let key = Key::new(name, ConfigMap::ROOT_CA_CONFIG_MAP);
                        server.edit(&ConfigMap::RESOURCE, &key, |it| it["data"] = json!({}));
                    }
                })
            };
            let made = |name: &&str| (Namespace::RESOURCE, json!({"metadata": {"name": name}}));
            Scenario {
                controllers: &controllers,
                defaults: |resource, object| {
                    if *resource == Namespace::RESOURCE && object["status"].is_null() {
                        object["status"] = json!({"phase": "Active"});
                    }
                },
                objects: there.iter().map(made).collect(),
                script: (0..rng.usize(..6)).map(|_| change(rng)).collect(),
                replicas: 1,
                horizon: std::time::Duration::from_secs(60),
                ..Scenario::default()
            }
        };
        let shape = |server: &Server| {
            let namespaces = server.list(&Namespace::RESOURCE).into_iter();
            let each = namespaces.map(|it| {
                let name = it["metadata"]["name"].as_str().unwrap();
                let map = Key::new(name, ConfigMap::ROOT_CA_CONFIG_MAP);
                let map = server.get(&ConfigMap::RESOURCE, &map).map(|it| &it["data"]);
                let account = server.get(&ServiceAccount::RESOURCE, &Key::new(name, "default"));
                json!([name, account.is_some(), map])
            });
            each.collect()
        };
        assert_proof(prove_worlds(0..20, world, shape));
    }

    #[test]
    fn other_config_maps_are_not_cached() {
        let text = json!({"metadata": {"name": "large"}, "data": {"a": "b"}});
        let map: ConfigMap = serde_json::from_value(text).unwrap();
        assert!(map.data.is_empty());
    }
}
