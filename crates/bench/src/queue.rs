//! The parts of a measurement of queues: what arrives, who plays it, what is seen, and who decides.

pub(crate) mod arrive;
pub(crate) mod burst;
pub(crate) mod evaluate;
pub(crate) mod gantry;
pub(crate) mod gate;
pub(crate) mod growth;
pub(crate) mod jobs;
pub(crate) mod kueue;
pub(crate) mod outcome;
pub(crate) mod play;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod requests;
pub(crate) mod scene;
pub(crate) mod shape;
pub(crate) mod stage;
pub(crate) mod watch;
pub(crate) mod wrapper;
