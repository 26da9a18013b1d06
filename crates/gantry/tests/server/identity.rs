//! The identity of callers: users with certificates, static tokens, tokens of service accounts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gantry_process::clock::Clock;
use gantry_serve::files::write_private;
use gantry_serve::pki::Pki;
use gantry_testkit::embedded::EmbeddedServer;
use gantry_testkit::http::{Client, Credentials, Protocol, Request, Target};
use gantry_testkit::kubeconfig::read_target;
use gantry_token::{Claims, Key, KubernetesClaim, Reference};
use serde_json::{Value, json};

use super::{CONFIG_MAPS, client, done, get, plan, refusal, start};

const SELF_SUBJECT_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Returns what `gantry user` prints, or its error.
fn user(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
    let output = command.arg("user").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

fn connect(target: &Target) -> Client {
    Client::new(target, Protocol::Http2, Clock::system()).unwrap()
}

/// A client with other credentials.
fn client_with(server: &EmbeddedServer, credentials: Credentials) -> Client {
    connect(&Target { credentials, ..server.target().clone() })
}

fn bearer(server: &EmbeddedServer, token: &str) -> Client {
    client_with(server, Credentials::Token(token.to_owned()))
}

/// Returns the user that the server authenticates a client as.
async fn whoami(client: &Client) -> Value {
    let review = client.send(Request::post(SELF_SUBJECT_REVIEWS, &json!({}))).await.unwrap();
    done(&review)["status"]["userInfo"].clone()
}

async fn status(client: &Client, request: Request) -> u16 {
    client.send(request).await.unwrap().status.as_u16()
}

/// The controllers of a whole cluster trust what their webhooks wrote: without them any user could
/// forge it.
#[tokio::test]
async fn a_cluster_keeps_the_plugins_that_its_controllers_rely_on() {
    for name in ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"] {
        let flag = format!("--disable-admission-plugins=LimitRanger,{name}");
        let server = plan().flag("--ephemeral").flag(&flag).start(&Clock::system()).await;
        drop(server.unwrap());
        let cluster = plan().whole_cluster().flag("--ephemeral").flag(&flag);
        let said = refusal(cluster.start(&Clock::system()).await);
        let words = format!("--disable-admission-plugins: {name} cannot be disabled in gantry up");
        assert!(said.contains(&words), "{said}");
    }
}

/// With AlwaysAllow no request is anonymous, whatever the flags say.
#[tokio::test]
async fn always_allow_refuses_anonymous_requests() {
    for modes in ["AlwaysAllow", "RBAC,AlwaysAllow"] {
        for flags in [&[][..], &["--anonymous-auth=true"]] {
            let plan = plan().flag("--ephemeral").flag(format!("--authorization-mode={modes}"));
            let plan = flags.iter().fold(plan, |plan, flag| plan.flag(*flag));
            let server = plan.start(&Clock::system()).await.unwrap();
            let nobody = client_with(&server, Credentials::Anonymous);
            for path in ["/version", "/healthz", "/api/v1/secrets", CONFIG_MAPS] {
                let answer = nobody.send(Request::get(path)).await.unwrap();
                assert_eq!(answer.status.as_u16(), 401, "{modes} {flags:?}: {path}");
            }
            let map = json!({ "metadata": { "name": "a" } });
            assert_eq!(status(&nobody, Request::post(CONFIG_MAPS, &map)).await, 401);
            let admin = client(&server, Protocol::Http2);
            assert_eq!(status(&admin, Request::post(CONFIG_MAPS, &map)).await, 201);
            let words = "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting \
                         AnonymousAuth to false. You should use a different authorizer";
            assert!(server.tails().contains(words), "{}", server.tails());
        }
    }
    let plan = plan().flag("--ephemeral").flag("--authorization-mode=AlwaysAllow");
    let server = plan.flag("--anonymous-auth=false").start(&Clock::system()).await.unwrap();
    assert!(!server.tails().contains("AnonymousAuth"), "there is nothing to warn of");
}

