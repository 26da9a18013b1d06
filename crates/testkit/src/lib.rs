//! Support for tests and benchmarks; never part of the product.
//!
//! [`cluster`] starts a real Kubernetes on this machine, the reference for what Gantry does;
//! [`embedded`] starts Gantry's own server, [`crash`] kills it again and again, and [`drill`] does
//! so with a whole cluster and its queue, [`actuation_drill`] with models that share accelerators.
//! [`kernel`] boots real kernels and loads modules into them, [`hosts`] boots hosts with sshd, and
//! [`docker_registry`] runs the registry of others. [`http`] sends exactly the request it
//! is given and returns exactly what came back, which is what a comparison of two servers and a
//! load generator both need; [`webhook_server`] implements webhooks, and [`ocm`] the API of managed
//! clusters. Below them, [`run`] ensures that no process and no file stays behind, whatever happens
//! to the test.

pub mod actuation_drill;
pub mod cluster;
pub mod crash;
pub mod docker_registry;
pub mod drill;
pub mod embedded;
pub mod hosts;
pub mod kernel;

pub mod http;
pub mod webhook_server;

pub mod kubeconfig;
pub mod ocm;
pub mod pki;
pub mod programs;
pub mod run;
