//! The queue in a small cluster: what MCAD's own tests expect of it, and what must hold in any
//! world.

mod acceptance;
mod authors;
mod cluster;
mod dead_nodes;
mod extensions;
mod failures;
mod load;
mod over_admission;
mod properties;
mod quota_trees;
mod rules;
mod transitions;