/// Returns a token of an account in `default`.
async fn token(admin: &Client, account: &str, request: &Value) -> String {
    let path = format!("{ACCOUNTS}/{account}/token");
    let made = done(&admin.send(Request::post(path, request)).await.unwrap());
    made["status"]["token"].as_str().unwrap().to_owned()
}

async fn create(admin: &Client, path: &str, object: &Value) -> Value {
    done(&admin.send(Request::post(path, object)).await.unwrap())
}

fn path(folder: &Path, name: &str) -> (PathBuf, String) {
    let path = folder.join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

#[tokio::test(flavor = "multi_thread")]
async fn users_have_certificates_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (data, data_dir) = path(folder.path(), "data");
    let (file, kubeconfig) = path(folder.path(), "bob.kubeconfig");
    let missing = user(&["list", "--data-dir", &data_dir]).unwrap_err();
    assert!(missing.contains("cannot find a certificate authority in"), "{missing}");
    let server = start(&data).await;
    let admin = client(&server, Protocol::Http2);

    let add = ["add", "bob", "--group", "devs", "--group", "ops", "--expires", "1h"];
    let add = [&add[..], &["--data-dir", &data_dir, "--kubeconfig", &kubeconfig]].concat();
    let said = user(&add).unwrap();
    assert!(said.starts_with("bob may reach https://127.0.0.1:"), "{said}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let again = user(&add).unwrap_err();
    assert!(
        again.contains("exists already; choose another --kubeconfig, or use --force"),
        "{again}"
    );

    let bob = connect(&read_target(&file).unwrap());
    let known = whoami(&bob).await;
    assert_eq!(known["username"], "bob");
    assert_eq!(known["groups"], json!(["devs", "ops", "system:authenticated"]));
    assert_eq!(status(&bob, Request::get(CONFIG_MAPS)).await, 403);
    let binding = json!({
        "metadata": { "name": "devs-view" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs" }],
    });
    create(&admin, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    assert_eq!(status(&bob, Request::get(CONFIG_MAPS)).await, 200);
    assert_eq!(status(&bob, Request::get("/api/v1/namespaces/default/secrets")).await, 403);

    let list = user(&["list", "--data-dir", &data_dir, "-o", "json"]).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["users"][0]["name"], "bob");
    assert_eq!(list["users"][0]["groups"], json!(["devs", "ops"]));
    let credential = &known["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert_eq!(list["users"][0]["credentialId"], *credential);

    // Without the server as well: it accepts the certificate when it runs again.
    drop(server);
    let (other, kubeconfig) = path(folder.path(), "kim.kubeconfig");
    user(&["add", "kim", "--data-dir", &data_dir, "--kubeconfig", &kubeconfig]).unwrap();
    let server = start(&data).await;
    let Target { credentials, .. } = read_target(&other).unwrap();
    assert_eq!(whoami(&client_with(&server, credentials)).await["username"], "kim");
    let table = user(&["list", "--data-dir", &data_dir]).unwrap();
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(lines, [["NAME", "GROUPS"], ["bob", "devs,ops"], ["kim", "<none>"]]);
    let wide = user(&["list", "--data-dir", &data_dir, "-o", "wide"]).unwrap();
    assert!(wide.contains(credential.as_str().unwrap()), "{wide}");
    let reserved =
        user(&["add", "system:serviceaccount:a:b", "--data-dir", &data_dir]).unwrap_err();
    assert!(reserved.contains("such names are reserved for the server"), "{reserved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_file_stand_for_users() {
    let folder = tempfile::tempdir().unwrap();
    let (file, flag) = path(folder.path(), "tokens.csv");
    write_private(&file, b"secret-one,bob,7,\"devs,ops\"\nsecret-two,root,,system:masters\n")
        .unwrap();
    let clock = Clock::system();
    let with = || plan().flag("--token-auth-file").flag(&*flag);
    let server = with().start(&clock).await.unwrap();
    let known = whoami(&bearer(&server, "secret-one")).await;
    let expected = json!({
        "username": "bob", "uid": "7", "groups": ["devs", "ops", "system:authenticated"],
    });
    assert_eq!(known, expected);
    assert_eq!(status(&bearer(&server, "secret-two"), Request::get(CONFIG_MAPS)).await, 200);
    for wrong in ["secret-on", "secret-one1", "secret-three", "bob"] {
        assert_eq!(status(&bearer(&server, wrong), Request::get("/version")).await, 401, "{wrong}");
    }
    assert!(!server.tails().contains("secret-"), "tokens are not logged");
    drop(server);

    write_private(&file, b"secret-one,bob,7\nsecret-two,eve\n").unwrap();
    let said = refusal(with().start(&clock).await);
    let expected = format!("cannot use --token-auth-file {flag}: line 2: 2 of at least 3 columns");
    assert!(said.contains(&expected), "{said}");
    assert!(!said.contains("secret-"), "{said}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let said = refusal(with().start(&clock).await);
    assert!(said.contains("its mode 644 lets other users in"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_revoked_with_their_bound_object() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = start(&data).await;
    let admin = client(&server, Protocol::Http2);
    create(&admin, ACCOUNTS, &json!({ "metadata": { "name": "a" } })).await;
    let pod = json!({ "metadata": { "name": "p" }, "spec": {
        "serviceAccountName": "a", "containers": [{ "name": "c", "image": "registry.test/c:1" }],
    } });
    create(&admin, PODS, &pod).await;
    let reference = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p" });
    let bound = token(&admin, "a", &json!({ "spec": { "boundObjectRef": reference } })).await;
    let free = token(&admin, "a", &json!({})).await;
    // A restart keeps the key, and with it the tokens.
    drop(server);
    let server = start(&data).await;
    let admin = client(&server, Protocol::Http2);
    let (bound, free) = (bearer(&server, &bound), bearer(&server, &free));
    let known = whoami(&bound).await;
    assert_eq!(known["username"], "system:serviceaccount:default:a");
    assert_eq!(known["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(whoami(&free).await["username"], known["username"]);
    done(&admin.send(Request::delete(format!("{PODS}/p"))).await.unwrap());
    // Not a moment later: neither token is cached.
    assert_eq!(status(&bound, Request::get("/version")).await, 401);
    assert_eq!(status(&free, Request::get("/version")).await, 200);
    done(&admin.send(Request::delete(format!("{ACCOUNTS}/a"))).await.unwrap());
    assert_eq!(status(&free, Request::get("/version")).await, 401);
    create(&admin, ACCOUNTS, &json!({ "metadata": { "name": "a" } })).await;
    assert_eq!(status(&free, Request::get("/version")).await, 401, "another of the same name");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_claims_are_checked_beyond_the_signature() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = start(&data).await;
    let admin = client(&server, Protocol::Http2);
    let account = create(&admin, ACCOUNTS, &json!({ "metadata": { "name": "a" } })).await;
    let uid = account["metadata"]["uid"].as_str().unwrap().to_owned();
    let key =
        Key::from_pem(&fs::read_to_string(data.join("pki/service-account.pem")).unwrap()).unwrap();
    let now = Clock::system().now().as_second();
    let good = || Claims {
        audiences: vec![ISSUER.to_owned()],
        expires: now + 600,
        issued: now,
        issuer: ISSUER.to_owned(),
        id: "j".to_owned(),
        account: KubernetesClaim {
            namespace: "default".to_owned(),
            serviceaccount: Reference { name: "a".to_owned(), uid: uid.clone() },
            ..KubernetesClaim::default()
        },
        not_before: now,
        subject: "system:serviceaccount:default:a".to_owned(),
    };
    let about = |name: &str, uid: &str| {
        let serviceaccount = Reference { name: name.to_owned(), uid: uid.to_owned() };
        KubernetesClaim { serviceaccount, ..good().account }
    };
    let table = [
        ("all is true", good(), 200),
        ("expired", Claims { expires: now - 90, ..good() }, 401),
        ("not yet", Claims { not_before: now + 600, ..good() }, 401),
        ("of the future", Claims { issued: now + 600, ..good() }, 401),
        ("for others", Claims { audiences: vec!["vault".to_owned()], ..good() }, 401),
        ("for nobody", Claims { audiences: Vec::new(), ..good() }, 401),
        ("of another issuer", Claims { issuer: "https://other".to_owned(), ..good() }, 401),
        ("of nobody", Claims { account: about("none", &uid), ..good() }, 401),
        ("of somebody gone", Claims { account: about("a", "7"), ..good() }, 401),
    ];
    for (why, claims, expected) in table {
        let bearer = bearer(&server, &key.sign(&claims).unwrap());
        assert_eq!(status(&bearer, Request::get("/version")).await, expected, "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_configure_authorities_and_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let other = Pki::open_or_create(&folder.path().join("other"), &[], clock.now()).unwrap();
    let (authority_file, authority) = path(folder.path(), "ca.crt");
    fs::write(&authority_file, other.ca_certificate()).unwrap();
    let (chain_file, chain) = path(folder.path(), "tls.crt");
    fs::write(&chain_file, format!("{}{}", other.server().certificate, other.ca_certificate()))
        .unwrap();
    let (key_file, key) = path(folder.path(), "tls.key");
    write_private(&key_file, other.server().key.as_bytes()).unwrap();
    let flags = [
        ["--client-ca-file", &authority],
        ["--tls-cert-file", &chain],
        ["--tls-private-key-file", &key],
        ["--service-cluster-ip-range", "10.7.0.0/24"],
        ["--service-account-issuer", "https://issuer.test"],
        ["--anonymous-auth", "false"],
    ];
    let server = flags.into_iter().flatten().fold(plan(), |plan, flag| plan.flag(flag));
    let server = server.start(&clock).await.unwrap();
    // The kubeconfig trusts only the certificate that is served.
    assert!(server.target().authority.contains(&other.server().certificate));
    let admin = client(&server, Protocol::Http2);
    assert_eq!(whoami(&admin).await["username"], "gantry-admin");
    let kim =
        other.issue("kim", &["devs"], std::time::Duration::from_secs(600), clock.now()).unwrap();
    let kim = Credentials::Certificate { chain: kim.certificate, key: kim.key };
    assert_eq!(whoami(&client_with(&server, kim)).await["username"], "kim");
    let nobody = client_with(&server, Credentials::Anonymous);
    assert_eq!(status(&nobody, Request::get("/version")).await, 401);
    let service = get(&admin, "/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!(service["spec"]["clusterIP"], "10.7.0.1");
    let configuration = get(&admin, "/.well-known/openid-configuration").await;
    assert_eq!(configuration["issuer"], "https://issuer.test");
    let base = &server.target().base;
    assert_eq!(configuration["jwks_uri"], format!("{base}/openid/v1/jwks"));
    let trusted =
        get(&admin, "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
            .await;
    let trusted = trusted["data"]["client-ca-file"].as_str().unwrap();
    assert!(!trusted.contains(&other.server().certificate), "what is shown signs no clients");

    for (flags, expected) in [
        ([["--client-ca-file", &*key], ["--port", "0"]], "cannot use --client-ca-file "),
        (
            [["--tls-cert-file", &authority], ["--tls-private-key-file", &key]],
            "cannot use --tls-cert-file ",
        ),
        ([["--service-cluster-ip-range", "10.0.0.0/8"], ["--port", "0"]], "must be from 12 to 29"),
        ([["--service-account-issuer", "me"], ["--port", "0"]], "it must begin with https://"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
        command.args(["apiserver", "--ephemeral"]).args(flags.into_iter().flatten());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{said}");
    }
}
