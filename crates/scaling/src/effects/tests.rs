//! The client and the pools against a local service with the real paths and errors.

use std::time::Duration;

use gantry_controller::external;
use gantry_process::clock::{Clock, FakeClock};
use gantry_reconcile::{Call, CallId, Refusal, Reply, Target, Uid};
use gantry_testkit::ocm::{CLUSTER, EXTERNAL_CLUSTER_ID, Fault, OFFLINE_TOKEN, OcmServer};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::pool::{CREATE, DELETE, PROTOCOL, Pool, RESIZE};
use crate::settings::PoolKind;

async fn service(hosted: bool) -> OcmServer {
    OcmServer::start(hosted).await.unwrap()
}

fn ocm(service: &OcmServer, clock: Clock) -> OcmClient {
    let endpoints = Endpoints { api: service.url(), tokens: service.token_url() };
    OcmClient::new(clock, endpoints, Secret::new(OFFLINE_TOKEN).unwrap()).unwrap()
}

async fn pools(service: &OcmServer, clock: Clock) -> Pools {
    let ocm = ocm(service, clock.clone());
    let cluster = ocm.cluster(EXTERNAL_CLUSTER_ID).await.unwrap();
    Pools::new(ocm, cluster, clock)
}

fn found(name: &str, count: u32) -> Pool {
    Pool {
        name: name.to_owned(),
        instance_type: "g4dn.xlarge".to_owned(),
        replicas: Some(count),
        labels: [("a-n".to_owned(), "a-n".to_owned())].into(),
    }
}

fn call(purpose: &'static str, name: &str, request: Value) -> Call {
    Call {
        id: CallId::new(format!("{purpose} {name}")),
        target: Target {
            protocol: PROTOCOL,
            address: name.to_owned(),
            uid: Uid::new(CLUSTER),
            group: String::new(),
        },
        purpose,
        request,
        timeout: Duration::from_secs(60),
    }
}

async fn execute(pools: &Pools, call: &Call) -> Result<Reply, external::CallError> {
    pools.caller().call(call).await
}

/// Returns the call that creates a pool.
fn creation(name: &str, count: u32) -> Call {
    call(CREATE, name, json!(found(name, count)))
}

#[tokio::test]
async fn is_19_the_cluster_is_found_and_says_which_pools_it_has() {
    for (hosted, kind) in [(false, PoolKind::Machine), (true, PoolKind::Node)] {
        let service = service(hosted).await;
        let ocm = ocm(&service, Clock::system());
        let cluster = ocm.cluster(EXTERNAL_CLUSTER_ID).await.unwrap();
        assert_eq!(cluster, Cluster { id: CLUSTER.to_owned(), kind });
        let missing = ocm.cluster("00000000-0000").await.unwrap_err();
        assert!(matches!(missing, CallError::Refused { code: 404, .. }), "{missing}");
        let injected = ocm.cluster("x' or '1' = '1").await.unwrap_err();
        assert!(injected.to_string().contains("is no identity"), "{injected}");
        assert_eq!(
            service.requests()[1],
            "GET /api/clusters_mgmt/v1/clusters?search=external_id%20%3D%20%271b2c-3d%27&size=1"
        );
    }
}

#[tokio::test]
async fn a_pool_is_made_resized_and_deleted_in_the_words_of_the_service() {
    for (hosted, path) in [(false, "machine_pools"), (true, "node_pools")] {
        let service = service(hosted).await;
        let ocm = ocm(&service, Clock::system());
        let cluster = ocm.cluster(EXTERNAL_CLUSTER_ID).await.unwrap();
        let made = ocm.create(&cluster, &found("a-12ab", 2)).await.unwrap();
        assert_eq!(made, found("a-12ab", 2));
        let stored = service.pool("a-12ab").unwrap();
        match hosted {
            false => assert_eq!(stored["instance_type"], "g4dn.xlarge"),
            true => assert_eq!(stored["aws_node_pool"]["instance_type"], "g4dn.xlarge"),
        }
        assert_eq!(stored["labels"], json!({"a-n": "a-n"}));
        let larger = ocm.resize(&cluster, "a-12ab", 3).await.unwrap();
        assert_eq!(larger, Some(found("a-12ab", 3)));
        assert!(ocm.delete(&cluster, "a-12ab").await.unwrap());
        assert!(!ocm.delete(&cluster, "a-12ab").await.unwrap(), "it is gone");
        assert_eq!(ocm.resize(&cluster, "a-12ab", 3).await.unwrap(), None);
        let heard = service.requests();
        let root = format!("/api/clusters_mgmt/v1/clusters/{CLUSTER}/{path}");
        assert_eq!(heard[2], format!("POST {root}"));
        assert_eq!(heard[3], format!("PATCH {root}/a-12ab"));
        assert_eq!(heard[4], format!("DELETE {root}/a-12ab"));
    }
}

