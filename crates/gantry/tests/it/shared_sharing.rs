//! What many share, on any server: who installs what, who is refused, and what is left. The same
//! steps are taken on a real server by `make e2e`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_sharing::inventory::{FMA_GROUP, ObjectKind, POLICIES, POLICY_BINDINGS};
use gantry_testkit::http::{Client, Protocol, Request, Response, Target};
use serde_json::{Value, json};

/// The safety net for what must come: many times what a loaded machine needs.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const KINDS: [(&str, &str); 3] = [
    ("InferenceServerConfig", "inferenceserverconfigs"),
    ("LauncherConfig", "launcherconfigs"),
    ("LauncherPopulationPolicy", "launcherpopulationpolicies"),
];
const CONFIGS: &str = "inferenceserverconfigs.fma.llm-d.ai";
const DEFINITION: ObjectKind = ObjectKind::CustomResourceDefinition;

/// A test of each scenario. Each has a server of its own, from a function that gives it and the way
/// to it.
macro_rules! scenarios {
    ($start:path) => {
        $crate::shared_sharing::scenarios! {
            $start;
            as_40_and_cs_19_definitions_are_applied_if_absent_or_lacking_the_version => as_40,
            as_41_cs_27_and_cs_28_missing_definitions_end_the_operator => as_41,
            as_42_cs_39_and_cs_40_policies_are_applied_whatever_is_there => as_42,
            as_44_what_is_shared_goes_when_nobody_needs_it => as_44,
            as_45_cs_11_cs_24_cs_29_and_cs_43_the_published_roles_suffice => as_45,
            cs_1_two_versions_are_installed_at_the_same_time => cs_1,
            cs_6_anybody_can_ask_who_uses_what => cs_6,
            cs_7_to_cs_9_reading_nodes_is_given_and_taken => cs_7_to_cs_9,
            cs_13_no_version_is_lost_unasked => cs_13,
            cs_14_a_version_under_review_can_be_changed => cs_14,
            definitions_are_applied_by_other_means_without_force => applied_by_other_means,
            cs_20_ten_processes_at_once_lose_nothing => cs_20,
            cs_21_what_this_build_brings_is_installed_once => cs_21,
            cs_25_and_cs_45_the_files_remove_what_they_brought => cs_25_and_cs_45,
            a_definition_with_versions_of_others_stays => foreign_versions_keep_a_definition,
            pods_of_controllers_that_are_gone_are_freed => stuck_pods_are_freed,
            namespaces_of_test_runs_go_after_their_last_day => expired_namespaces_are_swept,
        }
    };
    ($start:path; $($name:ident => $run:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let clock = gantry_process::clock::Clock::system();
            let (_server, target) = $start(&clock).await;
            let site = $crate::shared_sharing::Site::new(&target, &clock);
            $crate::shared_sharing::$run(&site).await;
        }
    )+};
}

pub(crate) use scenarios;

/// A server with many who share it.
pub(crate) struct Site {
    target: Target,
    admin: Client,
    folder: tempfile::TempDir,
    clock: Clock,
}

/// Somebody's way in: a kubeconfig.
#[derive(Clone)]
pub(crate) struct Person(PathBuf);

/// What a command left behind.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    fn of(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The report, where the command ended so.
    fn ended(&self, code: i32) -> Value {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        serde_json::from_str(&self.out).unwrap()
    }
}

/// What became of an object.
fn outcome<'a>(report: &'a Value, name: &str) -> &'a Value {
    let objects = report["objects"].as_array().unwrap();
    let found = objects.iter().find(|it| it["name"] == name);
    assert!(found.is_some(), "{name} in {report:#}");
    found.unwrap()
}

fn outcomes(report: &Value) -> Vec<&str> {
    let objects = report["objects"].as_array().unwrap();
    objects.iter().map(|it| it["outcome"].as_str().unwrap()).collect()
}

