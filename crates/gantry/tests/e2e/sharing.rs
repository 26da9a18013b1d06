//! What many installations share, on a real Kubernetes.

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;

use crate::shared_sharing::{self as shared, Site};

/// One server for all: each scenario begins with nothing shared.
#[tokio::test(flavor = "multi_thread")]
async fn cs_1_to_cs_45_and_as_40_to_as_45_hold_on_kubernetes() {
    let clock = Clock::system();
    let real = RealCluster::start().await.unwrap();
    let site = Site::new(real.admin().target(), &clock);
    // Before definitions of other groups are brought.
    shared::as_41(&site).await;
    shared::as_40(&site).await;
    site.clean().await;
    shared::as_42(&site).await;
    site.clean().await;
    shared::as_45(&site).await;
    site.clean().await;
    shared::as_44(&site).await;
    shared::cs_1(&site).await;
    site.clean().await;
    shared::cs_6(&site).await;
    site.clean().await;
    shared::cs_13(&site).await;
    site.clean().await;
    shared::cs_14(&site).await;
    site.clean().await;
    shared::cs_20(&site).await;
    site.clean().await;
    shared::cs_25_and_cs_45(&site).await;
    shared::foreign_versions_keep_a_definition(&site).await;
    site.clean().await;
    shared::stuck_pods_are_freed(&site).await;
    shared::cs_21(&site).await;
    shared::cs_7_to_cs_9(&site).await;
}
