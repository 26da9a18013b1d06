//! Forwards connections to the engine, once the address of the engine is configured.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_process::tasks::{OnLoss, Tasks};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::confinement;

/// Connections that are forwarded at one time; further ones wait.
const MAX_CONNECTIONS: usize = 512;
/// The longest address.
const MAX_ADDRESS_BYTES: usize = 253;

/// Where connections are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    address: String,
    port: u16,
}

impl Target {
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        let address = value["address"].as_str().unwrap_or_default();
        if address.is_empty() || address.len() > MAX_ADDRESS_BYTES {
            return Err("address must be a host".to_owned());
        }
        let port = value["port"].as_u64().and_then(|it| u16::try_from(it).ok());
        let port = port.filter(|it| *it != 0).ok_or("port must be from 1 to 65535")?;
        Ok(Self { address: address.to_owned(), port })
    }

    /// Returns the target if connections may be forwarded there. A requester that is confined
    /// reaches simulated pods and nothing else of its machine and its network.
    pub(super) fn allowed(self, is_confined: bool) -> Result<Self, String> {
        let is_pod = self.address.parse().is_ok_and(confinement::is_pod_address);
        match is_confined && !is_pod {
            true => Err(format!(
                "address {:?} is none of a simulated pod: use the address of an engine's pod",
                self.address
            )),
            false => Ok(self),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"address": self.address, "port": self.port})
    }
}

impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.address, self.port)
    }
}

/// What became of a request to configure it.
pub(super) enum Configured {
    /// It listens now.
    Listening,
    /// It was configured so before.
    Same,
    /// It is configured otherwise, and only once in its life.
    Other(Target),
    /// It cannot listen.
    Failed(String),
    /// The requester stops.
    Stopping,
}

type Order = (Target, oneshot::Sender<Result<(), String>>);

/// The proxy. Its listener is a task that waits for its target.
pub(super) struct Proxy {
    target: Arc<Mutex<Option<Target>>>,
    /// One at a time may configure it.
    orders: tokio::sync::Mutex<mpsc::Sender<Order>>,
}

impl Proxy {
    pub(super) fn new(address: SocketAddr, dial_timeout: Duration, tasks: &mut Tasks) -> Self {
        let (orders, mut receiver) = mpsc::channel::<Order>(1);
        let mut connections = tasks.child();
        tasks.spawn("proxy", OnLoss::EndOwner, move |stop| async move {
            let (target, listener) = loop {
                let order = tokio::select! {
                    biased;
                    // Either may be dropped: an order that was not received is not lost.
                    () = stop.cancelled() => return Ok(()),
                    order = receiver.recv() => order,
                };
                let Some((target, reply)) = order else { return Ok(()) };
                match TcpListener::bind(address).await {
                    Ok(listener) => {
                        // The client may have gone; the proxy is configured all the same.
                        let _ = reply.send(Ok(()));
                        break (target, listener);
                    }
                    Err(error) => {
                        let _ = reply.send(Err(format!("could not listen on {address}: {error}")));
                    }
                }
            };
            forward(listener, target, dial_timeout, &mut connections).await;
            Ok(())
        });
        Self { target: Arc::default(), orders: tokio::sync::Mutex::new(orders) }
    }

    pub(super) fn target(&self) -> Option<Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn configure(&self, target: Target) -> Configured {
        let orders = self.orders.lock().await;
        match self.target() {
            Some(current) if current == target => return Configured::Same,
            Some(current) => return Configured::Other(current),
            None => {}
        }
        let (reply, answer) = oneshot::channel();
        if orders.send((target.clone(), reply)).await.is_err() {
            return Configured::Stopping;
        }
        match answer.await {
            Ok(Ok(())) => {
                *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
                Configured::Listening
            }
            Ok(Err(message)) => Configured::Failed(message),
            Err(_) => Configured::Stopping,
        }
    }
}

async fn forward(
    listener: TcpListener,
    target: Target,
    dial_timeout: Duration,
    connections: &mut Tasks,
) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let stop = connections.token().clone();
    loop {
        let accept = async {
            let permit = Arc::clone(&permits).acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            biased;
            // Each may be dropped: nothing is taken off a queue before it is ready.
            () = stop.cancelled() => break,
            _ = connections.join(), if !connections.is_empty() => continue,
            accepted = accept => accepted,
        };
        let Ok((mut near, _)) = accepted else {
            // Out of file descriptors: that ends when connections end.
            connections.clock().sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (target, clock) = (target.clone(), connections.clock().clone());
        connections.spawn("proxy connection", OnLoss::CarryOn, move |stop| async move {
            let _permit = permit;
            let dial = TcpStream::connect((target.address.as_str(), target.port));
            // A client whose engine cannot be reached is disconnected.
            if let Ok(Ok(mut far)) = clock.timeout(dial_timeout, dial).await {
                let (_, _) = (near.set_nodelay(true), far.set_nodelay(true));
                tokio::select! {
                    biased;
                    // Dropped when the requester stops: both sides are disconnected.
                    () = stop.cancelled() => {}
                    _ = copy_bidirectional(&mut near, &mut far) => {}
                }
            }
            Ok(())
        });
    }
    while connections.join().await.is_err() {}
}
