//! The chart `charts/gantry` with the real helm: what it renders, what it rejects, and the release
//! of an administrator of a single namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::embedded::{EmbeddedServer, Plan};
use serde_json::{Value, json};
use similar::TextDiff;

use super::shell::{Outcome, Shell};
use super::{say, toolchain};

pub(super) const PACKAGE: &str = "helm.sh/helm/v3/cmd/helm";

/// The timeout for what must happen: many times what a loaded machine needs.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);

/// The objects that a release creates; it leaves no other trace.
const RELEASE_OBJECTS: &str = "\
serviceaccount/team-gantry
role.rbac.authorization.k8s.io/team-gantry
rolebinding.rbac.authorization.k8s.io/team-gantry
configmap/team-gantry
configmap/team-gantry-in-effect
networkpolicy.networking.k8s.io/team-gantry
deployment.apps/team-gantry
";
const LIST: &str = "kubectl get serviceaccount,role,rolebinding,configmap,networkpolicy,service,deployment \
                    -o name -l app.kubernetes.io/instance=team";

pub(super) async fn embedded() -> EmbeddedServer {
    Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&Clock::system()).await.unwrap()
}

/// A shell with helm and the charts.
pub(super) fn user_shell(kubeconfig: &Path, helm: &Path) -> Shell {
    let shell = Shell::new(kubeconfig);
    shell.link("charts", "../../charts");
    shell.link("config", "../../config");
    shell.link("chart-tests", "tests/clients/chart");
    shell.link("fma-chart-tests", "tests/clients/fma_chart");
    std::os::unix::fs::symlink(helm, shell.home().join("bin/helm")).unwrap();
    shell
}

pub(super) fn run_ok(shell: &Shell, script: &str) -> Outcome {
    let outcome = shell.run(script);
    assert_eq!(outcome.code, Some(0), "{script}: {}{}", outcome.out, outcome.err);
    outcome
}

/// Returns the shell of an administrator of this namespace, with an account in it.
fn namespace_admin_shell(namespace: &str, admin: &Shell, kubeconfig: &Path, helm: &Path) -> Shell {
    run_ok(admin, &format!("kubectl create namespace {namespace}"));
    run_ok(admin, &format!("kubectl -n {namespace} create serviceaccount alice"));
    let account = format!("--clusterrole=admin --serviceaccount={namespace}:alice");
    run_ok(admin, &format!("kubectl -n {namespace} create rolebinding alice {account}"));
    let alice = become_account(namespace, "alice", admin, user_shell(kubeconfig, helm));
    // A real server applies bindings and aggregated roles a moment after they are stored.
    wait_for_exit_code(&alice, "kubectl auth can-i create roles", 0);
    wait_for_exit_code(&alice, "kubectl auth can-i patch events", 0);
    wait_for_exit_code(&alice, "kubectl auth can-i deletecollection leases", 0);
    wait_for_exit_code(&alice, "kubectl auth can-i create networkpolicies", 0);
    alice
}

/// Sends requests until the response has this code.
pub(super) fn wait_for_exit_code(shell: &Shell, script: &str, code: i32) {
    let clock = Clock::system();
    let give_up = clock.moment() + CONDITION_TIMEOUT;
    loop {
        let outcome = shell.run(script);
        if outcome.code == Some(code) {
            return;
        }
        assert!(clock.moment() < give_up, "{script}: {}{}", outcome.out, outcome.err);
    }
}

/// The same shell with the permissions of an account.
fn become_account(namespace: &str, account: &str, admin: &Shell, shell: Shell) -> Shell {
    let token = run_ok(admin, &format!("kubectl -n {namespace} create token {account}")).out;
    run_ok(&shell, &format!("kubectl config set-credentials account --token={}", token.trim_end()));
    let context = format!("--user=account --namespace={namespace}");
    run_ok(&shell, &format!("kubectl config set-context --current {context}"));
    shell
}

