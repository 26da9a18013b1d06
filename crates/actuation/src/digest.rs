//! Digests in the encodings that annotations and IDs have.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The SHA-256 of these parts in base64 without padding.
#[must_use]
pub fn base64_sha256(parts: &[&str]) -> String {
    STANDARD_NO_PAD.encode(sha256(parts))
}

/// The same in the alphabet of URLs.
#[must_use]
pub fn url_base64_sha256(parts: &[&str]) -> String {
    URL_SAFE_NO_PAD.encode(sha256(parts))
}

/// The same in hexadecimal digits.
#[must_use]
pub fn hex_sha256(parts: &[&str]) -> String {
    sha256(parts).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(parts: &[&str]) -> Vec<u8> {
    digest(&SHA256, parts.concat().as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex_sha256(&["a", "bc"]), hex);
        assert_eq!(base64_sha256(&["abc"]), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0");
        assert_eq!(url_base64_sha256(&["abc"]), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0");
    }
}
