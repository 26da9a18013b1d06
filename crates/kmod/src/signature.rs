//! The trailer of a signed module: where its signatures begin and end.
//!
//! A signed file is the module, a CMS message, twelve bytes that give its length, and a magic text.
//! Signing once more appends the same again, so signatures form a stack. The kernel verifies the
//! last one only and takes everything before it as the payload.

use crate::errno::Errno;

/// The text that ends a signed module.
pub const MAGIC: &[u8; 28] = b"~Module signature appended~\n";

/// The size of `struct module_signature`, which stands before the magic.
const HEADER_SIZE: usize = 12;

/// How many bytes follow the CMS message.
pub const TRAILER_SIZE: usize = HEADER_SIZE + MAGIC.len();

/// How many signatures of one file are looked at. Real files have one, or two.
const MAX_SIGNATURES: usize = 64;

/// `PKEY_ID_PKCS7`, the only kind of signature that kernels still accept.
const ID_TYPE_PKCS7: u8 = 2;

/// A file split at its outermost signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedPayload<'a> {
    /// What was signed, with any older signatures.
    pub payload: &'a [u8],
    /// The CMS message in DER.
    pub cms: &'a [u8],
}

/// Why a file with the magic has no usable trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TrailerError {
    /// The magic is there, but the file is too short for what the trailer claims.
    #[error(
        "the module's trailer claims a signature of {claimed} bytes, and {available} bytes are \
         before it: the file is damaged; build or sign it again"
    )]
    Length {
        /// The length in the trailer.
        claimed: u64,
        /// How many bytes the file has before its trailer.
        available: u64,
    },
    /// The signature is of a kind that the kernel no longer knows.
    #[error(
        "the module's signature has type {0}, and kernels accept only type 2 (PKCS#7); \
         sign it again with `existing: replace`"
    )]
    IdType(u8),
    /// A byte that must be zero is not.
    #[error(
        "the module's trailer has a reserved byte that is not zero; \
         sign it again with `existing: replace`"
    )]
    Reserved,
}

impl TrailerError {
    /// The error number that the kernel gives.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Length { .. } | Self::Reserved => Errno::BadMessage,
            Self::IdType(_) => Errno::NoPackage,
        }
    }
}

/// Splits a file at its outermost signature, with the kernel's checks in the kernel's order.
///
/// A file without the magic is unsigned: `None`.
///
/// # Errors
/// Returns an error when the file ends with the magic and the kernel would refuse what is before
/// it.
pub fn split(file: &[u8]) -> Result<Option<SignedPayload<'_>>, TrailerError> {
    // The kernel does not take the magic alone for a signature.
    let Some(rest) = file.strip_suffix(MAGIC).filter(|rest| !rest.is_empty()) else {
        return Ok(None);
    };
    let Some((before, header)) = rest.split_last_chunk::<HEADER_SIZE>() else {
        return Err(TrailerError::Length { claimed: 0, available: 0 });
    };
    let [algo, hash, id_type, signer_len, key_id_len, pad1, pad2, pad3, length @ ..] = *header;
    let claimed = u32::from_be_bytes(length);
    let at = usize::try_from(claimed).ok().and_then(|length| before.len().checked_sub(length));
    let Some(at) = at.filter(|at| *at > 0) else {
        let available = before.len() as u64;
        return Err(TrailerError::Length { claimed: claimed.into(), available });
    };
    if id_type != ID_TYPE_PKCS7 {
        return Err(TrailerError::IdType(id_type));
    }
    if [algo, hash, signer_len, key_id_len, pad1, pad2, pad3] != [0; 7] {
        return Err(TrailerError::Reserved);
    }
    let (payload, cms) = before.split_at(at);
    Ok(Some(SignedPayload { payload, cms }))
}

/// The signatures of a file, the outermost first.
///
/// It ends at the first payload that has no sane trailer, because everything before it is the
/// module.
pub fn stack(file: &[u8]) -> impl Iterator<Item = SignedPayload<'_>> {
    let outermost = |file| split(file).ok().flatten();
    std::iter::successors(outermost(file), move |signed| outermost(signed.payload))
        .take(MAX_SIGNATURES)
}

/// The module without any of its signatures.
#[must_use]
pub fn strip(file: &[u8]) -> &[u8] {
    stack(file).last().map_or(file, |innermost| innermost.payload)
}

