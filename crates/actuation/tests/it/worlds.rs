//! Random worlds: whatever is asked for, and whatever goes wrong, no two engines are awake on one
//! accelerator after any move, and all runs of a world end in one state.

use std::fmt::Write as _;
use std::ops::Range;

use gantry_actuation::view::{InferenceServerConfig, LauncherConfig};
use gantry_actuation::{CollectionController, PairingController, PopulationController, Settings};
use gantry_harness::UserAction;
use gantry_harness::prove_worlds;
use gantry_harness::test_world::assert_proof;
use gantry_reconcile::{Controller, View as _};
use jiff::SignedDuration;
use proptest::test_runner::Config as ProptestConfig;
use serde_json::json;

use crate::world::{
    self, Fleet, Inquiries, NodeAgent, create, delete, disturb, edit, lose_node, shape,
};

/// The sets of accelerators that a requester may have. Some overlap, and name what they share in
/// another order.
const ACCELERATORS: [&str; 5] = ["g0", "g1", "g2", "g0,g1", "g1,g0"];
const CONFIGS: [&str; 3] = ["a", "b", "c"];
/// The names of requesters, in the order of their creation.
const REQUESTERS: [&str; 9] = ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"];
/// How many worlds a test run has for each case of a property test: 8 by default, and 10,000 with
/// `PROPTEST_CASES=320000`.
const CASES_PER_WORLD: u32 = 32;
/// How many those are by default.
const USUAL_WORLDS: u64 = 8;

