//! `gantry schedule`: shows which devices a pod would be allocated, and why not others.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use gantry_api::decode;
use gantry_api::finding::Source;
use gantry_devices::dump::file::Wording;
use gantry_devices::problem::Budget;
use gantry_devices::schedule::{Objects, Options, ScheduleTarget, Verdict, WhatIfChange, decide};

use super::cluster_client::ClusterFlags;
use super::devices::{generate, snapshot};
use super::files::load;
use super::{CommandOutcome, OutputFormat, amounts, render};
use crate::config;
use crate::output::Output;

/// Show which devices a pod would be allocated, on which node, and why not others.
///
/// It reads pods, claims, classes, drivers, pools and nodes from files, from a cluster, or from a
/// cluster with files applied over it. Only devices are considered: CPU, memory and all other
/// scheduling criteria are not. Nothing is ever written: in a cluster the running scheduler
/// allocates devices.
///
/// Without the name of a pod it uses the only pod of the files; if they have none, all claims in
/// them together. Files in the original format that predates the API objects, with nodes and the
/// claims of a pod, are answered in the original output format.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry schedule -f cluster/ -f pod.yaml            from files and folders
  gantry schedule web                                a pod of the cluster
  gantry schedule --kubeconfig prod -f pod.yaml      a pod that does not exist yet
  gantry schedule -f . --explain                     why nodes and devices are rejected
  gantry schedule -f . --what-if used=node-a-gpus/gpu-0 --what-if remove-node=node-b
  gantry devices gen zero | gantry schedule -f - -f claim.yaml -o json

Changes for --what-if; they are applied in this order:
  add-node=NAME                 a node without pools of its own
  add-node=NAME:like=NODE       a node with the labels of NODE and free copies of its pools
  remove-node=NAME              a node is deleted with its pools
  used=POOL/DEVICE              the device is allocated; * for all, a number if the pool only counts
  tainted=POOL/DEVICE:EFFECT    the device has a taint: NoSchedule, NoExecute or None
  Where several nodes have a pool of that name, write NODE/POOL/DEVICE.

Command lines of the original, with one dash or two:
  gantry schedule [-v] -kubeconfig FILE POD
  gantry schedule [-v] -kubeconfig FILE -pod POD pod
  gantry schedule [-v] -nodes FILE -claim FILE pod
  gantry schedule [-v] -pools FILE -claims FILE select
  gantry schedule gen-example SHAPE
VERBOSE=y in the environment is the same as -v, which is --verbose here.

Exit codes:
  0  the command ran, whatever the result is
  1  the command line is wrong, or something cannot be read
  3  with --exit-code: no node satisfies all claims
  4  with --exit-code: undecided, because the search reached its step limit on some nodes")]
pub(super) struct Arguments {
    /// The pod; or `pod`, `select` or `gen-example SHAPE`, as in the original.
    #[arg(value_name = "POD")]
    words: Vec<String>,

    #[command(flatten)]
    read: InputFlags,

    /// The namespace of the pod.
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,

    /// Simulate a change; may be repeated. See below.
    #[arg(long, value_name = "CHANGE")]
    what_if: Vec<WhatIfChange>,

    /// The maximum number of search steps on each node.
    #[arg(long, value_name = "STEPS", default_value_t = Budget::STEPS)]
    #[arg(value_parser = amounts::steps, allow_hyphen_values = true)]
    steps: u64,

    #[command(flatten)]
    print: OutputFlags,

    /// Exit with 3 if claims are not satisfied, with 4 if that is undecided.
    #[arg(long)]
    exit_code: bool,

    /// Do not print that nothing was written.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    reach: ClusterFlags,
}

/// Flags for the input.
#[derive(Debug, clap::Args)]
struct InputFlags {
    /// Files, folders of *.yaml, *.yml and *.json files, or `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    /// Also read folders below the given ones.
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Drop unknown fields with a warning instead of rejecting the document.
    #[arg(long)]
    lenient: bool,

    /// Nodes, in the original file format.
    #[arg(long, value_name = "FILE", help_heading = "As in the original")]
    nodes: Vec<PathBuf>,

    /// The claims of a pod, in the original file format.
    #[arg(long, value_name = "FILE", help_heading = "As in the original")]
    claim: Vec<PathBuf>,

    /// Pools.
    #[arg(long, value_name = "FILE", help_heading = "As in the original")]
    pools: Vec<PathBuf>,

    /// Claims.
    #[arg(long, value_name = "FILE", help_heading = "As in the original")]
    claims: Vec<PathBuf>,

    /// The name of the pod, with the argument `pod`.
    #[arg(long, value_name = "POD", help_heading = "As in the original")]
    pod: Option<String>,
}

/// Flags for the output.
#[derive(Debug, clap::Args)]
struct OutputFlags {
    /// Print everything that was found on each node. Also: -v.
    #[arg(long)]
    verbose: bool,

    /// Explain in sentences why nodes, pools and devices are rejected.
    #[arg(long)]
    explain: bool,