/// Appends a CMS message and its trailer to a payload.
///
/// # Errors
/// Returns an error for a message of 4 GiB and more, whose length the trailer cannot hold.
pub(crate) fn append(payload: &mut Vec<u8>, cms: &[u8]) -> Result<(), std::num::TryFromIntError> {
    let length = u32::try_from(cms.len())?;
    payload.reserve_exact(cms.len() + TRAILER_SIZE);
    payload.extend_from_slice(cms);
    payload.extend_from_slice(&[0, 0, ID_TYPE_PKCS7, 0, 0, 0, 0, 0]);
    payload.extend_from_slice(&length.to_be_bytes());
    payload.extend_from_slice(MAGIC);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file with one header, as given.
    fn file(payload: &[u8], header: [u8; 12]) -> Vec<u8> {
        [payload, &header, MAGIC].concat()
    }

    fn header(length: u32) -> [u8; 12] {
        let [a, b, c, d] = length.to_be_bytes();
        [0, 0, 2, 0, 0, 0, 0, 0, a, b, c, d]
    }

    #[test]
    fn the_trailer_is_that_of_the_specification() {
        let mut file = b"module".to_vec();
        append(&mut file, &[7; 415]).unwrap();
        let trailer = &file[6 + 415..];
        assert_eq!(trailer[..12], [0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0x9f]);
        assert_eq!(&trailer[12..], b"~Module signature appended~\n");
        assert_eq!(file.len() - 6, 455);
    }

    #[test]
    fn refusals_are_those_of_the_kernel() {
        let length = |claimed, available| Err(TrailerError::Length { claimed, available });
        let with = |at: usize, value: u8| {
            let mut header = header(2);
            header[at] = value;
            file(b"mcc", header)
        };
        let signed = SignedPayload { payload: b"m", cms: b"cc" };
        let table = [
            // why                               file                             expected
            ("an unsigned file", b"module".to_vec(), Ok(None)),
            ("an empty file", Vec::new(), Ok(None)),
            ("the magic alone", MAGIC.to_vec(), Ok(None)),
            ("a signed file", file(b"mcc", header(2)), Ok(Some(signed))),
            ("magic after too little", [b"abc", &MAGIC[..]].concat(), length(0, 0)),
            ("nothing but a signature", file(b"cc", header(2)), length(2, 2)),
            ("a length beyond the file", file(b"mcc", header(4)), length(4, 3)),
            ("the largest length", file(b"mcc", header(u32::MAX)), length(u32::MAX.into(), 3)),
            ("algo", with(0, 1), Err(TrailerError::Reserved)),
            ("hash", with(1, 4), Err(TrailerError::Reserved)),
            ("an X.509 signature", with(2, 1), Err(TrailerError::IdType(1))),
            ("signer_len", with(3, 1), Err(TrailerError::Reserved)),
            ("key_id_len", with(4, 1), Err(TrailerError::Reserved)),
            ("padding", with(7, 1), Err(TrailerError::Reserved)),
            ("cut magic", file(b"mcc", header(2))[..42].to_vec(), Ok(None)),
        ];
        for (why, file, expected) in table {
            assert_eq!(split(&file), expected, "{why}");
        }
        assert_eq!(TrailerError::Reserved.errno().number(), 74);
        assert_eq!(TrailerError::IdType(1).errno(), Errno::NoPackage);
        assert_eq!(TrailerError::Length { claimed: 1, available: 1 }.errno(), Errno::BadMessage);
    }

    #[test]
    fn kms_55_a_stack_is_walked_from_the_end() {
        let mut file = b"module".to_vec();
        append(&mut file, b"inner").unwrap();
        let once = file.clone();
        append(&mut file, b"outer").unwrap();
        let signed: Vec<_> = stack(&file).collect();
        assert_eq!(signed[0], SignedPayload { payload: &once, cms: b"outer" });
        assert_eq!(signed[1], SignedPayload { payload: b"module", cms: b"inner" });
        assert_eq!(signed.len(), 2);
        assert_eq!(strip(&file), b"module");
        assert_eq!(strip(b"module"), b"module");
    }

    proptest! {
        #[test]
        fn what_is_appended_is_split_off(payload in prop::collection::vec(any::<u8>(), 1..200),
                                         cms in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut file = payload.clone();
            append(&mut file, &cms).unwrap();
            prop_assert_eq!(split(&file), Ok(Some(SignedPayload { payload: &payload, cms: &cms })));
        }

        #[test]
        fn no_file_panics(mut file in prop::collection::vec(any::<u8>(), 0..100), signed: bool) {
            if signed {
                file.extend_from_slice(MAGIC);
            }
            let _ = split(&file);
            prop_assert!(strip(&file).len() <= file.len());
        }
    }
}