pub(super) fn run_table(shell: &Shell, table: &[(&str, i32, &str)]) {
    for (script, code, text) in table {
        let outcome = shell.run(script);
        let said = format!("{}{}", outcome.out, outcome.err);
        assert_eq!(outcome.code, Some(*code), "{script}: {said}");
        assert!(said.contains(text), "{script}: {said}");
    }
}

/// A shell without a server.
pub(super) fn offline_shell(helm: &Path) -> Shell {
    let nowhere = tempfile::NamedTempFile::new().unwrap();
    user_shell(nowhere.path(), helm)
}

#[test]
fn the_chart_renders_what_was_agreed() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    let shell = offline_shell(&helm);
    run_ok(&shell, "helm lint --strict charts/gantry");
    run_ok(&shell, "helm lint --strict charts/gantry --values chart-tests/all-values.yaml");
    let table = [
        ("default.yaml", "helm template team charts/gantry --namespace team-a"),
        (
            "all.yaml",
            "helm template team charts/gantry --namespace team-a \
             --values chart-tests/all-values.yaml",
        ),
    ];
    for (name, script) in table {
        renders_as_agreed(&shell, &golden(), name, name, script);
    }
}

/// Compares what a command renders with a file in the folder of agreed output. What was rendered is
/// in a file of the other name.
pub(super) fn renders_as_agreed(
    shell: &Shell,
    agreed: &Path,
    name: &str,
    fresh: &str,
    script: &str,
) {
    let rendered = run_ok(shell, script).out;
    let golden = agreed.join(name);
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh);
    fs::write(&fresh, &rendered).unwrap();
    let diff = TextDiff::from_lines(&expected, &rendered);
    let diff = diff.unified_diff().context_radius(2).header("agreed", "rendered").to_string();
    assert!(
        expected == rendered,
        "{diff}\nif it is meant: cp {} {}",
        fresh.display(),
        golden.display()
    );
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/chart")
}

#[test]
fn values_are_checked_before_anything_is_made() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    let shell = offline_shell(&helm);
    let table = [
        ("an unknown name", "operator.replicas=2", "replicas"),
        ("an unknown section", "dualPodsController.enabled=true", "dualPodsController"),
        ("another type", "operator.replicaCount=many", "replicaCount"),
        ("too few", "operator.replicaCount=-1", "replicaCount"),
        ("no such policy", "operator.pullPolicy=Sometimes", "pullPolicy"),
        ("a key of nobody", "operator.config.mcadEnable=true", "mcadEnable"),
        ("a key of another type", "operator.config.mcad.backoffTime=soon", "backoffTime"),
        ("what the chart decides", "operator.config.metrics.bindAddress=:1", "metrics"),
        ("the lease", "operator.config.leaderElection.resourceName=x", "resourceName"),
    ];
    for (why, value, word) in table {
        let outcome = shell.run(&format!("helm template team charts/gantry --set {value}"));
        assert_eq!(outcome.code, Some(1), "{why}: {}{}", outcome.out, outcome.err);
        let refused = "values don't meet the specifications of the schema";
        assert!(outcome.err.contains(refused) && outcome.err.contains(word), "{}", outcome.err);
        assert_eq!(outcome.out, "", "{why}");
    }
}

#[tokio::test]
async fn cs_3_a_namespace_is_enough() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    let server = embedded().await;
    cs_3(server.kubeconfig(), &helm);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_3_a_namespace_is_enough_on_kubernetes() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    // Its controllers aggregate the role that administrates a namespace.
    let real = RealCluster::plan().controllers().start().await.unwrap();
    let clock = Clock::system();
    let began = clock.moment();
    cs_3(real.admin().kubeconfig(), &helm);
    say(&format!("the chart took {:.1?} on Kubernetes", clock.moment() - began));
}

