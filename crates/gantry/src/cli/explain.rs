//! `gantry explain`: shows the state of one object, the reasons for it, and what to do.

pub(super) mod object;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use gantry_process::clock::Clock;
use gantry_queue::app_wrapper::AppWrapper;
use gantry_queue::app_wrapper_report::{self, AppWrapperReport};
use gantry_queue::queue_report;
use gantry_reconcile::{Key, View as _};
use serde::{Deserialize as _, Serialize};

use self::object::ObjectReference;
use super::cluster_client::{ClusterFlags, ClusterRequestError};
use super::queue::SettingsInEffect;
use super::queue::settings::{QueueSettings, SettingsFlags};
use super::queue::snapshot::Snapshot;
use super::{CommandOutcome, OutputFormat, render};
use crate::output::Output;
use crate::queue_pages;

/// Show the state of an object, the reasons for it, and what to do about it.
///
/// For every object: its state and conditions, what controllers hold and why, what the subsystems
/// know about it, and the last events. For an AppWrapper: its state and history, what its items
/// request and how that was computed, free capacity and what uses the rest, quota trees, its
/// objects and pods, and when it is evaluated next. What the queue would decide now is evaluated by
/// the queue's own rules and settings. Nothing is written.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry explain appwrapper/train
  gantry explain aw/train -n team-a
  gantry explain aw train -o json
  gantry explain aw/train -f jobs/ -f nodes.yaml     files instead of a cluster
  gantry explain pod/web-0
  gantry explain deviceclaim/gpu -n team-a
  gantry explain node/gpu-0 -o yaml

For the fields of a kind there is `kubectl explain appwrapper.spec`; for the devices of a pod \
`gantry
schedule POD --explain`.")]
pub(super) struct Arguments {
    /// The object: appwrapper/NAME, aw/NAME, pod/NAME; kind and name may also be two arguments.
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    words: Vec<String>,

    /// The namespace of the object.
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,

    /// Print all facts in this format.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,

    /// Read files instead of a cluster, for an AppWrapper: AppWrappers, nodes, pods, quota trees.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    settings: SettingsFlags,

    #[command(flatten)]
    reach: ClusterFlags,
}

/// The JSON or YAML output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplainOutput<'a> {
    settings: SettingsInEffect<'a>,
    app_wrapper: &'a AppWrapperReport,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let clock = Clock::system();
    let (kind, name) = named(&arguments.words)?;
    if !is_app_wrapper(kind) {
        return run_for_object(arguments, kind, name, &clock, output);
    }
    let key = Key::new(&arguments.namespace, name);
    let (snapshot, found) = match arguments.filename.is_empty() {
        true => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(arguments.read_snapshot(&key, output))?
        }
        false => {
            let found = arguments.settings.for_files()?;
            found.warnings.iter().for_each(|it| output.warning(it));
            let read = Snapshot::from_files(&arguments.filename, &found.settings, output)?;
            queue_report::initialize_unseen(&read.world, &found.settings, clock.now());
            (read, found)
        }
    };
    let Snapshot { world, visibility: sight } = &snapshot;
    let now = clock.now();
    let Some(story) = app_wrapper_report::report(world, &found.settings, *sight, &key, now) else {
        bail!("there is no AppWrapper {key}; `gantry queue` lists them all");
    };
    match arguments.output {
        None => {
            output.result_text(&queue_pages::page(&story, now))?;
            output.note(format_args!("evaluated with {}", found.source));
        }
        Some(form) => {
            let page =
                ExplainOutput { settings: SettingsInEffect::from(&found), app_wrapper: &story };
            output.result_text(&render(&page, form)?)?;
        }
    }
    Ok(CommandOutcome::Success)
}

impl Arguments {
    async fn read_snapshot(
        &self,
        key: &Key,
        output: &mut Output,
    ) -> anyhow::Result<(Snapshot, QueueSettings)> {
        let cluster = self.reach.connect().await?;
        let found = self.settings.load(&cluster).await?;
        found.warnings.iter().for_each(|it| output.warning(it));
        let object = match cluster.get(&AppWrapper::RESOURCE.path(key)?).await {
            Err(error @ ClusterRequestError::NotFound { .. }) => {
                return Err(error).context(format!(
                    "there is no AppWrapper {key}; `gantry queue` lists them all"
                ));
            }
            object => object?,
        };
        let wrapper = AppWrapper::deserialize(&object)
            .with_context(|| format!("cannot read AppWrapper {key}"))?;
        let namespace = Some(self.namespace.as_str());
        let settings = &found.settings;
        let read = Snapshot::with_items(&cluster, namespace, Some(&wrapper), settings, output);
        Ok((read.await?, found))
    }
}

/// Explains an object of any other kind.
fn run_for_object(
    arguments: &Arguments,
    kind: &str,
    name: &str,
    clock: &Clock,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    if !arguments.filename.is_empty() {
        bail!("cannot explain a {kind:?} from files: only AppWrappers are; leave out --filename");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let page = runtime.block_on(async {
        let cluster = arguments.reach.connect().await?;
        let found = arguments.settings.load(&cluster).await?;
        let named = ObjectReference { kind, name, namespace: &arguments.namespace };
        object::explain(&cluster, &named, &found.all, clock.now(), output).await
    })?;
    match arguments.output {
        None => output.result_text(&page.text())?,
        Some(form) => output.result_text(&render(&page, form)?)?,
    }
    Ok(CommandOutcome::Success)
}

/// Parses the kind and the name of the object.
fn named(words: &[String]) -> anyhow::Result<(&str, &str)> {
    let (kind, name) = match words {
        [one, _] if one.contains('/') => bail!("name one object at a time: gantry explain {one}"),
        [kind, name] => (kind.as_str(), name.as_str()),
        [one] => match one.split_once('/') {
            Some((kind, name)) => (kind, name),
            None => bail!("name one object: gantry explain KIND/{one}, such as appwrapper/{one}"),
        },
        _ => bail!("name one object: gantry explain KIND/NAME"),
    };
    if name.is_empty() || kind.is_empty() {
        bail!(
            "name one object: gantry explain {}/NAME",
            if kind.is_empty() { "KIND" } else { kind }
        );
    }
    Ok((kind, name))
}

fn is_app_wrapper(kind: &str) -> bool {
    let plain = kind.strip_suffix(".workload.codeflare.dev").unwrap_or(kind).to_lowercase();
    matches!(plain.as_str(), "aw" | "appwrapper" | "appwrappers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_in_every_way_that_kubectl_takes() {
        let table = [
            ("aw/a", Ok(("aw", "a", true))),
            ("appwrapper/a", Ok(("appwrapper", "a", true))),
            (
                "appwrappers.workload.codeflare.dev/a",
                Ok(("appwrappers.workload.codeflare.dev", "a", true)),
            ),
            ("AppWrapper a", Ok(("AppWrapper", "a", true))),
            ("pod/a", Ok(("pod", "a", false))),
            ("appwrapper.example.com/a", Ok(("appwrapper.example.com", "a", false))),
            ("a", Err("gantry explain KIND/a, such as appwrapper/a")),
            ("aw/", Err("gantry explain aw/NAME")),
            ("pod/a pod/b", Err("name one object at a time")),
            ("/a", Err("gantry explain KIND/NAME")),
        ];
        for (line, expected) in table {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = named(&words).map(|(kind, name)| (kind, name, is_app_wrapper(kind)));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{line}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, _) => panic!("{line}: {found:?}"),
            }
        }
    }
}
