//! helm: a release from its installation to its end. Nothing waits for pods: they do not run here.

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;

use super::shell::Shell;
use super::{say, toolchain};

#[tokio::test]
async fn helm_installs_upgrades_rolls_back_and_uninstalls() {
    let Some(helm) = toolchain::go("helm", "helm.sh/helm/v3/cmd/helm") else { return };
    let clock = Clock::system();
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&clock).await.unwrap();
    let shell = Shell::new(server.kubeconfig());
    shell.link("chart", "../../testbed/helm/chart");
    std::os::unix::fs::symlink(helm, shell.home().join("bin/helm")).unwrap();
    let began = clock.moment();
    let table = [
        ("helm version --short", 0, "v3."),
        (
            "helm install web chart/ --namespace tour --create-namespace",
            0,
            "hello from web, revision 1",
        ),
        (
            "helm install web chart/ --namespace tour",
            1,
            "cannot re-use a name that is still in use",
        ),
        ("kubectl get cm web -n tour -o jsonpath='{.data.kubernetes}{.data.seen}'", 0, "1default"),
        ("helm list -A", 0, "tour-0.1.0"),
        ("helm status web -n tour", 0, "STATUS: deployed"),
        (
            "helm upgrade web chart/ -n tour --set replicas=3 --set greeting=again",
            0,
            "again from web, revision 2",
        ),
        ("kubectl get deploy web -n tour -o jsonpath='{.spec.replicas}'", 0, "3"),
        ("helm upgrade web chart/ -n tour --set replicas=many", 1, "Error: UPGRADE FAILED"),
        ("helm upgrade web chart/ -n tour --set replicas=5 --dry-run=server", 0, "replicas: 5"),
        ("helm get values web -n tour --revision 2", 0, "greeting: again"),
        ("helm get manifest web -n tour", 0, "kind: Service"),
        ("helm get all web -n tour", 0, "HOOKS:"),
        ("helm rollback web 1 -n tour", 0, "Rollback was a success"),
        ("kubectl get deploy web -n tour -o jsonpath='{.spec.replicas}'", 0, "1"),
        ("helm history web -n tour", 0, "Rollback to 1"),
        ("helm uninstall web -n tour --keep-history", 0, "release \"web\" uninstalled"),
        ("kubectl get deploy,svc,cm -n tour", 0, "No resources found"),
        ("helm uninstall web -n tour", 0, "release \"web\" uninstalled"),
        ("helm status web -n tour", 1, "release: not found"),
        ("kubectl get secrets -n tour", 0, "No resources found"),
    ];
    for (script, code, text) in table {
        let outcome = shell.run(script);
        let said = format!("{}{}", outcome.out, outcome.err);
        assert_eq!(outcome.code, Some(code), "{script}: {said}\n{}", server.tails());
        assert!(said.contains(text), "{script}: {said}");
    }
    say(&format!("helm took {:.1?} for {} steps", clock.moment() - began, table.len()));
}
