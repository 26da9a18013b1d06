use bytes::Bytes;
use gantry_controller::transport::in_process;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::config::ReferencedBy;

fn reference(
    api_version: &str,
    kind: &str,
    name: &str,
    named_by: ReferencedBy,
) -> DeviceConfigReference {
    let text = str::to_owned;
    let (api_version, kind) = (text(api_version), text(kind));
    DeviceConfigReference {
        api_version,
        kind,
        namespace: text("a"),
        name: text(name),
        referenced_by: named_by,
    }
}

/// Returns a reader of a server with one labelled kind, one that is not, and responses that are too
/// large or never come.
fn reader(clock: Clock) -> ConfigReader {
    let client = in_process(|request: Request<Bytes>| async move {
        let kind = |name: &str, kind: &str| json!({"name": name, "kind": kind, "namespaced": true, "verbs": ["get"]});
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
    ConfigReader::new(client, clock)
}

#[tokio::test]
async fn allowed_configs_are_read_and_others_say_why_not() {
    let reader = reader(Clock::system());
    let (class, claim) = (ReferencedBy::Class, ReferencedBy::Claim);
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
        match (reader.read(&reference).await, expected) {
            (ConfigObject::Found(_), Ok(())) | (ConfigObject::NotFound, Err("")) => {}
            (ConfigObject::Problem(text), Err(start)) if !start.is_empty() => {
                assert!(text.starts_with(start), "{reference:?}: {text}");
            }
            (found, _) => panic!("{reference:?}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_read_that_hangs_times_out_with_a_reason() {
    let hand = gantry_process::clock::FakeClock::at(Timestamp::UNIX_EPOCH);
    let reader = reader(hand.clock());
    let slow = reference("v1", "ConfigMap", "slow", ReferencedBy::Claim);
    let wait = OBJECT_READ_LIMITS.time + Duration::from_secs(1);
    let (read, ()) = tokio::join!(reader.read(&slow), hand.advance(wait));
    let ConfigObject::Problem(said) = read else { panic!("it was read") };
    assert!(said.starts_with("could not be read within 10 seconds"), "{said}");
}
