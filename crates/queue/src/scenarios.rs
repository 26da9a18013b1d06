//! The queue in a small cluster: what MCAD's own tests expect of it, and what must hold in any world.

mod acceptance;
mod admitted;
mod authors;
mod beyond;
mod charged;
mod cluster;
mod crowd;
mod dead_nodes;
mod laws;
mod rules;
mod transitions;
mod trouble;