#[tokio::test]
async fn is_19_all_pages_are_read() {
    let service = service(false).await;
    for number in 0..250 {
        service.put_pool(&format!("p{number:03}"), json!({"instance_type": "m", "replicas": 1}));
    }
    let ocm = ocm(&service, Clock::system());
    let cluster = ocm.cluster(EXTERNAL_CLUSTER_ID).await.unwrap();
    let pools = ocm.pools(&cluster).await.unwrap();
    assert_eq!(pools.len(), 250);
    let pages = service.requests().iter().filter(|it| it.contains("machine_pools?page=")).count();
    assert_eq!(pages, 3);
    // A partial list is an error.
    service.inject_faults([Fault::Nothing, Fault::Status(503, None)]);
    assert!(ocm.pools(&cluster).await.is_err());
}

#[tokio::test]
async fn is_19_tokens_are_used_while_they_last_and_replaced_once_when_they_are_not_believed() {
    let service = service(false).await;
    let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
    let ocm = ocm(&service, hand.clock());
    let cluster = ocm.cluster(EXTERNAL_CLUSTER_ID).await.unwrap();
    ocm.pools(&cluster).await.unwrap();
    assert_eq!(service.tokens(), 1, "one is enough");
    // Tokens are valid for fifteen minutes, and not used in the last.
    hand.advance(Duration::from_secs(841)).await;
    ocm.pools(&cluster).await.unwrap();
    assert_eq!(service.tokens(), 2);
    service.revoke();
    ocm.pools(&cluster).await.unwrap();
    assert_eq!(service.tokens(), 3, "another was asked for");
    service.refuse_offline();
    service.revoke();
    let error = ocm.pools(&cluster).await.unwrap_err().to_string();
    assert!(error.contains("get a token") && error.contains("Invalid refresh token"), "{error}");
    assert!(
        !error.contains(OFFLINE_TOKEN) && !format!("{ocm:?}").contains(OFFLINE_TOKEN),
        "secrets are kept"
    );
}

#[tokio::test]
async fn is_20_a_create_whose_answer_was_lost_is_found_again() {
    let service = service(true).await;
    let pools = pools(&service, Clock::system()).await;
    service.inject_faults([Fault::Lost]);
    let lost = execute(&pools, &creation("a-12ab", 2)).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(service.pool("a-12ab").is_some(), "it was done");
    let made = execute(&pools, &creation("a-12ab", 2)).await.unwrap();
    assert_eq!(made, Reply::Done(json!(found("a-12ab", 2))));
    assert_eq!(service.pools().len(), 1, "and not again");
    // A pool of another owner with that name is not taken for ours.
    service.put_pool("b-12ab", json!({"aws_node_pool": {"instance_type": "m"}, "replicas": 9}));
    let taken = execute(&pools, &creation("b-12ab", 2)).await.unwrap();
    let Reply::Refused(Refusal { code, reason, .. }) = taken else { panic!("{taken:?}") };
    assert_eq!((code, reason.as_str()), (409, "AlreadyExists"));
}

