//! `gantry gather`: everything that helps to find out what is wrong, in one directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gantry_api::object::KINDS;
use gantry_api::yaml;
use gantry_reconcile::ApiPath;
use gantry_subsystem::Subsystem;
use serde_json::{Value, json};

use super::End;
use super::reach::{AskError, Reach, Reached};
use crate::output::Output;
use crate::subsystems::SUBSYSTEMS;
use crate::up::STATUS_PATH;
use crate::version::VERSION;

/// Collect what helps to find out what is wrong with a cluster, in one directory.
///
/// One folder for each subsystem has the objects it works on, one file for each kind. `status.yaml` has what the
/// controllers of `gantry up` hold back, `problems.yaml` what could not be read. Secrets and logs are never
/// collected; manifests are, with whatever their authors wrote into them: look before you hand them on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry gather                               into ./gantry-gather
  gantry gather -n team-a --directory /tmp/a  objects of one namespace
  gantry gather --subsystem queue

Exit codes:
  0  everything was read
  1  something could not be read: problems.yaml says what; the rest is there")]
pub(super) struct Arguments {
    /// Where to; made if it is not there. Files of the same name are replaced.
    #[arg(long, value_name = "DIR", default_value = "gantry-gather")]
    directory: PathBuf,

    /// Only objects of this namespace, and those that have none.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Only this subsystem; may be given more than once.
    #[arg(long, value_name = "NAME", value_parser = names())]
    subsystem: Vec<String>,

    #[command(flatten)]
    reach: Reach,
}

fn names() -> clap::builder::PossibleValuesParser {
    SUBSYSTEMS.iter().map(|it| it.name).collect::<Vec<_>>().into()
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(gather(arguments, output))
}

async fn gather(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let Arguments { directory, namespace, subsystem, reach } = arguments;
    let cluster = reach.reach().await?;
    let served = cluster.get(&ApiPath::from_static("/version")).await?;
    let mut files = Files { directory, count: 0 };
    let about = json!({
        "gantry": VERSION.version, "commit": VERSION.commit, "server": cluster.place.server,
        "serverVersion": served["gitVersion"],
    });
    files.write("about.yaml", &about)?;
    let mut problems: BTreeMap<String, String> = BTreeMap::new();
    match cluster.get(&ApiPath::from_static(STATUS_PATH)).await {
        Ok(page) => files.write("status.yaml", &page)?,
        // Only `gantry up` has it there.
        Err(AskError::Absent { .. }) => {}
        Err(error) => drop(problems.insert("status".to_owned(), error.to_string())),
    }
    let wanted =
        |it: &&Subsystem| subsystem.is_empty() || subsystem.iter().any(|name| name == it.name);
    for part in SUBSYSTEMS.iter().filter(wanted) {
        for (api_version, plural) in collected(part) {
            let file = format!("{}/{plural}.yaml", part.name);
            match objects(&cluster, &api_version, plural, namespace.as_deref()).await {
                Ok(None) => {}
                Ok(Some(items)) => {
                    output.note(format_args!("  {file:<44} {} objects", items.len()));
                    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
                    files.write(&file, &list)?;
                }
                Err(error) => {
                    output.warning(&error);
                    problems.insert(file, error.to_string());
                }
            }
        }
    }
    let complete = problems.is_empty();
    files.write("problems.yaml", &json!(problems))?;
    output.result(format_args!("{} files in {}", files.count, directory.display()))?;
    Ok(if complete { End::Done } else { End::Refused })
}

/// The kinds of a subsystem: those of its definitions, and what else it works on.
fn collected(subsystem: &Subsystem) -> Vec<(String, &'static str)> {
    let names: Vec<&str> = subsystem.definitions().collect();
    let own = KINDS.iter().filter(|kind| names.contains(&kind.crd_name().as_str()));
    let own = own.map(|kind| (kind.api_version(), kind.plural));
    let others = subsystem.gather.iter().map(|(version, plural)| ((*version).to_owned(), *plural));
    own.chain(others).collect()
}

/// All objects of a kind without what nobody reads; nothing where the server does not have the kind.
async fn objects(
    cluster: &Reached,
    api_version: &str,
    plural: &str,
    namespace: Option<&str>,
) -> Result<Option<Vec<Value>>, AskError> {
    let path = ApiPath::collection(api_version, "", plural)?;
    let mut items = match cluster.items(&path).await {
        Ok(items) => items,
        Err(AskError::Absent { .. }) => return Ok(None),
        Err(error @ AskError::Forbidden { .. }) => match namespace {
            // Where that fails too, the kind may have no namespaces: the first refusal says what is missing.
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

/// The directory, and how many files were written.
struct Files<'a> {
    directory: &'a Path,
    count: usize,
}

impl Files<'_> {
    fn write(&mut self, name: &str, content: &Value) -> anyhow::Result<()> {
        let path = self.directory.join(name);
        let named = || format!("could not write {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(named)?;
        }
        // Objects of a cluster are nobody else's business.
        gantry_serve::files::write_private(&path, yaml::write(content)?.as_bytes())
            .with_context(named)?;
        self.count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_subsystem_collects_what_is_secret() {
        for subsystem in SUBSYSTEMS {
            let all = collected(subsystem);
            assert!(!all.is_empty(), "{subsystem:?}");
            for (version, plural) in all {
                let kind = (version.as_str(), plural);
                assert!(!matches!(kind, ("v1", "secrets" | "configmaps")), "{subsystem:?}");
            }
        }
    }
}