/// One release from its installation to its end by a user without cluster-scoped permissions, a
/// second one beside it, and one in another namespace that an administrator allows to read nodes.
fn cs_3(kubeconfig: &Path, helm: &Path) {
    let admin = user_shell(kubeconfig, helm);
    let alice = namespace_admin_shell("team-a", &admin, kubeconfig, helm);
    let shared = "kubectl get crds,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                  clusterroles,clusterrolebindings -o name";
    let before = run_ok(&admin, shared).out;
    run_table(
        &alice,
        &[
            ("kubectl get nodes", 1, "cannot list resource \"nodes\""),
            ("kubectl get clusterroles", 1, "cannot list resource \"clusterroles\""),
            ("helm install team charts/gantry", 0, "STATUS: deployed"),
            ("helm install two charts/gantry", 0, "STATUS: deployed"),
            ("helm list", 0, "gantry-0."),
            ("kubectl get cm two-gantry -o yaml", 0, "resourceName: two-gantry"),
            ("kubectl get nodes --as=system:serviceaccount:team-a:team-gantry", 1, "cannot"),
            ("helm upgrade team charts/gantry --set operator.replicaCount=2", 0, "REVISION: 2"),
            ("kubectl get deploy team-gantry -o jsonpath={.spec.replicas}", 0, "2"),
            ("helm rollback team 1", 0, "Rollback was a success"),
            (
                "helm install no charts/gantry --set global.nodeViewClusterRole=node-reader",
                1,
                "clusterrolebindings.rbac.authorization.k8s.io",
            ),
        ],
    );
    assert_eq!(run_ok(&alice, LIST).out, RELEASE_OBJECTS);
    assert_eq!(
        run_ok(&admin, shared).out,
        before,
        "CS-26, CS-46: nothing that is shared is touched"
    );
    run_table(
        &alice,
        &[
            ("helm uninstall team", 0, "release \"team\" uninstalled"),
            ("helm uninstall two", 0, "release \"two\" uninstalled"),
        ],
    );
    assert_eq!(run_ok(&alice, LIST).out, "");

    // The same release elsewhere, with nodes.
    let reads = "kubectl get nodes --as=system:serviceaccount:team-b:team-gantry \
                 --as-group=system:serviceaccounts";
    let install = "helm install team charts/gantry --namespace team-b --create-namespace \
                   --set global.nodeViewClusterRole=node-reader \
                   --set global.metricsAuthClusterRole=system:auth-delegator";
    let make = "kubectl create clusterrole node-reader --verb=get,list,watch --resource=nodes";
    run_table(
        &admin,
        &[
            (make, 0, "created"),
            (install, 0, "STATUS: deployed"),
            ("kubectl get clusterrolebinding team-b-team-node-view", 0, "ClusterRole/node-reader"),
            (
                "kubectl get clusterrolebinding team-b-team-metrics-auth",
                0,
                "ClusterRole/system:auth-delegator",
            ),
            ("kubectl get clusterrole team-b-team-metrics-reader -o yaml", 0, "- /metrics"),
            ("kubectl -n team-b get service team-gantry", 0, "8080/TCP"),
        ],
    );
    wait_for_exit_code(&admin, reads, 0);
    run_ok(&admin, "helm uninstall team --namespace team-b");
    wait_for_exit_code(&admin, reads, 1);
    run_ok(&admin, "kubectl delete clusterrole node-reader");
    assert_eq!(run_ok(&admin, shared).out, before, "CS-8: the binding goes with its release");
}

fn object(shell: &Shell, what: &str) -> Value {
    serde_json::from_str(&run_ok(shell, &format!("kubectl get {what} -o json")).out).unwrap()
}

