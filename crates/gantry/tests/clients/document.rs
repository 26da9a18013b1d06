//! The pages for users, command by command.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;

use super::shell::{Outcome, Shell};

/// The commands of a page: its fenced blocks of a kind.
fn commands(page: &str, fence: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let page = fs::read_to_string(page).unwrap();
    let fence = format!("```{fence}\n");
    let blocks: Vec<&str> =
        page.split(&fence).skip(1).map(|block| block.split_once("```").unwrap().0).collect();
    assert!(!blocks.is_empty(), "no block {fence}");
    blocks.concat()
}

/// Runs them in one shell that stops at the first failure.
fn walk(shell: &Shell, page: &str) -> Outcome {
    follow(shell, &commands(page, "sh"))
}

fn follow(shell: &Shell, commands: &str) -> Outcome {
    let outcome = shell.run(&format!("set -eux\n{commands}"));
    assert_eq!(outcome.code, Some(0), "{}\n{}", outcome.out, outcome.err);
    outcome
}

#[test]
fn every_command_of_the_readme_works() {
    let shell = Shell::without_cluster();
    // What `make build` would have made.
    let target = shell.home().join("target");
    fs::create_dir_all(target.join("release")).unwrap();
    symlink(env!("CARGO_BIN_EXE_gantry"), target.join("release/gantry")).unwrap();
    let before = format!(
        // In a shell of its own, as `$(jobs -p)` has it, there are no jobs.
        "trap 'jobs -p > jobs; kill $(cat jobs) 2>/dev/null || true' EXIT\nmake() {{ :; }}\n\
         export CARGO_TARGET_DIR={}\n",
        target.display()
    );
    let Outcome { out, err, .. } = follow(&shell, &(before + &commands("../README.md", "sh")));
    for words in [
        "node/big-0 condition met",
        "insufficient nvidia.com/gpu",
        r#"{"tune":[{"driver":"gpu.gantry.dev""#,
        "Resources: cpu: needs 800",
        "appwrapper.workload.codeflare.dev/train condition met",
        "\nno\n",
        "\nyes\n",
        "kind: DeviceClass",
    ] {
        assert!(out.to_lowercase().contains(&words.to_lowercase()), "{words}\n{out}\n{err}");
    }
}

#[test]
fn every_command_about_kernel_modules_works() {
    let shell = Shell::without_cluster();
    // In a shell of its own, as `$(jobs -p)` has it, there are no jobs.
    let before = "trap 'jobs -p > jobs; kill $(cat jobs) 2>/dev/null || true' EXIT\n";
    let commands = before.to_owned() + &commands("kernel-modules.md", "sh");
    let Outcome { out, err, .. } = follow(&shell, &commands);
    for words in [
        "module.ooto.sigs.k8s.io/sample condition met",
        "6.12.100+deb13-amd64",
        "(simulated: commands are not run in gantry up",
        "a synthetic module for kernel",
        "sample                 16384  0",
        "signer:",
        "could not insert 'hello': Key was rejected by service",
        "hello                  16384  0",
        "node/node-0 condition met",
        "signed-6.11.0-9-generic",
        "module.ooto.sigs.k8s.io \"hello\" deleted",
    ] {
        assert!(out.contains(words), "{words}\n{out}\n{err}");
    }
    let (_, after) = out.rsplit_once("deleted").unwrap();
    assert!(!after.contains("hello"), "it is still loaded: {after}");
}

#[tokio::test]
async fn every_command_of_the_tour_works() {
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&Clock::system()).await.unwrap();
    let shell = Shell::new(server.kubeconfig());
    fs::create_dir(shell.home().join("gantry")).unwrap();
    fs::copy(server.kubeconfig(), shell.home().join("gantry/kubeconfig")).unwrap();
    let outcome = walk(&shell, "tour.md");
    assert!(outcome.out.contains("mode: slow"), "{}", outcome.out);
    assert!(outcome.err.contains("No resources found in demo namespace"), "{}", outcome.err);
}

#[tokio::test]
async fn every_command_about_sharing_works() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().join("data");
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).data(&data);
    let server = plan.start(&Clock::system()).await.unwrap();
    let shell = Shell::new(server.kubeconfig());
    fs::copy(server.kubeconfig(), data.join("kubeconfig")).unwrap();
    symlink(&data, shell.home().join("gantry")).unwrap();
    let Outcome { out, err, .. } = walk(&shell, "sharing.md");
    for words in [
        "clusterrolebinding/blue-node-view created",
        "ask an administrator of the cluster for ClusterRole fma-crd-admin",
        "ended with 2",
        "launcherconfigs.fma.llm-d.ai unchanged: it has version v1alpha1",
        "1 object in team-blue",
        "others have objects of the group: 1 in team-blue",
        "ended with 3",
        "launcherconfigs.fma.llm-d.ai deleted: no other namespace uses it",
        "stays: namespace",
    ] {
        assert!(out.contains(words), "{words}\n{out}\n{err}");
    }
}

