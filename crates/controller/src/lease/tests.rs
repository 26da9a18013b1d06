use std::time::Duration;

use gantry_process::clock::Moment;
use jiff::Timestamp;
use serde_json::json;

use super::*;

mod election_simulation;

fn at(seconds: u64) -> Moment {
    Moment::default() + Duration::from_secs(seconds)
}

fn wall() -> Timestamp {
    "2026-11-16T05:30:00.25Z".parse().unwrap()
}

fn election() -> Election {
    Election::new("me".to_owned(), Timing::default(), fastrand::Rng::with_seed(1))
}

fn observed(holder: &str, revision: u64) -> ObservedLease {
    let record = LeaseRecord {
        holder: holder.to_owned(),
        duration: Duration::from_secs(15),
        acquired: None,
        // It is not trusted: it is years away.
        renewed: Some(Timestamp::UNIX_EPOCH),
        transitions: 4,
    };
    ObservedLease { record, revision: revision.to_string() }
}

/// The next action in a few words.
fn next(election: &mut Election, now: Moment) -> String {
    match election.step(now, wall()) {
        Action::Wait(_) => "wait".to_owned(),
        Action::Stop(why) => format!("stop: {why}"),
        Action::Send(LeaseRequest::Read) => "read".to_owned(),
        Action::Send(LeaseRequest::Create(record)) => format!("create {}", record.transitions),
        Action::Send(LeaseRequest::Update(record, revision)) => {
            format!("update {revision} {} {}", record.holder, record.transitions)
        }
    }
}

#[test]
fn a_follower_acquires_a_free_lease() {
    let table = [
        // why                                  found first           again, later           then
        ("there is none", LeaseResponse::NotFound, None, "create 0"),
        ("it was released", LeaseResponse::Found(observed("", 7)), None, "update 7 me 5"),
        ("it is ours from before", LeaseResponse::Found(observed("me", 7)), None, "update 7 me 4"),
        ("it is held", LeaseResponse::Found(observed("you", 7)), None, "wait"),
        (
            "not for long enough",
            LeaseResponse::Found(observed("you", 7)),
            Some((14, observed("you", 7))),
            "wait",
        ),
        (
            "it has expired",
            LeaseResponse::Found(observed("you", 7)),
            Some((15, observed("you", 7))),
            "update 7 me 5",
        ),
        (
            "it was renewed",
            LeaseResponse::Found(observed("you", 7)),
            Some((15, observed("you", 8))),
            "wait",
        ),
        ("there is no response", LeaseResponse::Unknown(String::new()), None, "wait"),
    ];
    for (why, first, later, expected) in table {
        let mut me = election();
        assert_eq!(next(&mut me, at(0)), "read");
        me.observe_response(&LeaseRequest::Read, first, at(0), at(0));
        let mut now = 0;
        if let Some((second, seen)) = later {
            assert_eq!(next(&mut me, at(0)), "wait");
            now = second;
            assert_eq!(next(&mut me, at(now)), "read", "{why}");
            me.observe_response(&LeaseRequest::Read, LeaseResponse::Found(seen), at(now), at(now));
        }
        assert_eq!(next(&mut me, at(now)), expected, "{why}");
        assert_eq!(me.leads_until(), None, "{why}");
    }
}

/// A candidate that acquired the lease with a request that was sent at second 1 and answered at
/// second 3.
fn leader() -> Election {
    let mut me = election();
    me.observe_response(&LeaseRequest::Read, LeaseResponse::NotFound, at(0), at(0));
    let Action::Send(create) = me.step(at(1), wall()) else { panic!("the lease is free") };
    me.observe_response(&create, LeaseResponse::Written(observed("me", 8)), at(1), at(3));
    me
}