/// Starts the operator of the release `team` in `team-a` as its Deployment does, in a shell with
/// the permissions of its account.
fn start_operator(operator: &Shell, alice: &Shell) -> Child {
    let deployment = object(alice, "deployment team-gantry");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], json!(["/gantry", "operator"]));
    let mount = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let volume = operator.home().join("volume");
    fs::create_dir(&volume).unwrap();
    for (name, text) in object(alice, "configmap team-gantry")["data"].as_object().unwrap() {
        fs::write(volume.join(name), text.as_str().unwrap()).unwrap();
    }
    let args = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let args: Vec<_> = args.map(|arg| arg.replace(mount, volume.to_str().unwrap())).collect();
    let mut command: Command = operator.command(env!("CARGO_BIN_EXE_gantry"));
    command.arg("operator").args(args).env("NAMESPACE", "team-a").stderr(Stdio::null());
    // The ports of the pod are not used here.
    command.args(["--metrics-bind-address=0", "--health-probe-bind-address=0"]);
    command.spawn().unwrap()
}

/// An administrator binds the roles of modules to a release, which loads modules then; without the
/// second role the operator reads no Secrets.
#[tokio::test(flavor = "multi_thread")]
async fn kms_20_an_administrator_lets_a_release_load_modules() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    let server = embedded().await;
    let (kubeconfig, clock) = (server.kubeconfig(), Clock::system());
    let admin = user_shell(kubeconfig, &helm);
    let alice = namespace_admin_shell("team-a", &admin, kubeconfig, &helm);
    let allowed = "--set operator.config.modules.enabled=true \
                   --set global.modulesClusterRole=gantry-modules";
    let refused = "clusterrolebindings.rbac.authorization.k8s.io";
    let install = format!("helm install team charts/gantry {allowed}");
    run_table(&alice, &[(install.as_str(), 1, refused)]);
    run_ok(&admin, "kubectl apply -f config/operator/optional/modules.yaml");
    run_ok(&admin, "kubectl delete clusterrolebinding gantry-modules gantry-modules-secrets");
    run_ok(&admin, "kubectl apply --server-side -R -f config/crd");
    run_ok(&admin, &format!("helm install team charts/gantry -n team-a {allowed}"));
    let account = "--as=system:serviceaccount:team-a:team-gantry --all-namespaces";
    let expect = |rows: &[(&str, i32)]| {
        for (what, code) in rows {
            wait_for_exit_code(&admin, &format!("kubectl auth can-i {what} {account}"), *code);
        }
    };
    expect(&[
        ("create daemonsets.apps", 0),
        ("create jobs.batch", 0),
        ("patch nodes", 0),
        ("watch modules.ooto.sigs.k8s.io", 0),
        ("get secrets", 1),
    ]);

    let operator = become_account("team-a", "team-gantry", &admin, user_shell(kubeconfig, &helm));
    let mut child = start_operator(&operator, &alice);
    let module = "kubectl apply -f - <<'END'\n\
        {apiVersion: v1, kind: Node, metadata: {name: fake, labels: {gpu: 'yes'}}}\n---\n\
        {apiVersion: ooto.sigs.k8s.io/v1alpha1, kind: Module, \
         metadata: {name: hello, namespace: team-a}, spec: {selector: {gpu: 'yes'}, \
         driverContainer: {container: {kernelMappings: \
         [{regexp: ., containerImage: 'example.com/hello:1'}]}}}}\nEND";
    run_ok(&admin, module);
    let kernel = r#"{"status": {"nodeInfo": {"kernelVersion": "6.1.0"}}}"#;
    run_ok(
        &admin,
        &format!("kubectl patch node fake --subresource=status --type=merge -p '{kernel}'"),
    );
    let give_up = clock.moment() + CONDITION_TIMEOUT;
    let sets = "kubectl -n team-a get daemonsets \
                -o jsonpath='{.items[*].spec.template.spec.containers[0].image}'";
    while run_ok(&admin, sets).out != "example.com/hello:1" {
        assert!(clock.moment() < give_up, "there is no DaemonSet");
        assert_eq!(child.try_wait().unwrap(), None, "the operator ended");
        clock.sleep(Duration::from_millis(100)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let both = "helm upgrade team charts/gantry -n team-a --reuse-values \
                --set global.modulesSecretsClusterRole=gantry-modules-secrets";
    run_ok(&admin, both);
    expect(&[("get secrets", 0), ("list secrets", 1)]);
    run_ok(&admin, "helm uninstall team -n team-a");
    // The bindings go with their release.
    expect(&[("get secrets", 1), ("patch nodes", 1)]);
}

/// The operator as the chart deploys it: its arguments, its configuration, and only its own
/// permissions.
#[tokio::test(flavor = "multi_thread")]
async fn the_operator_runs_as_the_chart_deploys_it() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    let server = embedded().await;
    let (kubeconfig, clock) = (server.kubeconfig(), Clock::system());
    let admin = user_shell(kubeconfig, &helm);
    let alice = namespace_admin_shell("team-a", &admin, kubeconfig, &helm);
    run_ok(&alice, "helm install team charts/gantry --set operator.config.simulation.enabled=true");
    // What an administrator grants, once: what config/operator has for this subsystem.
    for file in ["00-namespace", "10-service-account", "20-cluster-role", "optional/simulation"] {
        run_ok(&admin, &format!("kubectl apply -f config/operator/{file}.yaml"));
    }
    let account = "--serviceaccount=team-a:team-gantry";
    for role in ["gantry-operator", "gantry-simulation"] {
        let binding = format!("clusterrolebinding team-{role} --clusterrole={role} {account}");
        run_ok(&admin, &format!("kubectl create {binding}"));
    }
    let place = "-n kube-node-lease rolebinding team --role=gantry-simulation";
    run_ok(&admin, &format!("kubectl create {place} {account}"));

    let operator = become_account("team-a", "team-gantry", &admin, user_shell(kubeconfig, &helm));
    let mut child = start_operator(&operator, &alice);

    let give_up = clock.moment() + CONDITION_TIMEOUT;
    let node = "kubectl apply -f - <<'END'\napiVersion: v1\nkind: Node\nmetadata:\n  name: fake\n  \
                annotations: {kwok.x-k8s.io/node: fake}\nEND";
    run_ok(&admin, node);
    let ready =
        "kubectl get node fake -o jsonpath='{.status.conditions[?(@.type==\"Ready\")].status}'";
    while run_ok(&admin, ready).out != "True" {
        assert!(clock.moment() < give_up, "the node is not ready");
        assert_eq!(child.try_wait().unwrap(), None, "the operator ended");
        clock.sleep(Duration::from_millis(100)).await;
    }
    let lease = object(&alice, "lease team-gantry");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(lease["spec"]["holderIdentity"].is_string(), "{lease:#}");
}

/// Runs the page about the chart: the block after each block of commands has their output.
#[tokio::test]
async fn the_session_of_the_page_works() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/chart.md");
    let page = fs::read_to_string(page).unwrap();
    let server = embedded().await;
    let shell = user_shell(server.kubeconfig(), &helm);
    let mut blocks = page.split("```sh\n").skip(1).peekable();
    assert!(blocks.peek().is_some(), "the page has no commands");
    for block in blocks {
        let (script, rest) = block.split_once("```").unwrap();
        let outcome = shell.run(&format!("set -eu\n{script}"));
        let said = format!("{}{}", outcome.out, outcome.err);
        // Commands that fail on purpose are marked as such.
        let code = i32::from(script.contains("# refused"));
        assert_eq!(outcome.code, Some(code), "{script}: {said}");
        let Some(shown) = rest.trim_start().strip_prefix("```text\n") else { continue };
        let (shown, _) = shown.split_once("```").unwrap();
        for line in shown.lines().filter(|line| !line.starts_with("LAST DEPLOYED")) {
            assert!(said.contains(line.trim_end()), "{script}: no {line:?} in\n{said}");
        }
    }
}
