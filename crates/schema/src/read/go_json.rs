//! What Go says about bytes that are no JSON.

use crate::go;

/// How deep Go reads.
const DEPTH: usize = 10_000;

/// Go's message about the first fault in `bytes`; none if there is none.
#[must_use]
pub fn go_json_error(bytes: &[u8]) -> Option<String> {
    let mut scan = Scan { bytes, at: 0, open: Vec::new() };
    match scan.document() {
        Ok(()) => None,
        Err(Fault::End) => Some("unexpected end of JSON input".to_owned()),
        Err(Fault::At(byte, context)) => {
            Some(format!("invalid character {} {context}", quote(byte)))
        }
    }
}

enum Fault {
    End,
    At(u8, &'static str),
}

/// What is open around a value.
#[derive(Clone, Copy)]
enum Open {
    Object,
    Array,
}

struct Scan<'bytes> {
    bytes: &'bytes [u8],
    at: usize,
    open: Vec<Open>,
}

type Step<T = ()> = Result<T, Fault>;

impl Scan<'_> {
    fn document(&mut self) -> Step {
        self.value()?;
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(byte) => Err(Fault::At(byte, "after top-level value")),
        }
    }

    /// Reads a value and all that is in it, without recursion: depth comes from the sender.
    fn value(&mut self) -> Step {
        loop {
            self.begin()?;
            // After a value there may be another in the same list or object, or the ends of those.
            loop {
                let Some(open) = self.open.last().copied() else { return Ok(()) };
                self.space();
                let (end, context) = match open {
                    Open::Object => (b'}', "after object key:value pair"),
                    Open::Array => (b']', "after array element"),
                };
                match self.next()? {
                    b',' => {
                        if matches!(open, Open::Object) {
                            self.space();
                            self.key()?;
                        }
                        break;
                    }
                    byte if byte == end => {
                        self.open.pop();
                    }
                    byte => return Err(Fault::At(byte, context)),
                }
            }
        }
    }

    /// Reads up to the end of the next scalar or of the next empty list or object.
    fn begin(&mut self) -> Step {
        loop {
            self.space();
            let byte = self.next()?;
            match byte {
                b'{' => {
                    self.push(byte, Open::Object)?;
                    self.space();
                    if self.peek() == Some(b'}') {
                        self.at += 1;
                        self.open.pop();
                        return Ok(());
                    }
                    self.key()?;
                }
                b'[' => {
                    self.push(byte, Open::Array)?;
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
                _ => return Err(Fault::At(byte, "looking for beginning of value")),
            }
        }
    }

    fn push(&mut self, byte: u8, open: Open) -> Step {
        if self.open.len() >= DEPTH {
            return Err(Fault::At(byte, "exceeded max depth"));
        }
        self.open.push(open);
        Ok(())
    }

    fn key(&mut self) -> Step {
        match self.next()? {
            b'"' => self.text()?,
            byte => return Err(Fault::At(byte, "looking for beginning of object key string")),
        }
        self.space();
        match self.next()? {
            b':' => Ok(()),
            byte => Err(Fault::At(byte, "after object key")),
        }
    }

    fn text(&mut self) -> Step {
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
                                return Err(Fault::At(byte, context));
                            }
                        }
                    }
                    byte => return Err(Fault::At(byte, "in string escape code")),
                },
                byte @ 0..0x20 => return Err(Fault::At(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self, first: u8) -> Step {
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

    fn digit(&mut self, context: &'static str) -> Step<u8> {
        match self.next()? {
            byte @ b'0'..=b'9' => Ok(byte),
            byte => Err(Fault::At(byte, context)),
        }
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn word(&mut self, rest: &[(u8, &'static str)]) -> Step {
        for (expected, context) in rest {
            let byte = self.next()?;
            if byte != *expected {
                return Err(Fault::At(byte, context));
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

    fn next(&mut self) -> Step<u8> {
        let byte = self.peek().ok_or(Fault::End)?;
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
