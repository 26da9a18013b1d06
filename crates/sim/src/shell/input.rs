//! What is typed: as it comes, or by the rules of a terminal.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use super::output::Output;

/// The longest line; a longer one is taken for two.
const LINE: usize = 4 * 1024;

/// Lines that are typed ahead of a command that does not read.
const AHEAD: usize = 16;

/// What a command hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Something was typed.
    Bytes(Bytes),
    /// The interrupt key.
    Interrupt,
    /// No more will be typed, at least not for this command.
    End,
}

/// The input of a command.
pub(super) struct Input {
    /// Gone once there is no more.
    source: Option<mpsc::Receiver<Bytes>>,
    terminal: Option<Terminal>,
    /// What came and was not heard yet.
    waiting: VecDeque<Heard>,
}

impl Input {
    pub(super) fn new(source: Option<mpsc::Receiver<Bytes>>, tty: bool) -> Self {
        Self { source, terminal: tty.then(Terminal::default), waiting: VecDeque::new() }
    }

    /// The next of what is typed; on a terminal a line. What is typed there is shown on `screen`.
    pub(super) async fn next(&mut self, screen: &mut Output) -> Heard {
        loop {
            if let Some(heard) = self.waiting.pop_front() {
                return heard;
            }
            if !self.more(screen).await {
                return Heard::End;
            }
        }
    }

    /// Waits for more to be typed; false when that will not be.
    async fn more(&mut self, screen: &mut Output) -> bool {
        let Some(source) = &mut self.source else { return false };
        let Some(bytes) = source.recv().await else {
            self.source = None;
            return false;
        };
        match &mut self.terminal {
            None => self.waiting.extend((!bytes.is_empty()).then_some(Heard::Bytes(bytes))),
            Some(terminal) => {
                let mut echo = Vec::new();
                let heard = bytes.iter().filter_map(|byte| terminal.key(*byte, &mut echo));
                self.waiting.extend(heard);
                screen.send(echo.into()).await;
            }
        }
        true
    }

    /// The next line, without its end.
    pub(super) async fn line(&mut self, screen: &mut Output) -> Heard {
        let mut line = BytesMut::new();
        loop {
            match self.next(screen).await {
                Heard::Bytes(mut bytes) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let room = LINE - line.len();
                    let taken = end.unwrap_or(bytes.len()).min(room);
                    line.extend_from_slice(&bytes.split_to(taken));
                    let ended = end == Some(taken);
                    if ended {
                        let _ = bytes.split_to(1);
                    }
                    if !bytes.is_empty() {
                        self.waiting.push_front(Heard::Bytes(bytes));
                    }
                    if ended || line.len() == LINE {
                        return Heard::Bytes(line.freeze());
                    }
                }
                Heard::End if !line.is_empty() => return Heard::Bytes(line.freeze()),
                other => return other,
            }
        }
    }

    /// Ready when the interrupt key was pressed; never without a terminal. What is typed meanwhile
    /// is kept for later, up to [`AHEAD`]; then nobody listens until it is read. Dropping it loses
    /// nothing but what would be shown.
    pub(super) async fn interrupted(&mut self, screen: &mut Output) {
        while self.terminal.is_some() {
            if self.waiting.contains(&Heard::Interrupt) {
                // As at a real terminal, what was typed ahead goes with it.
                self.waiting.clear();
                return;
            }
            if self.waiting.len() >= AHEAD || !self.more(screen).await {
                break;
            }
        }
        std::future::pending::<()>().await;
    }
}

/// A line as it is typed at a terminal.
#[derive(Debug, Default)]
struct Terminal {
    line: Vec<u8>,
    /// How far we are inside of what an arrow key sends.
    escape: Escape,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    Not,
    Begun,
    Inside,
}

impl Terminal {
    /// Takes a key, says what is to be shown for it, and what is heard by who reads.
    fn key(&mut self, key: u8, echo: &mut Vec<u8>) -> Option<Heard> {
        match (self.escape, key) {
            (Escape::Begun, b'[' | b'O') => {
                self.escape = Escape::Inside;
                return None;
            }
            (Escape::Inside, 0x20..=0x3f) => return None,
            (Escape::Inside | Escape::Begun, _) => {
                self.escape = Escape::Not;
                return None;
            }
            (Escape::Not, _) => {}
        }
        match key {
            b'\r' | b'\n' => {
                echo.extend_from_slice(b"\r\n");
                self.line.push(b'\n');
                Some(self.said())
            }
            0x03 => {
                echo.extend_from_slice(b"^C\r\n");
                self.line.clear();
                Some(Heard::Interrupt)
            }
            0x04 if self.line.is_empty() => Some(Heard::End),
            0x04 => Some(self.said()),
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
                self.escape = Escape::Begun;
                None
            }
            b'\t' | 0x20.. if self.line.len() < LINE - 1 => {
                echo.push(key);
                self.line.push(key);
                None
            }
            _ => None,
        }
    }

    fn said(&mut self) -> Heard {
        Heard::Bytes(std::mem::take(&mut self.line).into())
    }

    /// Takes the last letter back, however many bytes it has.
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
        let said = |text: &'static str| Heard::Bytes(Bytes::from_static(text.as_bytes()));
        let table: [(&str, &[u8], &str, Vec<Heard>); 9] = [
            ("a line", b"ls\r", "ls\r\n", vec![said("ls\n")]),
            ("two lines", b"a\nb\r", "a\r\nb\r\n", vec![said("a\n"), said("b\n")]),
            ("half a line", b"ls", "ls", vec![]),
            ("corrected", b"lx\x7fs\r", "lx\x08 \x08s\r\n", vec![said("ls\n")]),
            ("a letter of two bytes", "ä\x7fb\r".as_bytes(), "ä\x08 \x08b\r\n", vec![said("b\n")]),
            ("all taken back", b"ab\x15c\r", "ab\x08 \x08\x08 \x08c\r\n", vec![said("c\n")]),
            ("interrupted", b"ab\x03", "ab^C\r\n", vec![Heard::Interrupt]),
            ("the end", b"a\x04\x04", "a", vec![said("a"), Heard::End]),
            (
                "keys without a letter",
                b"\x1b[A\x1b[1;5Ca\x01\x1bxb\r",
                "ab\r\n",
                vec![said("ab\n")],
            ),
        ];
        for (why, keys, shown, expected) in table {
            let (mut terminal, mut echo) = (Terminal::default(), Vec::new());
            let heard: Vec<Heard> =
                keys.iter().filter_map(|key| terminal.key(*key, &mut echo)).collect();
            assert_eq!(heard, expected, "{why}");
            assert_eq!(String::from_utf8(echo).unwrap(), shown, "{why}");
        }
    }

    #[test]
    fn a_line_does_not_grow_without_end() {
        let (mut terminal, mut echo) = (Terminal::default(), Vec::new());
        for _ in 0..3 * LINE {
            assert_eq!(terminal.key(b'x', &mut echo), None);
        }
        let Some(Heard::Bytes(line)) = terminal.key(b'\r', &mut echo) else { panic!("no line") };
        assert_eq!(line.len(), LINE);
    }
}
