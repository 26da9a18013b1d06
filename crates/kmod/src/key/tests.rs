use super::*;
use crate::certificate::Certificate;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/fixtures/", $name))
    };
}

const PASSPHRASE: &[u8] = b"correct horse";

#[test]
fn every_encoding_of_a_key_is_read() {
    let rsa2048 = &fixture!("certificates/rsa2048.pem")[..];
    let p256 = &fixture!("certificates/p256.pem")[..];
    let p384 = &fixture!("certificates/p384.pem")[..];
    let table: [(&str, &[u8], &[u8], KeyAlgorithm); 15] = [
        ("PKCS#8", fixture!("keys/rsa2048.pkcs8.pem"), rsa2048, KeyAlgorithm::Rsa(2048)),
        ("PKCS#1", fixture!("keys/rsa2048.pkcs1.pem"), rsa2048, KeyAlgorithm::Rsa(2048)),
        ("PKCS#8 DER", fixture!("keys/rsa2048.pkcs8.der"), rsa2048, KeyAlgorithm::Rsa(2048)),
        ("PKCS#1 DER", fixture!("keys/rsa2048.pkcs1.der"), rsa2048, KeyAlgorithm::Rsa(2048)),
        ("AES-256", fixture!("keys/rsa2048.encrypted.pem"), rsa2048, KeyAlgorithm::Rsa(2048)),
        ("AES-128 DER", fixture!("keys/rsa2048.encrypted.der"), rsa2048, KeyAlgorithm::Rsa(2048)),
        (
            "3072",
            fixture!("keys/rsa3072.pkcs1.pem"),
            fixture!("certificates/rsa3072.der"),
            KeyAlgorithm::Rsa(3072),
        ),
        (
            "4096",
            fixture!("keys/rsa4096.pkcs8.pem"),
            fixture!("certificates/rsa4096.der"),
            KeyAlgorithm::Rsa(4096),
        ),
        ("P-256 PKCS#8", fixture!("keys/p256.pkcs8.pem"), p256, KeyAlgorithm::P256),
        ("P-256 SEC1 with parameters", fixture!("keys/p256.sec1.pem"), p256, KeyAlgorithm::P256),
        ("P-256 SEC1 DER", fixture!("keys/p256.sec1.der"), p256, KeyAlgorithm::P256),
        ("P-256 AES-192", fixture!("keys/p256.encrypted.pem"), p256, KeyAlgorithm::P256),
        ("P-384 PKCS#8", fixture!("keys/p384.pkcs8.pem"), p384, KeyAlgorithm::P384),
        ("P-384 PKCS#8 DER", fixture!("keys/p384.pkcs8.der"), p384, KeyAlgorithm::P384),
        ("P-384 SEC1", fixture!("keys/p384.sec1.pem"), p384, KeyAlgorithm::P384),
    ];
    for (why, file, certificate, algorithm) in table {
        let key =
            PrivateKey::parse(file, Some(PASSPHRASE)).unwrap_or_else(|e| panic!("{why}: {e}"));
        assert_eq!(key.algorithm(), algorithm, "{why}");
        let certificate = Certificate::parse(certificate).unwrap();
        assert!(certificate.public_key().is_of(&key), "{why}");
        assert_eq!(format!("{key:?}"), format!("PrivateKey({algorithm})"), "{why}");
    }
}

/// Why, the file, the passphrase, and the error.
type RefusedKey<'a> = (&'a str, &'a [u8], Option<&'a [u8]>, KeyError);

