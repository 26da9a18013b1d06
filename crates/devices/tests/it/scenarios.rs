//! The acceptance scenarios of the specification that need neither a server nor a command line, by
//! number. Those of the capacity model (14 to 31) are with it.

mod constraints;
mod files;
mod intents;
mod loaded_files;
mod pools;
mod printed;
