//! The input of a command: raw, or edited as on a terminal.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use super::output::Output;

/// The longest line; a longer one is split.
const MAX_LINE_BYTES: usize = 4 * 1024;

/// The most lines that are typed ahead of a command that does not read.
const MAX_LINES_AHEAD: usize = 16;

/// An input event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InputEvent {
    /// Input bytes.
    Bytes(Bytes),
    /// The interrupt key.
    Interrupt,
    /// The end of the input, at least for this command.
    End,
}

/// The input of a command.
pub(super) struct Input {
    /// `None` once the input has ended.
    source: Option<mpsc::Receiver<Bytes>>,
    terminal: Option<Terminal>,
    /// Events that were not read yet.
    pending: VecDeque<InputEvent>,
}

impl Input {
    pub(super) fn new(source: Option<mpsc::Receiver<Bytes>>, tty: bool) -> Self {
        Self { source, terminal: tty.then(Terminal::default), pending: VecDeque::new() }
    }

    /// Returns the next input; on a terminal a line. Input there is echoed on `screen`.
    pub(super) async fn next(&mut self, screen: &mut Output) -> InputEvent {
        loop {
            if let Some(heard) = self.pending.pop_front() {
                return heard;
            }
            if !self.read_more(screen).await {
                return InputEvent::End;
            }
        }
    }

    /// Waits for more input; returns false when there will be none.
    async fn read_more(&mut self, screen: &mut Output) -> bool {
        let Some(source) = &mut self.source else { return false };
        let Some(bytes) = source.recv().await else {
            self.source = None;
            return false;
        };
        match &mut self.terminal {
            None => self.pending.extend((!bytes.is_empty()).then_some(InputEvent::Bytes(bytes))),
            Some(terminal) => {
                let mut echo = Vec::new();
                let heard = bytes.iter().filter_map(|byte| terminal.handle_key(*byte, &mut echo));
                self.pending.extend(heard);
                screen.send(echo.into()).await;
            }
        }
        true
    }

    /// Returns the next line, without its end.
    pub(super) async fn line(&mut self, screen: &mut Output) -> InputEvent {
        let mut line = BytesMut::new();
        loop {
            match self.next(screen).await {
                InputEvent::Bytes(mut bytes) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let free = MAX_LINE_BYTES - line.len();
                    let taken = end.unwrap_or(bytes.len()).min(free);
                    line.extend_from_slice(&bytes.split_to(taken));
                    let ended = end == Some(taken);
                    if ended {
                        let _ = bytes.split_to(1);
                    }
                    if !bytes.is_empty() {
                        self.pending.push_front(InputEvent::Bytes(bytes));
                    }
                    if ended || line.len() == MAX_LINE_BYTES {
                        return InputEvent::Bytes(line.freeze());
                    }
                }
                InputEvent::End if !line.is_empty() => return InputEvent::Bytes(line.freeze()),
                other => return other,
            }
        }
    }

    /// Completes when the interrupt key was pressed; never without a terminal. Input is buffered
    /// meanwhile, up to [`MAX_LINES_AHEAD`]; then nothing more is read until it is consumed.
    /// Dropping it loses nothing but the echo.
    pub(super) async fn interrupted(&mut self, screen: &mut Output) {
        while self.terminal.is_some() {
            if self.pending.contains(&InputEvent::Interrupt) {
                // As at a real terminal, an interrupt discards what was typed ahead.
                self.pending.clear();
                return;
            }
            if self.pending.len() >= MAX_LINES_AHEAD || !self.read_more(screen).await {
                break;
            }
        }
        std::future::pending::<()>().await;
    }
}

/// The line that is being edited at a terminal.
#[derive(Debug, Default)]
struct Terminal {
    line: Vec<u8>,
    /// The position inside of the escape sequence of an arrow key.
    escape: EscapeState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Not,
    Begun,
    Inside,
}

