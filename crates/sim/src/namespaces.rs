//! What every namespace has from the start: an account for its pods, and the server's root
//! certificates.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Change, Controller, Key, Kind, Part, Plan, View, World, Write};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::view::{ConfigMap, Namespace, ServiceAccount};

/// The name of the account pods act as unless they say otherwise.
const DEFAULT: &str = "default";

/// Keeps a service account `default` in every active namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceAccounts;

impl ServiceAccounts {
    /// The account it acts as.
    pub const ACCOUNT: &str = "service-account-controller";
}

impl Controller for ServiceAccounts {
    fn name(&self) -> &'static str {
        "service-account"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Namespace>(), Kind::of::<ServiceAccount>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        woken::<ServiceAccount>(change, DEFAULT)
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let account = Key::new(key.name(), DEFAULT);
        plan_account(&AccountSeen {
            namespace: world.shelf::<Namespace>().get(key),
            account: world.shelf::<ServiceAccount>().get(&account),
        })
    }
}

/// What decides about the account of one namespace.
#[derive(Clone, Debug, Default)]
pub struct AccountSeen {
    /// The namespace.
    pub namespace: Option<Arc<Namespace>>,
    /// Its account `default`.
    pub account: Option<Arc<ServiceAccount>>,
}

/// Makes the account where it is missing.
#[must_use]
pub fn plan_account(seen: &AccountSeen) -> Plan {
    let mut plan = Plan::default();
    if let Some(namespace) = seen.namespace.as_ref().filter(|it| it.is_active())
        && seen.account.is_none()
    {
        let body = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": DEFAULT, "namespace": namespace.metadata.name},
        });
        plan.write(Write::Create { resource: ServiceAccount::RESOURCE, body });
    }
    plan
}

/// Keeps the certificates that the server's own is signed by in every active namespace.
#[derive(Clone, Debug)]
pub struct RootCertificates {
    certificates: String,
}

impl RootCertificates {
    /// The account it acts as.
    pub const ACCOUNT: &str = "root-ca-cert-publisher";

    /// Publishes these certificates, in PEM.
    #[must_use]
    pub fn new(certificates: String) -> Self {
        Self { certificates }
    }
}

impl Controller for RootCertificates {
    fn name(&self) -> &'static str {
        "root-certificates"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Namespace>(), Kind::of::<ConfigMap>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        woken::<ConfigMap>(change, ConfigMap::ROOT_CERTIFICATES)
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let published = Key::new(key.name(), ConfigMap::ROOT_CERTIFICATES);
        plan_certificates(&CertificatesSeen {
            namespace: world.shelf::<Namespace>().get(key),
            published: world.shelf::<ConfigMap>().get(&published),
            certificates: &self.certificates,
        })
    }
}

/// What decides about the certificates in one namespace.
#[derive(Clone, Debug)]
pub struct CertificatesSeen<'a> {
    /// The namespace.
    pub namespace: Option<Arc<Namespace>>,
    /// What is published in it.
    pub published: Option<Arc<ConfigMap>>,
    /// What should be.
    pub certificates: &'a str,
}

/// Publishes the certificates, and corrects what was changed.
#[must_use]
pub fn plan_certificates(seen: &CertificatesSeen<'_>) -> Plan {
    const PURPOSE: &str = "kubernetes.io/description";
    const WORDS: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when \
        using internal endpoints such as the internal service IP or kubernetes.default.svc. No other \
        usage is guaranteed across distributions of Kubernetes clusters.";
    const FILE: &str = "ca.crt";
    let mut plan = Plan::default();
    let Some(namespace) = seen.namespace.as_ref().filter(|it| it.is_active()) else { return plan };
    let Some(published) = &seen.published else {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": ConfigMap::ROOT_CERTIFICATES, "namespace": namespace.metadata.name,
                "annotations": {PURPOSE: WORDS},
            },
            "data": {FILE: seen.certificates},
        });
        plan.write(Write::Create { resource: ConfigMap::RESOURCE, body });
        return plan;
    };
    let wanted = BTreeMap::from([(FILE.to_owned(), seen.certificates.to_owned())]);
    let explained = published.metadata.annotations.get(PURPOSE).is_some_and(|it| !it.is_empty());
    if published.data != wanted || !explained {
        let mut data: Map<String, Value> =
            published.data.keys().map(|key| (key.clone(), Value::Null)).collect();
        data.insert(FILE.to_owned(), json!(seen.certificates));
        plan.write(Write::Merge {
            resource: ConfigMap::RESOURCE,
            key: published.metadata.key(),
            part: Part::Main,
            fence: published.metadata.fence(),
            body: json!({"metadata": {"annotations": {PURPOSE: WORDS}}, "data": data}),
        });
    }
    plan
}

