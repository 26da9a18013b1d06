//! Which devices a pod gets, decided without clock, network or chance.
//!
//! An [`Inventory`](problem::Inventory) says what there is and what of it is held; a
//! [`Request`](problem::Request) says what a pod wants.

pub mod capacity;
pub mod problem;
