//! Quota of other namespaces, on the embedded server, with the permissions of the manifests.

use std::net::TcpListener;

use gantry_process::clock::Clock;

use super::simulation::start;
use super::site;
use crate::shared_leaves::{config, prepare, qu_12_and_qu_13};

#[tokio::test(flavor = "multi_thread")]
async fn qu_12_and_qu_13_charges_are_full_and_to_own_leaves() {
    let (_server, site) = site().await;
    site.install_definitions().await;
    prepare(&site).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (mut operator, _folder) = start(&site, &config(port)).await;
    operator.wait_for_line("serving admission webhooks for the authors of AppWrappers");
    qu_12_and_qu_13(&site, &Clock::system()).await;
}