/// Creates a requester with this name, for this model and these accelerators.
type Create = fn(&'static str, &'static str, &'static str) -> UserAction;

/// The invariants (a) to (f) are checked after every move; see `world::invariants`.
#[test]
fn as_66_no_two_engines_are_awake_in_random_worlds() {
    let settings = Settings::default();
    let pairing = PairingController::new(settings.clone());
    let population = PopulationController::new(settings.clone());
    let inquiries = Inquiries::new(&settings);
    let controllers: [&dyn Controller; 4] =
        [&pairing, &population, &CollectionController, &NodeAgent];
    let proof = prove_worlds(
        seeds(),
        |seed| {
            let random = &mut fastrand::Rng::with_seed(seed);
            let mut fleet = Fleet::new(true);
            fleet.start = SignedDuration::from_millis(random.i64(0..6_000));
            fleet.refused_sleeps = random.u32(0..4);
            fleet.refused_wakes = random.u32(0..2);
            let mut scenario = world::scenario(&controllers, &inquiries, fleet, script(random));
            if random.bool() {
                scenario.objects.push(world::policy(random.u32(0..4)));
            }
            scenario
        },
        shape,
    );
    assert_proof(proof);
}

/// The same while engines end by themselves, launchers restart, configs and templates change, and
/// the node is lost with all its pods. Which requesters are left depends on the order of moves; all
/// that are left are served.
#[test]
fn as_66_invariants_hold_while_engines_crash_and_objects_change() {
    let settings = Settings::default();
    let pairing = PairingController::new(settings.clone());
    let population = PopulationController::new(settings.clone());
    let inquiries = Inquiries::new(&settings);
    let controllers: [&dyn Controller; 4] =
        [&pairing, &population, &CollectionController, &NodeAgent];
    let proof = prove_worlds(
        fewer_seeds(),
        |seed| {
            let random = &mut fastrand::Rng::with_seed(seed);
            let mut fleet = Fleet::new(true);
            fleet.start = SignedDuration::from_millis(random.i64(0..3_000));
            fleet.refused_sleeps = random.u32(0..3);
            let mut actions = script(random);
            for _ in 0..random.usize(1..4) {
                let place = random.usize(..=actions.len());
                actions.splice(place..place, trouble(random));
            }
            world::scenario(&controllers, &inquiries, fleet, actions)
        },
        world::settled,
    );
    assert_proof(proof);
}

/// Something that users do not do.
fn trouble(random: &mut fastrand::Rng) -> Vec<UserAction> {
    match random.u8(0..5) {
        0 => vec![disturb(Fleet::crash_awake)],
        1 => vec![disturb(Fleet::restart_launchers)],
        2 => vec![edit(InferenceServerConfig::RESOURCE, "a", |it| {
            it["spec"]["modelServerConfig"]["options"] = json!("--model a --changed");
        })],
        3 => vec![edit(LauncherConfig::RESOURCE, "lc", |it| {
            let containers = &mut it["spec"]["podTemplate"]["spec"]["containers"];
            containers[0]["image"] = json!("changed");
        })],
        _ => lose_node().into(),
    }
}

/// Late calls of a process that was killed reach launchers that refuse none: what they break is
/// repaired within one renewal.
#[test]
fn as_69_without_fences_all_is_right_again_within_one_renewal() {
    let settings = Settings::default();
    let pairing = PairingController::new(settings.clone());
    let population = PopulationController::new(settings.clone());
    let inquiries = Inquiries::new(&settings);
    let controllers: [&dyn Controller; 4] =
        [&pairing, &population, &CollectionController, &NodeAgent];
    // The state is asked again, and a call is made and confirmed.
    let renewal = SignedDuration::try_from(settings.renewal_interval).unwrap();
    let grace = renewal + SignedDuration::from_secs(15);
    let proof = prove_worlds(
        fewer_seeds(),
        |seed| {
            let random = &mut fastrand::Rng::with_seed(seed);
            let fleet = Fleet::new(false);
            let mut scenario = world::scenario(&controllers, &inquiries, fleet, script(random));
            scenario.external.invariants = world::invariants::all(grace);
            scenario
        },
        world::settled,
    );
    assert_proof(proof);
}

/// Direct providers: engines of their own pods hand over like instances.
#[test]
fn as_66_no_two_engines_are_awake_in_random_worlds_of_direct_providers() {
    let settings = Settings::default();
    let pairing = PairingController::new(settings.clone());
    let inquiries = Inquiries::new(&settings);
    let controllers: [&dyn Controller; 2] = [&pairing, &NodeAgent];
    let proof = prove_worlds(
        fewer_seeds(),
        |seed| {
            let random = &mut fastrand::Rng::with_seed(seed);
            let actions = script_of(random, world::create_direct);
            let mut fleet = Fleet::new(true);
            fleet.is_direct = true;
            let mut scenario = world::scenario(&controllers, &inquiries, fleet, actions);
            scenario.objects.push(world::accelerator_map());
            scenario
        },
        world::settled,
    );
    assert_proof(proof);
}

/// The seeds of a test run. A failure prints its seed, and a run its range.
fn seeds() -> Range<u64> {
    let worlds = u64::from(ProptestConfig::default().cases / CASES_PER_WORLD).max(1);
    eprintln!("seeds 0..{worlds}; more with PROPTEST_CASES, {CASES_PER_WORLD} for each");
    0..worlds
}

/// The same for worlds of which a usual run has fewer.
fn fewer_seeds() -> Range<u64> {
    let Range { start, end } = seeds();
    let end = if end > USUAL_WORLDS { end } else { end.div_ceil(4) };
    eprintln!("of these 0..{end}");
    start..end
}

fn script(random: &mut fastrand::Rng) -> Vec<UserAction> {
    script_of(random, create)
}

/// Returns what users do: requesters come and go. One whose accelerators another one still has is
/// created before or after that one is deleted, because its containers end before its object is
/// gone (FC-1).
fn script_of(random: &mut fastrand::Rng, create: Create) -> Vec<UserAction> {
    let mut actions = Vec::new();
    let mut living: Vec<(&'static str, &'static str)> = Vec::new();
    let mut story = String::new();
    for name in REQUESTERS.iter().take(random.usize(2..=REQUESTERS.len())) {
        let gpus = random.choice(ACCELERATORS).unwrap();
        let config = random.choice(CONFIGS).unwrap();
        let overlaps = |other: &str| gpus.split(',').any(|it| other.split(',').any(|o| o == it));
        let (ended, kept) = living.into_iter().partition(|(_, other)| overlaps(other));
        living = kept;
        let ended: Vec<(&'static str, &'static str)> = ended;
        let is_early = random.bool();
        if is_early {
            actions.push(create(name, config, gpus));
        }
        actions.extend(ended.iter().map(|(name, _)| delete(name)));
        if !is_early {
            actions.push(create(name, config, gpus));
        }
        living.push((name, gpus));
        let _ = write!(story, "{name}={config}@{gpus} early={is_early} ends={ended:?}; ");
        match random.u8(0..8) {
            0 => {
                let (name, _) = living.swap_remove(random.usize(..living.len()));
                actions.push(delete(name));
                let _ = write!(story, "ends {name}; ");
            }
            1 => {
                actions.push(disturb(|fleet| fleet.disturb_awake(|it| it.is_awake = false)));
                story.push_str("all are put to sleep; ");
            }
            _ => {}
        }
    }
    eprintln!("{story}");
    actions
}
