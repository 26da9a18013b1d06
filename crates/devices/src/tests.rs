//! The allocator on small inventories whose answer a person can see.

mod build;
mod choice;
mod limits;
mod scenarios;
