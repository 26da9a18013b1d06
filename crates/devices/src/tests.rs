//! The allocator on small inventories whose answer a person can see.

mod build;
mod limits;
mod scenarios;
