//! Publishes the settings in effect: the text, with what flags and variables say on top of it.
//!
//! They are in a ConfigMap beside the one that configures the operator, so that `gantry queue` and
//! `gantry explain` decide by what the operator decides by, and people see it without its flags. Only
//! the replica that leads writes it: another may have been started with other flags.

use std::time::Duration;

use gantry_controller::Permit;
use gantry_process::clock::Clock;
use gantry_process::tasks::OnLoss;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;

use super::cluster::{Asked, CallError, call};
use super::controllers::Standing;
use super::{Shell, Start};
use crate::config::source::{WRITTEN_KEY, in_effect};

/// How often the ConfigMap is written again, in case somebody has changed or deleted it, and how long
/// to wait after a failure. A write that changes nothing costs one request and leaves no trace.
const REPUBLISH_INTERVAL: Duration = Duration::from_secs(60);

const MANAGER: &str = "gantry-operator";

/// Publishes every text that the returned sender is given, from the first on.
///
/// Nothing depends on it: what cannot be published is logged and tried again.
pub(super) fn start(
    start: &Start,
    client: kube::Client,
    shell: &mut Shell,
    standing: &Standing,
) -> watch::Sender<String> {
    let (sender, texts) = watch::channel(String::new());
    let sources = &start.follow.sources;
    let namespace = match sources.own_namespace() {
        Ok(namespace) => namespace,
        Err(error) => {
            tracing::info!(%error, "the settings in effect are not published");
            return sender;
        }
    };
    let publisher = Publisher {
        client,
        clock: shell.tasks.clock().clone(),
        name: in_effect(&sources.config),
        namespace,
        permit: standing.permit(),
    };
    shell.tasks.spawn("settings in effect", OnLoss::CarryOn, move |stop| async move {
        tokio::select! {
            // What is half written is whole on the server, or is written again by the next start.
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
    /// Whether this replica leads; none if no controller runs, and nobody does.
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
                        // Said once; a right that is missing stays so.
                        if !failed {
                            let error = format!("{:#}", anyhow::Error::from(error));
                            tracing::warn!(
                                error,
                                "could not publish the settings in effect: `gantry queue` and \
                                 `gantry explain` do not know what flags say"
                            );
                        }
                        failed = true;
                    }
                }
            }
            tokio::select! {
                // Either may be dropped: both only wait.
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
                    "The settings that the operator uses now. It writes this; change the \
                     configuration instead." },
            },
            "data": { WRITTEN_KEY: text },
        });
        let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let asked = || Asked {
            verb: "patch",
            resource: "configmaps",
            name: name.clone(),
            namespace: Some(namespace.clone()),
        };
        let how = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(&map);
        call(clock, asked, api.patch(name, &how, &patch)).await?;
        tracing::debug!(namespace, name, "published the settings in effect");
        Ok(())
    }
}