impl Terminal {
    /// Handles a key; appends its echo, and returns the event it completes.
    fn handle_key(&mut self, key: u8, echo: &mut Vec<u8>) -> Option<InputEvent> {
        match (self.escape, key) {
            (EscapeState::Begun, b'[' | b'O') => {
                self.escape = EscapeState::Inside;
                return None;
            }
            (EscapeState::Inside, 0x20..=0x3f) => return None,
            (EscapeState::Inside | EscapeState::Begun, _) => {
                self.escape = EscapeState::Not;
                return None;
            }
            (EscapeState::Not, _) => {}
        }
        match key {
            b'\r' | b'\n' => {
                echo.extend_from_slice(b"\r\n");
                self.line.push(b'\n');
                Some(self.take_line())
            }
            0x03 => {
                echo.extend_from_slice(b"^C\r\n");
                self.line.clear();
                Some(InputEvent::Interrupt)
            }
            0x04 if self.line.is_empty() => Some(InputEvent::End),
            0x04 => Some(self.take_line()),
            0x08 | 0x7f => {
                self.erase(echo);
                None
            }
            0x15 => {
                while !self.line.is_empty() {
                    self.erase(echo);
                }
                None
            }
            0x1b => {
                self.escape = EscapeState::Begun;
                None
            }
            b'\t' | 0x20.. if self.line.len() < MAX_LINE_BYTES - 1 => {
                echo.push(key);
                self.line.push(key);
                None
            }
            _ => None,
        }
    }

    fn take_line(&mut self) -> InputEvent {
        InputEvent::Bytes(std::mem::take(&mut self.line).into())
    }

    /// Erases the last character, however many bytes it has.
    fn erase(&mut self, echo: &mut Vec<u8>) {
        let continues = |byte: &u8| byte & 0xc0 == 0x80;
        while self.line.pop_if(|byte| continues(byte)).is_some() {}
        if self.line.pop().is_some() {
            echo.extend_from_slice(b"\x08 \x08");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_edited_as_at_a_terminal() {
        let said = |text: &'static str| InputEvent::Bytes(Bytes::from_static(text.as_bytes()));
        let table: [(&str, &[u8], &str, Vec<InputEvent>); 9] = [
            ("a line", b"ls\r", "ls\r\n", vec![said("ls\n")]),
            ("two lines", b"a\nb\r", "a\r\nb\r\n", vec![said("a\n"), said("b\n")]),
            ("half a line", b"ls", "ls", vec![]),
            ("corrected", b"lx\x7fs\r", "lx\x08 \x08s\r\n", vec![said("ls\n")]),
            ("a letter of two bytes", "ä\x7fb\r".as_bytes(), "ä\x08 \x08b\r\n", vec![said("b\n")]),
            ("all erased", b"ab\x15c\r", "ab\x08 \x08\x08 \x08c\r\n", vec![said("c\n")]),
            ("interrupted", b"ab\x03", "ab^C\r\n", vec![InputEvent::Interrupt]),
            ("the end", b"a\x04\x04", "a", vec![said("a"), InputEvent::End]),
            (
                "keys without a letter",
                b"\x1b[A\x1b[1;5Ca\x01\x1bxb\r",
                "ab\r\n",
                vec![said("ab\n")],
            ),
        ];
        for (why, keys, shown, expected) in table {
            let (mut terminal, mut echo) = (Terminal::default(), Vec::new());
            let heard: Vec<InputEvent> =
                keys.iter().filter_map(|key| terminal.handle_key(*key, &mut echo)).collect();
            assert_eq!(heard, expected, "{why}");
            assert_eq!(String::from_utf8(echo).unwrap(), shown, "{why}");
        }
    }

    #[test]
    fn a_line_does_not_grow_without_end() {
        let (mut terminal, mut echo) = (Terminal::default(), Vec::new());
        for _ in 0..3 * MAX_LINE_BYTES {
            assert_eq!(terminal.handle_key(b'x', &mut echo), None);
        }
        let Some(InputEvent::Bytes(line)) = terminal.handle_key(b'\r', &mut echo) else {
            panic!("no line")
        };
        assert_eq!(line.len(), MAX_LINE_BYTES);
    }
}
