//! Pairing in the launcher variant.

use gantry_actuation::{PairingController, Settings};
use gantry_harness::test_world::assert_proof;
use gantry_reconcile::Controller;

use crate::world::{self, Fleet, Inquiries, NodeAgent, create, delete, shape};

/// Three models share an accelerator one after the other, one of them twice, beside another one.
#[test]
fn as_66_engines_hand_over_despite_faults() {
    let settings = Settings::default();
    let (pairing, inquiries) =
        (PairingController::new(settings.clone()), Inquiries::new(&settings));
    let controllers: [&dyn Controller; 2] = [&pairing, &NodeAgent];
    let scenario = world::scenario(&controllers, &inquiries, Fleet::new(true), script());
    assert_proof(scenario.prove_faults(0..40, shape));
}

fn script() -> Vec<gantry_harness::UserAction> {
    vec![
        create("r1", "a", "g0"),
        create("r2", "b", "g1"),
        delete("r1"),
        create("r3", "b", "g0"),
        delete("r3"),
        create("r4", "a", "g0"),
    ]
}