#[test]
fn keys_that_cannot_be_used_are_refused_with_a_remedy() {
    let large = vec![b'-'; MAX_FILE_SIZE + 1];
    let damaged = b"-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----";
    let table: [RefusedKey<'_>; 14] = [
        ("nothing", b"", None, KeyError::NoKey),
        ("a certificate", fixture!("certificates/p256.pem"), None, KeyError::NoKey),
        ("a certificate in DER", fixture!("certificates/p256.der"), None, KeyError::Damaged),
        ("not text", b"\xff\xfe", None, KeyError::NoKey),
        ("cut", damaged, None, KeyError::Damaged),
        ("too large", &large, None, KeyError::TooLarge(MAX_FILE_SIZE + 1)),
        ("1024 bits", fixture!("keys/rsa1024.pkcs1.pem"), None, KeyError::TooShort),
        (
            "P-521",
            fixture!("keys/p521.pkcs8.pem"),
            None,
            KeyError::Algorithm("elliptic curve 1.3.132.0.35".to_owned()),
        ),
        (
            "P-521 in SEC1",
            fixture!("keys/p521.sec1.pem"),
            None,
            KeyError::Algorithm("elliptic curve 1.3.132.0.35".to_owned()),
        ),
        (
            "no passphrase",
            fixture!("keys/rsa2048.encrypted.pem"),
            None,
            KeyError::PassphraseMissing,
        ),
        (
            "no passphrase, DER",
            fixture!("keys/rsa2048.encrypted.der"),
            None,
            KeyError::PassphraseMissing,
        ),
        (
            "wrong passphrase",
            fixture!("keys/rsa2048.encrypted.pem"),
            Some(b"wrong"),
            KeyError::WrongPassphrase,
        ),
        (
            "scrypt",
            fixture!("keys/p256.scrypt.pem"),
            Some(PASSPHRASE),
            KeyError::Encryption("key derivation 1.3.6.1.4.1.11591.4.11".to_owned()),
        ),
        (
            "from before PKCS#8",
            fixture!("keys/rsa2048.traditional-encrypted.pem"),
            Some(PASSPHRASE),
            KeyError::Encryption("the encryption from before PKCS#8".to_owned()),
        ),
    ];
    for (why, file, passphrase, expected) in table {
        assert_eq!(PrivateKey::parse(file, passphrase).unwrap_err(), expected, "{why}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn no_file_panics(at: proptest::sample::Index, value: u8, length: proptest::sample::Index) {
        let mut der = fixture!("keys/p256.sec1.der").to_vec();
        let changed = at.index(der.len());
        der[changed] = value;
        let _ = PrivateKey::parse(&der, None);
        let _ = PrivateKey::parse(&der[..length.index(der.len())], None);
        let mut der = fixture!("keys/p384.pkcs8.der").to_vec();
        let changed = at.index(der.len());
        der[changed] = value;
        let _ = PrivateKey::parse(&der, None);
    }
}

/// Secrets are written by many tools and by hand.
#[test]
fn a_key_is_read_in_every_form_of_pem() {
    let key = std::str::from_utf8(include_bytes!("../../tests/fixtures/keys/rsa2048.pkcs8.pem"));
    let key = key.unwrap();
    let lines: Vec<&str> = key.lines().collect();
    let (first, last) = (lines[0], lines[lines.len() - 1]);
    let body = lines[1..lines.len() - 1].concat();
    let wide: Vec<&str> =
        body.as_bytes().chunks(76).map(|it| std::str::from_utf8(it).unwrap()).collect();
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let forms = [
        ("as written", key.to_owned()),
        ("with CRLF", key.replace('\n', "\r\n")),
        ("after text", format!("Bag Attributes\n  localKeyID: 01\n{key}")),
        ("after a certificate", format!("{certificate}{key}")),
        ("indented", format!("  {}", key.replace('\n', "\n  "))),
        ("in one line", format!("{first}\n{body}\n{last}\n")),
        ("in lines of 76", format!("{first}\n{}\n{last}\n", wide.join("\n"))),
        ("with blank lines", key.replace('\n', "\n\n")),
        ("with trailing spaces", key.replace('\n', " \n")),
    ];
    for (form, text) in forms {
        assert!(PrivateKey::parse(text.as_bytes(), None).is_ok(), "{form}");
    }
}
