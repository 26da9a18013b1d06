//! What the targets share: random trees, trees in the shape of a schema, and patches of them.

pub mod disk;
pub mod kinds;
pub mod tree;

/// Gives up on an input that cannot be made into what a target needs.
#[macro_export]
macro_rules! or_skip {
    ($made:expr) => {
        match $made {
            Ok(made) => made,
            Err(_) => return,
        }
    };
}
