//! `gantry schedule`: which devices a pod would get, and why not others.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use gantry_api::decode;
use gantry_api::finding::Source;
use gantry_devices::dump::file::Wording;
use gantry_devices::problem::Budget;
use gantry_devices::schedule::{Asked, Change, Objects, Options, Verdict, decide};

use super::devices::{generate, snapshot};
use super::files::load;
use super::reach::Reach;
use super::{End, Form, amounts, render};
use crate::config;
use crate::output::Output;

/// Show which devices a pod would get, on which node, and why not others.
///
/// It reads pods, claims, classes, drivers, pools and nodes from files, from a cluster, or from a
/// cluster with files laid over it, and looks at devices alone: processors, memory and everything
/// else that schedulers look at is not considered. Nothing is ever written: in a cluster devices are
/// given by the scheduler that runs there.
///
/// Without the name of a pod it is the only pod of the files; if they have none, all claims in them
/// together. Files from before there were API objects, with nodes and the claims of a pod, are
/// answered in the words of their time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry schedule -f cluster/ -f pod.yaml            from files and folders
  gantry schedule web                                a pod of the cluster
  gantry schedule --kubeconfig prod -f pod.yaml      a pod that is not there yet
  gantry schedule -f . --explain                     why nodes and devices are refused
  gantry schedule -f . --what-if used=node-a-gpus/gpu-0 --what-if remove-node=node-b
  gantry devices gen zero | gantry schedule -f - -f claim.yaml -o json

What may be supposed, as often as you like, in this order:
  add-node=NAME                 a node without pools of its own
  add-node=NAME:like=NODE       a node with the labels of NODE and free copies of its pools
  remove-node=NAME              a node is gone, and its pools with it
  used=POOL/DEVICE              somebody has the device; * for all, a number where a pool only counts
  tainted=POOL/DEVICE:EFFECT    the device has a taint: NoSchedule, NoExecute or None
  Where several nodes have a pool of that name, write NODE/POOL/DEVICE.

As the original had it, with one dash or two:
  gantry schedule [-v] -kubeconfig FILE POD
  gantry schedule [-v] -kubeconfig FILE -pod POD pod
  gantry schedule [-v] -nodes FILE -claim FILE pod
  gantry schedule [-v] -pools FILE -claims FILE select
  gantry schedule gen-example SHAPE
VERBOSE=y in the environment is the same as -v, which is --verbose here.

Exit codes:
  0  answered, whatever the answer is
  1  the command line is wrong, or something cannot be read
  3  with --exit-code: no node satisfies all claims
  4  with --exit-code: no node is known to, and on some the search ended before it knew")]
pub(super) struct Arguments {
    /// The pod; or `pod`, `select` or `gen-example SHAPE`, as in the original.
    #[arg(value_name = "POD")]
    words: Vec<String>,

    #[command(flatten)]
    read: Read,

    /// The namespace of the pod.
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,

    /// Suppose a change; may be repeated. See below.
    #[arg(long, value_name = "CHANGE")]
    what_if: Vec<Change>,

    /// How many steps to search on each node before giving up.
    #[arg(long, value_name = "STEPS", default_value_t = Budget::STEPS)]
    #[arg(value_parser = amounts::steps, allow_hyphen_values = true)]
    steps: u64,

    #[command(flatten)]
    print: Print,

    /// End with 3 if claims are not satisfied, with 4 if nobody knows.
    #[arg(long)]
    exit_code: bool,

    /// Only look, and do not say that nothing is written.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    reach: Reach,
}

/// What is read.
#[derive(Debug, clap::Args)]
struct Read {
    /// Files, folders of *.yaml, *.yml and *.json files, or `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    /// Look into folders below the given ones too.
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Drop unknown fields with a warning instead of refusing the document.
    #[arg(long)]
    lenient: bool,

    /// Nodes, in the form of the oldest files.
    #[arg(long, value_name = "FILE", help_heading = "As in the original")]
    nodes: Vec<PathBuf>,

