//! What many installations share, on the embedded server.

use std::collections::BTreeSet;

use gantry::admission_hooks::AdmissionHooks;
use gantry::config::document;
use gantry::config::keys::KEYS;
use gantry::config::values::Values;
use gantry::subsystems::{SUBSYSTEMS, inventory};
use gantry_process::clock::Clock;
use gantry_sharing::inventory::{ConflictRule, Name, ObjectKind};
use gantry_subsystem::Host;
use gantry_subsystem::admission::HookCaller;
use gantry_subsystem::start::HostExtensions;
use gantry_testkit::embedded::{EmbeddedServer, Plan};
use gantry_testkit::http::Target;

use crate::{Run, gantry};

async fn server(clock: &Clock) -> (EmbeddedServer, Target) {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral");
    let server = plan.start(clock).await.unwrap();
    let target = server.target().clone();
    (server, target)
}

crate::shared_sharing::scenarios!(server);

/// Everything that is installed anywhere is in the inventory, and nothing else.
#[test]
fn cs_2_every_cluster_scoped_object_is_in_the_inventory() {
    let name = |object: &serde_json::Value| {
        let kind = object["kind"].as_str().unwrap();
        (kind.to_owned(), object["metadata"]["name"].as_str().unwrap().to_owned())
    };
    let mut installed = BTreeSet::new();
    installed.extend(gantry_api::object::KINDS.iter().map(|kind| name(&kind.crd())));
    installed.extend(gantry_sharing::policies::policies().iter().map(name));
    installed.extend(gantry_api::roles::roles().iter().map(name));
    installed.extend(gantry_sharing::admin_roles::admin_roles().iter().map(|it| name(&it.object)));
    let cluster_roles = gantry_kube_controllers::rbac::roles_and_bindings();
    installed.extend(cluster_roles.iter().chain(&gantry_sim::rbac::roles_and_bindings()).map(name));
    let values = Values::from_layers(KEYS.as_slice(), []);
    let accounts = SUBSYSTEMS.iter().flat_map(|it| (it.accounts)(&values));
    let mut accounts: Vec<_> = accounts.flat_map(|it| it.objects()).collect();
    accounts.extend(gantry::up::accounts::rbac_objects());
    let everywhere = accounts.iter().filter(|it| it["metadata"]["namespace"].is_null());
    installed.extend(everywhere.map(name));
    let text = "devices: {enabled: true, webhook: {enabled: true}}\nmcad: {checkUserAccess: true}";
    let values = Values::from_layers(KEYS.as_slice(), [&document::read(text, "f").0]);
    let hooks = AdmissionHooks::new(&values, &HostExtensions::default()).unwrap();
    let client = |_: &str| serde_json::Value::Null;
    let caller = HookCaller { client: &client, host: Host::Cluster, user: "u" };
    let configured = hooks.configurations(&caller);
    installed.extend(configured.iter().map(|it| name(&it.configuration)));
    for object in gantry::manifests::manifests().iter().flat_map(|it| &it.objects) {
        let namespaced = !object["metadata"]["namespace"].is_null();
        // Only OpenShift has this kind, and every cluster is asked for those of the inventory.
        if object["kind"] == "SecurityContextConstraints" {
            continue;
        }
        match ObjectKind::of(object["kind"].as_str().unwrap()) {
            Some(_) => assert!(!namespaced, "{object:#}"),
            None => assert!(namespaced, "{object:#}"),
        }
        if !namespaced {
            installed.insert(name(object));
        }
    }
    let listed: BTreeSet<_> = inventory()
        .into_iter()
        .filter(|entry| entry.wins != ConflictRule::Sum)
        .filter_map(|entry| match entry.name {
            Name::Fixed(name) => Some((entry.kind.as_str().to_owned(), name)),
            Name::Pattern(_) => None,
        })
        .collect();
    assert_eq!(listed, installed);
}

/// Scripts tell a wrong command line from a missing right.
#[test]
fn a_wrong_command_line_is_code_1_where_2_means_forbidden() {
    let table: [&[&str]; 5] = [
        &["install", "everything"],
        &["install", "crds", "--merge-versions", "--allow-version-removal"],
        &["install", "crds", "--group", "x.test"],
        &["uninstall"],
        &["share", "statu"],
    ];
    for words in table {
        let Run { code, err, .. } = gantry(words);
        assert_eq!(code, 1, "{words:?}: {err}");
    }
    assert_eq!(gantry(&["crds", "--nonsense"]).code, 2);
    for command in ["install", "uninstall", "share"] {
        let Run { code, out, .. } = gantry(&[command, "--help"]);
        assert!(code == 0 && out.contains("Examples:\n  gantry "), "{out}");
    }
}

/// The folder of a commit is read with care.
#[test]
fn a_folder_that_is_no_commit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let run = gantry(&["install", "crds", "--config-dir", path]);
    assert!(run.code == 1 && run.err.contains("could not list"), "{}", run.err);
    std::fs::create_dir(folder.path().join("crd")).unwrap();
    std::fs::write(folder.path().join("crd/a.yaml"), "kind: Pod\napiVersion: v1\n").unwrap();
    let run = gantry(&["install", "crds", "--config-dir", path]);
    assert!(run.code == 1 && run.err.contains("is a v1 Pod, not a"), "{}", run.err);
}

/// The page for administrators has every name that they are to let people write, and the known
/// weakness.
#[test]
fn cs_23_cs_32_and_cs_42_administrators_are_told() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sharing.md");
    let page = std::fs::read_to_string(page).unwrap();
    let owners = ["fma-crd-admin", "fma-policy-admin"];
    for entry in inventory().iter().filter(|entry| owners.contains(&entry.owner)) {
        assert!(page.contains(&format!("`{}`", entry.name)), "{}", entry.name);
    }
    for words in ["`fma-crd-admin`", "`fma-policy-admin`", "ends in `-fma-controllers` is exempt"] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn a_context_that_is_not_there_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, "{apiVersion: v1, kind: Config, contexts: []}").unwrap();
    let words = ["share", "status", "--context", "none", "--kubeconfig", file.to_str().unwrap()];
    let Run { code, err, .. } = gantry(&words);
    assert!(code == 1 && err.contains("cannot use kubeconfig"), "{err}");
}
