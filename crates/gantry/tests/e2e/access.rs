//! Authorization, compared on both servers: random roles and bindings, the policy every cluster
//! starts with, and the kubectl commands that review access.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_rbac::{Attributes, Policy, User};
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::embedded::EmbeddedServer;
use gantry_testkit::http::{Client, Protocol, Request, Target};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{embedded, say};

/// The number of worlds of roles and bindings, one after the other.
const SEEDS: [u64; 3] = [1, 2, 3];
/// The number of reviews of each world.
const REVIEWS_PER_WORLD: usize = 4_000;
/// The number of concurrent reviews.
const MAX_CONCURRENT_REVIEWS: usize = 16;
/// The timeout for what must happen: many times what a loaded machine needs.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(25);

const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

const VERBS: [&str; 7] = ["get", "list", "create", "delete", "*", "bind", "impersonate"];
const GROUPS: [&str; 5] = ["", "apps", "batch", "x.test", "*"];
const RESOURCES: [&str; 9] = [
    "pods",
    "pods/log",
    "*/log",
    "deployments",
    "deployments/scale",
    "*/scale",
    "secrets",
    "*",
    "*/*",
];
const NAMES: [&str; 4] = ["a", "b", "c.d", ""];
const PATHS: [&str; 8] = ["/a", "/a/*", "/a/b", "/b*", "/metrics", "/metrics/*", "*", "/c/**"];
const ASKED_PATHS: [&str; 9] =
    ["/a", "/a/", "/a/b", "/a/b/c", "/b", "/bc", "/metrics", "/c/", "/healthz"];
const USER_GROUPS: [&str; 4] = ["devs", "ops", "system:authenticated", "system:unauthenticated"];

/// A generator of worlds and reviews.
struct RandomRbac(fastrand::Rng);

impl RandomRbac {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        self.0.choice(of).copied().unwrap_or_default()
    }

    fn some(&mut self, of: &[&str], most: usize) -> Vec<String> {
        let count = 1 + self.0.usize(..most);
        (0..count).map(|_| self.one(of).to_owned()).collect()
    }

    fn rule(&mut self, paths: bool) -> Value {
        if paths && self.0.u8(..4) == 0 {
            return json!({ "verbs": self.some(&VERBS, 2), "nonResourceURLs": self.some(&PATHS, 3) });
        }
        let mut rule = json!({
            "verbs": self.some(&VERBS, 3), "apiGroups": self.some(&GROUPS, 2),
            "resources": self.some(&RESOURCES, 3),
        });
        if self.0.u8(..3) == 0 {
            rule["resourceNames"] = json!(self.some(&NAMES[..3], 2));
        }
        rule
    }

    fn rules(&mut self, paths: bool) -> Vec<Value> {
        (0..self.0.usize(..4)).map(|_| self.rule(paths)).collect()
    }

    fn user(&mut self) -> String {
        format!("user-{}", self.0.u8(..12))
    }

    fn subject(&mut self, world: &RbacWorld) -> Value {
        match self.0.u8(..3) {
            0 => json!({ "kind": "User", "name": self.user() }),
            1 => json!({ "kind": "Group", "name": self.one(&USER_GROUPS[..2]) }),
            _ => {
                let name = format!("account-{}", self.0.u8(..3));
                let namespace = self.0.choice(&world.namespaces).cloned();
                json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
            }
        }
    }
}

/// The names of one world; its objects live beside those of the others.
struct RbacWorld {
    seed: u64,
    namespaces: Vec<String>,
}

impl RbacWorld {
    fn new(seed: u64) -> Self {
        Self { seed, namespaces: ["a", "b"].map(|it| format!("world-{seed}-{it}")).to_vec() }
    }

