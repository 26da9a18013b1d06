//! The laws of the catalogue: every step, on a host that dies, loses replies, and is edited by
//! others.

use std::collections::BTreeSet;

use gantry_inventory::Backend;
use gantry_provision::Host as _;
use gantry_provision::{
    Behavior, HostError, Journal, Lock, Reply, Request, Run, Stage, Step, UndoVerdict, Verdict,
    catalogue, destroy, run_stage, user_steps,
};
use serde_json::json;

use crate::facts::{DEBIAN, UBUNTU};
use crate::planning::Fixture;
use crate::simulated_host::{Disk, Inode, SimulatedHost};

/// A password that must be nowhere.
const SECRET: &str = "hunter2-hunter2";

/// The catalogue with steps of a user.
fn steps() -> Vec<Step> {
    let mut steps = catalogue();
    steps.extend(user_steps("site.yaml", crate::user_steps::STEPS).unwrap());
    steps.sort_by_key(|step| step.stage);
    steps
}

fn fixtures() -> Vec<Fixture> {
    let mut fixtures = Vec::new();
    for facts in [DEBIAN, UBUNTU] {
        for backend in [Backend::Bare, Backend::Kind] {
            let mut fixture = Fixture::new(facts, backend);
            fixture.set("gantry_environment", "dev");
            fixture.set("gantry_swap", "off");
            fixture.set("gantry_http_proxy", format!("http://ops:{SECRET}@proxy:3128"));
            let mirrors = json!({"registry.example": {"mirrors": ["https://mirror"]}});
            fixture.set("gantry_registries", mirrors);
            fixture.settings.roles.insert(gantry_inventory::Role::Minion);
            fixtures.push(fixture);
        }
    }
    fixtures
}

/// Runs all stages; returns the steps that changed something.
fn run(host: &mut SimulatedHost, fixture: &Fixture, check: bool) -> Result<Vec<String>, HostError> {
    let steps = steps();
    let selected: Vec<&Step> = steps.iter().collect();
    let bundle = fixture.bundle.as_ref();
    let run = Run { id: "01", steps: &selected, is_check: check, bundle };
    let mut changed = Vec::new();
    for stage in Stage::ALL {
        changed.extend(run_stage(host, &run, stage, &fixture.context())?.changed);
    }
    Ok(changed)
}

/// The host after a run without faults, and how many writes it took.
fn reference(fixture: &Fixture) -> (Disk, u64) {
    let mut host = SimulatedHost::new();
    run(&mut host, fixture, false).unwrap();
    (host.disk, host.writes)
}

/// A destroyed host, without what cannot be undone: settings of a module that stays loaded.
fn without_module(mut disk: Disk) -> Disk {
    disk.sysctls.retain(|key, _| !key.starts_with("net.bridge."));
    disk
}

#[test]
fn pvs_11_every_step_twice_leaves_an_empty_plan() {
    let mut reached = BTreeSet::new();
    for fixture in fixtures() {
        let mut host = SimulatedHost::new();
        let changed = run(&mut host, &fixture, false).unwrap();
        assert!(!changed.is_empty());
        reached.extend(changed);
        let (disk, journal, starts) = (host.disk.clone(), host.journal_text(), host.starts);
        let requests = host.requests.len();
        assert_eq!(run(&mut host, &fixture, false).unwrap(), [""; 0], "{:?}", fixture.settings);
        assert_eq!((host.disk.clone(), host.journal_text()), (disk, journal));
        assert_eq!(host.starts, starts, "no unit was started");
        // One round trip for a stage that has something to observe, and no other.
        let asked = &host.requests[requests..];
        assert!(asked.iter().all(|it| it.starts_with("Observe")) && asked.len() <= 2, "{asked:?}");
    }
    // Every step that writes has written, so that none is left out of the laws below.
    let all: BTreeSet<String> = steps()
        .iter()
        .filter(|step| step.stage > Stage::Preflight)
        .filter(|step| !matches!(step.behavior, Behavior::NotBuilt))
        .map(|step| step.id.to_string())
        .collect();
    assert_eq!(reached, all);
}

#[test]
fn pvs_11_a_host_that_dies_at_any_write_is_brought_to_the_same_end() {
    for fixture in fixtures() {
        let (expected, writes) = reference(&fixture);
        assert!(writes > 20, "{writes}");
        for dies_at in 1..=writes {
            let mut host = SimulatedHost::new();
            host.faults.dies_at = Some(dies_at);
            let error = run(&mut host, &fixture, false).unwrap_err();
            assert!(matches!(error, HostError::Lost(_)), "{dies_at}: {error}");
            host.revive();
            run(&mut host, &fixture, false).unwrap();
            assert_eq!(host.disk, expected, "died at write {dies_at}");
            // The journal is whole, and undoes both runs.
            let first = SimulatedHost::new().disk;
            destroy(&mut host, "mls").unwrap();
            assert_eq!(without_module(host.disk), first, "died at write {dies_at}, destroyed");
        }
    }
}

