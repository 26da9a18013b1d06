use gantry_reconcile::write::PODS;
use gantry_reconcile::{Key, Resource, Uid};

use super::*;

fn sample_event(name: &str, message: &str) -> Event {
    let about = ObjectReference {
        resource: PODS.clone(),
        key: Key::new("n", name),
        uid: Uid::new("u-1"),
        field: "spec.containers{main}".to_owned(),
    };
    Event::warning(about, "BackOff", message.to_owned())
}

struct CorrelatorFixture {
    correlator: Correlator,
    now: Moment,
    at: Timestamp,
}

impl CorrelatorFixture {
    fn new() -> Self {
        let correlator = Correlator::new(fastrand::Rng::with_seed(1));
        let at = "2026-11-16T05:30:00.5Z".parse().unwrap();
        Self { correlator, now: Moment::default(), at }
    }

    fn wait(&mut self, seconds: u32) {
        self.now = self.now + Duration::from_secs(seconds.into());
        self.at += jiff::SignedDuration::from_secs(seconds.into());
    }

    fn record(&mut self, note: &Event) -> Option<EventWrite> {
        let said =
            EventOccurrence { component: "kubelet", host: "node-1", event: note, at: self.at };
        self.correlator.correlate(&said, self.now)
    }
}

#[test]
fn an_event_is_as_client_go_writes_it() {
    let mut case = CorrelatorFixture::new();
    let post = case.record(&sample_event("web-0", "it fell")).unwrap();
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
    assert_eq!(post, EventWrite { namespace: "n".to_owned(), name, event, patch: None });
    let mut odd = sample_event("system:node", "it fell");
    odd.about.resource = Resource::namespaced("", "v1", "nodes", "Node").cluster_scoped();
    odd.about.key = Key::cluster("system:node");
    let post = case.record(&odd).unwrap();
    assert_eq!(post.namespace, "default", "cluster-scoped objects");
    assert!(is_name(&post.name) && post.name.len() == 36, "no such name: {}", post.name);
}

#[test]
fn repeated_events_are_counted() {
    let mut case = CorrelatorFixture::new();
    let first = case.record(&sample_event("a", "it fell")).unwrap();
    case.wait(60);
    let again = case.record(&sample_event("a", "it fell")).unwrap();
    assert_eq!(again.name, first.name);
    let change =
        json!({ "count": 2, "lastTimestamp": "2026-11-16T05:31:00Z", "message": "it fell" });
    assert_eq!(again.patch, Some(change));
    assert_eq!(again.event["firstTimestamp"], "2026-11-16T05:30:00Z", "if it is gone, as it was");
    assert_eq!(again.event["count"], 2);
    let table = [
        ("other words", sample_event("a", "it broke")),
        ("another object", sample_event("b", "it fell")),
        ("another reason", Event { reason: "Fell".into(), ..sample_event("a", "it fell") }),
        ("another tone", Event { event_type: EventType::Normal, ..sample_event("a", "it fell") }),
    ];
    for (why, other) in table {
        let post = case.record(&other).unwrap();
        assert_eq!((post.patch, post.event["count"].as_u64()), (None, Some(1)), "{why}");
        assert_ne!(post.name, first.name, "{why}: time stands still and names differ");
    }
}

#[test]
fn similar_events_are_aggregated() {
    let mut case = CorrelatorFixture::new();
    for n in 1..10 {
        let post = case.record(&sample_event("a", &format!("{n}"))).unwrap();
        assert_eq!(post.event["message"], n.to_string());
    }
    let tenth = case.record(&sample_event("a", "10")).unwrap();
    assert_eq!(tenth.event["message"], "(combined from similar events): 10");
    assert_eq!(tenth.event["reportingComponent"], "");
    let next = case.record(&sample_event("a", "11")).unwrap();
    assert_eq!((next.name, next.event["count"].as_u64()), (tenth.name, Some(2)));
    assert_eq!(next.patch.unwrap()["message"], "(combined from similar events): 11");
    assert_eq!(
        case.record(&sample_event("b", "12")).unwrap().event["message"],
        "12",
        "of one object"
    );
    case.wait(601);
    assert_eq!(
        case.record(&sample_event("a", "13")).unwrap().event["message"],
        "13",
        "and for a while"
    );
}

#[test]
fn spamming_sources_are_rate_limited() {
    let mut case = CorrelatorFixture::new();
    let heard = |case: &mut CorrelatorFixture, times: usize| {
        (0..times).filter(|_| case.record(&sample_event("a", "it fell")).is_some()).count()
    };
    assert_eq!(heard(&mut case, 100), 25);
    case.wait(299);
    assert_eq!(heard(&mut case, 5), 0);
    case.wait(1);
    assert_eq!(heard(&mut case, 5), 1);
    case.wait(300);
    let post = case.record(&sample_event("a", "it fell")).unwrap();
    assert_eq!(post.event["count"], 111, "dropped events are counted");
    assert!(case.record(&sample_event("b", "it fell")).is_some(), "other objects are not affected");
    case.wait(300 * 100);
    assert_eq!(heard(&mut case, 100), 25, "the budget is restored, up to the burst");
}

#[test]
fn memory_is_bounded() {
    let mut case = CorrelatorFixture::new();
    let first = case.record(&sample_event("first", "x")).unwrap();
    for n in 0..MAX_LRU_CACHE_ENTRIES {
        case.record(&sample_event(&format!("o{n}"), "x"));
    }
    let again = case.record(&sample_event("first", "x")).unwrap();
    assert_eq!((again.patch, again.name == first.name), (None, false), "it was forgotten");
}

#[test]
fn events_v1_have_time_action_and_series() {
    let mut case = CorrelatorFixture::new();
    let note = sample_event("a", "assigned").with_action("Binding");
    let first = case.record(&note).unwrap();
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
    assert_eq!(first.patch, None);
    case.wait(1);
    let second = case.record(&note).unwrap();
    let series = json!({ "count": 2, "lastObservedTime": "2026-11-16T05:30:01.500000Z" });
    assert_eq!(second.patch, Some(json!({ "series": series, "message": "assigned" })));
    assert_eq!(second.event["series"], series, "for a server that has forgotten the first");
    assert_eq!(second.event["eventTime"], first.event["eventTime"]);
}
