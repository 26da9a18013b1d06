//! Writes the variables of the firmware: which certificates it trusts, and whether Secure Boot is
//! on. Kernels take the certificates of `db` over into their platform keyring, also without Secure
//! Boot, and Debian's trust that keyring for modules.
//!
//! The layout is that of EDK II: a firmware volume, a store in it, and one header, name and value
//! after another.

/// Where the store of variables begins: after the header of the volume.
const STORE: usize = 0x48;

/// The length of the store's own header.
const STORE_HEADER: usize = 28;

/// The identifier of a store whose variables may be signed, and of the format written here.
const AUTHENTICATED_STORE: &str = "aaf32c78-947b-439a-a180-2e144ec37792";

const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
const IMAGE_SECURITY: &str = "d719b2cb-3d3a-4596-a3bc-dad00e67656f";
const SECURE_BOOT_ENABLE: &str = "f0a30bc7-af08-4556-99c4-001009c93a44";
const CUSTOM_MODE: &str = "c076ec0c-7028-4399-a072-71ee5c448b9f";

/// The type of a signature list that has certificates.
const X509: &str = "a5c059a1-94e4-4aa7-87b5-ab155c2bf072";

/// The owner that entries of ours name; any identifier does.
const OWNER: &str = "6f1a3c58-2d7e-4b90-8a41-9c05e7d2b36f";

/// Kept over a restart, and visible to the firmware.
const BOOT_ONLY: u32 = 0b11;

/// Also visible to the running system, and only changed by signed writes.
const SIGNED_WRITES: u32 = 0b10_0111;

/// The settings of the firmware.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// The certificates in `db`, as DER.
    pub(super) trusted: Vec<Vec<u8>>,
    /// The certificate that owns the machine, as DER. With it Secure Boot is on.
    pub(super) owner: Option<Vec<u8>>,
}

/// Returns the store with variables for these settings, made from an empty one.
pub(super) fn with_settings(empty: &[u8], settings: &Settings) -> Result<Vec<u8>, FirmwareError> {
    let mut image = empty.to_vec();
    let header = image.get(STORE..STORE + STORE_HEADER).ok_or(FirmwareError::NoStore)?;
    if header[..16] != guid(AUTHENTICATED_STORE) {
        return Err(FirmwareError::NoStore);
    }
    let length = u32::from_le_bytes(header[16..20].try_into().map_err(|_| FirmwareError::NoStore)?);
    let end = STORE + usize::try_from(length).map_err(|_| FirmwareError::NoStore)?;
    let start = STORE + STORE_HEADER;
    let free = image.get(start..end).ok_or(FirmwareError::NoStore)?;
    if free.iter().any(|byte| *byte != 0xff) {
        return Err(FirmwareError::NotEmpty);
    }
    let variables = variables(settings);
    if variables.len() > free.len() {
        return Err(FirmwareError::Full { wanted: variables.len(), free: free.len() });
    }
    image[start..start + variables.len()].copy_from_slice(&variables);
    Ok(image)
}

fn variables(settings: &Settings) -> Vec<u8> {
    let mut written = Vec::new();
    let list = |certificates: &[Vec<u8>]| -> Vec<u8> {
        certificates.iter().flat_map(|certificate| signature_list(certificate)).collect()
    };
    if let Some(owner) = &settings.owner {
        let owner = list(std::slice::from_ref(owner));
        append(&mut written, "PK", GLOBAL, SIGNED_WRITES, &owner);
        append(&mut written, "KEK", GLOBAL, SIGNED_WRITES, &owner);
        append(&mut written, "SecureBootEnable", SECURE_BOOT_ENABLE, BOOT_ONLY, &[1]);
        append(&mut written, "CustomMode", CUSTOM_MODE, BOOT_ONLY, &[0]);
    }
    if !settings.trusted.is_empty() {
        let trusted = list(&settings.trusted);
        append(&mut written, "db", IMAGE_SECURITY, SIGNED_WRITES, &trusted);
    }
    written
}

/// A list of one certificate: all entries of a list have the same length, certificates do not.
fn signature_list(certificate: &[u8]) -> Vec<u8> {
    let entry = 16 + certificate.len();
    let mut list = guid(X509).to_vec();
    list.extend(length(28 + entry));
    list.extend(length(0));
    list.extend(length(entry));
    list.extend(guid(OWNER));
    list.extend(certificate);
    list
}

