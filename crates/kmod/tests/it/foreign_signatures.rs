//! Signatures of other tools are read and verified as `modinfo` and kernels do.

use gantry_kmod::cms::IdentifyBy;
use gantry_kmod::module::SignatureInfo;
use gantry_kmod::signer::{SignerError, SignerWarning};
use gantry_kmod::verify::{Enforcement, VerifyError};
use gantry_kmod::{Digest, Errno, Signer, SignerOptions, WeakDigests, signature, verify_module};

use crate::{certificate, fixture, key, signer, signer_with};

/// A field in the output of `modinfo`, with its continued lines joined.
fn modinfo(name: &str, field: &str) -> Option<String> {
    let text = String::from_utf8(fixture(&format!("signed/{name}.modinfo"))).unwrap();
    let text = text.replace("\n\t\t", "");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")))?;
    Some(line.trim().to_owned())
}

const SIGNED: [&str; 20] = [
    "rsa2048.sha256",
    "rsa2048.sha384",
    "rsa2048.sha512",
    "rsa3072.sha256",
    "rsa3072.sha384",
    "rsa3072.sha512",
    "rsa4096.sha256",
    "rsa4096.sha384",
    "rsa4096.sha512",
    "p256.sha256",
    "p256.sha384",
    "p256.sha512",
    "p384.sha256",
    "p384.sha384",
    "p384.sha512",
    "issued",
    "stacked",
    "sha1",
    "sha224",
    "attributes",
];

#[test]
fn signature_fields_are_those_of_modinfo() {
    for name in SIGNED {
        let info = SignatureInfo::of(&fixture(&format!("signed/{name}.ko"))).unwrap();
        assert_eq!(Some(info.sig_id.to_owned()), modinfo(name, "sig_id"), "{name}");
        assert_eq!(info.signer, modinfo(name, "signer"), "{name}");
        assert_eq!(Some(info.sig_key), modinfo(name, "sig_key"), "{name}");
        assert_eq!(Some(info.sig_hashalgo.to_string()), modinfo(name, "sig_hashalgo"), "{name}");
        assert_eq!(Some(info.signature), modinfo(name, "signature"), "{name}");
    }
    let by_key = SignatureInfo::of(&fixture("signed/keyid.ko")).unwrap();
    assert_eq!((by_key.signer, modinfo("keyid", "sig_id")), (None, None));
    assert_eq!(by_key.sig_key.len(), 59);
    assert_eq!(SignatureInfo::of(&fixture("sample.ko")), None);
    assert_eq!(SignatureInfo::of(&fixture("signed/stacked.ko")).unwrap().count, 2);
}

#[test]
fn kms_52_signatures_of_others_verify() {
    let trusted = ["rsa2048", "rsa3072", "rsa4096", "p256", "p384", "issued"].map(certificate);
    for name in SIGNED.into_iter().chain(["keyid"]) {
        let file = fixture(&format!("signed/{name}.ko"));
        let verified = verify_module(&file, &trusted, WeakDigests::Refuse);
        match name {
            "sha1" => assert!(matches!(verified, Err(VerifyError::WeakDigest(Digest::Sha1)))),
            "sha224" => assert!(matches!(verified, Err(VerifyError::WeakDigest(Digest::Sha224)))),
            "attributes" => assert!(matches!(verified, Err(VerifyError::Attributes))),
            _ => {
                let subject = verified.unwrap_or_else(|error| panic!("{name}: {error}")).subject();
                let expected = match name.split('.').next().unwrap() {
                    "issued" => "CN=issued leaf",
                    "stacked" | "keyid" => "CN=rsa2048",
                    other => &format!("CN={other}"),
                };
                assert!(subject.contains(expected), "{name}: {subject}");
            }
        }
    }
}

