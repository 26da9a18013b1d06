//! Connections to simulated pods, with or without a socket.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Both directions of a connection.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A future that may be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Reaches ports of pods.
pub trait Dial: Send + Sync {
    /// Connects to a port of the pod with this address. The caller sets the timeout.
    fn dial(&self, address: Ipv4Addr, port: u16) -> BoxFuture<'_, io::Result<Box<dyn Duplex>>>;
}

/// The most connections of one listener that wait to be accepted. More are refused, as with a full
/// backlog.
const MAX_BACKLOG: usize = 128;
/// The buffer of one direction of a connection in memory; a writer waits when it is full.
const BUFFER_BYTES: usize = 64 << 10;

/// The ports of simulated pods: listeners in memory, and besides them the sockets of 127.0.0.0/8.
/// Clones share the network.
#[derive(Clone, Default)]
pub struct PodNetwork(Arc<Mutex<Listeners>>);

#[derive(Default)]
struct Listeners {
    by_address: BTreeMap<SocketAddrV4, (u64, mpsc::Sender<DuplexStream>)>,
    next: u64,
}

impl fmt::Debug for PodNetwork {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_set().entries(self.lock().by_address.keys()).finish()
    }
}

impl PodNetwork {
    // No foreign code runs under the lock, so a poisoned one is still consistent.
    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens in memory on a port of a pod, until the listener is dropped.
    ///
    /// # Errors
    /// Another listener has the port.
    pub fn listen(&self, address: Ipv4Addr, port: u16) -> io::Result<PodListener> {
        let address = SocketAddrV4::new(address, port);
        let (sender, connections) = mpsc::channel(MAX_BACKLOG);
        let mut listeners = self.lock();
        if listeners.by_address.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let id = listeners.next;
        listeners.next += 1;
        listeners.by_address.insert(address, (id, sender));
        drop(listeners);
        Ok(PodListener { address, id, connections, network: self.clone() })
    }

    /// Connects to a program that listens in memory; returns `None` where none does.
    #[must_use]
    pub fn dial_in_memory(&self, address: SocketAddrV4) -> Option<io::Result<DuplexStream>> {
        let sender = self.lock().by_address.get(&address).map(|(_, it)| it.clone())?;
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        let sent = sender.try_send(far);
        Some(sent.map(|()| near).map_err(|_| io::ErrorKind::ConnectionRefused.into()))
    }
}

impl Dial for PodNetwork {
    fn dial(&self, address: Ipv4Addr, port: u16) -> BoxFuture<'_, io::Result<Box<dyn Duplex>>> {
        Box::pin(async move {
            let target = SocketAddrV4::new(address, port);
            if let Some(found) = self.dial_in_memory(target) {
                return Ok(Box::new(found?) as Box<dyn Duplex>);
            }
            // Pods have addresses there and nowhere else: only pods are reached through a pod's
            // address.
            if !address.is_loopback() {
                let message = format!("{address} is not an address of a simulated pod");
                return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, message));
            }
            Ok(Box::new(TcpStream::connect(target).await?))
        })
    }
}

/// A listener in memory.
pub struct PodListener {
    address: SocketAddrV4,
    id: u64,
    connections: mpsc::Receiver<DuplexStream>,
    network: PodNetwork,
}

impl PodListener {
    /// Accepts the next connection. May be dropped at any time: none is lost.
    pub async fn accept(&mut self) -> DuplexStream {
        match self.connections.recv().await {
            Some(stream) => stream,
            // The network holds the sender for as long as this listens.
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for PodListener {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "PodListener({})", self.address)
    }
}

impl Drop for PodListener {
    fn drop(&mut self) {
        let mut listeners = self.network.lock();
        if listeners.by_address.get(&self.address).is_some_and(|(id, _)| *id == self.id) {
            listeners.by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const POD: Ipv4Addr = Ipv4Addr::new(127, 200, 3, 4);

    #[tokio::test]
    async fn a_listener_in_memory_is_found_before_a_socket() {
        let network = PodNetwork::default();
        let mut listener = network.listen(POD, 80).unwrap();
        assert_eq!(network.listen(POD, 80).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let mut near = network.dial(POD, 80).await.unwrap();
        let mut far = listener.accept().await;
        near.write_all(b"ping").await.unwrap();
        let mut heard = [0; 4];
        far.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"ping");
        drop(listener);
        // Port 1 of an address without a pod: without the listener it is a socket, and nothing
        // listens.
        let refused = network.dial(POD, 1).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        network.listen(POD, 80).unwrap();
    }

    #[tokio::test]
    async fn a_listener_that_accepts_nothing_refuses_at_last() {
        let network = PodNetwork::default();
        let _listener = network.listen(POD, 80).unwrap();
        let mut open = Vec::new();
        for _ in 0..MAX_BACKLOG {
            open.push(network.dial(POD, 80).await.unwrap());
        }
        let refused = network.dial(POD, 80).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(open.len(), MAX_BACKLOG);
    }

    #[tokio::test]
    async fn only_addresses_of_pods_are_dialed() {
        let network = PodNetwork::default();
        for address in [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::UNSPECIFIED] {
            let refused = network.dial(address, 80).await.err().unwrap();
            assert_eq!(refused.kind(), io::ErrorKind::AddrNotAvailable, "{address}");
        }
    }
}
