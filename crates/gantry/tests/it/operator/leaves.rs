//! Quota that is somebody else's, on the embedded server, with the rights of the manifests.

use std::net::TcpListener;

use gantry_process::clock::Clock;

use super::simulation::start;
use super::site;
use crate::shared_leaves::{config, prepare, qu_12_and_qu_13};

#[tokio::test(flavor = "multi_thread")]
async fn qu_12_and_qu_13_nobody_is_charged_less_than_it_asks_for_or_to_others() {
    let (_server, site) = site().await;
    site.install_definitions().await;
    prepare(&site).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (mut operator, _folder) = start(&site, &config(port)).await;
    operator.line_with("answering the API server about the authors of AppWrappers");
    qu_12_and_qu_13(&site, &Clock::system()).await;
}
