//! Random worlds: whatever is asked for, and whatever goes wrong, no two engines are awake on one
//! accelerator after any move, and all runs of a world end in one state.

use std::fmt::Write as _;

use gantry_actuation::{CollectionController, PairingController, PopulationController, Settings};
use gantry_harness::UserAction;
use gantry_harness::prove_worlds;
use gantry_harness::test_world::assert_proof;
use gantry_reconcile::Controller;
use jiff::SignedDuration;
use proptest::test_runner::Config as ProptestConfig;

use crate::world::{self, Fleet, Inquiries, NodeAgent, create, delete, disturb, shape};

/// The sets of accelerators that a requester may have. Some overlap, and name what they share in
/// another order.
const ACCELERATORS: [&str; 5] = ["g0", "g1", "g2", "g0,g1", "g1,g0"];
const CONFIGS: [&str; 3] = ["a", "b", "c"];
/// The names of requesters, in the order of their creation.
const REQUESTERS: [&str; 9] = ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"];
/// How many worlds a test run has for each case of a property test: 8 by default, and 10,000 with
/// `PROPTEST_CASES=320000`.
const CASES_PER_WORLD: u32 = 32;

/// The invariants (a) to (f) are checked after every move; see `world::invariants`.
#[test]
fn as_66_no_two_engines_are_awake_in_random_worlds() {
    let settings = Settings::default();
    let pairing = PairingController::new(settings.clone());
    let population = PopulationController::new(settings.clone());
    let inquiries = Inquiries::new(&settings);
    let controllers: [&dyn Controller; 4] =
        [&pairing, &population, &CollectionController, &NodeAgent];
    let worlds = u64::from(ProptestConfig::default().cases / CASES_PER_WORLD).max(1);
    let proof = prove_worlds(
        0..worlds,
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

/// Returns what users do: requesters come and go. One whose accelerators another one still has is
/// created before or after that one is deleted, because its containers end before its object is
/// gone (FC-1).
fn script(random: &mut fastrand::Rng) -> Vec<UserAction> {
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