#[test]
fn pvs_11_destroy_gives_the_first_host_back_even_if_it_dies() {
    for fixture in fixtures() {
        let mut made = SimulatedHost::new();
        let first = made.disk.clone();
        run(&mut made, &fixture, false).unwrap();
        let before = made.writes;
        let mut host = made.clone();
        let items = destroy(&mut host, "mls").unwrap();
        assert_eq!(without_module(host.disk.clone()), first);
        assert!(host.journals.is_empty() && host.saved.is_empty(), "nothing of ours is left");
        let kept: Vec<&str> = items
            .iter()
            .filter(|item| !matches!(item.verdict, UndoVerdict::Play(_)))
            .map(|item| item.what.as_str())
            .collect();
        assert_eq!(kept, ["load module br_netfilter"], "and it says why");
        assert!(destroy(&mut host, "mls").unwrap().is_empty(), "twice is once");
        for dies_at in before + 1..=host.writes {
            let mut host = made.clone();
            host.faults.dies_at = Some(dies_at);
            assert!(destroy(&mut host, "mls").is_err(), "{dies_at}");
            host.revive();
            destroy(&mut host, "mls").unwrap();
            assert_eq!(without_module(host.disk), first, "died at write {dies_at}");
        }
    }
}

#[test]
fn pvs_11_what_others_changed_stays_and_is_named() {
    let fixture = &fixtures()[0];
    let mut host = SimulatedHost::new();
    let first = host.disk.clone();
    run(&mut host, fixture, false).unwrap();
    let edited = Inode::File(b"net.ipv4.ip_forward = 1\n# ops\n".to_vec(), 0o644);
    let path = "/etc/sysctl.d/90-gantry.conf";
    host.disk.inodes.insert(path.to_owned(), edited.clone());
    host.disk.sysctls.insert("net.core.somaxconn".to_owned(), "9".to_owned());
    let foreign = Inode::File(b"theirs".to_vec(), 0o644);
    host.disk.inodes.insert("/opt/gantry/notes".to_owned(), foreign.clone());
    host.disk.inodes.remove("/etc/site/current");
    let items = destroy(&mut host, "mls").unwrap();
    let changed: Vec<String> = items
        .iter()
        .filter_map(|item| match &item.verdict {
            UndoVerdict::Changed { want } => Some(want.to_string()),
            UndoVerdict::Play(_) | UndoVerdict::Irreversible(_) => None,
        })
        .collect();
    assert_eq!(changed, ["sysctl net.core.somaxconn", path]);
    let mut expected = first;
    expected.inodes.insert(path.to_owned(), edited);
    expected.inodes.insert("/opt/gantry".to_owned(), Inode::Directory(0o755));
    expected.inodes.insert("/opt/gantry/notes".to_owned(), foreign);
    expected.sysctls.insert("net.core.somaxconn".to_owned(), "9".to_owned());
    assert_eq!(without_module(host.disk), expected);
}

#[test]
fn pvs_18_lost_replies_and_doubled_requests_change_nothing() {
    let fixture = &fixtures()[0];
    let (expected, _) = reference(fixture);
    for seed in 0..60 {
        let mut host = SimulatedHost::new();
        host.faults.unreliable = Some((6, fastrand::Rng::with_seed(seed)));
        let mut attempts = 0;
        while let Err(error) = run(&mut host, fixture, false) {
            assert!(matches!(error, HostError::Lost(_)), "seed {seed}: {error}");
            attempts += 1;
            assert!(attempts < 200, "seed {seed}");
        }
        assert_eq!(host.disk, expected, "seed {seed}");
        host.revive();
        destroy(&mut host, "mls").unwrap();
        assert_eq!(without_module(host.disk), SimulatedHost::new().disk, "seed {seed}");
    }
}

