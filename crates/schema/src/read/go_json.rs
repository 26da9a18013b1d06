//! The messages of Go about bytes that are not JSON.

use crate::go;

/// How deep Go reads.
const MAX_DEPTH: usize = 10_000;

/// Go's message about the first fault in `bytes`; none if there is none.
#[must_use]
pub fn go_json_error(bytes: &[u8]) -> Option<String> {
    let mut scan = Scanner { bytes, at: 0, open: Vec::new() };
    match scan.document() {
        Ok(()) => None,
        Err(ScanError::End) => Some("unexpected end of JSON input".to_owned()),
        Err(ScanError::At(byte, context)) => {
            Some(format!("invalid character {} {context}", quote(byte)))
        }
    }
}

enum ScanError {
    End,
    At(u8, &'static str),
}

/// What is open around a value.
#[derive(Clone, Copy)]
enum OpenContainer {
    Object,
    Array,
}

struct Scanner<'bytes> {
    bytes: &'bytes [u8],
    at: usize,
    open: Vec<OpenContainer>,
}

type ScanResult<T = ()> = Result<T, ScanError>;

impl Scanner<'_> {
    fn document(&mut self) -> ScanResult {
        self.value()?;
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(byte) => Err(ScanError::At(byte, "after top-level value")),
        }
    }

    /// Reads a value and all that is in it, without recursion: depth comes from the sender.
    fn value(&mut self) -> ScanResult {
        loop {
            self.begin()?;
            // After a value there may be another in the same list or object, or the ends of those.
            loop {
                let Some(open) = self.open.last().copied() else { return Ok(()) };
                self.space();
                let (end, context) = match open {
                    OpenContainer::Object => (b'}', "after object key:value pair"),
                    OpenContainer::Array => (b']', "after array element"),
                };
                match self.next()? {
                    b',' => {
                        if matches!(open, OpenContainer::Object) {
                            self.space();
                            self.key()?;
                        }
                        break;
                    }
                    byte if byte == end => {
                        self.open.pop();
                    }
                    byte => return Err(ScanError::At(byte, context)),
                }
            }
        }
    }

    /// Reads up to the end of the next scalar or of the next empty list or object.
    fn begin(&mut self) -> ScanResult {
        loop {
            self.space();
            let byte = self.next()?;
            match byte {
                b'{' => {
                    self.push(byte, OpenContainer::Object)?;
                    self.space();
                    if self.peek() == Some(b'}') {
                        self.at += 1;
                        self.open.pop();
                        return Ok(());
                    }
                    self.key()?;
                }
                b'[' => {
                    self.push(byte, OpenContainer::Array)?;
                    self.space();
                    if self.peek() == Some(b']') {
                        self.at += 1;
                        self.open.pop();
                        return Ok(());
                    }
                }
                b'"' => return self.text(),
                b'-' | b'0'..=b'9' => return self.number(byte),
                b't' => {
                    return self.word(&[
                        (b'r', "in literal true (expecting 'r')"),
                        (b'u', "in literal true (expecting 'u')"),
                        (b'e', "in literal true (expecting 'e')"),
                    ]);
                }
                b'f' => {
                    return self.word(&[
                        (b'a', "in literal false (expecting 'a')"),
                        (b'l', "in literal false (expecting 'l')"),
                        (b's', "in literal false (expecting 's')"),
                        (b'e', "in literal false (expecting 'e')"),
                    ]);
                }
                b'n' => {
                    return self.word(&[
                        (b'u', "in literal null (expecting 'u')"),
                        (b'l', "in literal null (expecting 'l')"),
                        (b'l', "in literal null (expecting 'l')"),
                    ]);
                }
                _ => return Err(ScanError::At(byte, "looking for beginning of value")),
            }
        }
    }

    fn push(&mut self, byte: u8, open: OpenContainer) -> ScanResult {
        if self.open.len() >= MAX_DEPTH {
            return Err(ScanError::At(byte, "exceeded max depth"));
        }
        self.open.push(open);
        Ok(())
    }

    fn key(&mut self) -> ScanResult {
        match self.next()? {
            b'"' => self.text()?,
            byte => return Err(ScanError::At(byte, "looking for beginning of object key string")),
        }
        self.space();
        match self.next()? {
            b':' => Ok(()),
            byte => Err(ScanError::At(byte, "after object key")),
        }
    }

    fn text(&mut self) -> ScanResult {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next()?;
                            if !byte.is_ascii_hexdigit() {
                                let context = "in \\u hexadecimal character escape";
                                return Err(ScanError::At(byte, context));
                            }
                        }
                    }
                    byte => return Err(ScanError::At(byte, "in string escape code")),
                },
                byte @ 0..0x20 => return Err(ScanError::At(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self, first: u8) -> ScanResult {
        let lead = if first == b'-' { self.digit("in numeric literal")? } else { first };
        if lead != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &'static str) -> ScanResult<u8> {
        match self.next()? {
            byte @ b'0'..=b'9' => Ok(byte),
            byte => Err(ScanError::At(byte, context)),
        }
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn word(&mut self, rest: &[(u8, &'static str)]) -> ScanResult {
        for (expected, context) in rest {
            let byte = self.next()?;
            if byte != *expected {
                return Err(ScanError::At(byte, context));
            }
        }
        Ok(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> ScanResult<u8> {
        let byte = self.peek().ok_or(ScanError::End)?;
        self.at += 1;
        Ok(byte)
    }
}

/// A byte as a letter in single quotes.
fn quote(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        _ => {
            let quoted = go::quote(&char::from(byte).to_string());
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}