    /// The claims of a pod, in the form of the oldest files.
    #[arg(long, value_name = "FILE", help_heading = "As in the original")]
    claim: Vec<PathBuf>,

    /// Pools.
    #[arg(long, value_name = "FILE", help_heading = "As in the original")]
    pools: Vec<PathBuf>,

    /// Claims.
    #[arg(long, value_name = "FILE", help_heading = "As in the original")]
    claims: Vec<PathBuf>,

    /// The pod, with the word `pod`.
    #[arg(long, value_name = "POD", help_heading = "As in the original")]
    pod: Option<String>,
}

/// How it is told.
#[derive(Debug, clap::Args)]
struct Print {
    /// Tell everything that was found on each node. Also: -v.
    #[arg(long)]
    verbose: bool,

    /// Say in sentences why nodes, pools and devices are refused.
    #[arg(long)]
    explain: bool,

    /// Print all facts in this form.
    #[arg(short, long, value_name = "FORM")]
    output: Option<Form>,

    /// Call devices resources, as answers about the first files did.
    #[arg(long)]
    e1_wording: bool,
}

/// What the words on the command line mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question<'a> {
    /// Whatever the files are about.
    Usual,
    /// All claims.
    Select,
    /// The claims of a pod in the oldest files.
    Claim,
    Pod(&'a str),
    Generate(&'a str),
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let question = arguments.question()?;
    if let Question::Generate(shape) = question {
        return generate::print(shape, generate::Amount::default(), Form::Yaml, output);
    }
    let live = arguments.is_live();
    let mut objects = match live {
        true => read_cluster(arguments, question, output)?,
        false => Objects::of(Source::File),
    };
    arguments.read.load(&mut objects, output)?;
    for change in &arguments.what_if {
        change.apply(&mut objects)?;
    }
    let Print { verbose, explain, output: form, e1_wording } = &arguments.print;
    let wording = if *e1_wording { Wording::Resource } else { Wording::Device };
    let options = Options { steps: arguments.steps, explain: *explain, wording };
    let pod;
    let asked = match arguments.settle(question, &objects)? {
        Settled::Claims => Asked::Claims,
        Settled::Claim(claim) => Asked::CapacityClaim(claim),
        Settled::Pod(found) => {
            pod = found;
            Asked::Pod { namespace: &pod.0, name: &pod.1 }
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
            "nothing was written: in a cluster its scheduler gives devices to pods; this is what it \
             would find now",
        );
    }
    Ok(match (arguments.exit_code, decision.verdict) {
        (false, _) | (true, Verdict::Satisfied) => End::Done,
        (true, Verdict::Unsatisfied) => End::Failed(3),
        (true, Verdict::Undecided) => End::Failed(4),
    })
}

/// Reads a cluster, as far as the question needs it.
fn read_cluster(
    arguments: &Arguments,
    question: Question<'_>,
    output: &mut Output,
) -> anyhow::Result<Objects> {
    let pod = match question {
        Question::Pod(name) => Some(name),
        Question::Usual | Question::Select | Question::Claim | Question::Generate(_) => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Files may have the pod that the cluster does not have yet.
    let optional = !arguments.read.is_empty();
    let read = snapshot::read(&arguments.reach, &arguments.namespace, pod, optional, output);
    runtime.block_on(read)
}

/// A question, with what it is about.
enum Settled<'a> {
    Claims,
    Claim(&'a gantry_api::devices::PodCapacityClaim),
    /// Namespace and name.
    Pod((String, String)),
}

impl Arguments {
    /// Whether a cluster is asked: if one is named, or nothing else is.
    fn is_live(&self) -> bool {
        self.reach.is_named() || self.read.is_empty()
    }

    fn question(&self) -> anyhow::Result<Question<'_>> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let files = !self.read.nodes.is_empty() || !self.read.claim.is_empty();
        Ok(match (words.as_slice(), self.read.pod.as_deref()) {
            (["gen-example", shape], None) => Question::Generate(shape),
            (["gen-example"], _) => {
                bail!("name a shape after gen-example; `gantry devices gen --help` lists them")
            }
            (["select"], None) => Question::Select,
            (["pod"] | [], Some(pod)) => Question::Pod(pod),
            (["pod"], None) if files => Question::Claim,
            ([pod], None) => Question::Pod(pod),
            ([], None) => Question::Usual,
            ([word, ..], Some(pod)) => {
                bail!("both --pod {pod} and \"{word}\" are given; name one pod")
            }
            ([_, more, ..], None) => bail!("what does \"{more}\" mean? Name one pod"),
        })
    }

    fn settle<'a>(
        &self,
        question: Question<'_>,
        objects: &'a Objects,
    ) -> anyhow::Result<Settled<'a>> {
        let Objects { pods, capacity_claims, .. } = objects;
        let named = |name: &str| Settled::Pod((self.namespace.clone(), name.to_owned()));
        Ok(match question {
            Question::Select | Question::Generate(_) => Settled::Claims,
            Question::Pod(name) => named(name),
            Question::Claim => Settled::Claim(only(capacity_claims)?),
            Question::Usual if !capacity_claims.is_empty() => {
                Settled::Claim(only(capacity_claims)?)
            }
            Question::Usual => match pods.as_slice() {
                [] => Settled::Claims,
                [pod] => {
                    let text = |field: &str| pod["metadata"][field].as_str();
                    let namespace = text("namespace").unwrap_or("default").to_owned();
                    let name = text("name").or_else(|| text("generateName")).unwrap_or_default();
                    Settled::Pod((namespace, name.to_owned()))
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

fn only<T>(claims: &[T]) -> anyhow::Result<&T> {
    match claims {
        [claim] => Ok(claim),
        [] => bail!("there is no claim of a pod in the files; say --claim FILE"),
        several => bail!("the files have the claims of {} pods; name one file", several.len()),
    }
}

impl Read {
    fn is_empty(&self) -> bool {
        let Self { filename, recursive: _, lenient: _, nodes, claim, pools, claims, pod: _ } = self;
        [filename, nodes, claim, pools, claims].iter().all(|files| files.is_empty())
    }

    /// Reads all files. Each option must bring what it is called after.
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
            bail!(
                "claims in the form of the oldest files go with nodes of that form, not with a cluster"
            );
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
                bail!("{option} {}: there is nothing of that kind in it", file.display());
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
        match Cli::try_parse_from(super::super::spelling::modern(words)).unwrap().command {
            Command::Schedule(arguments) => *arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_form_of_the_original_is_understood() {
        let table = [
            ("gantry schedule -kubeconfig F web", Question::Pod("web"), true),
            ("gantry schedule -v -kubeconfig F -pod web pod", Question::Pod("web"), true),
            ("gantry schedule -nodes N -claim C pod", Question::Claim, false),
            ("gantry schedule -pools P -claims C select", Question::Select, false),
            ("gantry schedule gen-example 0", Question::Generate("0"), true),
            ("gantry schedule web", Question::Pod("web"), true),
            ("gantry schedule pod", Question::Pod("pod"), true),
            ("gantry schedule -f F", Question::Usual, false),
            ("gantry schedule -f F --context c", Question::Usual, true),
        ];
        for (line, question, live) in table {
            let arguments = arguments(line);
            assert_eq!(arguments.question().unwrap(), question, "{line}");
            assert_eq!(arguments.is_live(), live, "{line}");
        }
        assert!(arguments("gantry schedule -v -nodes N -claim C pod").print.verbose);
    }

    #[test]
    fn one_pod_is_named_once() {
        let table = [
            ("gantry schedule a b", "what does \"b\" mean?"),
            ("gantry schedule --pod a b", "both --pod a and \"b\" are given"),
            ("gantry schedule gen-example", "name a shape"),
        ];
        for (line, expected) in table {
            let error = arguments(line).question().unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
