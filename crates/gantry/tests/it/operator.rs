//! `gantry operator` as its users meet it: its configuration, its start, its manifests.

mod authors;
mod leaves;
mod metrics;
mod queue;
mod reload;
mod rights;
mod settings;
mod simulation;
mod start;
mod webhook;

use std::process::ExitStatus;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::{EmbeddedServer, Plan};
use gantry_testkit::http::{Client, Credentials, Protocol, Request, Target};

use super::{Run, gantry_with};
use crate::shared_operator::Site;
use crate::shared_process::Operator;

/// An embedded server with the operator's manifests in it.
async fn site() -> (EmbeddedServer, Site) {
    let clock = Clock::system();
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral");
    let server = plan.start(&clock).await.unwrap();
    let site = Site::new(server.target(), &clock).await;
    (server, site)
}

/// What tests wait for, one after the other.
impl Operator {
    /// The next line of the log with this in it.
    fn wait_for_line(&mut self, part: &str) -> String {
        loop {
            let next = self.lines.recv_timeout(std::time::Duration::from_secs(60));
            assert!(next.is_ok(), "no {part:?} in\n{}", self.said());
            let line = next.unwrap();
            self.read.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Where it serves something, from its log.
    fn address(&mut self) -> String {
        let line = self.wait_for_line("listening");
        let (_, rest) = line.split_once("address=").unwrap();
        rest.trim_matches('"').split(['"', ' ']).next().unwrap().to_owned()
    }

    /// Waits for its end, and gives the rest of its log.
    fn wait_for_exit(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        self.read.extend(self.lines.iter());
        (status, self.read.join("\n"))
    }
}

/// What a page of an operator says.
async fn get(address: &str, path: &str) -> (u16, String) {
    let (base, credentials) = (format!("http://{address}"), Credentials::Anonymous);
    let target = Target { base, authority: String::new(), credentials };
    let client = Client::new(&target, Protocol::Http1, Clock::system()).unwrap();
    let answer = client.send(Request::get(path)).await.unwrap();
    (answer.status.as_u16(), answer.text())
}

/// A file with this configuration, in a folder that goes with the first value.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gantry.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// Runs `gantry operator` on a file; paths in what it says are cut to the name of the file.
fn operator(text: &str, flags: &[&str], environment: &[(&str, &str)]) -> Run {
    let (folder, path) = file(text);
    let arguments = [&["operator", "--config-file", &path], flags].concat();
    let mut run = gantry_with(&arguments, environment, "");
    let prefix = format!("{}/", folder.path().display());
    run.out = run.out.replace(&prefix, "");
    run.err = run.err.replace(&prefix, "");
    run
}

#[test]
fn a_valid_configuration_is_confirmed() {
    for text in ["mcad: {}\n", "mcad:\n  backoffTime: 3\n", "mcad: {enabled: false}\n"] {
        let run = operator(text, &["--check-config"], &[]);
        assert_eq!((run.code, &*run.err), (0, ""), "{text:?}");
        assert_eq!(run.out, "the configuration of gantry.yaml is valid (0 warnings)\n", "{text:?}");
    }
}

/// What was valid, and had no effect.
#[test]
fn ignored_settings_are_reported() {
    for text in ["", "# nothing\n"] {
        let run = operator(text, &["--check-config"], &[]);
        let said = "warning: gantry.yaml: sets nothing: every value is the default; write keys, or remove it\n";
        assert_eq!((run.code, &*run.err), (0, said), "{text:?}");
        assert_eq!(run.out, "the configuration of gantry.yaml is valid (1 warnings)\n", "{text:?}");
    }
    // The manifest of the ConfigMap, as `kubectl get -o yaml` prints it.
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gantry-config, namespace: gantry-system}\n\
               data:\n  config.yaml: |\n    mcad: {enabled: false, backoffTime: 7}\n";
    let run = operator(map, &["--print-config"], &[]);
    assert_eq!((run.code, &*run.err), (0, ""));
    assert!(
        run.out.contains("mcadEnabled: false # from gantry.yaml, config.yaml:1:8\n"),
        "{}",
        run.out
    );
    assert!(
        run.out.contains("  backoffTime: 7 # from gantry.yaml, config.yaml:1:24\n"),
        "{}",
        run.out
    );
    assert!(run.out.contains("instascale:\n  enabled: false\n"), "{}", run.out);
    for text in [
        "apiVersion: v1\nkind: List\nitems: []\n",
        "apiVersion: apps/v1\nkind: Deployment\nspec: {}\n",
        "mcad: {}\n---\nmcad: {}\n",
        "mcad: {}\nmcad: {}\n",
        "[]\n",
    ] {
        let run = operator(text, &["--check-config"], &[]);
        assert_eq!((run.code, &*run.out), (1, ""), "{text:?}: {}", run.err);
        assert!(run.err.starts_with("error: gantry.yaml:"), "{text:?}: {}", run.err);
    }
}

#[test]
fn cf_6_unknown_keys_are_warnings() {
    let run = operator("mcad:\n  backoftime: 3\nextra: 1\n", &["--check-config"], &[]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(
        run.err,
        "warning: gantry.yaml:2:3: mcad.backoftime: ignored: unknown key; did you mean \
         mcad.backoffTime?\nwarning: gantry.yaml:3:1: extra: ignored: unknown key\n"
    );
    assert_eq!(run.out, "the configuration of gantry.yaml is valid (2 warnings)\n");
}

#[test]
fn cf_5_errors_end_the_start_with_code_1_and_are_all_named() {
    let text = "mcad:\n  backoffTime: soon\ninstascale:\n  machineSetsStrategy: steal\nother: 1\n";
    for flags in [&["--check-config"][..], &["--print-config"], &[]] {
        let run = operator(text, flags, &[]);
        assert_eq!((run.code, &*run.out), (1, ""), "{flags:?}");
        let said: Vec<_> = run.err.lines().filter(|line| !line.starts_with('I')).collect();
        assert_eq!(
            said,
            [
                "warning: gantry.yaml:5:1: other: ignored: unknown key",
                "error: gantry.yaml:2:16: mcad.backoffTime: found \"soon\", expected a whole number \
                 from 0 to 2147483647",
                "error: gantry.yaml:4:24: instascale.machineSetsStrategy: found \"steal\", expected \
                 reuse or duplicate",
            ],
            "{flags:?}"
        );
    }
}

#[test]
fn a_wrong_flag_is_a_wrong_command_line() {
    for flag in ["--backofftime=soon", "--preemption=maybe", "--config=A", "--nothing"] {
        let run = operator("", &["--check-config", flag], &[]);
        assert_eq!((run.code, &*run.out), (2, ""), "{flag}");
        assert!(run.err.contains(flag.split('=').next().unwrap()), "{flag}: {}", run.err);
    }
}

/// Flags over environment over file over defaults, and each value says where it is from.
#[test]
fn op_14_legacy_names_override_in_order() {
    let text = "\
mcad:
  backoffTime: 1
  headOfLineHoldingTime: 1
  quotaEnabled: true
";
    let environment = [
        ("BACKOFFTIME", "2"),
        ("HEADOFLINEHOLDINGTIME", "2"),
        ("PREEMPTION", "True"),
        ("QUOTA_REST_URL", "http://x"),
    ];
    let flags = ["--print-config", "--backofftime=3", "--dispatchResourceReservationTimeout=1"];
    let run = operator(text, &flags, &environment);
    assert_eq!(run.code, 0, "{}", run.err);
    for line in [
        "  backoffTime: 3 # from --backofftime\n",
        "  headOfLineHoldingTime: 2 # from variable HEADOFLINEHOLDINGTIME\n",
        "  preemption: true # from variable PREEMPTION\n",
        "  quotaEnabled: true # from gantry.yaml:4:3\n",
        "  wakeOnRelease: true\n",
    ] {
        assert!(run.out.contains(line), "{line:?} in\n{}", run.out);
    }
    assert_eq!(
        run.err,
        "warning: variable QUOTA_REST_URL: has no effect, as it had none before; remove it\n\
         warning: --dispatchResourceReservationTimeout: has no effect, as it had none before; \
         remove it\n"
    );
    // What is printed is itself a configuration that says the same.
    let again = operator(&run.out, &["--print-config"], &[]);
    let bare = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" # ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(bare(&again.out), bare(&run.out));
    assert_eq!(again.err, "");
}

#[test]
fn cf_1_without_a_namespace_there_is_no_map_to_read() {
    let run = gantry_with(&["operator", "--check-config", "--namespace="], &[], "");
    assert_eq!(run.code, 1);
    assert!(run.err.contains("set NAMESPACE or use --namespace"), "{}", run.err);
    let run = gantry_with(&["operator", "--check-config"], &[("NAMESPACE", "A")], "");
    assert_eq!(run.code, 1);
    assert!(run.err.contains("cannot use \"A\" as the operator's namespace"), "{}", run.err);
}
