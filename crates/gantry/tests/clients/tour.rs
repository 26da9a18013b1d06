//! A tour of kubectl: every command on the embedded server and on a real one, word for word alike.
//!
//! The commands are in `tour/steps`, a paragraph each. What differs for a reason is in a table that
//! fails when a row no longer holds; every other difference is a fault of the embedded server.

use std::fs;
use std::path::Path;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::embedded::Plan;
use similar::TextDiff;

use super::mask::Masks;
use super::say;
use super::shell::{Outcome, Shell};

/// Commands to which the servers answer differently, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    ("kubectl version", "each says which program it is"),
    ("kubectl version -o json", "each says which program it is"),
    ("kubectl auth whoami -o yaml", "the administrators have names of their own"),
    ("kubectl get componentstatuses", "the embedded server has no components beside it"),
    (
        "kubectl get cm -n kube-system",
        "the embedded server has no proxies in front of it and no old tokens to track",
    ),
    (
        "kubectl get all,cm,secret,sa,role,rolebinding,quota,pdb,ingress,hpa -o wide",
        "the embedded server counts what is used of a quota without a controller",
    ),
    ("kubectl get quota budget -o yaml", "the same"),
    ("kubectl describe namespace tour", "the same"),
    ("kubectl describe quota budget", "the same"),
];

/// One piece of shell.
struct Step {
    file: String,
    script: String,
}

#[tokio::test]
async fn kubectl_cannot_tell_the_embedded_server_from_a_real_one() {
    let clock = Clock::system();
    let real = Box::pin(RealCluster::plan().housekeeping().start()).await.unwrap();
    let embedded = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&clock).await.unwrap();
    let steps = steps();
    let began = clock.moment();
    let (real, embedded) = std::thread::scope(|scope| {
        let real = scope.spawn(|| walk(real.admin().kubeconfig(), &steps));
        let embedded = scope.spawn(|| walk(embedded.kubeconfig(), &steps));
        (real.join().unwrap(), embedded.join().unwrap())
    });
    let took = clock.moment() - began;
    let mut wrong = Vec::new();
    for (step, (real, embedded)) in steps.iter().zip(real.iter().zip(&embedded)) {
        let reason = DIFFERENCES.iter().find(|(script, _)| *script == step.script);
        match (real == embedded, reason) {
            (true, None) | (false, Some(_)) => {}
            (true, Some((_, why))) => wrong.push(format!("{}: no difference: {why}", step.script)),
            (false, None) => {
                let diff = TextDiff::from_lines(real.as_str(), embedded.as_str());
                let diff = diff.unified_diff().header("real", "embedded").to_string();
                wrong.push(format!("{}: {}\n{diff}", step.file, step.script));
            }
        }
    }
    for (script, _) in DIFFERENCES {
        if !steps.iter().any(|step| step.script == *script) {
            wrong.push(format!("no such step: {script}"));
        }
    }
    assert!(wrong.is_empty(), "{} steps differ:\n{}", wrong.len(), wrong.join("\n"));
    say(&format!("{} steps of kubectl alike in {took:.1?}", steps.len() - DIFFERENCES.len()));
}

/// Runs every step and returns what each left behind, masked.
fn walk(kubeconfig: &Path, steps: &[Step]) -> Vec<String> {
    let shell = Shell::new(kubeconfig);
    shell.link("files", "tests/clients/tour/files");
    shell.link("manifests", "../api/tests/manifests");
    let masks = Masks::new();
    let run = |step: &Step| {
        let Outcome { code, out, err } = shell.run(&step.script);
        let code = code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
        masks.apply(&format!("{out}{err}ended with {code}\n"), shell.home())
    };
    steps.iter().map(run).collect()
}

/// The paragraphs of all files, in order, without comments.
fn steps() -> Vec<Step> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/tour/steps");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut steps = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        for paragraph in text.split("\n\n") {
            let lines = paragraph.lines().filter(|line| !line.starts_with('#'));
            let script = lines.collect::<Vec<_>>().join("\n").trim().to_owned();
            if !script.is_empty() {
                steps.push(Step { file: file.clone(), script });
            }
        }
    }
    steps
}
