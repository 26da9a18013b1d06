//! A connection on which anything can be said.

use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::Clock;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Target, TargetError, base, tls};

/// A TLS connection to a server, on which bytes go out as they are.
///
/// A client library writes no request that is wrong, so what a server does with one has to be asked
/// by hand.
#[derive(Debug)]
pub struct Bare {
    stream: TlsStream<TcpStream>,
    clock: Clock,
}

impl Bare {
    /// Connects with the certificate of the target, if it has one.
    ///
    /// # Errors
    /// The target makes no sense, or nothing answers there.
    pub async fn connect(target: &Target, clock: Clock) -> Result<Self, BareError> {
        let uri = base(&target.base)?;
        let host = uri.host().unwrap_or_default().to_owned();
        let config = tls::config(target, true).map_err(TargetError::from)?;
        let name = ServerName::try_from(host.clone()).map_err(|_| BareError::Host(host.clone()))?;
        let tcp = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
        tcp.set_nodelay(true)?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
        Ok(Self { stream, clock })
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub async fn say(&mut self, bytes: &[u8]) -> Result<(), BareError> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Everything the server says until it closes the connection, or says nothing for so long.
    pub async fn hear(&mut self, quiet: Duration) -> String {
        let mut heard = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = self.clock.timeout(quiet, self.stream.read(&mut buffer)).await;
            match read {
                Ok(Ok(count)) if count > 0 => heard.extend_from_slice(&buffer[..count]),
                // Closed in order, closed otherwise, or quiet: there is no more to hear.
                Ok(Ok(_) | Err(_)) | Err(_) => break,
            }
        }
        String::from_utf8_lossy(&heard).into_owned()
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum BareError {
    /// The target makes no sense.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The host is no name.
    #[error("{0:?} is no name of a host")]
    Host(String),
    /// The network, or the server, ended it.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
}