impl Site {
    pub(crate) fn new(target: &Target, clock: &Clock) -> Self {
        let admin = Client::new(target, Protocol::Http2, clock.clone()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self { target: target.clone(), admin, folder, clock: clock.clone() }
    }

    async fn send(&self, request: Request) -> Response {
        self.admin.send(request).await.unwrap()
    }

    async fn made(&self, path: impl Into<String>, object: &Value) -> Value {
        let answer = self.send(Request::post(path, object)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json().unwrap()
    }

    /// Like `made`, for what an earlier scenario may have made.
    async fn there(&self, path: impl Into<String>, object: &Value) {
        let answer = self.send(Request::post(path, object)).await;
        assert!(answer.status == 201 || answer.status == 409, "{}", answer.text());
    }

    async fn get(&self, kind: ObjectKind, name: &str) -> Option<Value> {
        let answer = self.send(Request::get(kind.path(name).unwrap().to_string())).await;
        match answer.status.as_u16() {
            404 => None,
            status => {
                assert_eq!(status, 200, "{}", answer.text());
                Some(answer.json().unwrap())
            }
        }
    }

    async fn definition(&self) -> Value {
        self.get(DEFINITION, CONFIGS).await.unwrap()
    }

    async fn versions(&self) -> Vec<String> {
        let found = self.definition().await;
        let versions = found["spec"]["versions"].as_array().unwrap().clone();
        versions.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Revisions of everything that is shared.
    async fn revisions(&self) -> Vec<(String, Option<Value>)> {
        let mut all = Vec::new();
        for (kind, name) in shared() {
            let found = self.get(kind, &name).await;
            all.push((name, found.map(|it| it["metadata"]["resourceVersion"].clone())));
        }
        all
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let begun = self.clock.moment();
        while !holds().await {
            assert!(self.clock.moment() - begun < CONDITION_TIMEOUT, "not in time: {what}");
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// The administrator.
    pub(crate) fn administrator(&self) -> Person {
        self.person("administrator", "default", &self.target)
    }

    /// Somebody who is confined to a namespace of their own.
    pub(crate) async fn user(&self, namespace: &str) -> Person {
        let metadata = json!({"metadata": {"name": namespace}});
        self.there("/api/v1/namespaces", &metadata).await;
        let path = format!("/api/v1/namespaces/{namespace}");
        self.there(format!("{path}/serviceaccounts"), &json!({"metadata": {"name": "user"}})).await;
        let rights = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        let role = json!({
            "metadata": {"name": "user"},
            "rules": [{"apiGroups": [FMA_GROUP, ""], "resources": ["*"], "verbs": ["*"]}],
        });
        self.there(format!("{rights}/roles"), &role).await;
        let binding = json!({
            "metadata": {"name": "user"}, "subjects": [subject(namespace)],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user"},
        });
        self.there(format!("{rights}/rolebindings"), &binding).await;
        let made = self.made(format!("{path}/serviceaccounts/user/token"), &json!({})).await;
        let token = made["status"]["token"].as_str().unwrap().to_owned();
        let credentials = gantry_testkit::http::Credentials::Token(token);
        self.person(namespace, namespace, &Target { credentials, ..self.target.clone() })
    }

    /// The chore of the administrator: the published files, and a binding of each for a user.
    pub(crate) async fn give_roles(&self, namespace: &str, person: &Person) {
        for role in gantry_sharing::admin_roles::admin_roles() {
            if !role.name.starts_with("fma-") {
                continue;
            }
            let text = std::fs::read_to_string(root().join(role.file)).unwrap();
            let object = gantry_yaml::read(&text).unwrap().remove(0).to_json();
            self.there("/apis/rbac.authorization.k8s.io/v1/clusterroles", &object).await;
            let name = role.name;
            let binding = json!({
                "metadata": {"name": format!("{name}-{namespace}")},
                "subjects": [subject(namespace)],
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name,
                },
            });
            let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
            self.there(path, &binding).await;
        }
        // A real server takes notice of roles after a while.
        let commit = self.commit(&["v1alpha1"], "trial");
        self.until("the roles are in effect", async || {
            let flags =
                ["--config-dir", commit.to_str().unwrap(), "--mode", "if-differs", "--dry-run"];
            // What is there may be refused, but it is not forbidden.
            self.gantry(person, &["install", "all"], &flags).code != 2
        })
        .await;
    }

    fn person(&self, name: &str, namespace: &str, target: &Target) -> Person {
        let Target { base, authority, credentials } = target;
        let folder = self.folder.path();
        let write = |file: &str, text: &str| {
            let path = folder.join(format!("{name}-{file}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        let user = match credentials {
            gantry_testkit::http::Credentials::Token(token) => json!({"token": token}),
            gantry_testkit::http::Credentials::Certificate { chain, key } => json!({
                "client-certificate": write("crt", chain), "client-key": write("key", key),
            }),
            gantry_testkit::http::Credentials::Anonymous => json!({}),
        };
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {
                "server": base, "certificate-authority": write("ca", authority),
            }}],
            "contexts": [{"name": "it", "context": {
                "cluster": "it", "user": name, "namespace": namespace,
            }}],
            "users": [{"name": name, "user": user}],
        });
        Person(write("kubeconfig", &config.to_string()))
    }

    fn command(&self, person: &Person, words: &[&str], flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
        command.args(words).args(flags).arg("--kubeconfig").arg(&person.0);
        // A folder of their own: nothing of the project is found by chance.
        command.current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn gantry(&self, person: &Person, words: &[&str], flags: &[&str]) -> Run {
        Run::of(self.command(person, words, flags).output().unwrap())
    }

    /// The report of an installation of definitions.
    fn install(&self, person: &Person, code: i32, config: &Path, flags: &[&str]) -> Value {
        let config = config.to_str().unwrap();
        let more = [&["--config-dir", config, "-o", "json"], flags].concat();
        self.gantry(person, &["install", "crds"], &more).ended(code)
    }

    /// The folder `config` of a commit with these versions, the first of which it uses.
    fn commit(&self, versions: &[&str], text: &str) -> PathBuf {
        let folder = self.folder.path().join(format!("{}-{text}", versions.join("-")));
        let crd = folder.join("crd");
        let policies = folder.join("validating-admission-policies");
        std::fs::create_dir_all(&crd).unwrap();
        std::fs::create_dir_all(&policies).unwrap();
        for (kind, plural) in KINDS {
            let object = definition(kind, plural, versions, text);
            std::fs::write(crd.join(format!("{plural}.yaml")), object.to_string()).unwrap();
        }
        for mut object in gantry_sharing::policies::policies() {
            object["metadata"]["annotations"] = json!({"commit": text});
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            std::fs::write(policies.join(format!("{name}.yaml")), object.to_string()).unwrap();
        }
        folder
    }

    /// An object of one of the kinds, in somebody's namespace.
    async fn config_object(&self, namespace: &str, version: &str, name: &str) {
        let path =
            format!("/apis/{FMA_GROUP}/{version}/namespaces/{namespace}/inferenceserverconfigs");
        let object = json!({
            "apiVersion": format!("{FMA_GROUP}/{version}"), "kind": "InferenceServerConfig",
            "metadata": {"name": name},
            "spec": {"launcherConfigName": "x", "modelServerConfig": {"port": 80}},
        });
        // What is established is served a moment later.
        self.until("objects can be made", async || {
            self.send(Request::post(&path, &object)).await.status == 201
        })
        .await;
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn subject(namespace: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": "user", "namespace": namespace})
}

/// Everything that scenarios share.
fn shared() -> Vec<(ObjectKind, String)> {
    let definitions = KINDS.map(|(_, plural)| (DEFINITION, format!("{plural}.{FMA_GROUP}")));
    let policies = POLICIES.map(|it| (ObjectKind::ValidatingAdmissionPolicy, it.to_owned()));
    let bindings =
        POLICY_BINDINGS.map(|it| (ObjectKind::ValidatingAdmissionPolicyBinding, it.to_owned()));
    bindings.into_iter().chain(policies).chain(definitions).collect()
}

/// A small definition: what is tried here does not depend on what is in a version.
fn definition(kind: &str, plural: &str, versions: &[&str], text: &str) -> Value {
    let version = |(index, name): (usize, &&str)| {
        json!({
            "name": name, "served": true, "storage": index == 0,
            "schema": {"openAPIV3Schema": {
                "type": "object", "description": format!("{name} of {text}"),
                "x-kubernetes-preserve-unknown-fields": true,
            }},
        })
    };
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{FMA_GROUP}")},
        "spec": {
            "group": FMA_GROUP, "scope": "Namespaced", "versions": versions,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                "singular": kind.to_lowercase(),
            },
        },
    })
}

/// Absent: made. Version there with other contents: untouched. Version missing: applied, unless
/// that takes one away. Again: nothing changes.
pub(crate) async fn as_40(site: &Site) {
    let admin = site.administrator();
    let (one, other) = (site.commit(&["v1alpha1"], "one"), site.commit(&["v1alpha1"], "other"));
    let report = site.install(&admin, 0, &one, &["--dry-run"]);
    assert_eq!(outcomes(&report), ["created"; 3]);
    assert!(site.get(DEFINITION, CONFIGS).await.is_none(), "a dry run makes nothing");
    let report = site.install(&admin, 0, &one, &[]);
    assert_eq!(outcomes(&report), ["created"; 3]);
    let before = site.definition().await;
    assert_eq!(before["spec"]["versions"][0]["name"], "v1alpha1");
    let revisions = site.revisions().await;
    let report = site.install(&admin, 0, &other, &[]);
    assert_eq!(outcomes(&report), ["unchanged"; 3]);
    assert_eq!(outcome(&report, CONFIGS)["why"], "it has version v1alpha1");
    assert_eq!(site.revisions().await, revisions, "contents of a version are left alone");
    let newer = site.commit(&["v1alpha2", "v1alpha1"], "newer");
    let report = site.install(&admin, 0, &newer, &[]);
    assert_eq!(outcomes(&report), ["changed"; 3]);
    assert_eq!(site.versions().await, ["v1alpha2", "v1alpha1"]);
    let revisions = site.revisions().await;
    for flags in [&[][..], &["--mode", "if-differs"], &["--mode", "always"], &["--merge-versions"]]
    {
        let report = site.install(&admin, 0, &newer, flags);
        assert_eq!(outcomes(&report), ["unchanged"; 3], "{flags:?}");
        assert_eq!(site.revisions().await, revisions, "{flags:?}: nothing changes");
    }
}

/// Nobody loses a version unasked; one that is stored stays even so.
pub(crate) async fn cs_13(site: &Site) {
    let admin = site.administrator();
    site.install(&admin, 0, &site.commit(&["v1alpha1"], "one"), &[]);
    let two = site.commit(&["v1alpha2"], "two");
    let revisions = site.revisions().await;
    let report = site.install(&admin, 3, &two, &[]);
    assert_eq!(outcomes(&report), ["refused"; 3]);
    let why = outcome(&report, CONFIGS)["why"].as_str().unwrap();
    assert!(why.contains("would remove v1alpha1"), "{why}");
    let report = site.install(&admin, 3, &two, &["--allow-version-removal"]);
    let why = outcome(&report, CONFIGS)["why"].as_str().unwrap();
    assert!(why.contains("stored in v1alpha1"), "{why}");
    assert_eq!(site.revisions().await, revisions);
    // Beside it, it may come, and go again: nothing was ever stored in it.
    site.install(&admin, 0, &two, &["--merge-versions"]);
    assert_eq!(site.versions().await, ["v1alpha1", "v1alpha2"]);
    let both = site.definition().await;
    assert_eq!(both["spec"]["versions"][0]["storage"], true, "objects are stored as before");
    let three = site.commit(&["v1alpha1"], "three");
    let report = site.install(&admin, 3, &three, &["--mode", "always"]);
    let why = outcome(&report, CONFIGS)["why"].as_str().unwrap();
    assert!(why.contains("would remove v1alpha2"), "{why}");
    site.install(&admin, 0, &three, &["--mode", "always", "--allow-version-removal"]);
    assert_eq!(site.versions().await, ["v1alpha1"]);
}

/// A version that is still being worked on is changed where somebody says so.
pub(crate) async fn cs_14(site: &Site) {
    let admin = site.administrator();
    site.install(&admin, 0, &site.commit(&["v1alpha1"], "draft"), &[]);
    let better = site.commit(&["v1alpha1"], "better");
    let shown = site.gantry(
        &admin,
        &["install", "crds", "--mode", "if-differs"],
        &["--config-dir", better.to_str().unwrap(), "--dry-run", "--diff"],
    );
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(shown.out.contains("v1alpha1 of better"), "{}", shown.out);
    let description = async || {
        let found = site.definition().await;
        found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"].clone()
    };
    assert_eq!(description().await, "v1alpha1 of draft");
    let report = site.install(&admin, 0, &better, &["--mode", "if-differs"]);
    assert_eq!(outcomes(&report), ["changed"; 3]);
    assert_eq!(description().await, "v1alpha1 of better");
    let report = site.install(&admin, 0, &site.commit(&["v1alpha1"], "late"), &["--mode", "never"]);
    assert_eq!(outcomes(&report), ["unchanged"; 3]);
}

/// What this build itself brings is what a server makes of it: a second run finds no difference.
pub(crate) async fn cs_21(site: &Site) {
    let admin = site.administrator();
    let words = ["install", "all", "--mode", "if-differs", "-o", "json"];
    let report = site.gantry(&admin, &words, &[]).ended(0);
    assert!(
        outcomes(&report)
            .iter()
            .all(|it| *it == "created" || *it == "changed" || *it == "unchanged")
    );
    let revisions = site.revisions().await;
    let report = site.gantry(&admin, &words, &[]).ended(0);
    let wrong: Vec<_> = report["objects"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["outcome"] != "unchanged")
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(site.revisions().await, revisions);
    let report = site.gantry(&admin, &words, &["--dry-run"]).ended(0);
    assert!(outcomes(&report).iter().all(|it| *it == "unchanged"), "{report:#}");
}

/// Policies are set to the commit's contents, whatever was there, and once is enough.
pub(crate) async fn as_42(site: &Site) {
    let admin = site.administrator();
    let kind = ObjectKind::ValidatingAdmissionPolicy;
    let mut other = gantry_sharing::policies::policies().remove(0);
    other["spec"]["validations"] = json!([{"expression": "true", "message": "somebody else's"}]);
    site.made(kind.collection().to_string(), &other).await;
    let words = ["install", "policies", "-o", "json"];
    let report = site.gantry(&admin, &words, &[]).ended(0);
    assert_eq!(outcomes(&report), ["changed", "created", "created", "created"]);
    let found = site.get(kind, POLICIES[0]).await.unwrap();
    let wanted = gantry_sharing::policies::policies().remove(0);
    let message = |object: &Value| object["spec"]["validations"][0]["message"].clone();
    assert_eq!(message(&found), message(&wanted));
    let revisions = site.revisions().await;
    let report = site.gantry(&admin, &words, &[]).ended(0);
    assert_eq!(outcomes(&report), ["unchanged"; 4]);
    assert_eq!(site.revisions().await, revisions);
}

/// The two published roles suffice, and grant nothing else. Without them, the error names the role
/// and whom to ask for it.
pub(crate) async fn as_45(site: &Site) {
    let words = ["install", "all", "--group", FMA_GROUP, "-o", "json"];
    let nobody = site.user("as-45-nobody").await;
    let report = site.gantry(&nobody, &words, &[]).ended(2);
    assert_eq!(outcome(&report, CONFIGS)["outcome"], "forbidden");
    assert_eq!(outcome(&report, CONFIGS)["askFor"], "fma-crd-admin");
    assert_eq!(outcome(&report, POLICIES[0])["askFor"], "fma-policy-admin");
    let said = site.gantry(&nobody, &words[..4], &[]);
    assert_eq!(said.code, 2);
    for role in ["fma-crd-admin", "fma-policy-admin"] {
        let words = format!("ask an administrator of the cluster for ClusterRole {role}");
        assert!(said.out.contains(&words), "{}", said.out);
    }
    let person = site.user("as-45").await;
    site.give_roles("as-45", &person).await;
    let report = site.gantry(&person, &words, &[]).ended(0);
    assert_eq!(outcomes(&report)[..7], ["created"; 7]);
    assert!(outcomes(&report)[7..].iter().all(|it| *it == "skipped"), "{report:#}");
    let revisions = site.revisions().await;
    site.gantry(&person, &words, &[]).ended(0);
    assert_eq!(site.revisions().await, revisions);
    // No other definition, and no role, is theirs.
    let report = site.gantry(&person, &["install", "crds", "-o", "json"], &[]).ended(2);
    assert_eq!(
        outcome(&report, "appwrappers.workload.codeflare.dev")["askFor"],
        "gantry-crd-admin"
    );
    let report = site.gantry(&person, &["install", "roles", "-o", "json"], &[]).ended(2);
    assert_eq!(outcome(&report, "fma-crd-admin")["askFor"], "cluster-admin");
}

/// Two installations of different versions at the same time, by people who have a namespace each
/// and the published roles: both work, and neither changes the other. A third without roles is
/// refused.
pub(crate) async fn cs_1(site: &Site) {
    let people = ["cs-1-blue", "cs-1-green"];
    let versions = ["v1alpha1", "v1alpha2"];
    let mut ready = Vec::new();
    for (namespace, version) in people.into_iter().zip(versions) {
        let person = site.user(namespace).await;
        site.give_roles(namespace, &person).await;
        ready.push((person, site.commit(&[version], namespace)));
    }
    let words = ["install", "all", "--merge-versions", "--group", FMA_GROUP, "-o", "json"];
    let start = |(person, config): &(Person, PathBuf)| {
        let mut command = site.command(person, &words, &["--config-dir", config.to_str().unwrap()]);
        command.spawn().unwrap()
    };
    let running: Vec<_> = ready.iter().map(start).collect();
    for child in running {
        Run::of(child.wait_with_output().unwrap()).ended(0);
    }
    let mut present = site.versions().await;
    present.sort_unstable();
    assert_eq!(present, versions);
    for (namespace, version) in people.into_iter().zip(versions) {
        site.config_object(namespace, version, "mine").await;
    }
    // Each one's version is as they brought it, and stays so when both come again.
    let found = site.definition().await;
    for (namespace, version) in people.into_iter().zip(versions) {
        let all = found["spec"]["versions"].as_array().unwrap();
        let own = all.iter().find(|it| it["name"] == version).unwrap();
        let description = &own["schema"]["openAPIV3Schema"]["description"];
        assert_eq!(*description, format!("{version} of {namespace}"));
    }
    let definitions = || async {
        let revisions = site.revisions().await;
        revisions.into_iter().filter(|(name, _)| name.ends_with(FMA_GROUP)).collect::<Vec<_>>()
    };
    let before = definitions().await;
    for (person, config) in &ready {
        let flags = ["--config-dir", config.to_str().unwrap()];
        site.gantry(person, &words, &flags).ended(0);
    }
    assert_eq!(definitions().await, before);
    let third = site.user("cs-1-third").await;
    let report = site.gantry(&third, &words, &[]).ended(2);
    assert_eq!(outcome(&report, CONFIGS)["askFor"], "fma-crd-admin");
    assert_eq!(definitions().await, before);
}

/// Ten processes at once, each with a version of its own: one comes first, and the others are
/// refused or join it. No version is lost, and when all is quiet it stays quiet.
pub(crate) async fn cs_20(site: &Site) {
    let admin = site.administrator();
    let names: Vec<String> = (1..=10).map(|it| format!("v1alpha{it}")).collect();
    let commits: Vec<PathBuf> = names.iter().map(|it| site.commit(&[it], "ten")).collect();
    let rush = |flags: &[&str]| -> Vec<i32> {
        let start = |config: &PathBuf| {
            let flags = [&["--config-dir", config.to_str().unwrap()], flags].concat();
            site.command(&admin, &["install", "crds"], &flags).spawn().unwrap()
        };
        let running: Vec<_> = commits.iter().map(start).collect();
        running
            .into_iter()
            .map(|it| it.wait_with_output().unwrap().status.code().unwrap())
            .collect()
    };
    let codes = rush(&[]);
    // Each definition has the version of the first process; no other process wrote it.
    assert!(codes.iter().all(|it| [0, 3].contains(it)), "{codes:?}");
    let mut found = Vec::new();
    for (_, plural) in KINDS {
        let object = site.get(DEFINITION, &format!("{plural}.{FMA_GROUP}")).await.unwrap();
        assert_eq!(object["spec"]["versions"].as_array().unwrap().len(), 1);
        assert_eq!(object["metadata"]["generation"], 1, "it was written once");
        found.push(object["spec"]["versions"][0]["name"].clone());
    }
    for (code, name) in codes.iter().zip(&names) {
        let all_own = found.iter().all(|it| it == name.as_str());
        assert_eq!(*code == 0, all_own, "{name}: {codes:?} {found:?}");
    }
    let codes = rush(&["--merge-versions"]);
    assert_eq!(codes, [0; 10]);
    for (_, plural) in KINDS {
        let object = site.get(DEFINITION, &format!("{plural}.{FMA_GROUP}")).await.unwrap();
        let versions = object["spec"]["versions"].as_array().unwrap();
        let mut present: Vec<_> = versions.iter().map(|it| it["name"].as_str().unwrap()).collect();
        present.sort_by_key(|it| (it.len(), (*it).to_owned()));
        assert_eq!(present, names, "{plural}");
        assert_eq!(versions.iter().filter(|it| it["storage"] == true).count(), 1);
    }
    let revisions = site.revisions().await;
    assert_eq!(rush(&["--merge-versions"]), [0; 10]);
    assert_eq!(rush(&[]), [0; 10]);
    assert_eq!(site.revisions().await, revisions);
}

/// Shared objects are removed when no other installation needs them, and the command reports what
/// is kept and why.
pub(crate) async fn as_44(site: &Site) {
    let admin = site.administrator();
    site.install(&admin, 0, &site.commit(&["v1alpha1"], "small"), &[]);
    site.gantry(&admin, &["install", "policies", "-o", "json"], &[]).ended(0);
    let person = site.user("as-44-mine").await;
    site.give_roles("as-44-mine", &person).await;
    site.user("as-44-theirs").await;
    site.config_object("as-44-mine", "v1alpha1", "mine").await;
    site.config_object("as-44-theirs", "v1alpha1", "theirs").await;
    let revisions = site.revisions().await;
    for part in ["crds", "policies"] {
        let words = ["uninstall", part, "--group", FMA_GROUP, "-n", "as-44-mine", "-o", "json"];
        let report = site.gantry(&admin, &words, &[]).ended(3);
        assert!(outcomes(&report).iter().all(|it| *it == "refused"), "{report:#}");
        let why = report["objects"][0]["why"].as_str().unwrap();
        assert!(why.contains("objects of the group: 1 in as-44-theirs"), "{why}");
        // A user who cannot list other namespaces gets an error that names the missing permission.
        let report = site.gantry(&person, &words, &[]).ended(2);
        assert_eq!(report["objects"][0]["askFor"], "gantry-viewer");
    }
    assert_eq!(site.revisions().await, revisions, "nothing was removed");
    let path =
        format!("/apis/{FMA_GROUP}/v1alpha1/namespaces/as-44-theirs/inferenceserverconfigs/theirs");
    assert_eq!(site.send(Request::delete(path)).await.status, 200);
    let words = ["uninstall", "policies", "-n", "as-44-mine", "-o", "json"];
    let report = site.gantry(&admin, &words, &["--dry-run"]).ended(0);
    assert_eq!(outcomes(&report), ["deleted"; 4]);
    assert_eq!(site.revisions().await, revisions, "a dry run removes nothing");
    let report = site.gantry(&admin, &words, &[]).ended(0);
    assert_eq!(outcomes(&report), ["deleted"; 4]);
    let stays = report["stays"].to_string();
    assert!(stays.contains("gantry uninstall crds") && stays.contains("as-44-mine"), "{stays}");
    // The published role lets its holder remove it, where they take the responsibility.
    let words = ["uninstall", "crds", "--group", FMA_GROUP, "-o", "json", "--force"];
    let report = site.gantry(&person, &words, &[]).ended(0);
    assert_eq!(outcomes(&report), ["deleted"; 3]);
    assert!(site.revisions().await.iter().all(|(_, it)| it.is_none()), "nothing is left behind");
    let report = site.gantry(&person, &words, &[]).ended(0);
    assert_eq!(outcomes(&report), ["absent"; 3]);
}

/// The files of the project remove what they brought.
pub(crate) async fn cs_25_and_cs_45(site: &Site) {
    let admin = site.administrator();
    site.install(&admin, 0, &site.commit(&["v1alpha1"], "small"), &[]);
    site.gantry(&admin, &["install", "policies", "-o", "json"], &[]).ended(0);
    // On a loaded machine, the finalizer of a real server can fail for minutes with "storage is
    // (re)initializing" if a definition is deleted before its instances could be listed.
    for (_, plural) in KINDS {
        let path = format!("/apis/{FMA_GROUP}/v1alpha1/{plural}");
        site.until(&format!("{plural} can be listed"), async || {
            site.send(Request::get(path.clone())).await.status == 200
        })
        .await;
    }
    for folder in ["crd", "validating-admission-policies"] {
        for entry in std::fs::read_dir(root().join("config").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let object = gantry_yaml::read(&text).unwrap().remove(0).to_json();
            let kind = ObjectKind::of(object["kind"].as_str().unwrap()).unwrap();
            let path = kind.path(object["metadata"]["name"].as_str().unwrap()).unwrap();
            assert_eq!(site.send(Request::delete(path.to_string())).await.status, 200);
        }
    }
    for (kind, name) in shared() {
        site.until(&format!("{name} is gone"), async || site.get(kind, &name).await.is_none())
            .await;
    }
}

/// A definition with versions of others is not removed unasked.
pub(crate) async fn foreign_versions_keep_a_definition(site: &Site) {
    let admin = site.administrator();
    site.install(&admin, 0, &site.commit(&["v1alpha1", "v1beta1"], "others"), &[]);
    let words = ["uninstall", "crds", "--group", FMA_GROUP, "-o", "json"];
    let report = site.gantry(&admin, &words, &[]).ended(3);
    let why = outcome(&report, CONFIGS)["why"].as_str().unwrap();
    assert!(why.contains("versions of others: v1beta1"), "{why}");
    assert_eq!(site.versions().await, ["v1alpha1", "v1beta1"]);
}

/// The permission to read nodes: created, extended, bound once, and revoked. Old bindings of `view`
/// are reported and removed on request.
pub(crate) async fn cs_7_to_cs_9(site: &Site) {
    let admin = site.administrator();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    site.made(roles, &json!({"metadata": {"name": "cs-7"}, "rules": pods})).await;
    let words = [
        "install",
        "roles",
        "--ensure-node-view-cluster-role",
        "cs-7",
        "--release",
        "cs-8",
        "--namespace",
        "cs-8",
        "-o",
        "json",
    ];
    let report = site.gantry(&admin, &words, &[]).ended(0);
    assert_eq!(outcome(&report, "cs-7")["outcome"], "changed");
    assert_eq!(outcome(&report, "cs-8-node-view")["outcome"], "created");
    let rules = site.get(ObjectKind::ClusterRole, "cs-7").await.unwrap()["rules"].clone();
    assert_eq!(rules[0]["resources"][0], "pods", "what it had it has: {rules}");
    assert_eq!(rules[1]["resources"][0], "nodes");
    let report = site.gantry(&admin, &words, &[]).ended(0);
    assert_eq!(outcome(&report, "cs-7")["outcome"], "unchanged");
    assert_eq!(outcome(&report, "cs-8-node-view")["outcome"], "unchanged");
    // Another installation of the same name elsewhere does not take it over.
    let mut other = words;
    other[7] = "elsewhere";
    let report = site.gantry(&admin, &other, &[]).ended(3);
    assert_eq!(outcome(&report, "cs-8-node-view")["outcome"], "refused");
    let view = json!({
        "metadata": {"name": "cs-9-view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "x-fma-controllers", "namespace": "x"}],
    });
    site.made("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &view).await;
    let said = site.gantry(&admin, &["share", "status", "--group", FMA_GROUP], &[]);
    assert!(
        said.out.contains("cs-9-view lets x/x-fma-controllers view everything"),
        "{}",
        said.out
    );
    let words = [
        "uninstall",
        "roles",
        "--release",
        "cs-8",
        "--node-view-cluster-role",
        "cs-7",
        "--old-view-bindings",
        "--force",
        "-o",
        "json",
    ];
    let report = site.gantry(&admin, &words, &[]).ended(0);
    for name in ["cs-8-node-view", "cs-9-view", "cs-7", "fma-crd-admin"] {
        assert_eq!(outcome(&report, name)["outcome"], "deleted", "{name}");
    }
    assert!(site.get(ObjectKind::ClusterRole, "cs-7").await.is_none());
}

/// Pods whose controllers are gone are freed, in one namespace, those alone that were deleted.
pub(crate) async fn stuck_pods_are_freed(site: &Site) {
    let person = site.user("freed").await;
    let path = "/api/v1/namespaces/freed/pods";
    account(site, "freed").await;
    for name in ["stuck", "alive"] {
        let pod = json!({
            "metadata": {"name": name, "finalizers": ["dual-pods.llm-d.ai/provider", "x.test/other"]},
            "spec": {"containers": [{"name": "c", "image": "registry.test/c:1"}]},
        });
        site.made(path, &pod).await;
    }
    let gone = format!("{path}/stuck?gracePeriodSeconds=0");
    assert_eq!(site.send(Request::delete(gone)).await.status, 200);
    let words = ["uninstall", "finalizers", "-n", "freed", "-o", "json"];
    let finalizers = async |name: &str| {
        let pod = site.send(Request::get(format!("{path}/{name}"))).await.json().unwrap();
        pod["metadata"]["finalizers"].clone()
    };
    let both = json!(["dual-pods.llm-d.ai/provider", "x.test/other"]);
    let report = site.gantry(&person, &words, &["--dry-run"]).ended(0);
    assert_eq!(outcome(&report, "stuck -n freed")["outcome"], "changed");
    assert_eq!(outcome(&report, "alive -n freed")["outcome"], "skipped");
    assert_eq!(finalizers("stuck").await, both, "a dry run changes nothing");
    site.gantry(&person, &words, &[]).ended(0);
    assert_eq!(finalizers("stuck").await, json!(["x.test/other"]));
    assert_eq!(finalizers("alive").await, both);
    site.gantry(&person, &words, &["--force"]).ended(0);
    assert_eq!(finalizers("alive").await, json!(["x.test/other"]));
}

/// Namespaces of test runs are deleted when they have expired, with pods whose finalizers no
/// controller would remove; no others are.
pub(crate) async fn expired_namespaces_are_swept(site: &Site) {
    let runs = [
        ("run-over", "true", "2020-02-29"),
        ("run-going-on", "true", "2999-01-01"),
        ("run-misspelt", "true", "29.2.2020"),
        ("run-of-nobody", "false", "2020-02-29"),
    ];
    for (name, sweep, day) in runs {
        let metadata = json!({
            "name": name, "labels": {"fma-e2e.llm-d.ai/sweep": sweep},
            "annotations": {"fma-e2e.llm-d.ai/expires-at": day},
        });
        site.made("/api/v1/namespaces", &json!({"metadata": metadata})).await;
    }
    account(site, "run-over").await;
    let pod = json!({
        "metadata": {"name": "p", "finalizers": ["dual-pods.llm-d.ai/provider"]},
        "spec": {"containers": [{"name": "c", "image": "registry.test/c:1"}]},
    });
    site.made("/api/v1/namespaces/run-over/pods", &pod).await;
    let going = async |name: &str| {
        let found = site.get(ObjectKind::Namespace, name).await;
        found.is_none_or(|it| !it["metadata"]["deletionTimestamp"].is_null())
    };
    let admin = site.administrator();
    let words = ["share", "sweep", "-o", "json"];
    let report = site.gantry(&admin, &words, &["--dry-run"]).ended(3);
    assert_eq!(outcome(&report, "run-over")["outcome"], "deleted");
    assert!(!going("run-over").await, "a dry run changes nothing");
    // What was misspelt keeps none of the others.
    let report = site.gantry(&admin, &words, &[]).ended(3);
    assert_eq!(outcome(&report, "run-over")["outcome"], "deleted");
    assert_eq!(outcome(&report, "run-going-on")["outcome"], "skipped");
    assert_eq!(outcome(&report, "run-misspelt")["outcome"], "refused");
    assert_eq!(outcomes(&report).len(), 3, "{report:#}");
    assert!(going("run-over").await);
    for name in ["run-going-on", "run-misspelt", "run-of-nobody"] {
        assert!(!going(name).await, "{name}");
    }
    let path = "/api/v1/namespaces/run-over/pods/p";
    site.until("the pod is free", async || {
        let found = site.send(Request::get(path)).await;
        found.status == 404 || found.json().unwrap()["metadata"]["finalizers"].is_null()
    })
    .await;
    site.gantry(&admin, &words, &[]).ended(3);
}

/// A real server rejects pods before their service account exists, and without controllers it is
/// never created.
async fn account(site: &Site, namespace: &str) {
    let account = json!({"metadata": {"name": "default"}});
    site.there(format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await;
}

/// Definitions that `kubectl apply --server-side` brings, of the same versions with other words in
/// them, need no force after an install, and an install needs none after them.
pub(crate) async fn applied_by_other_means(site: &Site) {
    let admin = site.administrator();
    let ours = site.commit(&["v1alpha1"], "ours");
    site.install(&admin, 0, &ours, &[]);
    let mut theirs = site.definition().await;
    for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"] {
        theirs["metadata"].as_object_mut().unwrap().shift_remove(field);
    }
    theirs.as_object_mut().unwrap().shift_remove("status");
    theirs["metadata"]["annotations"] = json!({"controller-gen.kubebuilder.io/version": "v0.19.0"});
    theirs["spec"]["names"]["shortNames"] = json!(["theirs"]);
    let schema = &mut theirs["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["description"] = json!("in their words");
    // As `kubectl apply --server-side` does, under its own name and without --force-conflicts.
    let apply = async || {
        let path = format!("{}?fieldManager=kubectl", DEFINITION.path(CONFIGS).unwrap());
        let request = Request::patch(path, "application/apply-patch+yaml", &theirs);
        site.admin.send(request).await.unwrap()
    };
    for round in ["after an install", "again"] {
        let answer = apply().await;
        assert!(answer.status.is_success(), "{round}: {}", answer.text());
        let said = &site.definition().await["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(said["description"], "in their words", "{round}");
    }
    let revisions = site.revisions().await;
    let report = site.install(&admin, 0, &ours, &[]);
    assert_eq!(outcomes(&report), ["unchanged"; 3], "a version that is there is left alone");
    assert_eq!(site.revisions().await, revisions);
    // `--mode if-differs` overrides, and still owns nothing that blocks the others.
    let report = site.install(&admin, 0, &ours, &["--mode", "if-differs"]);
    assert_eq!(outcome(&report, CONFIGS)["outcome"], "changed");
    let answer = apply().await;
    assert!(answer.status.is_success(), "after an install that insists: {}", answer.text());
}

/// Any user can see which namespaces use what, and the output names what they may not see.
pub(crate) async fn cs_6(site: &Site) {
    let admin = site.administrator();
    site.install(&admin, 0, &site.commit(&["v1alpha2"], "theirs"), &[]);
    let person = site.user("cs-6").await;
    site.config_object("cs-6", "v1alpha2", "mine").await;
    let words = ["share", "status", "--group", FMA_GROUP, "-o", "json"];
    let status = site.gantry(&admin, &words, &[]).ended(0);
    let group = &status["groups"][0];
    assert_eq!(group["usage"]["namespaces"], json!({"cs-6": 1}));
    let kind = &group["definitions"][0];
    assert_eq!(kind["name"], CONFIGS);
    assert_eq!(kind["present"]["present"]["versions"][0]["name"], "v1alpha2");
    assert_eq!(kind["present"]["present"]["stored"], json!(["v1alpha2"]));
    let managers = kind["present"]["present"]["managers"].as_array().unwrap();
    let ours = managers.iter().find(|it| it["name"] == "gantry-sharing").unwrap();
    assert_eq!(ours["fields"], json!(["spec.group"]), "contents belong to nobody");
    assert_eq!(kind["would"]["action"], "refuse");
    assert!(kind["would"]["why"].as_str().unwrap().contains("would remove v1alpha2"));
    assert_eq!(status["missingRights"], json!([]));
    let listed = status["inventory"].as_array().unwrap();
    for (kind, name) in shared() {
        let entry = listed.iter().find(|it| it["name"] == name.as_str()).unwrap();
        assert_eq!(entry["kind"], kind.as_str());
    }
    let status = site.gantry(&person, &words, &[]).ended(0);
    let group = &status["groups"][0];
    assert_eq!(group["usage"]["namespaces"], json!({"cs-6": 1}), "their own they see");
    assert_eq!(group["usage"]["unseen"].as_array().unwrap().len(), 3);
    assert_eq!(group["definitions"][0]["present"], "forbidden");
    let missing = status["missingRights"].as_array().unwrap();
    let ask = |name: &str| &missing.iter().find(|it| it["name"] == name).unwrap()["askFor"];
    assert_eq!(*ask(CONFIGS), "fma-crd-admin");
    assert_eq!(*ask(POLICIES[0]), "fma-policy-admin");
    let said = site.gantry(&person, &words[..4], &[]);
    assert!(said.out.contains("for ClusterRole fma-crd-admin"), "{}", said.out);
    assert!(said.out.contains("other namespaces cannot be seen"), "{}", said.out);
}

/// Without its definitions the operator ends, says which, and makes none.
pub(crate) async fn as_41(site: &Site) {
    site.there("/api/v1/namespaces", &json!({"metadata": {"name": "gantry-system"}})).await;
    let admin = site.administrator();
    let flags = ["--metrics-bind-address=0", "--health-probe-bind-address=0"];
    let mut command = site.command(&admin, &["operator"], &flags);
    let run = Run::of(command.env("NAMESPACE", "gantry-system").output().unwrap());
    assert_eq!(run.code, 3, "{}", run.err);
    assert!(run.err.contains("appwrappers.workload.codeflare.dev (absent)"), "{}", run.err);
    assert!(site.get(DEFINITION, "appwrappers.workload.codeflare.dev").await.is_none());
}