    /// The objects of the world and where they are created, in an order that both servers take.
    fn objects(&self, dice: &mut RandomRbac) -> Vec<(String, Value)> {
        let mut objects: Vec<(String, Value)> = self
            .namespaces
            .iter()
            .map(|name| ("/api/v1/namespaces".to_owned(), json!({ "metadata": { "name": name } })))
            .collect();
        let name = |sort: &str, number: usize| format!("world-{}-{sort}-{number}", self.seed);
        for number in 0..24 {
            let role = json!({
                "metadata": { "name": name("cluster", number) }, "rules": dice.rules(true),
            });
            objects.push((format!("{GROUP}/clusterroles"), role));
        }
        for namespace in &self.namespaces {
            for number in 0..12 {
                let role = json!({
                    "metadata": { "name": name("local", number) }, "rules": dice.rules(false),
                });
                objects.push((format!("{GROUP}/namespaces/{namespace}/roles"), role));
            }
        }
        for number in 0..16 {
            // Some roles do not exist.
            let role = ("ClusterRole", name("cluster", dice.0.usize(..26)));
            let binding = self.binding(dice, &name("binding", number), &role);
            objects.push((format!("{GROUP}/clusterrolebindings"), binding));
        }
        for namespace in &self.namespaces {
            for number in 0..24 {
                let role = match dice.0.bool() {
                    true => ("ClusterRole", name("cluster", dice.0.usize(..26))),
                    false => ("Role", name("local", dice.0.usize(..14))),
                };
                let binding = self.binding(dice, &name("binding", number), &role);
                objects.push((format!("{GROUP}/namespaces/{namespace}/rolebindings"), binding));
            }
        }
        objects.extend(self.sentinels());
        objects
    }

    fn binding(&self, dice: &mut RandomRbac, name: &str, (kind, role): &(&str, String)) -> Value {
        let subjects: Vec<Value> = (0..dice.0.usize(1..4)).map(|_| dice.subject(self)).collect();
        json!({
            "metadata": { "name": name }, "subjects": subjects,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
        })
    }

    /// The objects that are created last. The authorizer observes objects of a kind in the order of
    /// their creation, so that it has observed all of them when it has observed these.
    fn sentinels(&self) -> Vec<(String, Value)> {
        let name = format!("world-{}-beacon", self.seed);
        let rules = |verb: &str| json!([{ "verbs": [verb], "apiGroups": ["beacon"], "resources": ["beacons"] }]);
        let binding = |kind: &str| {
            json!({
                "metadata": { "name": name }, "subjects": [{ "kind": "User", "name": name }],
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name },
            })
        };
        let role = |verb: &str| json!({ "metadata": { "name": name }, "rules": rules(verb) });
        let inside = format!("{GROUP}/namespaces/{}", self.namespaces[0]);
        vec![
            (format!("{GROUP}/clusterroles"), role("wide")),
            (format!("{inside}/roles"), role("narrow")),
            (format!("{GROUP}/clusterrolebindings"), binding("ClusterRole")),
            (format!("{inside}/rolebindings"), binding("Role")),
        ]
    }

    fn question(&self, dice: &mut RandomRbac) -> AccessQuestion {
        let name = match dice.0.u8(..8) {
            0 => {
                let namespace = dice.0.choice(&self.namespaces).cloned().unwrap_or_default();
                format!("system:serviceaccount:{namespace}:account-{}", dice.0.u8(..3))
            }
            1 => String::new(),
            2 => "system:anonymous".to_owned(),
            _ => dice.user(),
        };
        let mut groups = match dice.0.u8(..4) {
            0 => dice.some(&USER_GROUPS, 3),
            _ => Vec::new(),
        };
        if name.is_empty() && groups.is_empty() {
            groups.push("devs".to_owned());
        }
        if dice.0.u8(..200) == 0 {
            groups.push("system:masters".to_owned());
        }
        if dice.0.u8(..8) == 0 {
            let asked = Attributes::path(dice.one(&VERBS), dice.one(&ASKED_PATHS));
            return AccessQuestion { name, groups, asked };
        }
        let (resource, part) = match dice.0.u8(..10) {
            0 => ("pods", "log"),
            1 => ("deployments", "scale"),
            2 => ("things", "log"),
            3 => ("things", "status"),
            4 => ("pods/log", ""),
            5 => ("secrets", ""),
            6 => ("deployments", ""),
            7 => ("things", ""),
            8 => ("", ""),
            _ => ("pods", ""),
        };
        let namespace = match dice.0.u8(..8) {
            0 => String::new(),
            1 => "default".to_owned(),
            _ => dice.0.choice(&self.namespaces).cloned().unwrap_or_default(),
        };
        let asked = Attributes::resource(dice.one(&VERBS), dice.one(&GROUPS), resource)
            .with_subresource(part)
            .in_namespace(&namespace)
            .with_name(dice.one(&NAMES));
        AccessQuestion { name, groups, asked }
    }
}

/// One review about one user.
#[derive(Clone, Debug)]
struct AccessQuestion {
    name: String,
    groups: Vec<String>,
    asked: Attributes,
}