#[test]
fn weak_digests_may_be_allowed() {
    let trusted = [certificate("rsa2048")];
    let sha1 = fixture("signed/sha1.ko");
    verify_module(&sha1, &trusted, WeakDigests::Allow).unwrap();
    // The library verifies no SHA-224 with RSA, and says so.
    let sha224 = verify_module(&fixture("signed/sha224.ko"), &trusted, WeakDigests::Allow);
    assert!(matches!(sha224, Err(VerifyError::Unsupported(Digest::Sha224))), "{sha224:?}");
    let options =
        |digest, weak_digests| SignerOptions { digest, weak_digests, ..SignerOptions::default() };
    for digest in [Digest::Sha1, Digest::Sha224] {
        let make = |name, weak| Signer::new(key(name), certificate(name), options(digest, weak));
        let refused = make("p256", WeakDigests::Refuse).unwrap_err();
        assert_eq!(refused, SignerError::WeakDigest(digest));
        let allowed = make("p256", WeakDigests::Allow).unwrap();
        let warnings = allowed.warnings("2026-12-01T00:00:00Z".parse().unwrap());
        assert!(warnings.contains(&SignerWarning::WeakDigest(digest)), "{warnings:?}");
        let rsa = make("rsa2048", WeakDigests::Allow).unwrap_err();
        assert!(matches!(rsa, SignerError::UnsupportedDigest { .. }), "{rsa}");
    }
}

