use gantry_reconcile::write::PODS;
use gantry_reconcile::{Key, Resource, Uid};

use super::*;

fn note(name: &str, message: &str) -> Note {
    let about = Reference {
        resource: PODS.clone(),
        key: Key::new("n", name),
        uid: Uid::new("u-1"),
        field: "spec.containers{main}".to_owned(),
    };
    Note::warning(about, "BackOff", message.to_owned())
}

struct Case {
    correlator: Correlator,
    now: Moment,
    at: Timestamp,
}

impl Case {
    fn new() -> Self {
        let correlator = Correlator::new(fastrand::Rng::with_seed(1));
        let at = "2026-11-16T05:30:00.5Z".parse().unwrap();
        Self { correlator, now: Moment::default(), at }
    }

    fn wait(&mut self, seconds: u32) {
        self.now = self.now + Duration::from_secs(seconds.into());
        self.at += jiff::SignedDuration::from_secs(seconds.into());
    }

    fn say(&mut self, note: &Note) -> Option<Post> {
        let said = Said { component: "kubelet", host: "node-1", note, at: self.at };
        self.correlator.correlate(&said, self.now)
    }
}

#[test]
fn an_event_is_as_client_go_writes_it() {
    let mut case = Case::new();
    let post = case.say(&note("web-0", "it fell")).unwrap();
    let name = format!("web-0.{:x}", case.at.as_nanosecond());
    assert_eq!(name.len(), "web-0.".len() + 16);
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": "n" },
        "involvedObject": {
            "kind": "Pod", "namespace": "n", "name": "web-0", "uid": "u-1", "apiVersion": "v1",
            "fieldPath": "spec.containers{main}",
        },
        "reason": "BackOff",
        "message": "it fell",
        "source": { "component": "kubelet", "host": "node-1" },
        "firstTimestamp": "2026-11-16T05:30:00Z",
        "lastTimestamp": "2026-11-16T05:30:00Z",
        "count": 1,
        "type": "Warning",
        "eventTime": null,
        "reportingComponent": "kubelet",
        "reportingInstance": "node-1",
    });
    assert_eq!(post, Post { namespace: "n".to_owned(), name, event, again: None });
    let mut odd = note("system:node", "it fell");
    odd.about.resource = Resource::namespaced("", "v1", "nodes", "Node").cluster_wide();
    odd.about.key = Key::cluster("system:node");
    let post = case.say(&odd).unwrap();
    assert_eq!(post.namespace, "default", "objects beside namespaces");
    assert!(is_name(&post.name) && post.name.len() == 36, "no such name: {}", post.name);
}

#[test]
fn what_happens_again_is_counted() {
    let mut case = Case::new();
    let first = case.say(&note("a", "it fell")).unwrap();
    case.wait(60);
    let again = case.say(&note("a", "it fell")).unwrap();
    assert_eq!(again.name, first.name);
    let change =
        json!({ "count": 2, "lastTimestamp": "2026-11-16T05:31:00Z", "message": "it fell" });
    assert_eq!(again.again, Some(change));
    assert_eq!(again.event["firstTimestamp"], "2026-11-16T05:30:00Z", "if it is gone, as it was");
    assert_eq!(again.event["count"], 2);
    let table = [
        ("other words", note("a", "it broke")),
        ("another object", note("b", "it fell")),
        ("another reason", Note { reason: "Fell".into(), ..note("a", "it fell") }),
        ("another tone", Note { tone: Tone::Normal, ..note("a", "it fell") }),
    ];
    for (why, other) in table {
        let post = case.say(&other).unwrap();
        assert_eq!((post.again, post.event["count"].as_u64()), (None, Some(1)), "{why}");
        assert_ne!(post.name, first.name, "{why}: time stands still and names differ");
    }
}

#[test]
fn what_differs_in_words_alone_is_combined() {
    let mut case = Case::new();
    for n in 1..10 {
        let post = case.say(&note("a", &format!("{n}"))).unwrap();
        assert_eq!(post.event["message"], n.to_string());
    }
    let tenth = case.say(&note("a", "10")).unwrap();
    assert_eq!(tenth.event["message"], "(combined from similar events): 10");
    assert_eq!(tenth.event["reportingComponent"], "");
    let next = case.say(&note("a", "11")).unwrap();
    assert_eq!((next.name, next.event["count"].as_u64()), (tenth.name, Some(2)));
    assert_eq!(next.again.unwrap()["message"], "(combined from similar events): 11");
    assert_eq!(case.say(&note("b", "12")).unwrap().event["message"], "12", "of one object");
    case.wait(601);
    assert_eq!(case.say(&note("a", "13")).unwrap().event["message"], "13", "and for a while");
}

#[test]
fn who_never_stops_is_heard_now_and_then() {
    let mut case = Case::new();
    let heard = |case: &mut Case, times: usize| {
        (0..times).filter(|_| case.say(&note("a", "it fell")).is_some()).count()
    };
    assert_eq!(heard(&mut case, 100), 25);
    case.wait(299);
    assert_eq!(heard(&mut case, 5), 0);
    case.wait(1);
    assert_eq!(heard(&mut case, 5), 1);
    case.wait(300);
    let post = case.say(&note("a", "it fell")).unwrap();
    assert_eq!(post.event["count"], 111, "what was not heard is counted");
    assert!(case.say(&note("b", "it fell")).is_some(), "others are heard as ever");
    case.wait(300 * 100);
    assert_eq!(heard(&mut case, 100), 25, "silence is rewarded, up to a point");
}

#[test]
fn memory_is_bounded() {
    let mut case = Case::new();
    let first = case.say(&note("first", "x")).unwrap();
    for n in 0..REMEMBERED {
        case.say(&note(&format!("o{n}"), "x"));
    }
    let again = case.say(&note("first", "x")).unwrap();
    assert_eq!((again.again, again.name == first.name), (None, false), "it was forgotten");
}

#[test]
fn events_of_the_newer_form_have_a_time_an_action_and_a_series() {
    let mut case = Case::new();
    let note = note("a", "assigned").doing("Binding");
    let first = case.say(&note).unwrap();
    let expected = [
        ("action", json!("Binding")),
        ("eventTime", json!("2026-11-16T05:30:00.500000Z")),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("source", json!({})),
        ("reportingComponent", json!("kubelet")),
        ("reportingInstance", json!("kubelet-node-1")),
        ("series", Value::Null),
        ("count", Value::Null),
    ];
    for (field, value) in expected {
        assert_eq!(first.event[field], value, "{field}");
    }
    assert_eq!(first.again, None);
    case.wait(1);
    let second = case.say(&note).unwrap();
    let series = json!({ "count": 2, "lastObservedTime": "2026-11-16T05:30:01.500000Z" });
    assert_eq!(second.again, Some(json!({ "series": series, "message": "assigned" })));
    assert_eq!(second.event["series"], series, "for a server that has forgotten the first");
    assert_eq!(second.event["eventTime"], first.event["eventTime"]);
}
