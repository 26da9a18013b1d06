//! The published policies on a real Kubernetes.

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::http::{Client, Protocol};

use crate::shared_policies::{
    Place, as_34, as_35, as_36, as_37, as_38, as_39, as_43, cs_31, g_26, g_26_direct,
};

#[tokio::test(flavor = "multi_thread")]
async fn as_34_to_as_39_as_43_cs_31_and_g_26_hold_on_kubernetes() {
    let clock = Clock::system();
    let real = RealCluster::start().await.unwrap();
    let client = Client::new(real.admin().target(), Protocol::Http1, clock.clone()).unwrap();
    let one = Place::new(&client, &clock, "one").await;
    as_34(&one).await;
    as_35(&one).await;
    as_36(&one).await;
    as_37(&one).await;
    as_38(&one).await;
    as_39(&one).await;
    cs_31(&one).await;
    g_26(&one).await;
    g_26_direct(&one).await;
    let two = Place::new(&client, &clock, "two").await;
    as_43([&one, &two]).await;
}