impl AccessQuestion {
    fn user(&self) -> User<'_> {
        User { name: &self.name, groups: &self.groups }
    }

    fn review(&self) -> Value {
        let mut review = json!({ "spec": { "user": self.name, "groups": self.groups } });
        let verb = &self.asked.verb;
        match &self.asked.target {
            gantry_rbac::AttributesTarget::NonResourcePath(path) => {
                review["spec"]["nonResourceAttributes"] = json!({ "verb": verb, "path": path });
            }
            gantry_rbac::AttributesTarget::Resource {
                group,
                resource,
                subresource,
                namespace,
                name,
            } => {
                review["spec"]["resourceAttributes"] = json!({
                    "verb": verb, "group": group, "resource": resource,
                    "subresource": subresource, "namespace": namespace, "name": name,
                });
            }
        }
        review
    }
}

/// A server that is compared.
#[derive(Clone)]
struct Server(Client, Clock);

impl Server {
    fn new(target: &Target, clock: &Clock) -> Self {
        Self(Client::new(target, Protocol::Http2, clock.clone()).unwrap(), clock.clone())
    }

    async fn create(&self, path: &str, object: &Value) {
        let answer = self.0.send(Request::post(path, object)).await.unwrap();
        assert_eq!(answer.status.as_u16(), 201, "{path} {object}: {}", answer.text());
    }

    async fn items(&self, path: &str) -> Vec<Value> {
        let answer = self.0.send(Request::get(path)).await.unwrap().json().unwrap();
        answer["items"].as_array().cloned().unwrap_or_default()
    }

    /// Returns whether something is allowed, and why.
    async fn ask(&self, question: &AccessQuestion) -> (bool, String) {
        let answer = self.0.send(Request::post(REVIEWS, &question.review())).await.unwrap();
        assert_eq!(answer.status.as_u16(), 201, "{question:?}: {}", answer.text());
        let status = &answer.json().unwrap()["status"];
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        (status["allowed"] == true, reason)
    }

