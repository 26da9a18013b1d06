//! The controller manager against the real server, in one process, over faulty connections.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod copy_controller;
mod server;

mod caches;
mod leader_election;
mod reconcile;
