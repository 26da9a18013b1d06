//! How commands reach a cluster that runs.

use std::path::PathBuf;

use crate::config;
use crate::operator::cluster::{connect, connect_in};

/// Which cluster is meant.
#[derive(Debug, clap::Args)]
pub(super) struct Reach {
    /// The kubeconfig of the cluster.
    ///
    /// By default it is that of KUBECONFIG, or of the server that was started here, or ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig; by default its current one.
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,

    /// Where a server that was started here keeps its kubeconfig.
    #[arg(long, value_name = "DIR", env = "GANTRY_DATA_DIR", global = true)]
    data_dir: Option<PathBuf>,
}

impl Reach {
    /// A client, and where it leads.
    pub(super) async fn client(&self) -> anyhow::Result<(kube::Client, String)> {
        let file = self.file();
        let path = file.as_ref().map(|path| path.to_string_lossy().into_owned());
        let client = match &self.context {
            None => connect(path.as_deref().unwrap_or_default(), None).await?,
            Some(context) => connect_in(path.as_deref(), context).await?,
        };
        let shown = path.unwrap_or_else(|| "the cluster of the usual kubeconfig".to_owned());
        Ok((client, shown))
    }

    fn file(&self) -> Option<PathBuf> {
        if let Some(file) = &self.kubeconfig {
            return Some(file.clone());
        }
        if config::names_kubeconfig() {
            return None;
        }
        let own = config::data_dir(self.data_dir.as_deref()).ok()?.join("kubeconfig");
        own.is_file().then_some(own)
    }
}
