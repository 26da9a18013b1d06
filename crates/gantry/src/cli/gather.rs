//! `gantry gather`: collects diagnostic data of a cluster in one directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gantry_api::object::KINDS;
use gantry_reconcile::ApiPath;
use gantry_subsystem::Subsystem;
use gantry_yaml as yaml;
use serde_json::{Value, json};

use super::CommandOutcome;
use super::cluster_client::{ClusterClient, ClusterFlags, ClusterRequestError};
use crate::output::Output;
use crate::subsystems::SUBSYSTEMS;
use crate::up::STATUS_PATH;
use crate::version::VERSION;

/// Collect diagnostic data of a cluster in one directory.
///
/// Each subsystem has a folder with the objects it works on, one file per kind. `status.yaml` has
/// what the controllers of `gantry up` hold, `problems.yaml` what could not be read. Secrets and
/// logs are never collected. Manifests are collected as their authors wrote them: review them
/// before you share them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry gather                               into ./gantry-gather
  gantry gather -n team-a --directory /tmp/a  objects of one namespace
  gantry gather --subsystem queue

Exit codes:
  0  everything was read
  1  something could not be read: problems.yaml says what; the rest was written")]
pub(super) struct Arguments {
    /// The output directory; created if it does not exist. Files of the same name are replaced.
    #[arg(long, value_name = "DIR", default_value = "gantry-gather")]
    directory: PathBuf,

    /// Collect only objects of this namespace and cluster-scoped objects.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Collect only this subsystem; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = names())]
    subsystem: Vec<String>,

    #[command(flatten)]
    reach: ClusterFlags,
}

fn names() -> clap::builder::PossibleValuesParser {
    SUBSYSTEMS.iter().map(|it| it.name).collect::<Vec<_>>().into()
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(gather(arguments, output))
}

async fn gather(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let Arguments { directory, namespace, subsystem, reach } = arguments;
    let cluster = reach.connect().await?;
    if let Some(namespace) = namespace {
        cluster.check_namespace(namespace).await?;
    }
    let served = cluster.get(&ApiPath::from_static("/version")).await?;
    let mut files = OutputDirectory::new(directory);
    let about = json!({
        "gantry": VERSION.version, "commit": VERSION.commit, "server": cluster.location.server,
        "serverVersion": served["gitVersion"],
    });
    files.write("about.yaml", &about)?;
    let mut problems: BTreeMap<String, String> = BTreeMap::new();
    match cluster.get(&ApiPath::from_static(STATUS_PATH)).await {
        Ok(page) => files.write("status.yaml", &page)?,
        // Only `gantry up` serves this path.
        Err(ClusterRequestError::NotFound { .. }) => {}
        Err(error) => drop(problems.insert("status".to_owned(), error.to_string())),
    }
    let wanted =
        |it: &&Subsystem| subsystem.is_empty() || subsystem.iter().any(|name| name == it.name);
    for part in SUBSYSTEMS.iter().filter(wanted) {
        for (api_version, plural) in gathered_kinds(part) {
            let file = format!("{}/{plural}.yaml", part.name);
            match objects(&cluster, &api_version, plural, namespace.as_deref()).await {
                Ok(None) => {}
                Ok(Some(items)) => {
                    output.note(format_args!("  {file:<44} {} objects", items.len()));
                    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
                    files.write(&file, &list)?;
                }
                Err(error) => {
                    // Subsystems share kinds; each problem is reported once.
                    if !problems.values().any(|it| *it == error.to_string()) {
                        output.warning(&error);
                    }
                    problems.insert(file, error.to_string());
                }
            }
        }
    }
    let complete = problems.is_empty();
    files.write("problems.yaml", &json!(problems))?;
    output.result(format_args!("{} files in {}", files.count(), directory.display()))?;
    Ok(if complete { CommandOutcome::Success } else { CommandOutcome::Failure })
}

/// Returns the kinds of a subsystem: those of its definitions, and the others it works on.
fn gathered_kinds(subsystem: &Subsystem) -> Vec<(String, &'static str)> {
    let names: Vec<&str> = subsystem.definitions().collect();
    let own = KINDS.iter().filter(|kind| names.contains(&kind.crd_name().as_str()));
    let own = own.map(|kind| (kind.api_version(), kind.plural));
    let others = subsystem.gather.iter().map(|(version, plural)| ((*version).to_owned(), *plural));
    own.chain(others).collect()
}

/// Lists all objects of a kind, without managed fields; `None` if the server does not have the
/// kind.
async fn objects(
    cluster: &ClusterClient,
    api_version: &str,
    plural: &str,
    namespace: Option<&str>,
) -> Result<Option<Vec<Value>>, ClusterRequestError> {
    let path = ApiPath::collection(api_version, "", plural)?;
    let mut items = match cluster.items(&path).await {
        Ok(items) => items,
        Err(ClusterRequestError::NotFound { .. }) => return Ok(None),
        Err(error @ ClusterRequestError::Forbidden { .. }) => match namespace {
            // If that fails too, the kind may be cluster-scoped: the first error names the missing
            // permission.
            Some(namespace) => {
                let path = ApiPath::collection(api_version, namespace, plural)?;
                cluster.items(&path).await.map_err(|_| error)?
            }
            None => return Err(error),
        },
        Err(error) => return Err(error),
    };
    items.retain(|it| {
        let own = it["metadata"]["namespace"].as_str();
        namespace.is_none() || own.is_none() || own == namespace
    });
    for item in &mut items {
        if let Some(metadata) = item["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
    }
    Ok(Some(items))
}

/// The output directory, and the number of files written.
pub(super) struct OutputDirectory<'a> {
    directory: &'a Path,
    written: BTreeSet<PathBuf>,
}

impl<'a> OutputDirectory<'a> {
    pub(super) fn new(directory: &'a Path) -> Self {
        Self { directory, written: BTreeSet::new() }
    }

    /// How many files were written.
    pub(super) fn count(&self) -> usize {
        self.written.len()
    }

    /// Writes a document.
    pub(super) fn write(&mut self, name: &str, content: &Value) -> anyhow::Result<()> {
        self.write_text(name, &yaml::write(content)?)
    }

    /// Writes a text.
    pub(super) fn write_text(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.directory.join(name);
        let named = || format!("could not write {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(named)?;
        }
        // Only the owner may read the objects of a cluster.
        gantry_serve::files::write_private(&path, text.as_bytes()).with_context(named)?;
        self.written.insert(path);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_subsystem_gathers_secrets() {
        for subsystem in SUBSYSTEMS {
            let all = gathered_kinds(subsystem);
            assert!(!all.is_empty(), "{subsystem:?}");
            for (version, plural) in all {
                let kind = (version.as_str(), plural);
                assert!(!matches!(kind, ("v1", "secrets" | "configmaps")), "{subsystem:?}");
            }
        }
    }
}
