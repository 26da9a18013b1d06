//! Iterates over the fields of one message, in the order of its bytes.

use std::borrow::Cow;

use super::WireError;

/// The rest of a message.
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

/// The value of a field, by wire type.
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
    /// A group, an old way to nest; no known type uses it.
    Group,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the number and the value of the next field.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Payload<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        let payload = if wire_type == 3 {
            self.skip_group()?;
            Payload::Group
        } else {
            self.payload(number, wire_type)?
        };
        Ok(Some((number, payload)))
    }

    fn tag(&mut self) -> Result<(u64, u8), WireError> {
        let tag = self.varint()?;
        let [low, ..] = tag.to_le_bytes();
        let (number, wire_type) = (tag >> 3, low & 7);
        if number == 0 || wire_type > 5 {
            return Err(WireError::IllegalTag { tag: number, wire_type });
        }
        Ok((number, wire_type))
    }

    fn payload(&mut self, number: u64, wire_type: u8) -> Result<Payload<'a>, WireError> {
        match wire_type {
            0 => Ok(Payload::Varint(self.varint()?)),
            1 => {
                let bytes = self.rest.first_chunk().copied().ok_or(WireError::Truncated)?;
                self.take(8)?;
                Ok(Payload::Fixed64(u64::from_le_bytes(bytes)))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| WireError::Truncated)?;
                self.take(length).map(Payload::Bytes)
            }
            5 => self.take(4).map(|_| Payload::Fixed32),
            _ => Err(WireError::IllegalTag { tag: number, wire_type }),
        }
    }

    /// Skips groups, which nest without lengths; they are counted, not recursed into, so that depth
    /// costs nothing.
    fn skip_group(&mut self) -> Result<(), WireError> {
        let mut open = 1_u64;
        while open > 0 {
            match self.tag()? {
                (_, 3) => open += 1,
                (_, 4) => open -= 1,
                (number, wire_type) => {
                    self.payload(number, wire_type)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn varint(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for (place, &byte) in self.rest.iter().enumerate() {
            if place == 10 {
                return Err(WireError::Overflow);
            }
            // The tenth byte has space for one bit; Go drops the others.
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.rest = &self.rest[place + 1..];
                return Ok(number);
            }
        }
        Err(if self.rest.len() >= 10 { WireError::Overflow } else { WireError::Truncated })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Payload<'a> {
    pub(super) fn bytes(&self, field: &str) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed64(_) | Self::Fixed32 | Self::Group => {
                Err(self.wrong(field))
            }
        }
    }

    /// Decodes text; invalid UTF-8 is replaced, as it is when Go writes it as JSON.
    pub(super) fn text(&self, field: &str) -> Result<Cow<'a, str>, WireError> {
        self.bytes(field).map(String::from_utf8_lossy)
    }

    pub(super) fn varint(&self, field: &str) -> Result<u64, WireError> {
        match self {
            Self::Varint(number) => Ok(*number),
            Self::Bytes(_) | Self::Fixed64(_) | Self::Fixed32 | Self::Group => {
                Err(self.wrong(field))
            }
        }
    }

    pub(super) fn fixed64(&self, field: &str) -> Result<u64, WireError> {
        match self {
            Self::Fixed64(number) => Ok(*number),
            Self::Varint(_) | Self::Bytes(_) | Self::Fixed32 | Self::Group => {
                Err(self.wrong(field))
            }
        }
    }

    fn wrong(&self, field: &str) -> WireError {
        let wire_type = match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Group => 3,
            Self::Fixed32 => 5,
        };
        WireError::WrongWireType { field: field.to_owned(), wire_type }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_messages_are_refused() {
        let table: [(&str, &[u8]); 8] = [
            ("a length beyond the end", &[0x0a, 5, 1]),
            (
                "a length beyond all memory",
                &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            ),
            ("a number without an end", &[0x80]),
            ("a number of more than ten bytes", &[0x80; 12]),
            ("the field zero", &[0x02, 0]),
            ("an unknown wire type", &[0x0f]),
            ("a group without an end", &[0x0b, 0x0b, 0x0c]),
            ("half a fixed number", &[0x09, 1, 2, 3]),
        ];
        for (why, bytes) in table {
            assert!(Cursor::new(bytes).next().is_err(), "{why}");
        }
    }

    #[test]
    fn groups_are_skipped_however_deep() {
        let mut bytes = vec![0x0b; 1000];
        bytes.extend([0x0c; 1000]);
        bytes.extend([0x10, 7]);
        let mut cursor = Cursor::new(&bytes);
        assert!(matches!(cursor.next(), Ok(Some((1, Payload::Group)))));
        assert!(matches!(cursor.next(), Ok(Some((2, Payload::Varint(7))))));
        assert!(matches!(cursor.next(), Ok(None)));
    }
}
