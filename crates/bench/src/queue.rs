//! Parts of the queue benchmark: the workload, the job simulator, the watches, and the controllers
//! that are measured.

pub(crate) mod arrivals;
pub(crate) mod bench_server;
pub(crate) mod burst;
pub(crate) mod evaluate;
pub(crate) mod gantry;
pub(crate) mod growth;
pub(crate) mod job_simulator;
pub(crate) mod jobs;
pub(crate) mod kueue;
pub(crate) mod operator_run;
pub(crate) mod outcome;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod regression_check;
pub(crate) mod requests;
pub(crate) mod shape;
pub(crate) mod watch;
pub(crate) mod wrapper;