#[test]
fn pvs_46_no_secret_is_in_journal_or_request() {
    for fixture in fixtures() {
        let mut host = SimulatedHost::new();
        run(&mut host, &fixture, false).unwrap();
        let proxy = "/etc/systemd/system/containerd.service.d/90-gantry-proxy.conf";
        if fixture.settings.backend == Backend::Bare {
            let Some(Inode::File(bytes, 0o600)) = host.disk.inodes.get(proxy) else {
                panic!("no file");
            };
            assert!(String::from_utf8_lossy(bytes).contains(SECRET), "the test has a secret");
            let plain = gantry_provision::Digest::of(bytes);
            assert!(!host.journal_text().contains(plain.as_str()), "digests are salted");
        }
        assert!(!host.journal_text().contains(SECRET));
        let before = host.requests.len();
        destroy(&mut host, "mls").unwrap();
        assert!(host.requests[before..].iter().all(|request| !request.contains(SECRET)));
    }
}

#[test]
fn pvs_18_check_mode_changes_nothing_and_is_exact() {
    for fixture in fixtures() {
        let steps = steps();
        let selected: Vec<&Step> = steps.iter().collect();
        let bundle = fixture.bundle.as_ref();
        let mut host = SimulatedHost::new();
        let disk = host.disk.clone();
        let check = Run { id: "01", steps: &selected, is_check: true, bundle };
        let real = Run { is_check: false, ..check };
        for stage in Stage::ALL {
            let context = fixture.context();
            let planned = run_stage(&mut host, &check, stage, &context).unwrap();
            assert!(planned.changed.is_empty());
            if stage <= Stage::AllHosts {
                assert_eq!((&host.disk, host.writes), (&disk, 0), "{stage:?}");
            }
            let before = host.journals.get("mls").map_or(0, String::len);
            let done = run_stage(&mut host, &real, stage, &context).unwrap();
            assert_eq!(done.plan, planned.plan, "what it lists is what a run does first");
            // Each action that was listed is in the journal, in that order.
            let listed: Vec<String> =
                planned.plan.changes().map(|(_, change)| change.action.to_string()).collect();
            let text = host.journals.get("mls").cloned().unwrap_or_default();
            let journal = Journal::parse(&text).unwrap();
            let all = journal.iter().flat_map(Journal::entries);
            let acted: Vec<String> = all.map(|(intent, _)| intent.action.to_string()).collect();
            assert!(text.len() > before || listed.is_empty());
            let is_there = |it: &String| acted.contains(it);
            assert!(listed.iter().all(is_there), "{listed:?} {acted:?}");
            // What was told to come later has come.
            for later in
                planned.plan.steps.iter().filter(|it| matches!(it.verdict, Verdict::Later(_)))
            {
                assert!(done.changed.contains(&later.step), "{}", later.step);
            }
        }
    }
}

#[test]
fn pvs_47_two_controllers_do_not_run_at_once() {
    let mut host = SimulatedHost::new();
    let lock = |run: &str| Lock {
        run: run.to_owned(),
        user: "ops".to_owned(),
        controller: format!("desk-{run}"),
        acquired: 0,
        renewed: 0,
    };
    let cluster = || "mls".to_owned();
    let take = |run: &str| Request::Lock { cluster: cluster(), lock: lock(run) };
    assert!(matches!(host.ask(&take("a"), &[]), Ok(Reply::Done { .. })));
    host.clock += 59;
    let Ok(Reply::Held { holder, age: 59 }) = host.ask(&take("b"), &[]) else { panic!("not held") };
    assert_eq!(holder.controller, "desk-a");
    // A lock of another is not released.
    let unlock = |run: &str| Request::Unlock { cluster: cluster(), run: run.to_owned() };
    host.ask(&unlock("b"), &[]).unwrap();
    assert!(matches!(host.ask(&take("b"), &[]), Ok(Reply::Held { .. })));
    host.clock += 1;
    assert!(matches!(host.ask(&take("b"), &[]), Ok(Reply::Done { .. })), "stale: taken over");
    assert!(matches!(host.ask(&take("a"), &[]), Ok(Reply::Held { .. })), "the old one is out");
    host.ask(&unlock("b"), &[]).unwrap();
    assert!(host.locks.is_empty());
}

#[test]
fn prv_66_bytes_that_were_torn_on_the_way_are_not_written() {
    let mut host = SimulatedHost::new();
    let change =
        gantry_provision::Change::file("/etc/a", 0o644, gantry_provision::Content::public("whole"));
    let request = Request::Act {
        cluster: "mls".to_owned(),
        run: "01".to_owned(),
        step: "a".to_owned(),
        action: change.action,
    };
    let reply = host.ask(&request, b"who").unwrap();
    assert!(matches!(reply, Reply::Failed { transient: true, .. }), "{reply:?}");
    assert!(!host.disk.inodes.contains_key("/etc/a"));
}