    async fn wait_for_sentinels(&self, world: &RbacWorld) {
        let name = format!("world-{}-beacon", world.seed);
        let beacon = |verb: &str| Attributes::resource(verb, "beacon", "beacons");
        for asked in [beacon("wide"), beacon("narrow").in_namespace(&world.namespaces[0])] {
            let question = AccessQuestion { name: name.clone(), groups: Vec::new(), asked };
            let give_up = self.1.moment() + CONDITION_TIMEOUT;
            while !self.ask(&question).await.0 {
                assert!(self.1.moment() < give_up, "no beacon of world {}", world.seed);
                self.1.sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Sends many reviews at once; results are in the order of the reviews.
    async fn ask_all(&self, questions: &Arc<Vec<AccessQuestion>>) -> Vec<(bool, String)> {
        let mut asking = JoinSet::new();
        for first in 0..MAX_CONCURRENT_REVIEWS {
            let (server, questions) = (self.clone(), Arc::clone(questions));
            asking.spawn(async move {
                let mut answers = Vec::new();
                for place in (first..questions.len()).step_by(MAX_CONCURRENT_REVIEWS) {
                    answers.push((place, server.ask(&questions[place]).await));
                }
                answers
            });
        }
        let mut answers: Vec<_> = asking.join_all().await.into_iter().flatten().collect();
        answers.sort_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Everything that is stored about access.
    async fn policy(&self) -> Policy {
        let mut policy = Policy::default();
        let text = |object: &Value, name: &str| {
            object["metadata"][name].as_str().unwrap_or_default().to_owned()
        };
        for role in self.items(&format!("{GROUP}/clusterroles")).await {
            policy.set_cluster_role(&text(&role, "name"), &role);
        }
        for role in self.items(&format!("{GROUP}/roles")).await {
            policy.set_role(&text(&role, "namespace"), &text(&role, "name"), &role);
        }
        for binding in self.items(&format!("{GROUP}/clusterrolebindings")).await {
            policy.set_cluster_binding(&text(&binding, "name"), &binding);
        }
        for binding in self.items(&format!("{GROUP}/rolebindings")).await {
            policy.set_binding(&text(&binding, "namespace"), &text(&binding, "name"), &binding);
        }
        policy
    }
}

/// Returns the errors in a reason, whose order is random.
fn errors(reason: &str) -> BTreeSet<&str> {
    let list = reason.trim_start_matches("RBAC: ").trim_start_matches('[').trim_end_matches(']');
    list.split(", ").collect()
}

/// Describes what is wrong with two responses to a review, given all bindings that allow it.
///
/// The real server checks bindings of the cluster first, and those of each sort in any order.
fn differ(real: &(bool, String), ours: &(bool, String), reasons: &[String]) -> Option<String> {
    if real.0 != ours.0 {
        return Some("one allows it".to_owned());
    }
    if !ours.0 {
        return (errors(&real.1) != errors(&ours.1)).then(|| "other errors".to_owned());
    }
    let wide = |reason: &String| reason.contains("allowed by ClusterRoleBinding");
    let any_wide = reasons.iter().any(wide);
    let possible: Vec<&String> = reasons.iter().filter(|it| wide(it) == any_wide).collect();
    let is_possible = |reason: &String| match possible.as_slice() {
        [] => reason.is_empty(),
        possible => possible.contains(&reason),
    };
    let first = ours.1 == reasons.first().cloned().unwrap_or_default();
    (!first || !is_possible(&real.1)).then(|| format!("no such reason; possible: {possible:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_allow_the_same_for_the_same_reason() {
    let clock = Clock::system();
    let cluster = RealCluster::start().await.unwrap();
    let embedded = embedded(&clock).await;
    let real = Server::new(cluster.admin().target(), &clock);
    let ours = Server::new(embedded.target(), &clock);
    let (mut asked, mut allowed, mut ambiguous) = (0, 0, 0);
    for seed in SEEDS {
        let world = RbacWorld::new(seed);
        let mut dice = RandomRbac(fastrand::Rng::with_seed(seed));
        for (path, object) in world.objects(&mut dice) {
            tokio::join!(real.create(&path, &object), ours.create(&path, &object));
        }
        real.wait_for_sentinels(&world).await;
        let questions: Vec<AccessQuestion> =
            (0..REVIEWS_PER_WORLD).map(|_| world.question(&mut dice)).collect();
        let questions = Arc::new(questions);
        let (theirs, own) = tokio::join!(real.ask_all(&questions), ours.ask_all(&questions));
        let policy = ours.policy().await;
        let mut differences = Vec::new();
        for (question, (real, ours)) in questions.iter().zip(theirs.iter().zip(&own)) {
            let masters = question.user().is_administrator();
            let reasons = match masters {
                true => Vec::new(),
                false => policy.reasons(question.user(), &question.asked),
            };
            asked += 1;
            allowed += usize::from(ours.0);
            ambiguous += usize::from(reasons.len() > 1);
            if let Some(how) = differ(real, ours, &reasons) {
                differences.push(format!("{question:?}: {how}\n real {real:?}\n ours {ours:?}"));
            }
        }
        let shown: Vec<&String> = differences.iter().take(10).collect();
        assert!(differences.is_empty(), "seed {seed}: {} differ: {shown:#?}", differences.len());
    }
    say(&format!(
        "{asked} questions of worlds {SEEDS:?}: {allowed} allowed, {ambiguous} by several bindings"
    ));
    assert!(allowed > asked / 10 && allowed < asked * 9 / 10, "{allowed} of {asked} are allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_start_with_the_same_policy() {
    let clock = Clock::system();
    let cluster = RealCluster::start().await.unwrap();
    let embedded = embedded(&clock).await;
    let real = Server::new(cluster.admin().target(), &clock);
    let ours = Server::new(embedded.target(), &clock);
    // The real server creates them after it listens; this is the last of them.
    let give_up = clock.moment() + CONDITION_TIMEOUT;
    let last = format!("{GROUP}/namespaces/kube-public/rolebindings");
    while real.items(&last).await.is_empty() {
        assert!(clock.moment() < give_up, "no policy");
        clock.sleep(POLL_INTERVAL).await;
    }
    for kind in ["clusterroles", "clusterrolebindings", "roles", "rolebindings"] {
        let list = |server: Server| async move {
            let mut items = server.items(&format!("{GROUP}/{kind}")).await;
            for item in &mut items {
                let metadata = item["metadata"].as_object_mut().unwrap();
                metadata.retain(|key, _| {
                    ["name", "namespace", "labels", "annotations"].contains(&key.as_str())
                });
                // Without controllers the real server leaves these empty.
                if !item["aggregationRule"].is_null() {
                    item.as_object_mut().unwrap().shift_remove("rules");
                }
            }
            items
        };
        let (theirs, own) = (list(real.clone()).await, list(ours.clone()).await);
        assert!(!own.is_empty(), "{kind}");
        assert_eq!(own, theirs, "{kind}");
    }
    // What real controllers make of these is in the specification: no secrets for viewers.
    let view = ours.0.send(Request::get(format!("{GROUP}/clusterroles/view"))).await.unwrap();
    let rules = view.json().unwrap()["rules"].to_string();
    assert!(rules.contains("\"configmaps\"") && !rules.contains("\"secrets\""), "{rules}");
}

/// A `kubectl` for the embedded server.
fn kubectl(embedded: &EmbeddedServer, cluster: &RealCluster) -> Command {
    let mut command = cluster.admin().kubectl();
    command.env("KUBECONFIG", embedded.kubeconfig());
    command
}

/// What a command prints, and whether it succeeds.
fn run(mut command: Command, words: &[&str], input: &str) -> (String, String, bool) {
    use std::io::Write as _;
    let pipes = [Stdio::piped(), Stdio::piped(), Stdio::piped()];
    let [stdin, stdout, stderr] = pipes;
    let command = command.args(words).stdin(stdin).stdout(stdout).stderr(stderr);
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_asks_both_servers_the_same() {
    let clock = Clock::system();
    let cluster = RealCluster::start().await.unwrap();
    let embedded = embedded(&clock).await;
    let manifest = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: { name: reader, namespace: default }
rules:
- { apiGroups: [''], resources: [pods, pods/log], verbs: [get, list] }
- { apiGroups: [''], resources: [secrets], verbs: [get], resourceNames: [a] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: reader, namespace: default }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader }
subjects:
- { apiGroup: rbac.authorization.k8s.io, kind: User, name: bob }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: test-watcher }
rules:
- { apiGroups: [apps], resources: ['*'], verbs: [watch] }
";
    let more = manifest.replace("verbs: [get, list]", "verbs: [watch]");
    let table: &[(&[&str], &str)] = &[
        (&["auth", "reconcile", "-f", "-"], manifest),
        (&["auth", "reconcile", "-f", "-"], manifest),
        (&["auth", "reconcile", "-f", "-", "--dry-run=client"], &more),
        (&["auth", "reconcile", "-f", "-"], &more),
        (&["auth", "reconcile", "-f", "-", "--remove-extra-permissions"], manifest),
        (&["get", "role", "reader", "-o", "jsonpath={.rules}"], ""),
        (&["auth", "can-i", "get", "pods"], ""),
        (&["auth", "can-i", "get", "pods", "--as=bob"], ""),
        (&["auth", "can-i", "get", "pods", "--as=bob", "--subresource=log"], ""),
        (&["auth", "can-i", "get", "pods/p", "--as=bob"], ""),
        (&["auth", "can-i", "delete", "pods", "--as=bob"], ""),
        (&["auth", "can-i", "get", "pods", "--as=bob", "-n", "kube-system"], ""),
        (&["auth", "can-i", "get", "pods", "--as=bob", "-A"], ""),
        (&["auth", "can-i", "get", "secrets/a", "--as=bob"], ""),
        (&["auth", "can-i", "get", "secrets/b", "--as=bob"], ""),
        (&["auth", "can-i", "get", "/metrics", "--as=bob"], ""),
        (&["auth", "can-i", "get", "/healthz", "--as=bob"], ""),
        (&["auth", "can-i", "create", "things.none.test", "--as=bob"], ""),
        (&["auth", "can-i", "--list", "--as=bob", "--as-group=system:masters"], ""),
        (&["auth", "can-i", "--list", "--as=bob", "--as-group=system:authenticated"], ""),
        (&["auth", "whoami", "--as=bob", "--as-group=devs", "--as-uid=7"], ""),
        (&["auth", "whoami", "--as=system:serviceaccount:a:b", "-o", "jsonpath={.status}"], ""),
        (&["get", "pods", "--as=bob"], ""),
        (&["get", "nodes", "--as=bob"], ""),
        (&["delete", "pods", "--all", "--as=bob"], ""),
        (&["get", "secret", "a", "--as=bob"], ""),
        (&["get", "secret", "b", "--as=bob"], ""),
    ];
    for (words, input) in table {
        let ours = run(kubectl(&embedded, &cluster), words, input);
        let give_up = clock.moment() + CONDITION_TIMEOUT;
        // The real server applies a role after a while.
        loop {
            let real = run(cluster.admin().kubectl(), words, input);
            if ours == real {
                break;
            }
            assert!(clock.moment() < give_up, "{words:?}\n real {real:?}\n ours {ours:?}");
            clock.sleep(POLL_INTERVAL).await;
        }
    }
    let (stdout, stderr, done) = run(kubectl(&embedded, &cluster), &["auth", "whoami"], "");
    assert!(done && stdout.contains("gantry-admin") && stdout.contains("X509SHA256="), "{stderr}");
}
