//! Capacities and draws from them, in the terms of the published objects.
//!
//! [`draw`] computes what a capacity gives to a request; [`reduce()`] computes what is left of it.
//! Neither changes its arguments. The texts of [`CapacityError`] are part of the interface: they
//! are what users of the oldest files have seen.

mod access;
mod reduce;
#[cfg(test)]
mod tests;

pub use access::{allows_holder, parse_mode};
pub use reduce::{CapacityResult, PoolResult, reduce, reduce_device, reduce_pool};

use gantry_api::devices::{RequestedCapacity, Shape};
use gantry_api::quantity::{ArithmeticError, Quantity};

/// The result of a request: what it gets, and what it still lacks.
///
/// Both are `None` for a request that a capacity cannot serve and that asks for nothing more.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn<T> {
    /// What is given, after rounding; `None` if nothing is.
    pub allocated: Option<T>,
    /// What is still missing, after rounding; `None` if nothing is.
    pub remainder: Option<T>,
}

/// Why a request cannot be applied to a capacity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// The device has no such capacity, or not in that topology domain.
    #[error("allocated capacity \"{key}\" not found in device capacities")]
    NotFound {
        /// Name and topology domains.
        key: String,
    },
    /// The request is for something else.
    #[error("cannot reduce capacity \"{capacity}\" using request for \"{request}\"")]
    OtherCapacity {
        /// What was to be reduced.
        capacity: String,
        /// What was requested.
        request: String,
    },
    /// The request and the capacity are of different kinds.
    #[error("request/capacity type mismatch")]
    Mismatch,
    /// There is no such access mode.
    #[error("invalid request access mode \"{mode}\"")]
    InvalidMode {
        /// The given text.
        mode: String,
    },
    /// The result is of another pool.
    #[error("cannot reduce pool \"{pool}\" capacity using allocation from pool \"{other}\"")]
    OtherPool {
        /// What was to be reduced.
        pool: String,
        /// The pool of the result.
        other: String,
    },
    /// The result satisfies nothing.
    #[error("cannot reduce pool \"{pool}\" capacity from unsatisfied result")]
    Unsatisfied {
        /// What was to be reduced.
        pool: String,
    },
    /// The result is about other devices.
    #[error("pool \"{pool}\" devices and device result list differ in length")]
    Length {
        /// What was to be reduced.
        pool: String,
    },
    /// More is taken than there is, which the allocator never does.
    #[error("cannot take {amount} of capacity \"{key}\": only {left} is left")]
    Overdrawn {
        /// Name and topology domains.
        key: String,
        /// What was to be taken.
        amount: String,
        /// What is left.
        left: String,
    },
    /// An amount is out of range.
    #[error(transparent)]
    Arithmetic(#[from] ArithmeticError),
}

/// Returns what a capacity gives to a request of a kind.
///
/// # Errors
/// If the kinds do not match, or an amount is out of range.
pub fn draw(
    shape: &Shape,
    request: &RequestedCapacity,
) -> Result<Drawn<RequestedCapacity>, CapacityError> {
    match (shape, request) {
        (Shape::Counter { counter }, RequestedCapacity::Counter { request }) => {
            let (asked, there) = (*request, counter.capacity.max(0));
            let given = asked.min(there);
            let give = |request| RequestedCapacity::Counter { request };
            Ok(Drawn {
                allocated: (given > 0 || asked == 0).then(|| give(given)),
                remainder: (given < asked).then(|| give(asked - given)),
            })
        }
        (
            Shape::Quantity { .. } | Shape::Block { .. } | Shape::Capacity { .. },
            RequestedCapacity::Quantity { request },
        ) => {
            let drawn = draw_amount(shape, *request)?;
            let give = |request| RequestedCapacity::Quantity { request };
            Ok(Drawn { allocated: drawn.allocated.map(give), remainder: drawn.remainder.map(give) })
        }
        (Shape::AccessMode { access_mode }, RequestedCapacity::AccessMode { request }) => {
            let mode = access_mode.upgrade(*request);
            Ok(if allows_holder(access_mode, mode) {
                Drawn {
                    allocated: Some(RequestedCapacity::AccessMode { request: mode }),
                    remainder: None,
                }
            } else {
                Drawn {
                    allocated: None,
                    remainder: Some(RequestedCapacity::AccessMode { request: *request }),
                }
            })
        }
        (
            Shape::Counter { .. }
            | Shape::Quantity { .. }
            | Shape::Block { .. }
            | Shape::Capacity { .. }
            | Shape::AccessMode { .. },
            RequestedCapacity::Counter { .. }
            | RequestedCapacity::Quantity { .. }
            | RequestedCapacity::AccessMode { .. },
        ) => Err(CapacityError::Mismatch),
    }
}

/// Returns what a capacity of any kind gives to a request for an amount, in the request's suffixes.
///
/// # Errors
/// If the capacity only offers access, if a counter is requested in a fraction, or if an amount is
/// out of range.
pub fn draw_amount(shape: &Shape, asked: Quantity) -> Result<Drawn<Quantity>, CapacityError> {
    let one = Quantity::from(1);
    let (there, block) = match shape {
        Shape::Counter { counter } => {
            if asked.to_int().is_none() {
                return Err(CapacityError::Mismatch);
            }
            (Quantity::from_int(counter.capacity, asked.format())?, one)
        }
        Shape::Quantity { quantity } => (quantity.capacity, Quantity::parse("1n").unwrap_or(one)),
        Shape::Block { block } => (block.capacity, block.size),
        Shape::Capacity { capacity, block_size } => (*capacity, block_size.unwrap_or(one)),
        Shape::AccessMode { .. } => return Err(CapacityError::Mismatch),
    };
    let zero = Quantity::ZERO.with_format(asked.format());
    let asked = asked.round_up_to(block)?;
    let there = there.max(zero).round_down_to(block)?.with_format(asked.format());
    let given = asked.min(there);
    Ok(Drawn {
        allocated: (!given.is_zero() || asked.is_zero()).then_some(given),
        remainder: (given < asked).then(|| asked.checked_sub(given)).transpose()?,
    })
}
