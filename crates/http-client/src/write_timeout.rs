//! Closes connections to peers that stop reading.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use gantry_process::clock::Clock;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// A connection on which no write may wait for longer than a limit.
///
/// A server may respond before it has read the whole request. The rest of the request is then sent
/// without a waiting caller, and a peer that does not read it would keep the connection open for
/// ever.
pub(crate) struct WriteTimeout<Io> {
    io: Io,
    clock: Clock,
    limit: Duration,
    /// Runs while a write waits.
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl<Io> WriteTimeout<Io> {
    pub(crate) fn new(io: Io, clock: Clock, limit: Duration) -> Self {
        Self { io, clock, limit, timer: None }
    }

    /// Returns the result of a write, or a time-out if it has waited for too long.
    fn within<Done>(
        &mut self,
        context: &mut Context<'_>,
        write: Poll<io::Result<Done>>,
    ) -> Poll<io::Result<Done>> {
        if write.is_ready() {
            self.timer = None;
            return write;
        }
        let timer = self.timer.get_or_insert_with(|| {
            let (clock, until) = (self.clock.clone(), self.clock.moment() + self.limit);
            Box::pin(async move { clock.sleep_until(until).await })
        });
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<Io: Write + Unpin> Write for WriteTimeout<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.io).poll_write(context, bytes);
        self.within(context, write)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let write = Pin::new(&mut self.io).poll_flush(context);
        self.within(context, write)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let write = Pin::new(&mut self.io).poll_shutdown(context);
        self.within(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        self.within(context, write)
    }
}

impl<Io: Read + Unpin> Read for WriteTimeout<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<Io: Connection> Connection for WriteTimeout<Io> {
    fn connected(&self) -> Connected {
        self.io.connected()
    }
}
