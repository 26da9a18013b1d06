//! The accounts that Gantry's own controllers act as on the embedded server, and what each may do.
//!
//! Nobody has credentials for them: requests of theirs are made inside the process. What users wrote and a
//! controller carries out is bounded by its account, or is done in the name of the user who wrote it.

use gantry_apiserver::{Api, Caller};
use gantry_controller::transport;
use gantry_controller::writer::OnBehalfOf;
use gantry_reconcile::User;
use gantry_sim::autoscaling::Autoscalers;
use gantry_subsystem::access::{Account, rule};
use http::Request;
use serde_json::Value;

use super::Door;

/// Fills the caches of all controllers, and writes nothing.
const READER: &str = "system:gantry:reader";
/// Publishes the accelerators of simulated nodes as devices.
const SAMPLE_DRIVER: &str = "system:gantry:sample-driver";

/// The door of whoever only reads.
pub(super) fn reader(api: &Api) -> Door {
    door(api, READER)
}

/// The door of the driver of simulated accelerators.
pub(super) fn sample_driver(api: &Api) -> Door {
    door(api, SAMPLE_DRIVER)
}

/// The door of the account that autoscalers have in Kubernetes.
pub(super) fn autoscaler(api: &Api) -> Door {
    let user = format!("system:serviceaccount:kube-system:{}", Autoscalers::ACCOUNT);
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    Door::of(api, Caller::authenticated(&user, &groups.map(str::to_owned)))
}

/// The administrator to whom the kubeconfig of the cluster belongs.
#[must_use]
pub fn administrator(api: &Api) -> Door {
    let groups = [gantry_serve::pki::MASTERS.to_owned()];
    Door::of(api, Caller::authenticated(gantry_serve::pki::ADMIN, &groups))
}

fn door(api: &Api, user: &str) -> Door {
    Door::of(api, Caller::authenticated(user, &[user.to_owned()]))
}

impl Door {
    /// A client that comes through this door, and in the name of a user with requests that carry one. Only
    /// requests of this process can.
    pub(super) fn client_for_users(&self) -> kube::Client {
        let Self { api, caller } = self.clone();
        transport::in_process(move |request: Request<bytes::Bytes>| {
            let user =
                request.extensions().get::<OnBehalfOf>().map(|OnBehalfOf(user)| user.clone());
            let (api, caller) = (api.clone(), user.map_or_else(|| caller.clone(), as_recorded));
            async move { api.handle(request, Some(caller)).await }
        })
    }
}

/// A user as the server knew them when they were recorded.
fn as_recorded(user: User) -> Caller {
    let User { name, uid, groups, extra } = user;
    Caller { name, uid, groups, extra }
}

/// The roles of the accounts that belong to no subsystem, and their bindings.
#[must_use]
pub fn rights() -> Vec<Value> {
    let reader = vec![rule("*", &["*"], &["get", "list", "watch"])];
    // What any driver needs, on every node.
    let devices = "devmgmtproto.k8s.io";
    let own = ["create", "delete", "get", "list", "patch", "watch"];
    let driver = vec![
        rule(devices, &["devicedrivers", "devicepools"], &own),
        rule(devices, &["deviceclaims"], &["get", "list", "watch"]),
        rule(
            devices,
            &["deviceclaims/status", "devicedrivers/status", "devicepools/status"],
            &["patch"],
        ),
        rule("", &["events"], &["create", "patch"]),
    ];
    let accounts = [Account::new(READER, reader), Account::new(SAMPLE_DRIVER, driver)];
    accounts.iter().flat_map(Account::objects).collect()
}
