//! RSA signatures equal those of `sign-file`, byte for byte.

use gantry_kmod::cms::IdentifyBy;
use gantry_kmod::{
    Certificate, Digest, ExistingSignatures, PrivateKey, SignOutcome, Signer, SignerOptions,
    sign_module,
};

use crate::{certificate, fixture, key, signer, signer_with};

fn signed(signer: &Signer, module: &[u8]) -> Vec<u8> {
    match sign_module(module, signer, ExistingSignatures::Append).unwrap() {
        SignOutcome::Signed { file, warnings } if warnings.is_empty() => file,
        other => panic!("{other:?}"),
    }
}

#[test]
fn kms_51_every_digest_size_and_encoding_gives_the_bytes_of_sign_file() {
    let module = fixture("sample.ko");
    let mut compared = 0;
    for bits in ["rsa2048", "rsa3072", "rsa4096"] {
        for digest in [Digest::Sha256, Digest::Sha384, Digest::Sha512] {
            let expected = fixture(&format!("signed/{bits}.{digest}.ko"));
            for key in ["pkcs1", "pkcs8"] {
                for certificate in ["pem", "der"] {
                    let key = fixture(&format!("keys/{bits}.{key}.pem"));
                    let key = PrivateKey::parse(&key, None).unwrap();
                    let certificate = fixture(&format!("certificates/{bits}.{certificate}"));
                    let certificate = Certificate::parse(&certificate).unwrap();
                    let options = SignerOptions { digest, ..SignerOptions::default() };
                    let signer = Signer::new(key, certificate, options).unwrap();
                    assert!(signed(&signer, &module) == expected, "{bits} {digest}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 36);
}

#[test]
fn kms_51_the_key_identifier_variant_is_that_of_sign_file() {
    let options =
        SignerOptions { identify_by: IdentifyBy::KeyIdentifier, ..SignerOptions::default() };
    let signer = signer_with("rsa2048", options);
    assert!(signed(&signer, &fixture("sample.ko")) == fixture("signed/keyid.ko"));
}

#[test]
fn kms_53_the_signer_of_an_issued_certificate_is_its_issuer() {
    let signer =
        Signer::new(key("rsa2048"), certificate("issued"), SignerOptions::default()).unwrap();
    assert!(signed(&signer, &fixture("sample.ko")) == fixture("signed/issued.ko"));
}

#[test]
fn kms_55_a_signature_on_top_is_that_of_sign_file() {
    let once = fixture("signed/rsa3072.sha512.ko");
    assert!(signed(&signer("rsa2048"), &once) == fixture("signed/stacked.ko"));
}
