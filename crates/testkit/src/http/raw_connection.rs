//! A connection that sends arbitrary bytes.

use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::Clock;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Target, TargetError, base, tls};

/// A TLS connection to a server, on which bytes are sent as they are.
///
/// A client library sends no malformed request, so a server's reaction to one has to be tested this
/// way.
#[derive(Debug)]
pub struct RawConnection {
    stream: TlsStream<TcpStream>,
    clock: Clock,
}

impl RawConnection {
    /// Connects with the certificate of the target, if it has one.
    ///
    /// # Errors
    /// The target is malformed, or no server answers there.
    pub async fn connect(target: &Target, clock: Clock) -> Result<Self, RawConnectionError> {
        let uri = base(&target.base)?;
        let host = uri.host().unwrap_or_default().to_owned();
        let config = tls::config(target, true).map_err(TargetError::from)?;
        let name = ServerName::try_from(host.clone())
            .map_err(|_| RawConnectionError::Host(host.clone()))?;
        let tcp = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
        tcp.set_nodelay(true)?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
        Ok(Self { stream, clock })
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), RawConnectionError> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Returns everything the server sends until it closes the connection or is silent for this
    /// long.
    pub async fn receive_until_quiet(&mut self, quiet: Duration) -> String {
        let mut heard = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = self.clock.timeout(quiet, self.stream.read(&mut buffer)).await;
            match read {
                Ok(Ok(count)) if count > 0 => heard.extend_from_slice(&buffer[..count]),
                // Closed in order, aborted, or silent: no more bytes will arrive.
                Ok(Ok(_) | Err(_)) | Err(_) => break,
            }
        }
        String::from_utf8_lossy(&heard).into_owned()
    }
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum RawConnectionError {
    /// The target is malformed.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The host name is invalid.
    #[error("{0:?} is not a host name")]
    Host(String),
    /// The network or the server closed it.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
}
