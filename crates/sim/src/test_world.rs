//! The test world of crate `harness`, with pods.

use std::sync::Arc;

pub(crate) use gantry_harness::test_world::{TestWorld, assert_proof, faulty_objects, is_faulty};
use gantry_reconcile::Key;

use crate::view::Pod;

/// Reads pods of a test world.
pub(crate) trait TestPods {
    /// The pod with a name in namespace `default`.
    fn pod(&self, name: &str) -> Arc<Pod>;
}

impl TestPods for TestWorld<'_> {
    fn pod(&self, name: &str) -> Arc<Pod> {
        self.world.store::<Pod>().get(&Key::new("default", name)).unwrap()
    }
}
