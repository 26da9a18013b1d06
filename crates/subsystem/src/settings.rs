//! The settings of a subsystem, as data: keys, their forms, their values and where those were written.
//!
//! A subsystem lists its [`Key`]s and reads its section of the [`Values`] into a type of its own. Reading
//! files and flags, the reference in the documentation, `--print-config` and the comparison of two
//! configurations follow from the lists of all subsystems.

pub mod duration;
pub mod form;
pub mod key;
pub mod read;
pub mod values;

pub use form::{Empty, Form, Zero};
pub use key::{Alias, Effect, Key, Usual};
pub use values::{Layer, Origin, Remark, Report, Values};