#[test]
fn kms_53_the_authority_of_an_issued_certificate_is_not_enough() {
    let file = fixture("signed/issued.ko");
    let authority = [certificate("authority")];
    let refused = verify_module(&file, &authority, WeakDigests::Refuse);
    let error = refused.unwrap_err();
    assert!(matches!(error, VerifyError::UnknownSigner { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("\"Gantry test authority\" (serial C0:FF:EE:00:00:00:01)"), "{error}");
    // The same key under another certificate: the signature names that certificate, not the key.
    let same_key = [certificate("rsa2048")];
    let refused = verify_module(&file, &same_key, WeakDigests::Refuse);
    assert!(matches!(refused, Err(VerifyError::UnknownSigner { .. })));
}

#[test]
fn kernels_refuse_with_the_measured_words() {
    let ours = [certificate("rsa2048")];
    let good = fixture("signed/rsa2048.sha256.ko");
    let changed = |at: usize, value: u8| {
        let mut file = good.clone();
        file[at] = value;
        file
    };
    let header = good.len() - signature::TRAILER_SIZE;
    let rejected = Some((Errno::KeyRejected, ""));
    let stacked_others = {
        let mut file = good.clone();
        let other = fixture("signed/p256.sha256.ko");
        file.extend_from_slice(&other[fixture("sample.ko").len()..]);
        file
    };
    let table = [
        // why                       file                            off   lockdown   enforce
        (
            "unsigned",
            fixture("sample.ko"),
            None,
            Some((Errno::NotPermitted, "unsigned module loading is restricted")),
            Some((Errno::KeyRejected, "Loading of unsigned module is rejected")),
        ),
        (
            "not enrolled",
            fixture("signed/p256.sha256.ko"),
            None,
            Some((Errno::NotPermitted, "unsigned module loading is restricted")),
            Some((Errno::KeyRejected, "Loading of module with unavailable key is rejected")),
        ),
        (
            "another's signature on top",
            stacked_others,
            None,
            Some((Errno::NotPermitted, "unsigned module loading is restricted")),
            Some((Errno::KeyRejected, "Loading of module with unavailable key is rejected")),
        ),
        ("one byte changed", changed(700, 1), rejected, rejected, rejected),
        (
            "algo not zero",
            changed(header, 1),
            Some((Errno::BadMessage, "non-zero params")),
            Some((Errno::BadMessage, "non-zero params")),
            Some((Errno::BadMessage, "non-zero params")),
        ),
        (
            "id_type 1",
            changed(header + 2, 1),
            None,
            Some((Errno::NotPermitted, "unsigned module loading is restricted")),
            Some((Errno::KeyRejected, "unsupported crypto is rejected")),
        ),
        (
            "sig_len too large",
            changed(header + 8, 1),
            Some((Errno::BadMessage, "")),
            Some((Errno::BadMessage, "")),
            Some((Errno::BadMessage, "")),
        ),
        (
            "signed attributes",
            fixture("signed/attributes.ko"),
            Some((Errno::KeyRejected, "has authattrs")),
            Some((Errno::KeyRejected, "has authattrs")),
            Some((Errno::KeyRejected, "has authattrs")),
        ),
    ];
    for (why, file, off, lockdown, enforce) in table {
        let error = verify_module(&file, &ours, WeakDigests::Refuse).unwrap_err();
        let kernels = [
            (Enforcement::Off, off),
            (Enforcement::Lockdown, lockdown),
            (Enforcement::Enforce, enforce),
        ];
        for (enforcement, expected) in kernels {
            let refusal = error.kernel_refusal(enforcement);
            assert_eq!(
                refusal.map(|it| it.errno),
                expected.map(|it| it.0),
                "{why}, {enforcement:?}: {error}"
            );
            if let (Some(refusal), Some((_, words))) = (refusal, expected) {
                assert!(refusal.log.unwrap_or("").contains(words), "{why}: {refusal:?}");
                assert_eq!(refusal.log.is_none(), words.is_empty(), "{why}: {refusal:?}");
            }
        }
    }
}

#[test]
fn kms_54_a_key_of_another_certificate_is_refused() {
    for (name, other) in [("rsa2048", "rsa3072"), ("p256", "p384"), ("rsa2048", "p256")] {
        let error = Signer::new(key(name), certificate(other), SignerOptions::default());
        let error = error.unwrap_err();
        assert!(matches!(error, SignerError::Mismatch { .. }), "{name} {other}");
        assert!(error.to_string().contains("keySecret"), "{error}");
    }
}

#[test]
fn a_key_identifier_needs_its_extension() {
    let options =
        SignerOptions { identify_by: IdentifyBy::KeyIdentifier, ..SignerOptions::default() };
    let error = Signer::new(key("p256"), certificate("p256-plain"), options).unwrap_err();
    assert_eq!(error, SignerError::NoKeyIdentifier);
    Signer::new(key("p256"), certificate("p256-plain"), SignerOptions::default()).unwrap();
}

#[test]
fn signers_warn_of_kernels_dates_and_authorities() {
    let now = "2026-12-01T00:00:00Z".parse().unwrap();
    assert_eq!(signer("rsa2048").warnings(now), []);
    let digest = |digest| SignerOptions { digest, ..SignerOptions::default() };
    let sha512 = signer_with("rsa2048", digest(Digest::Sha512)).warnings(now);
    assert_eq!(sha512, [SignerWarning::DigestNotInEveryKernel(Digest::Sha512)]);
    assert!(sha512[0].to_string().contains("kernels before 6.7"), "{}", sha512[0]);
    assert_eq!(signer("p256").warnings(now), [SignerWarning::EcdsaNotInEveryKernel]);
    let issued = Signer::new(key("rsa2048"), certificate("issued"), SignerOptions::default());
    assert_eq!(issued.unwrap().warnings(now), [SignerWarning::IssuedCertificate]);
    let late = signer("rsa2048").warnings("2999-01-01T00:00:00Z".parse().unwrap());
    assert!(matches!(late[..], [SignerWarning::Expired(_)]), "{late:?}");
    let early = signer("rsa2048").warnings("1999-01-01T00:00:00Z".parse().unwrap());
    assert!(matches!(early[..], [SignerWarning::NotYetValid(_)]), "{early:?}");
}

#[test]
fn neither_keys_nor_signers_are_printed() {
    let text = format!("{:?}", signer("p256"));
    assert!(text.contains("PrivateKey(P-256)"), "{text}");
    let pem = String::from_utf8(fixture("keys/p256.pkcs8.pem")).unwrap();
    let secret = pem.lines().nth(1).unwrap();
    assert!(!text.contains(&secret[..16]), "{text}");
    assert!(text.len() < 500, "{text}");
}
