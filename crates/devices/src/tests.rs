//! Tests the allocator on small inventories with obvious results.

mod build;
mod choice;
mod limits;
mod scenarios;
