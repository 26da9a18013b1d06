use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;

use super::*;
use crate::clock::{FakeClock, Moment};
use crate::metrics::BuildInfo;

struct TasksFixture {
    hand: FakeClock,
    metrics: Metrics,
    tasks: Tasks,
}

fn tasks_fixture() -> TasksFixture {
    let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
    let metrics = Metrics::new(&BuildInfo::default());
    let counters = TaskMetrics::register(&metrics).unwrap();
    let jitter = fastrand::Rng::with_seed(7);
    let tasks = Tasks::new(hand.clock(), counters, jitter, &CancellationToken::new());
    TasksFixture { hand, metrics, tasks }
}

impl TasksFixture {
    fn assert_metric(&self, line: &str) {
        let text = self.metrics.encode().unwrap();
        assert!(text.lines().any(|have| have == line), "no {line} in\n{text}");
    }
}

async fn until_stopped(stop: CancellationToken) -> Result<(), TaskError> {
    stop.cancelled().await;
    Ok(())
}

#[tokio::test]
async fn a_lost_task_is_named_counted_and_ends_the_owner() {
    type End = fn() -> Result<(), TaskError>;
    let table: [(&str, &str, End); 3] = [
        ("panicked", "panicked: bad 7", || panic!("bad {}", 7)),
        ("panicked", "panicked: worse", || panic!("worse")),
        ("failed", "returned an error", || Err("disk full".into())),
    ];
    for (how, cause, end) in table {
        let mut bench = tasks_fixture();
        bench.tasks.spawn("sibling", OnLoss::EndOwner, until_stopped);
        bench.tasks.spawn("store", OnLoss::EndOwner, move |_| async move { end() });
        let lost = bench.tasks.join().await.unwrap_err();
        assert_eq!((&*lost.task, &*lost.cause.to_string()), ("store", cause));
        assert!(bench.tasks.token().is_cancelled(), "the siblings are cancelled");
        assert_eq!(bench.tasks.names(), [Arc::from("sibling")]);
        bench.tasks.join().await.unwrap();
        assert!(bench.tasks.is_empty() && bench.tasks.names().is_empty());
        bench.assert_metric(&format!(r#"gantry_task_ends_total{{task="store",how="{how}"}} 1"#));
        bench.assert_metric(r#"gantry_task_ends_total{task="sibling",how="finished"} 1"#);
        bench.assert_metric(r#"gantry_tasks_running{task="store"} 0"#);
    }
}

#[tokio::test]
async fn a_panic_before_the_first_await_is_the_tasks_own() {
    let mut bench = tasks_fixture();
    bench.tasks.spawn("eager", OnLoss::EndOwner, |stop| {
        assert!(stop.is_cancelled(), "not yet");
        until_stopped(stop)
    });
    let lost = bench.tasks.join().await.unwrap_err();
    assert_eq!(lost.cause.to_string(), "panicked: not yet");
    bench.assert_metric(r#"gantry_task_ends_total{task="eager",how="panicked"} 1"#);
}

#[tokio::test]
async fn a_carry_on_task_is_only_counted() {
    let mut bench = tasks_fixture();
    bench.tasks.spawn("connection", OnLoss::CarryOn, |_| async { panic!("bad request") });
    bench.tasks.join().await.unwrap();
    assert!(!bench.tasks.token().is_cancelled());
    bench.assert_metric(r#"gantry_task_ends_total{task="connection",how="panicked"} 1"#);
}

#[tokio::test]
async fn a_broken_task_restarts_with_growing_capped_waits() {
    let mut bench = tasks_fixture();
    let begun: Arc<Mutex<Vec<Moment>>> = Arc::default();
    let (clock, log) = (bench.hand.clock(), Arc::clone(&begun));
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
    bench.tasks.spawn_restarting("flaky", backoff, move |_| {
        log.lock().unwrap().push(clock.moment());
        let (clock, attempt) = (clock.clone(), log.lock().unwrap().len());
        async move {
            match attempt {
                1 | 2 => panic!("again"),
                6 => clock.sleep(Duration::from_secs(9)).await,
                7 => return Ok(()),
                _ => {}
            }
            Err("and again".into())
        }
    });
    let (joined, ()) =
        tokio::join!(bench.tasks.join(), bench.hand.advance(Duration::from_secs(60)));
    joined.unwrap();
    let begun = begun.lock().unwrap().clone();
    // The sixth run lasted longer than the cap, so the seventh waits like the second.
    let ceilings = [(1, 0), (2, 0), (4, 0), (8, 0), (8, 0), (1, 9)];
    assert_eq!(begun.len(), ceilings.len() + 1);
    for (pair, (ceiling, ran)) in begun.windows(2).zip(ceilings) {
        let waited = (pair[1] - pair[0]) - Duration::from_secs(ran);
        let ceiling = Duration::from_secs(ceiling);
        assert!(waited >= ceiling / 2 && waited <= ceiling, "{waited:?} for {ceiling:?}");
    }
    bench.assert_metric(r#"gantry_task_ends_total{task="flaky",how="panicked"} 2"#);
    bench.assert_metric(r#"gantry_task_restarts_total{task="flaky"} 6"#);
}

#[tokio::test]
async fn stopping_ends_the_wait_for_a_restart() {
    let mut bench = tasks_fixture();
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    bench.tasks.spawn_restarting("flaky", backoff, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Err("no".into()) }
    });
    bench.hand.advance(Duration::ZERO).await;
    assert_eq!(bench.hand.waiting(), 1, "it waits for its restart");
    bench.tasks.token().cancel();
    bench.tasks.join().await.unwrap();
    assert_eq!(attempts.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn threads_are_named_stopped_and_joined() {
    let mut bench = tasks_fixture();
    let (name, named) = oneshot::channel();
    bench
        .tasks
        .spawn_thread("wal", move |stop| {
            let _ = name.send(thread::current().name().map(str::to_owned));
            // Stands for blocking work that looks at the token between steps.
            while !stop.is_cancelled() {
                thread::yield_now();
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(named.await.unwrap().as_deref(), Some("wal"));
    bench.tasks.spawn_thread("broken", |_| panic!("torn page")).unwrap();
    let lost = bench.tasks.join().await.unwrap_err();
    assert_eq!((&*lost.task, &*lost.cause.to_string()), ("broken", "panicked: torn page"));
    bench.tasks.join().await.unwrap();
    bench.assert_metric(r#"gantry_task_ends_total{task="wal",how="finished"} 1"#);
}

#[tokio::test]
async fn dropping_the_owner_aborts_tasks_and_children() {
    let mut bench = tasks_fixture();
    let (alive, ended) = oneshot::channel::<Infallible>();
    bench.tasks.spawn("deaf", OnLoss::EndOwner, |_| async move {
        let _alive = alive;
        std::future::pending().await
    });
    let child = bench.tasks.child();
    bench.hand.advance(Duration::ZERO).await;
    bench.assert_metric(r#"gantry_tasks_running{task="deaf"} 1"#);
    drop(bench.tasks);
    assert!(ended.await.is_err(), "the future is dropped");
    assert!(child.token().is_cancelled());
    let text = bench.metrics.encode().unwrap();
    assert!(text.contains(r#"gantry_tasks_running{task="deaf"} 0"#), "{text}");
}
