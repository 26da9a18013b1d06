//! The chart `charts/fma-controllers` with the real helm: what it renders, what it rejects, values
//! and command lines of the original, and a release from its installation to its end.

use std::path::{Path, PathBuf};

use super::chart::{
    PACKAGE, embedded, offline_shell, renders_as_agreed, run_ok, run_table, user_shell,
    wait_for_exit_code,
};
use super::toolchain;

const CHART: &str = "charts/fma-controllers";

/// The objects that a release creates in its namespace; it leaves no other trace.
const RELEASE_OBJECTS: &str = "\
serviceaccount/fma-fma-controllers
role.rbac.authorization.k8s.io/fma-fma-controllers
rolebinding.rbac.authorization.k8s.io/fma-fma-controllers-in-ns
deployment.apps/fma-dual-pods-controller
deployment.apps/fma-launcher-populator
";
const LIST: &str = "kubectl -n team-a get serviceaccount,role,rolebinding,configmap,secret,\
                    networkpolicy,service,persistentvolumeclaim,deployment -o name \
                    -l app.kubernetes.io/instance=fma";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/fma_chart")
}

#[test]
fn the_chart_of_the_controllers_renders_what_was_agreed() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    let shell = offline_shell(&helm);
    run_ok(&shell, &format!("helm lint --strict {CHART}"));
    let values = "--values fma-chart-tests/all-values.yaml";
    run_ok(&shell, &format!("helm lint --strict {CHART} {values}"));
    let template = format!("helm template team {CHART} --namespace team-a");
    renders_as_agreed(&shell, &golden(), "default.yaml", "fma-default.yaml", &template);
    let script = format!("{template} {values}");
    renders_as_agreed(&shell, &golden(), "all.yaml", "fma-all.yaml", &script);
}

#[test]
fn unknown_values_are_refused_with_their_names() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    let shell = offline_shell(&helm);
    let schema = "values don't meet the specifications of the schema";
    let table = [
        ("an unknown name", "dualPodsController.sleeperLimits=1", schema, "sleeperLimits"),
        ("a name of old releases", "dualPodsController.image.tag=1", schema, "image"),
        ("an unknown section", "operator.replicaCount=1", schema, "operator"),
        ("another type", "dualPodsController.sleeperLimit=many", schema, "sleeperLimit"),
        ("too few", "launcherPopulator.replicaCount=-1", schema, "replicaCount"),
        ("no such policy", "launcherPopulator.pullPolicy=Sometimes", schema, "pullPolicy"),
        ("not a time", "gantry.retentionTime=soon", schema, "retentionTime"),
        ("a policy for no pod", "gantry.networkPolicy=true", "execution error", "requesterLabels"),
    ];
    for (why, value, refused, word) in table {
        let outcome = shell.run(&format!("helm template team {CHART} --set {value}"));
        assert_eq!(outcome.code, Some(1), "{why}: {}{}", outcome.out, outcome.err);
        assert!(outcome.err.contains(refused) && outcome.err.contains(word), "{}", outcome.err);
        assert_eq!(outcome.out, "", "{why}");
    }
}

/// The values file and the command lines of the original, as they are.
#[test]
fn values_and_command_lines_of_the_original_are_accepted() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    let shell = offline_shell(&helm);
    let images = "--set global.imageRegistry=registry.test/fma --set global.imageTag=20260819";
    let table = [
        (
            format!("helm template fma {CHART} --values fma-chart-tests/original-values.yaml"),
            "registry.test/fma/gantry:v0.6.3",
        ),
        (
            format!("helm template fma {CHART} -n fma-ns {images}"),
            "registry.test/fma/gantry:20260819",
        ),
        (
            format!(
                "helm template dpctlr {CHART} {images} \
                 --set global.nodeViewClusterRole=node-viewer \
                 --set dualPodsController.sleeperLimit=4 --set global.local=true \
                 --set dualPodsController.debugAcceleratorMemory=false"
            ),
            "--sleeper-limit=4",
        ),
    ];
    for (script, word) in table {
        let outcome = run_ok(&shell, &script);
        assert!(outcome.out.contains(word), "{script}: no {word:?} in\n{}", outcome.out);
    }
    let script = format!("helm template dpctlr {CHART} --set launcherPopulator.enabled=false");
    let rendered = run_ok(&shell, &script).out;
    assert!(!rendered.contains("dpctlr-launcher-populator"), "{rendered}");
    assert!(rendered.contains("dpctlr-dual-pods-controller"), "{rendered}");
}

/// One release from its installation to its end, and its account's permissions: those of its
/// namespace, nodes only with the role, nothing elsewhere, nothing that is shared.
#[tokio::test]
async fn cs_3_a_release_has_what_its_namespace_has() {
    let Some(helm) = toolchain::go("helm", PACKAGE) else { return };
    let server = embedded().await;
    let admin = user_shell(server.kubeconfig(), &helm);
    let shared = "kubectl get crds,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                  clusterroles,clusterrolebindings -o name";
    run_ok(&admin, "kubectl create namespace team-a");
    // Without the definitions kubectl does not know the group of what it asks about.
    for kind in ["inferenceserverconfigs", "launcherconfigs", "launcherpopulationpolicies"] {
        run_ok(&admin, &format!("kubectl create -f config/crd/fma.llm-d.ai_{kind}.yaml"));
    }
    let make = "kubectl create clusterrole fma-node-view --verb=get,list,watch --resource=nodes";
    run_ok(&admin, make);
    let before = run_ok(&admin, shared).out;
    let account = "--as=system:serviceaccount:team-a:fma-fma-controllers \
                   --as-group=system:serviceaccounts";
    let can = |what: &str| format!("kubectl auth can-i {what} {account}");
    run_table(&admin, &[(&format!("helm install -n team-a fma {CHART}"), 0, "STATUS: deployed")]);
    assert_eq!(run_ok(&admin, LIST).out, RELEASE_OBJECTS);
    assert_eq!(run_ok(&admin, shared).out, before, "CS-26, CS-46");
    wait_for_exit_code(&admin, &can("create pods -n team-a"), 0);
    for (what, code) in [
        ("patch pods --subresource=status -n team-a", 0),
        ("patch launcherpopulationpolicies.fma.llm-d.ai --subresource=status -n team-a", 0),
        ("update leases.coordination.k8s.io -n team-a", 0),
        ("get secrets -n team-a", 1),
        ("create pods -n default", 1),
        ("list nodes", 1),
    ] {
        wait_for_exit_code(&admin, &can(what), code);
    }

    let upgrade = format!(
        "helm upgrade -n team-a fma {CHART} --reuse-values \
         --set global.nodeViewClusterRole=fma-node-view"
    );
    run_table(&admin, &[(&upgrade, 0, "REVISION: 2")]);
    wait_for_exit_code(&admin, &can("list nodes"), 0);
    // The binding has no namespace in its name: a second release of the name must not take it.
    let second = format!(
        "helm install -n team-b --create-namespace fma {CHART} \
         --set global.nodeViewClusterRole=fma-node-view"
    );
    run_table(&admin, &[(&second, 1, "fma-node-view")]);
    run_table(
        &admin,
        &[("helm uninstall -n team-a fma", 0, "release \"fma\" uninstalled"), (LIST, 0, "")],
    );
    wait_for_exit_code(&admin, &can("list nodes"), 1);
    assert_eq!(run_ok(&admin, shared).out, before, "CS-8: the binding goes with its release");
}