    /// Print all facts in this format.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,

    /// Call devices resources, as the output for the original files did.
    #[arg(long)]
    e1_wording: bool,
}

/// The command that the positional arguments select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScheduleCommand<'a> {
    /// Schedules what the files contain.
    FromInput,
    /// Selects devices for all claims.
    Select,
    /// Schedules the claims of a pod in the original file format.
    Claim,
    Pod(&'a str),
    Generate(&'a str),
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let question = arguments.parse_command()?;
    if let ScheduleCommand::Generate(shape) = question {
        return generate::print(shape, generate::ShapeSize::default(), OutputFormat::Yaml, output);
    }
    let live = arguments.reads_cluster();
    let mut objects = match live {
        true => read_cluster(arguments, question, output)?,
        false => Objects::of(Source::File),
    };
    arguments.read.load(&mut objects, output)?;
    for change in &arguments.what_if {
        change.apply(&mut objects)?;
    }
    let OutputFlags { verbose, explain, output: form, e1_wording } = &arguments.print;
    let wording = if *e1_wording { Wording::Resource } else { Wording::Device };
    let options = Options { steps: arguments.steps, explain: *explain, wording };
    let pod;
    let asked = match arguments.resolve_target(question, &objects)? {
        ResolvedTarget::Claims => ScheduleTarget::Claims,
        ResolvedTarget::Claim(claim) => ScheduleTarget::CapacityClaim(claim),
        ResolvedTarget::Pod(found) => {
            pod = found;
            ScheduleTarget::Pod { namespace: &pod.0, name: &pod.1 }
        }
    };
    let decision = decide(&objects, asked, &options)?;
    for note in &decision.notes {
        output.warning(note);
    }
    match form {
        Some(form) => output.result_text(&render(&decision.tree(), *form)?)?,
        None => output.result_text(&decision.text(*verbose || config::verbose())?)?,
    }
    if live && !arguments.dry_run {
        output.note(
            "nothing was written: the scheduler of the cluster allocates devices to pods; this is \
             what it would decide now",
        );
    }
    Ok(match (arguments.exit_code, decision.verdict) {
        (false, _) | (true, Verdict::Satisfied) => CommandOutcome::Success,
        (true, Verdict::Unsatisfied) => CommandOutcome::FailureWithCode(3),
        (true, Verdict::Undecided) => CommandOutcome::FailureWithCode(4),
    })
}

/// Reads a cluster, as far as the command needs it.
fn read_cluster(
    arguments: &Arguments,
    question: ScheduleCommand<'_>,
    output: &mut Output,
) -> anyhow::Result<Objects> {
    let pod = match question {
        ScheduleCommand::Pod(name) => Some(name),
        ScheduleCommand::FromInput
        | ScheduleCommand::Select
        | ScheduleCommand::Claim
        | ScheduleCommand::Generate(_) => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The files may contain a pod that is not in the cluster yet.
    let optional = !arguments.read.is_empty();
    let read = snapshot::read(&arguments.reach, &arguments.namespace, pod, optional, output);
    runtime.block_on(read)
}

/// A command with the objects it applies to.
enum ResolvedTarget<'a> {
    Claims,
    Claim(&'a gantry_api::devices::PodCapacityClaim),
    /// Namespace and name.
    Pod((String, String)),
}

impl Arguments {
    /// Returns whether a cluster is read: if one is named, or there is no other input.
    fn reads_cluster(&self) -> bool {
        self.reach.is_explicit() || self.read.is_empty()
    }

    fn parse_command(&self) -> anyhow::Result<ScheduleCommand<'_>> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let files = !self.read.nodes.is_empty() || !self.read.claim.is_empty();
        Ok(match (words.as_slice(), self.read.pod.as_deref()) {
            (["gen-example", shape], None) => ScheduleCommand::Generate(shape),
            (["gen-example"], _) => {
                bail!("name a shape after gen-example; `gantry devices gen --help` lists them")
            }
            (["select"], None) => ScheduleCommand::Select,
            (["pod"] | [], Some(pod)) => ScheduleCommand::Pod(pod),
            (["pod"], None) if files => ScheduleCommand::Claim,
            ([pod], None) => ScheduleCommand::Pod(pod),
            ([], None) => ScheduleCommand::FromInput,
            ([word, ..], Some(pod)) => {
                bail!("both --pod {pod} and \"{word}\" are given; name one pod")
            }
            ([_, more, ..], None) => bail!("unexpected argument \"{more}\"; name one pod"),
        })
    }

    fn resolve_target<'a>(
        &self,
        question: ScheduleCommand<'_>,
        objects: &'a Objects,
    ) -> anyhow::Result<ResolvedTarget<'a>> {
        let Objects { pods, capacity_claims, .. } = objects;
        let named = |name: &str| ResolvedTarget::Pod((self.namespace.clone(), name.to_owned()));
        Ok(match question {
            ScheduleCommand::Select | ScheduleCommand::Generate(_) => ResolvedTarget::Claims,
            ScheduleCommand::Pod(name) => named(name),
            ScheduleCommand::Claim => ResolvedTarget::Claim(single_claim(capacity_claims)?),
            ScheduleCommand::FromInput if !capacity_claims.is_empty() => {
                ResolvedTarget::Claim(single_claim(capacity_claims)?)
            }
            ScheduleCommand::FromInput => match pods.as_slice() {
                [] => ResolvedTarget::Claims,
                [pod] => {
                    let text = |field: &str| pod["metadata"][field].as_str();
                    let namespace = text("namespace").unwrap_or("default").to_owned();
                    let name = text("name").or_else(|| text("generateName")).unwrap_or_default();
                    ResolvedTarget::Pod((namespace, name.to_owned()))
                }
                several => {
                    let names: Vec<_> =
                        several.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
                    bail!("the files have several pods; name one of {}", names.join(", "))
                }
            },
        })
    }
}

