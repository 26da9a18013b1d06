//! Plans of single steps, lists, explanations and diffs.

use std::collections::{BTreeMap, BTreeSet};

use gantry_inventory::{Backend, Role, TagSelection};
use gantry_provision::{
    Action, BundleLock, BundledImage, BundledProgram, Change, Content, Context, Digest, Facts,
    Observed, Selection, Settings, Stage, State, Step, Verdict, Want, catalogue, diff, explain,
    list_tags, list_tasks,
};

use crate::facts::{DEBIAN, ROCKY, UBUNTU};

/// The bytes of the programs and images of the bundle of tests.
pub(crate) const BUNDLED: [&[u8]; 3] = [b"a kubelet", b"a kubectl", b"an archive"];

/// Everything that a step is planned from.
pub(crate) struct Fixture {
    pub(crate) settings: Settings,
    pub(crate) facts: Facts,
    pub(crate) peers: Vec<(String, Facts)>,
    pub(crate) bundle: Option<BundleLock>,
}

impl Fixture {
    pub(crate) fn new(facts: &str, backend: Backend) -> Self {
        let facts = Facts::parse(facts).unwrap();
        let program = |name: &str, bytes: &[u8]| BundledProgram {
            name: name.to_owned(),
            architecture: facts.architecture.clone(),
            sha256: Digest::of(bytes),
        };
        let bundle = BundleLock {
            kubernetes: "v1.34.10".to_owned(),
            binaries: vec![program("kubelet", BUNDLED[0]), program("kubectl", BUNDLED[1])],
            images: vec![BundledImage {
                reference: "gantry.local/k8s/pause:3.10.1".to_owned(),
                architecture: facts.architecture.clone(),
                digest: "sha256:77".to_owned(),
                sha256: Digest::of(BUNDLED[2]),
            }],
        };
        let settings = Settings {
            host: "gpu-0".to_owned(),
            cluster: "mls".to_owned(),
            backend,
            roles: BTreeSet::from([Role::Master, Role::Etcd]),
            variables: BTreeMap::new(),
        };
        Self { settings, facts, peers: Vec::new(), bundle: Some(bundle) }
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<serde_json::Value>) {
        self.settings.variables.insert(name.to_owned(), value.into());
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            settings: &self.settings,
            facts: &self.facts,
            peers: &self.peers,
            bundle: self.bundle.as_ref(),
            journal: None,
        }
    }

    fn plan(&self, id: &str, observed: &Observed) -> Verdict {
        step(id).plan(&self.context(), observed)
    }
}

fn step(id: &str) -> Step {
    catalogue().into_iter().find(|step| step.id == id).unwrap()
}

