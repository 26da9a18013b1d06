//! The output of a command.

use bytes::Bytes;
use tokio::sync::mpsc;

/// The most bytes that are sent at once.
const MAX_CHUNK_BYTES: usize = 32 * 1024;

/// One output stream.
pub(super) struct Output {
    /// `None` once the receiver is gone.
    sender: Option<mpsc::Sender<Bytes>>,
    tty: bool,
}

impl Output {
    pub(super) fn new(sender: Option<mpsc::Sender<Bytes>>, tty: bool) -> Self {
        Self { sender, tty }
    }

    /// Writes text. On a terminal every line feed gets a carriage return, which programs leave to
    /// it.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        if !self.tty {
            return self.send(Bytes::copy_from_slice(bytes)).await;
        }
        let mut text = Vec::with_capacity(bytes.len() + 8);
        for &byte in bytes {
            if byte == b'\n' {
                text.push(b'\r');
            }
            text.push(byte);
        }
        self.send(text.into()).await;
    }

    /// Sends bytes unchanged. Waits while the receiver is busy.
    pub(super) async fn send(&mut self, mut bytes: Bytes) {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(MAX_CHUNK_BYTES));
            match &self.sender {
                Some(sender) if sender.send(piece).await.is_ok() => {}
                Some(_) | None => {
                    self.sender = None;
                    return;
                }
            }
        }
    }
}
