//! Publishes the effective settings: the configuration text with flags and variables applied.
//!
//! They are in a ConfigMap beside the one that configures the operator, so that `gantry queue` and
//! `gantry explain` use the operator's settings, and users see them without its flags. Only the
//! leader writes it: another replica may have been started with other flags.

use std::time::Duration;

use gantry_controller::Permit;
use gantry_process::clock::Clock;
use gantry_process::tasks::OnLoss;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;

use super::cluster::{CallError, RequestDescription, call};
use super::controllers::OperatorStatus;
use super::{ProcessContext, StartOptions};
use crate::config::source::{WRITTEN_KEY, effective_config_map};

/// How often the ConfigMap is written again, in case another client has changed or deleted it, and
/// how long to wait after a failure. A write that changes nothing costs one request and leaves no
/// trace.
const REPUBLISH_INTERVAL: Duration = Duration::from_secs(60);

const MANAGER: &str = "gantry-operator";

/// Publishes every text that is sent through the returned sender, from the first on.
///
/// Nothing depends on it: a failed write is logged and retried.
pub(super) fn start(
    start: &StartOptions,
    client: kube::Client,
    shell: &mut ProcessContext,
    standing: &OperatorStatus,
) -> watch::Sender<String> {
    let (sender, texts) = watch::channel(String::new());
    let sources = &start.config_watch.sources;
    let namespace = match sources.own_namespace() {
        Ok(namespace) => namespace,
        Err(error) => {
            tracing::info!(%error, "the effective settings are not published");
            return sender;
        }
    };
    let publisher = Publisher {
        client,
        clock: shell.tasks.clock().clone(),
        name: effective_config_map(&sources.config),
        namespace,
        permit: standing.permit(),
    };
    shell.tasks.spawn("settings in effect", OnLoss::CarryOn, move |stop| async move {
        tokio::select! {
            // A partial write is complete on the server, or is written again by the next start.
            () = stop.cancelled() => {}
            () = publisher.run(texts) => {}
        }
        Ok(())
    });
    sender
}

struct Publisher {
    client: kube::Client,
    clock: Clock,
    namespace: String,
    name: String,
    /// Whether this replica is the leader; `None` if no controller runs, and there is no leader.
    permit: Option<Permit>,
}

impl Publisher {
    async fn run(&self, mut texts: watch::Receiver<String>) {
        let mut failed = false;
        loop {
            if let Some(permit) = &self.permit
                && permit.granted().await.is_err()
            {
                return;
            }
            let text = texts.borrow_and_update().clone();
            if !text.is_empty() {
                match self.write(&text).await {
                    Ok(()) => failed = false,
                    Err(error) => {
                        // Logged once; a missing permission stays missing.
                        if !failed {
                            let error = format!("{:#}", anyhow::Error::from(error));
                            tracing::warn!(
                                error,
                                "could not publish the effective settings: `gantry queue` and \
                                 `gantry explain` do not see the operator's flags"
                            );
                        }
                        failed = true;
                    }
                }
            }
            tokio::select! {
                // Either future may be dropped: both only wait.
                changed = texts.changed() => if changed.is_err() {
                    return;
                },
                () = self.clock.sleep(REPUBLISH_INTERVAL) => {}
            }
        }
    }

    async fn write(&self, text: &str) -> Result<(), CallError> {
        let Self { client, clock, namespace, name, .. } = self;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": namespace,
                "labels": { "app.kubernetes.io/part-of": "gantry" },
                "annotations": { "kubernetes.io/description":
                    "The effective settings of the operator, which writes this ConfigMap; change \
                     the configuration instead." },
            },
            "data": { WRITTEN_KEY: text },
        });
        let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let asked = || RequestDescription {
            verb: "patch",
            resource: "configmaps",
            name: name.clone(),
            namespace: Some(namespace.clone()),
        };
        let how = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(&map);
        call(clock, asked, api.patch(name, &how, &patch)).await?;
        tracing::debug!(namespace, name, "published the effective settings");
        Ok(())
    }
}