fn single_claim<T>(claims: &[T]) -> anyhow::Result<&T> {
    match claims {
        [claim] => Ok(claim),
        [] => bail!("the files have no claims of a pod; use --claim FILE"),
        several => bail!("the files have the claims of {} pods; name one file", several.len()),
    }
}

impl InputFlags {
    fn is_empty(&self) -> bool {
        let Self { filename, recursive: _, lenient: _, nodes, claim, pools, claims, pod: _ } = self;
        [filename, nodes, claim, pools, claims].iter().all(|files| files.is_empty())
    }

    /// Reads all files. The file of each flag must contain objects of the kind the flag is named
    /// after.
    fn load(&self, objects: &mut Objects, output: &mut Output) -> anyhow::Result<()> {
        let nodes = |it: &Objects| it.all_nodes().len();
        let claim = |it: &Objects| it.capacity_claims.len();
        let pools = |it: &Objects| it.pools.len();
        let claims = |it: &Objects| it.claims.len() + it.privileged.len();
        self.load_some(&self.filename, "--filename", objects, |_| 0, output)?;
        self.load_some(&self.nodes, "--nodes", objects, nodes, output)?;
        self.load_some(&self.pools, "--pools", objects, pools, output)?;
        self.load_some(&self.claim, "--claim", objects, claim, output)?;
        self.load_some(&self.claims, "--claims", objects, claims, output)?;
        if !objects.capacity_claims.is_empty() && objects.source == Source::Server {
            bail!("claims in the original file format need nodes in that format, not a cluster");
        }
        Ok(())
    }

    fn load_some(
        &self,
        files: &[PathBuf],
        option: &str,
        objects: &mut Objects,
        count: impl Fn(&Objects) -> usize,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        let options = decode::Options { lenient: self.lenient };
        for file in files {
            let before = count(objects);
            let read = load(std::slice::from_ref(file), self.recursive, options, output);
            let read = read.with_context(|| format!("cannot use {option} {}", file.display()))?;
            for loaded in read {
                objects.add(loaded.document.content);
            }
            if option != "--filename" && count(objects) == before {
                bail!("{option} {}: the file has no objects of that kind", file.display());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Cli, Command};
    use super::*;

    fn arguments(line: &str) -> Arguments {
        let words = line.split(' ').map(std::ffi::OsString::from).collect();
        match Cli::try_parse_from(super::super::legacy_spelling::translate_legacy_flags(words))
            .unwrap()
            .command
        {
            Command::Schedule(arguments) => *arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_form_of_the_original_is_understood() {
        let table = [
            ("gantry schedule -kubeconfig F web", ScheduleCommand::Pod("web"), true),
            ("gantry schedule -v -kubeconfig F -pod web pod", ScheduleCommand::Pod("web"), true),
            ("gantry schedule -nodes N -claim C pod", ScheduleCommand::Claim, false),
            ("gantry schedule -pools P -claims C select", ScheduleCommand::Select, false),
            ("gantry schedule gen-example 0", ScheduleCommand::Generate("0"), true),
            ("gantry schedule web", ScheduleCommand::Pod("web"), true),
            ("gantry schedule pod", ScheduleCommand::Pod("pod"), true),
            ("gantry schedule -f F", ScheduleCommand::FromInput, false),
            ("gantry schedule -f F --context c", ScheduleCommand::FromInput, true),
        ];
        for (line, question, live) in table {
            let arguments = arguments(line);
            assert_eq!(arguments.parse_command().unwrap(), question, "{line}");
            assert_eq!(arguments.reads_cluster(), live, "{line}");
        }
        assert!(arguments("gantry schedule -v -nodes N -claim C pod").print.verbose);
    }

    #[test]
    fn one_pod_is_named_once() {
        let table = [
            ("gantry schedule a b", "unexpected argument \"b\""),
            ("gantry schedule --pod a b", "both --pod a and \"b\" are given"),
            ("gantry schedule gen-example", "name a shape"),
        ];
        for (line, expected) in table {
            let error = arguments(line).parse_command().unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