/// The namespace that is concerned when it, or the one object in it of this name, changes.
fn woken<V: View>(change: &Change, name: &str) -> Vec<Key> {
    if change.is::<Namespace>() {
        return vec![change.key.clone()];
    }
    let concerned = change.is::<V>() && change.key.name() == name;
    concerned.then(|| Key::cluster(change.key.namespace())).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use gantry_harness::{
        Action, CONFLICTED, Faults, REFUSED, Scenario, Server, UNREADABLE, prove_worlds,
    };
    use gantry_reconcile::Propagation;

    use super::*;
    use crate::stand::proven;

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
            ("not one that goes", namespace("Terminating"), None, vec![]),
            ("nor one that is gone", None, None, vec![]),
        ];
        for (why, namespace, account, expected) in table {
            assert_eq!(
                verbs(&plan_account(&AccountSeen { namespace, account })),
                expected,
                "{why}"
            );
        }
    }

    #[test]
    fn certificates_are_published_and_kept_right() {
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
            let seen = CertificatesSeen { namespace, published, certificates: "PEM" };
            assert_eq!(verbs(&plan_certificates(&seen)), expected, "{why}");
        }
    }

    #[test]
    fn what_does_not_belong_is_taken_out() {
        let seen = CertificatesSeen {
            namespace: namespace("Active"),
            published: published(&json!({"more": "x", "ca.crt": "old"}), "x"),
            certificates: "PEM",
        };
        let plan = plan_certificates(&seen);
        let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("a merge") };
        assert_eq!(body["data"], json!({"ca.crt": "PEM", "more": null}));
    }

    #[test]
    fn namespaces_are_equipped_in_the_same_way() {
        let publisher = RootCertificates::new("PEM".to_owned());
        let controllers: [&dyn Controller; 2] = [&ServiceAccounts, &publisher];
        let make = |name: &str| (Namespace::RESOURCE, json!({"metadata": {"name": name}}));
        let spoil: Action = Box::new(|server: &mut Server| {
            server.delete(
                &ServiceAccount::RESOURCE,
                &Key::new("a", "default"),
                Propagation::Orphan,
            );
            let key = Key::new("b", ConfigMap::ROOT_CERTIFICATES);
            server.edit(&ConfigMap::RESOURCE, &key, |map| map["data"]["ca.crt"] = json!("x"));
        });
        let end: Action = Box::new(|server: &mut Server| {
            server.edit(&Namespace::RESOURCE, &Key::cluster("c"), |it| {
                it["status"]["phase"] = json!("Terminating");
            });
        });
        let scenario = Scenario {
            controllers: &controllers,
            defaults: |resource, object| {
                let odd = object["metadata"]["name"].as_str().unwrap().starts_with(UNREADABLE);
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
                let map =
                    server.get(&ConfigMap::RESOURCE, &Key::new(name, ConfigMap::ROOT_CERTIFICATES));
                let account = server.get(&ServiceAccount::RESOURCE, &Key::new(name, "default"));
                json!([account.is_some(), map.map(|it| &it["data"])])
            };
            json!([of("a"), of("b")])
        };
        let calm = shape(&scenario.run(0, Faults::none()).unwrap().server);
        let whole = json!([true, {"ca.crt": "PEM"}]);
        assert_eq!(calm, json!([whole, whole]));
        proven(scenario.prove(0..4, shape));
        let bad = [REFUSED, CONFLICTED, UNREADABLE].map(make);
        proven(scenario.prove_apart(&bad, 0..4, shape));
    }

    #[test]
    fn namespaces_of_any_world_are_equipped() {
        let publisher = RootCertificates::new("PEM".to_owned());
        let controllers: [&dyn Controller; 2] = [&ServiceAccounts, &publisher];
        let world = |seed| {
            let rng = &mut fastrand::Rng::with_seed(seed);
            let names = ["a", "b", "c"];
            let there = &names[..rng.usize(..3)];
            let change = |rng: &mut fastrand::Rng| -> Action {
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
                        let key = Key::new(name, ConfigMap::ROOT_CERTIFICATES);
                        server.delete(&ConfigMap::RESOURCE, &key, Propagation::Orphan);
                    }
                    _ => {
                        let key = Key::new(name, ConfigMap::ROOT_CERTIFICATES);
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
                let map = Key::new(name, ConfigMap::ROOT_CERTIFICATES);
                let map = server.get(&ConfigMap::RESOURCE, &map).map(|it| &it["data"]);
                let account = server.get(&ServiceAccount::RESOURCE, &Key::new(name, "default"));
                json!([name, account.is_some(), map])
            });
            each.collect()
        };
        proven(prove_worlds(0..20, world, shape));
    }

    #[test]
    fn other_maps_are_not_kept_in_memory() {
        let text = json!({"metadata": {"name": "large"}, "data": {"a": "b"}});
        let map: ConfigMap = serde_json::from_value(text).unwrap();
        assert!(map.data.is_empty());
    }
}
