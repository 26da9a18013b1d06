//! What the targets share: random trees, trees in the shape of a schema, and patches of them.

pub mod disk;
pub mod kinds;
pub mod tree;

/// Ends a run whose input is too short for what a target needs.
#[macro_export]
macro_rules! or_skip {
    ($made:expr) => {
        match $made {
            Ok(made) => made,
            Err(_) => return,
        }
    };
}