fn append(store: &mut Vec<u8>, name: &str, vendor: &str, attributes: u32, value: &[u8]) {
    let name: Vec<u8> = name.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    // The mark of a header, the state of a valid variable, and a byte that is not used.
    store.extend([0xaa, 0x55, 0x3f, 0]);
    store.extend(attributes.to_le_bytes());
    // No count, no time and no key of a signed write: nothing wrote it but we.
    store.extend([0; 8 + 16 + 4]);
    store.extend(length(name.len()));
    store.extend(length(value.len()));
    store.extend(guid(vendor));
    store.extend(name);
    store.extend(value);
    store.resize(store.len().next_multiple_of(4), 0xff);
}

/// A length as the store has it. One that does not fit cannot be written, and the store is then too
/// small anyway.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

/// An identifier as firmware has it: the first three groups little-endian.
fn guid(text: &str) -> [u8; 16] {
    let number = u128::from_str_radix(&text.replace('-', ""), 16).unwrap_or_default();
    let mut bytes = number.to_be_bytes();
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

/// Why the firmware's variables cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum FirmwareError {
    /// The file has another format.
    #[error("cannot find a store of variables in the firmware's file")]
    NoStore,
    /// Variables are only written to an empty store.
    #[error("cannot add variables: the firmware's file has some already")]
    NotEmpty,
    /// The certificates take more than there is.
    #[error("cannot put {wanted} bytes of variables into {free} bytes: use fewer certificates")]
    Full {
        /// How many bytes the variables have.
        wanted: usize,
        /// How many bytes are free.
        free: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty store with so many bytes for variables.
    fn empty(free: usize) -> Vec<u8> {
        let mut image = vec![0; STORE];
        image.extend(guid(AUTHENTICATED_STORE));
        image.extend(length(STORE_HEADER + free));
        image.extend([0x5a, 0xfe, 0, 0, 0, 0, 0, 0]);
        image.resize(STORE + STORE_HEADER + free + 100, 0xff);
        image
    }

    #[test]
    fn identifiers_are_written_as_firmware_has_them() {
        let expected = *b"\xcb\xb2\x19\xd7\x3a\x3d\x96\x45\xa3\xbc\xda\xd0\x0e\x67\x65\x6f";
        assert_eq!(guid(IMAGE_SECURITY), expected);
    }

    #[test]
    fn a_certificate_is_put_in_db() {
        let settings = Settings { trusted: vec![vec![7; 5]], owner: None };
        let image = with_settings(&empty(200), &settings).unwrap();
        let variable = &image[STORE + STORE_HEADER..];
        assert_eq!(variable[..8], [0xaa, 0x55, 0x3f, 0, 0x27, 0, 0, 0]);
        assert_eq!(variable[36..44], [6, 0, 0, 0, 28 + 16 + 5, 0, 0, 0], "lengths");
        assert_eq!(variable[44..60], guid(IMAGE_SECURITY));
        assert_eq!(&variable[60..66], b"d\0b\0\0\0");
        assert_eq!(variable[66..82], guid(X509));
        assert_eq!(variable[82..94], [49, 0, 0, 0, 0, 0, 0, 0, 21, 0, 0, 0]);
        assert_eq!(variable[110..115], [7; 5]);
        assert!(variable[115..].iter().all(|byte| *byte == 0xff));
        assert_eq!(image.len(), empty(200).len());
    }

    #[test]
    fn secure_boot_is_on_with_an_owner_only() {
        let name =
            |name: &str| -> Vec<u8> { name.encode_utf16().flat_map(u16::to_le_bytes).collect() };
        for (owner, expected) in [(None, false), (Some(vec![1]), true)] {
            let image = with_settings(&empty(1000), &Settings { trusted: vec![], owner }).unwrap();
            for variable in ["PK", "KEK", "SecureBootEnable", "CustomMode"] {
                let wanted = name(variable);
                let found = image.windows(wanted.len()).any(|window| window == wanted);
                assert_eq!(found, expected, "{variable}");
            }
        }
    }

    #[test]
    fn other_files_are_refused() {
        let settings = Settings { trusted: vec![vec![0; 200]], owner: None };
        let mut used = empty(400);
        used[STORE + STORE_HEADER] = 0xaa;
        let mut long = empty(400);
        long[STORE + 16..STORE + 20].fill(0xff);
        let table = [
            ("no bytes", vec![], "cannot find a store of variables in the firmware's file"),
            ("zeros", vec![0; 1000], "cannot find a store of variables in the firmware's file"),
            ("too long", long, "cannot find a store of variables in the firmware's file"),
            ("used", used, "cannot add variables: the firmware's file has some already"),
            (
                "small",
                empty(100),
                "cannot put 312 bytes of variables into 100 bytes: use fewer certificates",
            ),
        ];
        for (why, image, expected) in table {
            let error = with_settings(&image, &settings).unwrap_err().to_string();
            assert_eq!(error, expected, "{why}");
        }
    }
}
