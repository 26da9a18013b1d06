//! Authors of AppWrappers on the embedded server, with the rights of the manifests.

use std::net::TcpListener;

use gantry_process::clock::Clock;

use super::simulation::start;
use super::site;
use crate::shared_authors::{config, ds_9, prepare};

#[tokio::test(flavor = "multi_thread")]
async fn ds_9_unauthorized_authors_get_no_job() {
    let (server, site) = site().await;
    site.install_definitions().await;
    prepare(&site).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (mut operator, folder) = start(&site, &config(port)).await;
    operator.wait_for_line("serving admission webhooks for the authors of AppWrappers");
    let kubeconfig = server.kubeconfig().to_str().unwrap().to_owned();
    let file = folder.path().join("gantry.yaml").to_str().unwrap().to_owned();
    let ask = |arguments: &[&str]| {
        let place = ["--kubeconfig", &kubeconfig, "--config-file", &file];
        let run = crate::gantry(&[arguments, &place].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        run.out
    };
    ds_9(&site, &Clock::system(), &mut operator, ask).await;
}
