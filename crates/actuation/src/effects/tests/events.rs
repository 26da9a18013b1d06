//! Waiting for events, against a launcher that announces what the test says.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures_util::stream;
use tokio::sync::mpsc;

use super::*;
use crate::effects::EventResponder;
use crate::facts::{LauncherEvents, LauncherProcess};

/// What one watch is answered: a status, and the lines until the sender is dropped.
type Watch = (u16, mpsc::Receiver<String>);

#[derive(Clone)]
struct Watches {
    paths: Arc<Mutex<Vec<String>>>,
    watches: Arc<Mutex<Vec<Watch>>>,
}

async fn watch(State(watches): State<Watches>, uri: Uri) -> Response {
    let path = uri.path_and_query().unwrap().to_string();
    watches.paths.lock().unwrap().push(path);
    let (code, lines) = watches.watches.lock().unwrap().remove(0);
    let lines = stream::unfold(lines, |mut lines| async move {
        let line = lines.recv().await?;
        Some((Ok::<_, std::io::Error>(line), lines))
    });
    let mut response = Response::new(Body::from_stream(lines));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn line(kind: &str, revision: u64) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"object\":{{\"instance_id\":\"I\",\"revision\":{revision}}}}}\n"
    )
}

/// The events arrive over one connection, whose end is noticed; the next one begins after the last
/// event, or from the start if the launcher has forgotten it.
#[tokio::test]
async fn g_39_events_are_read_as_they_happen_and_resumed_by_revision() {
    let (mut senders, mut watches) = (Vec::new(), Vec::new());
    for code in [200, 410, 200, 503] {
        let (sender, receiver) = mpsc::channel(8);
        senders.push(sender);
        watches.push((code, receiver));
    }
    let shared = Watches { paths: Arc::default(), watches: Arc::new(Mutex::new(watches)) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(watch).with_state(shared.clone());
    #[expect(clippy::disallowed_methods, reason = "`abort` ends it")]
    let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

    let world = World::new([Kind::of::<ActuationPod>()]);
    let pod = json!({
        "metadata": {
            "namespace": "n", "name": "p", "uid": "u", "resourceVersion": "1",
            "labels": {"dual-pods.llm-d.ai/launcher-config-name": "lc"},
        },
    });
    let store = world.single_store_for(&ActuationPod::RESOURCE).unwrap();
    store.observe(&pod.to_string()).unwrap().unwrap();
    let launcher = Endpoint {
        pod: Key::new("n", "p"),
        uid: Uid::new("u"),
        ip: address.ip().to_string(),
        port: address.port(),
    };
    let process = LauncherProcess { launcher, boot: "b1".to_owned() };
    let responder = EventResponder::new(client(local()).0);
    let clock = Clock::system();
    let next = async || {
        let limit = Duration::from_secs(30);
        let events = responder.next(&world, &clock, &process);
        let events = tokio::time::timeout(limit, events).await.expect("an answer");
        if let Ok(events) = &events {
            let events = events.clone();
            world.facts::<LauncherEvents>().record(process.clone(), events, clock.now());
        }
        events
    };

    let created = line("CREATED", 1);
    let (first, second) = created.split_at(10);
    senders[0].send(first.to_owned()).await.unwrap();
    senders[0].send(second.to_owned()).await.unwrap();
    let events = next().await.unwrap();
    assert_eq!((events.revision, events.ready.len()), (1, 0));
    senders[0].send(line("READY", 1)).await.unwrap();
    let events = next().await.unwrap();
    assert_eq!((events.revision, events.ready.len()), (1, 1));
    senders[0].send(line("STOPPED", 2)).await.unwrap();
    let events = next().await.unwrap();
    assert_eq!((events.revision, events.ready.len()), (2, 0));
    let paths = || shared.paths.lock().unwrap().clone();
    let begin = "/v2/vllm/instances/watch?events=all";
    assert_eq!(paths(), [begin], "one connection");

    // It ends early: that is a failure, after which it is begun again with a delay.
    senders.remove(0);
    assert!(next().await.unwrap_err().contains("ended the watch"));
    senders[1].send(line("READY", 7)).await.unwrap();
    let events = next().await.unwrap();
    assert_eq!((events.revision, events.ready.len()), (7, 1), "{events:?}");
    let resumed = format!("{begin}&since=2");
    assert_eq!(paths(), [begin, &resumed, begin], "410: its events are gone");
    senders.remove(1);
    assert!(next().await.is_err(), "the end of the watch");
    assert!(next().await.unwrap_err().contains("503"));
    server.abort();
}