#[tokio::test]
async fn is_20_service_errors_are_distinguished_from_refusals() {
    let service = service(false).await;
    let pools = pools(&service, Clock::system()).await;
    let table = [
        ("broken", Fault::Status(500, None), None),
        ("away", Fault::Status(503, None), None),
        ("broken off", Fault::Closed, None),
        ("not allowed", Fault::Status(403, None), Some((403, "Forbidden"))),
        ("not valid", Fault::Status(400, None), Some((400, "Invalid"))),
        ("the cluster is gone", Fault::Status(404, None), Some((404, "ClusterNotFound"))),
    ];
    for (why, fault, expected) in table {
        service.inject_faults([fault]);
        let said = execute(&pools, &creation("a-12ab", 2)).await;
        assert!(!format!("{said:?}").contains("access-"), "{why}: {said:?}");
        match (said, expected) {
            (Err(_), None) => {}
            (Ok(Reply::Refused(refusal)), Some(expected)) => {
                assert_eq!((refusal.code, refusal.reason.as_str()), expected, "{why}");
            }
            (said, _) => panic!("{why}: {said:?}"),
        }
    }
    let heard = service.requests().len();
    let elsewhere = Call {
        target: Target { uid: Uid::new("other"), ..creation("a-12ab", 2).target },
        ..creation("a-12ab", 2)
    };
    let wrong = [
        ("another cluster", elsewhere, 409),
        ("no number", call(RESIZE, "a-12ab", json!({})), 422),
        ("no pool", call(CREATE, "a-12ab", json!(7)), 422),
        ("no such purpose", call("paint", "a-12ab", Value::Null), 422),
    ];
    for (why, call, code) in wrong {
        let said = execute(&pools, &call).await.unwrap();
        assert!(matches!(&said, Reply::Refused(it) if it.code == code), "{why}: {said:?}");
    }
    assert_eq!(service.requests().len(), heard, "nothing of that is sent");
}

#[tokio::test]
async fn is_20_a_service_that_asks_for_a_pause_is_left_alone() {
    let service = service(false).await;
    let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
    let pools = pools(&service, hand.clock()).await;
    service.inject_faults([Fault::Status(429, Some(7))]);
    assert!(execute(&pools, &creation("a-12ab", 2)).await.is_err());
    let heard = service.requests().len();
    hand.advance(Duration::from_secs(6)).await;
    let said = execute(&pools, &creation("a-12ab", 2)).await.unwrap_err().to_string();
    assert!(said.contains("asked not to be called"), "{said}");
    assert!(pools.list().await.is_err(), "nor is it asked");
    assert_eq!(service.requests().len(), heard, "nothing was sent");
    hand.advance(Duration::from_secs(1)).await;
    assert!(execute(&pools, &creation("a-12ab", 2)).await.is_ok());
    // A delay that the service requests is limited, too.
    service.inject_faults([Fault::Status(429, Some(1_000_000))]);
    assert!(pools.list().await.is_err());
    hand.advance(Duration::from_secs(601)).await;
    assert_eq!(pools.list().await.unwrap().pools.len(), 1);
}

#[tokio::test]
async fn is_20_a_service_that_does_not_answer_is_not_waited_for_without_end() {
    let service = service(false).await;
    let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
    let pools = pools(&service, hand.clock()).await;
    service.inject_faults([Fault::Silent]);
    let create = creation("a-12ab", 2);
    let pass = async {
        service.unanswered_request().await;
        hand.advance(Duration::from_secs(31)).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        said = execute(&pools, &create) => {
            let said = said.unwrap_err().to_string();
            assert!(said.contains("no answer came"), "{said}");
        }
        () = pass => panic!("the call must not wait for ever"),
    }
}

#[tokio::test]
async fn pools_are_listed_and_changed_by_calls() {
    let service = service(false).await;
    let pools = pools(&service, Clock::system()).await;
    service.put_pool("worker", json!({"instance_type": "m", "autoscaling": {"min_replicas": 1}}));
    let listed = async || {
        let listing = pools.list().await.unwrap();
        assert_eq!(listing.cluster, CLUSTER);
        let shown = listing.pools.values().map(|it| format!("{} {:?}", it.name, it.replicas));
        shown.collect::<Vec<_>>()
    };
    assert_eq!(listed().await, ["worker None"]);
    execute(&pools, &creation("a-12ab", 2)).await.unwrap();
    assert_eq!(listed().await, ["a-12ab Some(2)", "worker None"]);
    let resize = call(RESIZE, "a-12ab", json!({"replicas": 5}));
    let resized = execute(&pools, &resize).await.unwrap();
    assert_eq!(resized, Reply::Done(json!(found("a-12ab", 5))));
    let delete = call(DELETE, "a-12ab", Value::Null);
    for why in ["it is deleted", "there is none any more"] {
        assert_eq!(execute(&pools, &delete).await.unwrap(), Reply::Done(Value::Null), "{why}");
    }
    assert_eq!(execute(&pools, &resize).await.unwrap(), Reply::Done(Value::Null), "nor that");
    assert_eq!(listed().await, ["worker None"]);
}
