//! The settings of a subsystem, as data: keys, their types, their values and the sources of those.
//!
//! A subsystem lists its [`Key`]s and reads its section of the [`Values`] into a type of its own.
//! Reading files and flags, the reference in the documentation, `--print-config` and the comparison
//! of two configurations are derived from the lists of all subsystems.

pub mod duration;
pub mod key;
pub mod read;
pub mod value_type;
pub mod values;

pub use key::{Alias, DefaultValue, Effect, Key};
pub use value_type::{EmptyMeaning, ValueType, ZeroMeaning};
pub use values::{ConfigMessage, ConfigReport, Layer, Origin, Values};
