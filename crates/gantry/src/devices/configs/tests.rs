use bytes::Bytes;
use gantry_controller::transport::in_process;
use gantry_placement::NamedBy;
use gantry_reconcile::Uid;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use super::*;

fn claim(namespace: &str, uid: &str) -> (Meta, Vec<Reference>) {
    let meta = Meta { namespace: namespace.to_owned(), uid: Uid::new(uid), ..Meta::default() };
    (meta, Vec::new())
}

fn reference(api_version: &str, kind: &str, name: &str, named_by: NamedBy) -> Reference {
    let text = str::to_owned;
    let (api_version, kind) = (text(api_version), text(kind));
    Reference { api_version, kind, namespace: text("a"), name: text(name), named_by }
}

#[test]
fn one_namespace_does_not_keep_others_from_being_read() {
    let many = (0..100).map(|number| claim("greedy", &format!("u{number:03}")));
    let waiting: Vec<_> = many.chain([claim("small", "z")]).collect();
    let mut reads = Reads::default();
    let at = |seconds: u64| Moment::default() + Duration::from_secs(seconds);
    let begun = |reads: &mut Reads, now| -> Vec<String> {
        let due = reads.due(&waiting, now);
        due.iter().map(|(it, _)| format!("{}/{}", it.namespace, it.uid)).collect()
    };
    let first = begun(&mut reads, at(0));
    let expected = ["greedy/u000", "greedy/u001", "greedy/u002", "greedy/u003", "small/z"];
    assert_eq!(first, expected, "a namespace has its share, the other its own");
    assert_eq!(begun(&mut reads, at(60)), Vec::<String>::new(), "what is under way counts");
    reads.done(Configs::key(&claim("greedy", "u001").0), at(60));
    reads.done(Configs::key(&claim("small", "z").0), at(60));
    assert_eq!(begun(&mut reads, at(61)), ["greedy/u004"], "who was never read for comes first");
    assert_eq!(begun(&mut reads, at(62)), ["small/z"], "what was read grows old");
    // Those that no longer wait are forgotten.
    reads.due(&[], at(63));
    assert_eq!(reads.read.len(), 0);
}

/// A server with one labelled kind, one that is not, and answers that are too large or never come.
fn server(clock: Clock) -> Server {
    let client = in_process(|request: Request<Bytes>| async move {
        let kind = |name: &str, kind: &str| json!({"name": name, "kind": kind, "namespaced": true});
        let of_crd = |label: &str| json!({"metadata": {"labels": {CONFIG_LABEL: label}}});
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let uri = request.uri().to_string();
        let (code, body) = match uri.as_str() {
            "/api/v1/namespaces/a/configmaps/small" => (200, json!({"data": {"x": "y"}})),
            "/api/v1/namespaces/a/configmaps/large" => (200, json!("x".repeat(2 << 20))),
            "/api/v1/namespaces/a/configmaps/secret" => (403, json!({"message": "not for you"})),
            "/api/v1/namespaces/a/configmaps/slow" => std::future::pending().await,
            "/apis/ex.com/v1" => (
                200,
                json!({"resources": [
                    kind("opens/status", "Open"), kind("opens", "Open"), kind("shuts", "Shut"),
                ]}),
            ),
            it if it == format!("{definitions}/opens.ex.com") => (200, of_crd("true")),
            it if it == format!("{definitions}/shuts.ex.com") => (200, of_crd("yes")),
            "/apis/ex.com/v1/namespaces/a/opens/o" | "/apis/ex.com/v1/namespaces/a/shuts/o" => {
                (200, json!({"spec": 1}))
            }
            _ => (404, json!({"message": format!("no {uri}")})),
        };
        let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
        *answer.status_mut() = StatusCode::from_u16(code).unwrap();
        answer
    });
    Server { client, clock, kinds: Mutex::default() }
}

#[tokio::test]
async fn what_a_claim_may_copy_is_read_and_the_rest_says_why_not() {
    let server = server(Clock::system());
    let (class, claim) = (NamedBy::Class, NamedBy::Claim);
    let table = [
        ("v1", "ConfigMap", "small", claim, Ok(())),
        ("v1", "ConfigMap", "none", claim, Err("")),
        ("v1", "ConfigMap", "large", claim, Err("is too large: more than 1048576 bytes were sent")),
        ("v1", "ConfigMap", "secret", claim, Err("may not be read by the allocator")),
        ("v1", "ConfigMap", "?watch=1", claim, Err("")),
        ("v1", "ConfigMap", "../secrets/x", claim, Err("cannot be addressed: \"../secrets/x\"")),
        ("ex.com/v1", "Open", "o", claim, Ok(())),
        ("ex.com/v1", "Shut", "o", claim, Err("may not be copied into the claim: Custom")),
        ("ex.com/v1", "Shut", "o", class, Ok(())),
        ("ex.com/v1", "None", "o", class, Err("")),
        ("ex.com/v1?x", "Open", "o", class, Err("cannot be addressed: ")),
    ];
    for (version, kind, name, named_by, expected) in table {
        let reference = reference(version, kind, name, named_by);
        match (server.get(&reference).await, expected) {
            (Ok(_), Ok(())) | (Err(Unread::NotFound), Err("")) => {}
            (Err(Unread::Problem(text)), Err(start)) if !start.is_empty() => {
                assert!(text.starts_with(start), "{reference:?}: {text}");
            }
            (found, _) => panic!("{reference:?}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_read_that_never_ends_is_given_up_with_a_reason() {
    let hand = gantry_process::clock::Hand::at(Timestamp::UNIX_EPOCH);
    let server = server(hand.clock());
    let slow = reference("v1", "ConfigMap", "slow", NamedBy::Claim);
    let (claim, references) = (claim("a", "u").0, vec![slow.clone()]);
    let wait = OBJECT_BOUNDS.time + Duration::from_secs(1);
    let (configs, ()) = tokio::join!(server.read(claim, references), hand.advance(wait));
    let said = &configs.problems[&slow.word()];
    assert!(said.starts_with("could not be read within 10 seconds"), "{said}");
}
