//! Runs the other programs of a real Kubernetes against Gantry's own server.

use std::time::Duration;

use gantry_process::clock::Clock;

use super::flags::Files;
use super::ports::Ports;
use super::{Nodes, StartError, nodes, ready};
use crate::embedded::EmbeddedServer;
use crate::pki::Authority;
use crate::programs::Programs;

/// kube-controller-manager, kube-scheduler and kwok, connected to the server they are started
/// beside. They are stopped with it.
#[derive(Debug)]
pub struct ExternalControllers {
    nodes: Vec<String>,
    took: Duration,
}

impl ExternalControllers {
    /// Starts them beside `server`, with so many simulated nodes, and waits until all are ready:
    /// their caches are synced, a service account exists, and every node accepts pods.
    ///
    /// # Errors
    /// One of them is not ready; the server's [`EmbeddedServer::tails`] has the ends of all logs.
    pub async fn start(
        server: &mut EmbeddedServer,
        clock: &Clock,
        count: u16,
    ) -> Result<Self, StartError> {
        let began = clock.moment();
        let programs = Programs::find()?;
        let authority = Authority::new("gantry-testkit-guests")?;
        let ports = Ports::choose(&mut fastrand::Rng::new()).ok_or(StartError::NoPorts)?;
        let admin = server.target().clone();
        let path = server.kubeconfig().to_owned();
        let run = server.run();
        let files = Files::write_for_external_server(run, &authority, &admin.authority)?;
        let kubeconfig = super::text(&path);
        let manager = programs.path("kube-controller-manager")?;
        let flags = files.external_controller_manager(&kubeconfig, &ports);
        run.start("kube-controller-manager", &manager, &flags)?;
        let scheduler = programs.path("kube-scheduler")?;
        run.start("kube-scheduler", &scheduler, &files.external_scheduler(&kubeconfig, &ports))?;
        let nodes = Nodes::Simulated(count);
        nodes::create(&admin, clock, nodes).await?;
        let stages = programs.path("kwok-stages.yaml")?;
        run.start("kwok", &programs.path("kwok")?, &nodes::kwok(&path, &stages))?;
        let deadline = clock.moment() + ready::START_TIMEOUT;
        let (own, ends) = (&authority.own.certificate, [ports.controller_manager, ports.scheduler]);
        ready::controllers(run, &admin, own, ends, clock, deadline).await?;
        ready::nodes(run, &admin, &nodes.names(), clock, deadline).await?;
        Ok(Self { nodes: nodes.names(), took: clock.moment() - began })
    }

    /// The names of the nodes.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// How long it took until all were ready.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }
}
