//! What many installations share, on a real Kubernetes.

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::http::Target;

async fn server(_: &Clock) -> (RealCluster, Target) {
    let real = RealCluster::start().await.unwrap();
    let target = real.admin().target().clone();
    (real, target)
}

crate::shared_sharing::scenarios!(server);
