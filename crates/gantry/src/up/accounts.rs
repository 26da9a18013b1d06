//! The accounts that Gantry's own controllers use on the embedded server, and their permissions.
//!
//! There are no credentials for them: their requests are made inside the process. What a controller
//! does for a user is bounded by its account, or is done on behalf of the user who wrote the
//! object.

use gantry_apiserver::{Api, Caller};
use gantry_controller::transport;
use gantry_controller::writer::ImpersonatedUser;
use gantry_kube_controllers::autoscaling::AutoscalerController;
use gantry_reconcile::User;
use gantry_subsystem::access::{Account, rule};
use http::Request;
use serde_json::Value;

use super::InProcessClient;
use crate::image_registry;

/// Fills the caches of all controllers, and writes nothing.
const READER: &str = "system:gantry:reader";
/// Publishes the accelerators of simulated nodes as devices.
const SAMPLE_DRIVER: &str = "system:gantry:sample-driver";

/// Returns the client of the account that only reads.
pub(super) fn reader(api: &Api) -> InProcessClient {
    in_process_client(api, READER)
}

/// Returns the client of the driver of simulated accelerators.
pub(super) fn sample_driver(api: &Api) -> InProcessClient {
    in_process_client(api, SAMPLE_DRIVER)
}

/// Returns the client of the account that autoscalers have in Kubernetes.
pub(super) fn autoscaler(api: &Api) -> InProcessClient {
    let user = format!("system:serviceaccount:kube-system:{}", AutoscalerController::ACCOUNT);
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    InProcessClient::as_caller(api, Caller::authenticated(&user, &groups.map(str::to_owned)))
}

/// Returns the client of the administrator to whom the kubeconfig of the cluster belongs.
#[must_use]
pub fn administrator(api: &Api) -> InProcessClient {
    let groups = [gantry_serve::pki::MASTERS.to_owned()];
    InProcessClient::as_caller(api, Caller::authenticated(gantry_serve::pki::ADMIN, &groups))
}

fn in_process_client(api: &Api, user: &str) -> InProcessClient {
    InProcessClient::as_caller(api, Caller::authenticated(user, &[user.to_owned()]))
}

impl InProcessClient {
    /// Returns a kube client of this caller, which impersonates a user for requests that carry one.
    /// Only requests of this process can.
    pub(super) fn impersonating_client(&self) -> kube::Client {
        let Self { api, caller } = self.clone();
        transport::in_process(move |request: Request<bytes::Bytes>| {
            let user = request
                .extensions()
                .get::<ImpersonatedUser>()
                .map(|ImpersonatedUser(user)| user.clone());
            let (api, caller) = (api.clone(), user.map_or_else(|| caller.clone(), recorded_caller));
            async move { api.handle(request, Some(caller)).await }
        })
    }
}

/// A user as the server authenticated them when they were recorded.
fn recorded_caller(user: User) -> Caller {
    let User { name, uid, groups, extra } = user;
    Caller { name, uid, groups, extra }
}

/// Returns the roles of the accounts that belong to no subsystem, and their bindings.
#[must_use]
pub fn rbac_objects() -> Vec<Value> {
    let reader = vec![rule("*", &["*"], &["get", "list", "watch"])];
    // The permissions of any driver, on every node.
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
    accounts.iter().flat_map(Account::objects).chain(image_registry::roles()).collect()
}