#[test]
fn leadership_counts_from_the_request_sent() {
    let mut me = leader();
    assert_eq!(me.leads_until(), Some(at(11)), "counted from when it was sent");
    assert_eq!(next(&mut me, at(4)), "wait", "for the retry period");
    assert_eq!(next(&mut me, at(5)), "update 8 me 4");
    assert_eq!(me.request_timeout(at(5)), Duration::from_secs(5));
    assert_eq!(me.request_timeout(at(9)), Duration::from_secs(2), "no longer than it leads");
    let update = LeaseRequest::Update(observed("me", 8).record, "8".to_owned());
    let table = [
        // why                       heard of the update      then         what is found   then
        (
            "another took it",
            LeaseResponse::Conflict,
            "read",
            LeaseResponse::Found(observed("you", 9)),
            "stop: you holds it",
        ),
        (
            "it was ours",
            LeaseResponse::Conflict,
            "read",
            LeaseResponse::Found(observed("me", 9)),
            "update 9 me 4",
        ),
        (
            "it is gone",
            LeaseResponse::NotFound,
            "create 0",
            LeaseResponse::Written(observed("me", 9)),
            "wait",
        ),
    ];
    for (why, heard, then, found, last) in table {
        let mut me = leader();
        me.observe_response(&update, heard, at(5), at(5));
        assert_eq!(next(&mut me, at(5)), then, "{why}");
        me.observe_response(&LeaseRequest::Read, found, at(5), at(5));
        assert_eq!(next(&mut me, at(5)), last, "{why}");
    }
    let mut me = leader();
    me.observe_response(&update, LeaseResponse::Unknown(String::new()), at(5), at(6));
    assert_eq!(me.leads_until(), Some(at(11)), "what is not answered prolongs nothing");
    assert_eq!(next(&mut me, at(6)), "wait");
    assert_eq!(next(&mut me, at(8)), "read", "the write may have succeeded");
    assert_eq!(next(&mut me, at(11)), "stop: it could not be renewed in time");
}

#[test]
fn a_deleted_lease_is_honoured_until_expiry() {
    let mut me = election();
    me.observe_response(
        &LeaseRequest::Read,
        LeaseResponse::Found(observed("you", 7)),
        at(0),
        at(0),
    );
    assert_eq!(next(&mut me, at(0)), "wait");
    me.observe_response(&LeaseRequest::Read, LeaseResponse::NotFound, at(5), at(5));
    assert_eq!(next(&mut me, at(5)), "wait", "its holder does not know yet");
    me.observe_response(&LeaseRequest::Read, LeaseResponse::NotFound, at(15), at(15));
    assert_eq!(next(&mut me, at(15)), "create 0");
}

#[test]
fn stopping_releases_a_held_lease() {
    assert_eq!(election().release(wall()), None);
    let mut other = election();
    other.observe_response(
        &LeaseRequest::Read,
        LeaseResponse::Found(observed("you", 7)),
        at(0),
        at(0),
    );
    assert_eq!(other.release(wall()), None);
    let Some(LeaseRequest::Update(record, revision)) = leader().release(wall()) else {
        panic!("nothing is released")
    };
    assert_eq!((record.holder.as_str(), record.transitions, revision.as_str()), ("", 4, "8"));
}

/// The JSON of a lease.
#[test]
fn leases_have_the_format_of_client_go() {
    let record = LeaseRecord {
        holder: "me".to_owned(),
        duration: Duration::from_secs(15),
        acquired: Some("2026-11-16T05:30:00Z".parse().unwrap()),
        renewed: Some(wall()),
        transitions: 2,
    };
    let spec = json!({
        "holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 2,
        "acquireTime": "2026-11-16T05:30:00.000000Z", "renewTime": "2026-11-16T05:30:00.250000Z",
    });
    let object = record.to_object("n", "a");
    assert_eq!(object["spec"], spec);
    assert_eq!(object["metadata"], json!({ "name": "a", "namespace": "n" }));
    let patch = record.to_patch("7");
    assert_eq!(patch, json!({ "metadata": { "resourceVersion": "7" }, "spec": spec }));
    let mut stored = object;
    stored["metadata"]["resourceVersion"] = "7".into();
    let read = ObservedLease::read(stored.to_string().as_bytes());
    assert_eq!(read, Some(ObservedLease { record, revision: "7".to_owned() }));
    let bare = ObservedLease::read(br#"{"metadata":{"resourceVersion":"1"}}"#).unwrap();
    assert_eq!(bare.record.holder, "", "an empty lease is not held");
    assert_eq!(ObservedLease::read(b"{}"), None);
}

#[test]
fn invalid_timings_are_refused() {
    let seconds = Duration::from_secs;
    let timing = |lease, renew, retry| Timing {
        lease: seconds(lease),
        renew_deadline: seconds(renew),
        retry: seconds(retry),
    };
    let table = [
        ("as Kubernetes has it", Timing::default(), None),
        ("no pause", timing(15, 10, 0), Some(TimingError::Retry as fn(Timing) -> TimingError)),
        ("one chance only", timing(15, 10, 6), Some(TimingError::Retry)),
        ("no margin", timing(15, 15, 2), Some(TimingError::Deadline)),
    ];
    for (why, timing, expected) in table {
        assert_eq!(timing.checked().err(), expected.map(|of| of(timing)), "{why}");
    }
}