#[tokio::test]
async fn every_command_about_devices_works() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().join("data");
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).data(&data);
    let server = plan.start(&Clock::system()).await.unwrap();
    let shell = Shell::new(server.kubeconfig());
    fs::copy(server.kubeconfig(), data.join("kubeconfig")).unwrap();
    symlink(&data, shell.home().join("gantry")).unwrap();
    let Outcome { out, err, .. } = walk(&shell, "devices.md");
    // What the page shows is what is printed.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/devices.md");
    let page = fs::read_to_string(page).unwrap();
    let shown: Vec<String> = page
        .split("```\n\n    ")
        .skip(1)
        .map(|block| {
            let lines = format!("    {block}");
            let lines =
                lines.lines().take_while(|line| line.starts_with("    ") || line.is_empty());
            let lines: Vec<&str> =
                lines.map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
            lines.join("\n").trim_end().to_owned()
        })
        .collect();
    assert_eq!(shown.len(), 4, "{shown:?}");
    for text in shown {
        assert!(out.contains(&text), "{text}\n--- is not in ---\n{out}\n{err}");
    }
    for words in [
        "pod/train created",
        "gantry\n",
        "devicepool.devmgmtproto.k8s.io/foozer-1000-small-00-pool-foozer",
        "foozer-1000-small-00: satisfied all claims with score 100",
    ] {
        assert!(out.contains(words), "{words}\n{out}\n{err}");
    }
}

#[tokio::test]
async fn every_command_about_the_queue_works() {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).whole_cluster().flag("--quota");
    let server = plan.start(&Clock::system()).await.unwrap();
    let shell = Shell::new(server.kubeconfig());
    let Outcome { out, err, .. } = walk(&shell, "queue.md");
    for words in [
        "appwrapper.workload.codeflare.dev/train condition met",
        "Resources: cpu: needs 90, 70 available, 20 missing",
        "position    1 of 1",
        "deployment/second   cpu 90, found in the template   not made",
        "wait for others to end, or delete some",
        "Quota: node \"silver\" of quota tree team lacks 5 of cpu",
        "Quota: quota tree team has no node \"bronze\"",
        "label it team=LEAF, bronze is none; leaves are default, gold, silver",
        "totalAllocation:",
        "appwrapper.workload.codeflare.dev/nobody condition met",
    ] {
        assert!(out.contains(words), "{words}\n{out}\n{err}");
    }
}

#[tokio::test]
async fn every_command_about_devices_of_the_demo_works() {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).whole_cluster();
    let plan = plan.flag("--ephemeral").flag("--demo");
    let server = plan.start(&Clock::system()).await.unwrap();
    let shell = Shell::new(server.kubeconfig());
    let Outcome { out, err, .. } = follow(&shell, &commands("devices.md", "sh demo"));
    for words in [
        "pod/tuner condition met",
        r#"{"tune":[{"driver":"gpu.gantry.dev","pool":"gpu-0-gpus","claim":"tuner-gpu-"#,
        r#"gpu-0 ["tuner"]"#,
        r#"pod "tuner" deleted"#,
    ] {
        assert!(out.contains(words), "{words}\n{out}\n{err}");
    }
}

/// Checks that the parts of each time line add up to its total, and returns the number of lines.
fn check_time_lines(text: &str) -> usize {
    let milliseconds = |part: &str| -> u64 {
        let number = part.trim().strip_suffix(" s").unwrap().rsplit(' ').next().unwrap();
        let (seconds, rest) = number.split_once('.').unwrap();
        assert_eq!(rest.len(), 3, "{part}");
        seconds.parse::<u64>().unwrap() * 1000 + rest.parse::<u64>().unwrap()
    };
    let lines = text.lines().filter_map(|it| it.split("time line from its creation: ").nth(1));
    let mut count = 0;
    for line in lines {
        let (parts, total) = line.rsplit_once(" = ").unwrap();
        let parts: Vec<u64> = parts.split(" + ").map(milliseconds).collect();
        assert!(parts.len() >= 6, "{line}");
        let (sum, total) = (parts.iter().sum::<u64>(), milliseconds(total));
        // Each part is rounded to milliseconds.
        assert!(sum.abs_diff(total) <= parts.len() as u64, "{line}");
        count += 1;
    }
    count
}

#[tokio::test]
async fn as_83_every_command_about_actuation_works_and_time_lines_add_up() {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).whole_cluster();
    let plan = plan.flag("--ephemeral").flag("--demo");
    let server = plan.start(&Clock::system()).await.unwrap();
    let shell = Shell::new(server.kubeconfig());
    let Outcome { out, err, .. } = walk(&shell, "actuation.md");
    let answers: Vec<&str> = out.lines().filter(|it| it.contains("\"model\":\"tiny/")).collect();
    assert_eq!(answers.len(), 3, "{out}\n{err}");
    for (answer, model) in answers.iter().zip(["tiny/a", "tiny/b", "tiny/a"]) {
        assert!(answer.contains(&format!("\"model\":\"{model}\"")), "{answer}");
    }
    for words in [
        "path: hot; there is no better one",
        "(hot)",
        "rolebinding.rbac.authorization.k8s.io/models created",
        "requests an engine of InferenceServerConfig a in a launcher",
        "LauncherPopulationPolicy",
    ] {
        assert!(out.contains(words), "{words}\n{out}\n{err}");
    }
    assert_eq!(check_time_lines(&out), 2, "{out}");
}