fn failure(verdict: Verdict) -> String {
    match verdict {
        Verdict::Failed { message, remedy } => format!("{message}; {remedy}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn prv_66_the_catalogue_is_in_order_and_documented() {
    let steps = catalogue();
    let ids: BTreeSet<&str> = steps.iter().map(|step| step.id.as_ref()).collect();
    assert_eq!(ids.len(), steps.len(), "each id once");
    assert!(steps.is_sorted_by_key(|step| step.stage), "stages are barriers");
    for step in &steps {
        assert!(step.about.ends_with('.'), "{}: {}", step.id, step.about);
        assert!(!step.tags.is_empty() && !step.owns.is_empty(), "{}", step.id);
    }
}

#[test]
fn pvs_7_config_is_in_the_stages_after_the_cluster() {
    let steps = catalogue();
    let tags = TagSelection { only: vec!["config".to_owned()], skip: Vec::new() };
    let selection = Selection { tags, ..Selection::default() };
    assert_eq!(selection.problem(&steps), None);
    let selected = selection.steps(&steps);
    for step in selected.iter().filter(|step| step.tags.iter().any(|tag| tag == "config")) {
        assert!(step.stage.is_post() && step.stage < Stage::Backup, "{}", step.id);
    }
    let text = list_tasks("cluster_create.yaml", &selected);
    let expected = include_str!("../facts/list-tasks-config.txt");
    assert_eq!(text, expected, "{text}");
}

#[test]
fn prv_5_a_tag_or_step_that_does_not_exist_is_an_error() {
    let steps = catalogue();
    let tags = TagSelection { only: vec!["confg".to_owned()], skip: Vec::new() };
    let problem = Selection { tags, ..Selection::default() }.problem(&steps).unwrap();
    assert!(problem.contains("did you mean `config`?"), "{problem}");
    let start_at = Some("kernel.sysctls".to_owned());
    let selection = Selection { start_at, ..Selection::default() };
    let problem = selection.problem(&steps).unwrap();
    assert!(problem.contains("did you mean `kernel.sysctl`?"), "{problem}");
    let start_at = Some("runtime.unit".to_owned());
    let selection = Selection { start_at, ..Selection::default() };
    let selected: Vec<&str> = selection.steps(&steps).iter().map(|it| it.id.as_ref()).collect();
    assert_eq!(selected[..3], ["facts", "runtime.unit", "binaries"]);
    assert!(list_tags("x", &steps).contains("TASK TAGS: [accelerators, addons, always, apply,"));
}

#[test]
fn prv_6_steps_tags_and_variables_are_explained() {
    let steps = catalogue();
    let text = explain("kernel.sysctl", &steps).unwrap();
    assert!(text.contains("owns: /etc/sysctl.d/90-gantry.conf"), "{text}");
    assert!(explain("config", &steps).unwrap().starts_with("tag config: 7 steps"));
    assert!(explain("gantry_swap", &steps).unwrap().contains("default: report"));
    let error = explain("kernal.sysctl", &steps).unwrap_err();
    assert!(error.contains("did you mean `kernel.sysctl`?"), "{error}");
}

#[test]
fn pvs_6_each_condition_has_a_sentence() {
    let table = [
        ("runtime.config", Backend::Kind, Some("node of kind has its own runtime")),
        ("runtime.config", Backend::K3s, Some("k3s has its own runtime")),
        ("images", Backend::Kind, Some("images are in the node of kind")),
        ("packages", Backend::Existing, Some("the cluster runs already")),
        ("preflight.ports", Backend::Existing, Some("the cluster runs already")),
        ("packages", Backend::Kind, None),
        ("runtime.unit", Backend::Kubeadm, None),
        ("facts", Backend::Existing, None),
    ];
    for (id, backend, expected) in table {
        let fixture = Fixture::new(DEBIAN, backend);
        let reason = step(id).skip(&fixture.context());
        assert_eq!(reason.is_some(), expected.is_some(), "{id} {backend:?}: {reason:?}");
        let is_said = |it: String| expected.is_some_and(|expected| it.contains(expected));
        assert!(reason.is_none_or(is_said), "{id} {backend:?}");
    }
    let fixture = Fixture::new(DEBIAN, Backend::Kubeadm);
    let reason = step("front").skip(&fixture.context());
    assert_eq!(reason.as_deref(), Some("hosts: front only"));
}

#[test]
fn prv_52_a_port_that_is_held_is_named_with_its_process() {
    let mut fixture = Fixture::new(DEBIAN, Backend::Kind);
    let none = Observed::default();
    assert!(matches!(fixture.plan("preflight.ports", &none), Verdict::Satisfied(_)));
    fixture.set("gantry_port_mappings", serde_json::json!([22, {"container": 80, "host": 8081}]));
    let text = failure(fixture.plan("preflight.ports", &none));
    assert_eq!(text, "port 22/tcp is held by sshd (pid 700); stop it, or set gantry_port_mappings");
}

#[test]
fn prv_24_preflight_finds_what_would_fail_later() {
    let none = Observed::default();
    let mut fixture = Fixture::new(DEBIAN, Backend::Kubeadm);
    fixture.facts.programs.insert("k3s".to_owned(), "/usr/local/bin/k3s".to_owned());
    assert!(failure(fixture.plan("preflight.existing", &none)).contains("k3s is installed"));
    let other = Facts::parse(UBUNTU).unwrap();
    fixture.peers = vec![("gpu-1".to_owned(), other)];
    assert!(matches!(fixture.plan("preflight.names", &none), Verdict::Satisfied(_)));
    assert!(matches!(fixture.plan("preflight.time", &none), Verdict::Satisfied(_)));
    fixture.peers[0].1.time += 3;
    assert!(failure(fixture.plan("preflight.time", &none)).contains("differs from that of gpu-1"));
    fixture.peers[0].1.machine_id = fixture.facts.machine_id.clone();
    assert!(
        failure(fixture.plan("preflight.names", &none)).contains("machine id is that of gpu-1")
    );
    fixture.facts.free_kib.insert("/var".to_owned(), 1 << 10);
    let text = failure(fixture.plan("preflight.space", &none));
    assert!(text.contains("/var has 1 MiB free, and 2048 MiB are needed"), "{text}");
    fixture.facts.cgroup.controllers.remove("pids");
    assert!(failure(fixture.plan("preflight.kernel", &none)).contains("control groups lack pids"));
}

#[test]
fn prv_13_packages_have_the_names_of_the_distribution() {
    let names = |facts: &str| match Fixture::new(facts, Backend::Bare)
        .plan("packages", &Observed::default())
    {
        Verdict::Change(changes) => match &changes[0].action {
            Action::Packages { names } => names.join(" "),
            other => other.to_string(),
        },
        other => format!("{other:?}"),
    };
    assert_eq!(
        names(DEBIAN),
        "curl iptables nftables socat ethtool ca-certificates conntrack nfs-common containerd runc \
         containernetworking-plugins"
    );
    assert_eq!(
        names(ROCKY),
        "curl iptables nftables socat ethtool ca-certificates conntrack-tools nfs-utils \
         containerd.io containernetworking-plugins"
    );
    let mut fixture = Fixture::new(DEBIAN, Backend::Bare);
    fixture.set("gantry_packages", "none");
    let text = failure(fixture.plan("packages", &Observed::default()));
    assert!(text.starts_with("packages are missing: curl"), "{text}");
    fixture.facts.distribution.family = gantry_provision::Family::Other;
    let held = fixture.plan("packages", &Observed::default());
    assert!(matches!(held, Verdict::Held(reason) if reason.contains("are not known")));
}

#[test]
fn prv_13_the_runtime_is_configured_for_its_version_and_host() {
    let config = |facts: &str, package: &str, version: &str| {
        let mut observed = Observed::default();
        let state = State::Package { version: version.to_owned() };
        observed.set(Want::Package(package.to_owned()), state);
        match Fixture::new(facts, Backend::Bare).plan("runtime.config", &observed) {
            Verdict::Change(changes) => {
                let content = changes[0].content.clone().unwrap();
                String::from_utf8(content.bytes().to_vec()).unwrap()
            }
            other => format!("{other:?}"),
        }
    };
    let one = config(DEBIAN, "containerd", "1.6.20~ds1-1+deb12u1");
    assert!(one.contains("version = 2\n") && one.contains("SystemdCgroup = true"), "{one}");
    assert!(one.contains("restrict_oom_score_adj = false"), "{one}");
    let two = config(ROCKY, "containerd.io", "2:2.1.4-1.el9");
    assert!(two.contains("version = 3\n") && two.contains("SystemdCgroup = false"), "{two}");
    assert!(two.contains("restrict_oom_score_adj = true"), "{two}");
    let old = config(DEBIAN, "containerd", "1.4.13");
    assert!(old.contains("does not speak CRI v1"), "{old}");
    let later = Fixture::new(DEBIAN, Backend::Bare).plan("runtime.config", &Observed::default());
    assert!(matches!(later, Verdict::Later(_)), "{later:?}");
}

#[test]
fn pvs_46_diffs_do_not_show_secrets() {
    let mut observed = Observed::default();
    let path = "/etc/a.conf";
    let digest = Digest::of(b"one\ntwo\n");
    let file = |mode| State::File { digest: digest.clone(), mode, owner: (0, 0) };
    observed.set(Want::Path(path.to_owned()), file(0o644));
    observed.set(Want::Text(path.to_owned()), State::Text { text: "one\ntwo\n".to_owned() });
    let public = Change::file(path, 0o644, Content::public("one\n2\n"));
    let text = diff(&public, &observed).unwrap();
    assert!(text.contains("-two\n+2\n"), "{text}");
    let secret = Change::file(path, 0o644, Content::secret("hunter2"));
    let text = diff(&secret, &observed).unwrap();
    assert!(text.contains("«secret sha256:") && !text.contains("hunter2"), "{text}");
    assert!(!text.contains("two"), "{text}");
    // What only its owner can read was secret before.
    observed.set(Want::Path(path.to_owned()), file(0o600));
    assert!(!diff(&public, &observed).unwrap().contains("two"));
    assert_eq!(diff(&Change::of(Action::Swap { on: false }), &observed), None);
}
