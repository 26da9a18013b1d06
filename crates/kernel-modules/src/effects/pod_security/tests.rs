//! What a started subsystem does about the accounts of Modules.

use bytes::Bytes;
use gantry_controller::transport::in_process;
use gantry_harness::test_world::TestWorld;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_reconcile::{Key, StoreId, Write};
use gantry_subsystem::GrantBinding;
use gantry_subsystem::settings::{Layer, Origin, Values};
use gantry_subsystem::start::{
    Clients, Host, HostExtensions, Identity, Setup, StartError, SubsystemComponents,
};
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};

use super::*;
use crate::ModuleController;
use crate::labels::{FINALIZER, NAMESPACE_LABEL};
use crate::node_labels::device_user::DeviceUser;
use crate::selected_nodes::NodeGrouper;
use crate::subsystem::configuration::KEYS;
use crate::subsystem::{REGISTRY_ROLE, SUBSYSTEM};
use crate::view::{Module, Namespace, Node};

/// Clients of a server.
struct OneClient(Client);

impl Clients for OneClient {
    fn writer(&self, _: &Identity) -> Result<Client, StartError> {
        Ok(self.0.clone())
    }

    fn reader(&self, _: &Identity) -> Result<Client, StartError> {
        Ok(self.0.clone())
    }
}

/// Starts the subsystem against a server that answers discovery so, with these settings on.
async fn started(
    host: Host,
    (code, body): (u16, Value),
    on: &[&'static str],
) -> Result<SubsystemComponents, StartError> {
    let client = in_process(move |request: Request<Bytes>| {
        assert_eq!(request.uri().path(), "/apis/security.openshift.io/v1");
        let body = Full::new(Bytes::from(body.to_string()));
        async move { Response::builder().status(code).body(body).unwrap() }
    });
    let mut layer = Layer::default();
    for path in on {
        layer.set(path, json!(true), Origin::Default);
    }
    let values = Values::from_layers(KEYS, [&layer]);
    let setup = Setup {
        values: &values,
        host,
        namespace: &|| Ok("gantry-system".to_owned()),
        clock: &Clock::system(),
        metrics: &Metrics::new(&BuildInfo::default()),
        clients: &OneClient(client),
        is_controller_enabled: &|_| true,
        extensions: &HostExtensions::default(),
    };
    (SUBSYSTEM.start)(setup).await
}

/// The account and the role of each binding that a started controller writes for a Module.
fn bindings(components: &SubsystemComponents) -> Vec<(String, String)> {
    let mut registrations = components.registrations.iter();
    let modules = registrations.find(|it| it.controller.name() == ModuleController::NAME).unwrap();
    let mut world = TestWorld::new(&[&*modules.controller]);
    let labels = json!({NAMESPACE_LABEL: ""});
    world.put::<Namespace>(json!({"metadata": {"name": "drivers", "labels": labels}}));
    world.put::<Node>(json!({
        "metadata": {"name": "a"},
        "status": {"nodeInfo": {"kernelVersion": "5.1.0", "architecture": "amd64"}},
    }));
    world.put::<Module>(json!({
        "metadata": {"name": "hello", "namespace": "drivers", "finalizers": [FINALIZER]},
        "spec": {
            "selector": {},
            "driverContainer": {"container": {
                "containerImage": "example.com/hello:1", "kernelMappings": [{"regexp": "."}],
                "build": {"dockerfile": "FROM scratch"},
            }},
            "devicePlugin": {"container": {"image": "example.com/plugin:1"}},
        },
    }));
    NodeGrouper::group_all(&world.world);
    let plan = world.plan(0, &Key::new("drivers", "hello"));
    let bodies = plan.steps.iter().filter_map(|step| match &step.write {
        Write::Apply { resource, body, .. } if resource.plural == "rolebindings" => Some(body),
        _ => None,
    });
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    let mut all: Vec<_> =
        bodies.map(|it| (text(&it["subjects"][0]["name"]), text(&it["roleRef"]["name"]))).collect();
    all.sort();
    all
}

#[tokio::test]
async fn kms_31_accounts_are_bound_where_the_server_has_security_context_constraints() {
    let served = json!({"groupVersion": "security.openshift.io/v1", "resources": [{
        "name": "securitycontextconstraints", "kind": "SecurityContextConstraints",
        "singularName": "", "namespaced": false, "verbs": ["get", "list"],
    }]});
    let not_found = json!({"kind": "Status", "reason": "NotFound", "message": "none"});
    let on = ["modules.enabled"];
    let openshift = started(Host::Cluster, (200, served), &on).await.unwrap();
    let expected = [
        ("hello-device-plugin", "gantry-modules-device-plugin"),
        ("hello-driver-container", "gantry-modules-driver"),
        ("hello-image-jobs", "gantry-modules-image-jobs"),
    ];
    let expected = expected.map(|(account, role)| (account.to_owned(), role.to_owned()));
    assert_eq!(bindings(&openshift), expected);
    // Each of these roles is in a file, and the operator may bind these and no others.
    let grants = (SUBSYSTEM.grants)();
    let may_bind = grants.iter().flat_map(|it| &it.rules).find(|it| it["verbs"] == json!(["bind"]));
    let may_bind = may_bind.unwrap()["resourceNames"].as_array().unwrap();
    for (_, role) in &expected {
        assert!(may_bind.contains(&json!(role)), "{role}");
        let grant = grants.iter().find(|it| it.name == role).unwrap();
        assert_eq!(grant.binding, GrantBinding::Unbound, "{role}");
    }
    assert_eq!(may_bind.len(), expected.len());

    let kubernetes = started(Host::Cluster, (404, not_found.clone()), &on).await.unwrap();
    assert_eq!(bindings(&kubernetes), []);
    let refused = started(Host::Cluster, (403, json!({"message": "no discovery"})), &on).await;
    let refused = refused.map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("no discovery"), "{refused}");
    // What is off asks nothing, and neither does the embedded server, which has no such API.
    let off = started(Host::Cluster, (403, not_found.clone()), &[]).await.unwrap();
    assert!(off.is_empty());
    let embedded = started(Host::Embedded, (403, not_found), &on).await.unwrap();
    let of_jobs = ("hello-image-jobs".to_owned(), REGISTRY_ROLE.to_owned());
    assert_eq!(bindings(&embedded), [of_jobs]);
}

/// All pods are watched only where users of devices are evicted.
#[tokio::test]
async fn device_users_are_watched_only_when_they_are_evicted() {
    let not_found = || (404, json!({"kind": "Status", "reason": "NotFound", "message": "none"}));
    let watches = |components: &SubsystemComponents| {
        let kinds = components.registrations.iter().flat_map(|it| it.controller.kinds());
        let mut kinds = kinds.map(|it| it.store_id().clone());
        kinds.any(|it| it == StoreId::of::<DeviceUser>())
    };
    let off = started(Host::Cluster, not_found(), &["modules.enabled"]).await.unwrap();
    assert!(!watches(&off));
    let both = ["modules.enabled", "modules.upgrade.drain"];
    let on = started(Host::Cluster, not_found(), &both).await.unwrap();
    assert!(watches(&on));
}
