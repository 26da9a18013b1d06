//! Signatures: ours in the eyes of others, and theirs in ours.

use std::path::Path;

use gantry_kmod::cms::IdentifyBy;
use gantry_kmod::module::SignatureInfo;
use gantry_kmod::{
    Certificate, Digest, ExistingSignatures, ModuleInfo, PrivateKey, SignOutcome, Signer,
    SignerOptions, WeakDigests, sign_module, verify_module,
};

use crate::tools::{NAMES, Workbench, installed, need, output, sign_file};

const DIGESTS: [Digest; 3] = [Digest::Sha256, Digest::Sha384, Digest::Sha512];

const IDENTIFIERS: [IdentifyBy; 2] = [IdentifyBy::IssuerAndSerial, IdentifyBy::KeyIdentifier];

fn options(digest: Digest, identify_by: IdentifyBy) -> SignerOptions {
    SignerOptions { digest, identify_by, ..SignerOptions::default() }
}

fn signed(module: &[u8], signer: &Signer) -> Vec<u8> {
    match sign_module(module, signer, ExistingSignatures::Append).unwrap() {
        SignOutcome::Signed { file, .. } => file,
        other => panic!("{other:?}"),
    }
}

/// The module signed by `sign-file`.
fn theirs(
    bench: &Workbench,
    sign_file: &Path,
    (digest, identify_by): (Digest, IdentifyBy),
    (key, certificate): (&str, &str),
    module: &str,
) -> Vec<u8> {
    let by_key: &[&str] = match identify_by {
        IdentifyBy::IssuerAndSerial => &[],
        IdentifyBy::KeyIdentifier => &["-k"],
    };
    let rest = [digest.name(), key, certificate, module, "theirs.ko"];
    output(bench.folder(), sign_file, &[by_key, &rest[..]].concat());
    bench.read("theirs.ko")
}

#[test]
fn kms_51_rsa_signatures_have_the_bytes_of_sign_file() {
    need!(installed("openssl"), sign_file());
    let (bench, sign_file) =
        (Workbench::new(&["rsa2048", "rsa3072", "rsa4096"]), sign_file().unwrap());
    let module = bench.read("m.ko");
    for name in ["rsa2048", "rsa3072", "rsa4096"] {
        for digest in DIGESTS {
            for identify_by in IDENTIFIERS {
                for key in ["key", "pkcs1"] {
                    for form in ["pem", "der"] {
                        let (key, form) = (format!("{name}.{key}"), format!("{name}.{form}"));
                        let how = (digest, identify_by);
                        let expected = theirs(&bench, &sign_file, how, (&key, &form), "m.ko");
                        let key = PrivateKey::parse(&bench.read(&key), None).unwrap();
                        let certificate = Certificate::parse(&bench.read(&form)).unwrap();
                        let signer = Signer::new(key, certificate, options(digest, identify_by));
                        let ours = signed(&module, &signer.unwrap());
                        assert!(ours == expected, "{name} {digest} {identify_by:?} {form}");
                    }
                }
            }
        }
    }
}

#[test]
fn kms_53_issued_certificates_and_stacks_have_the_bytes_of_sign_file() {
    need!(installed("openssl"), sign_file());
    let (bench, sign_file) = (Workbench::new(&["issued", "rsa3072"]), sign_file().unwrap());
    for identify_by in IDENTIFIERS {
        let how = (Digest::Sha256, identify_by);
        let pair = ("issued.key", "issued.pem");
        let expected = theirs(&bench, &sign_file, how, pair, "m.ko");
        let issued = bench.signer("issued", options(Digest::Sha256, identify_by));
        let ours = signed(&bench.read("m.ko"), &issued);
        assert!(ours == expected, "{identify_by:?}");

        bench.write("once.ko", &ours);
        let pair = ("rsa3072.key", "rsa3072.pem");
        let expected = theirs(&bench, &sign_file, how, pair, "once.ko");
        let second = bench.signer("rsa3072", options(Digest::Sha256, identify_by));
        assert!(signed(&ours, &second) == expected, "stacked, {identify_by:?}");
    }
}

#[test]
fn kms_52_openssl_verifies_every_signature_of_ours() {
    need!(installed("openssl"));
    let bench = Workbench::new(&NAMES);
    let module = bench.read("m.ko");
    for name in NAMES {
        for digest in DIGESTS {
            for identify_by in IDENTIFIERS {
                let what = format!("{name} {digest} {identify_by:?}");
                let certificate = format!("{name}.pem");
                let mut file = signed(&module, &bench.signer(name, options(digest, identify_by)));
                assert!(bench.openssl_verifies(&file, &certificate), "{what}");
                let other = if name == "p256" { "rsa2048.pem" } else { "p256.pem" };
                assert!(!bench.openssl_verifies(&file, other), "{what} with another's");
                file[100] ^= 1;
                assert!(!bench.openssl_verifies(&file, &certificate), "{what}, changed");
            }
        }
    }
}

#[test]
fn kms_55_openssl_verifies_the_outermost_of_a_stack() {
    need!(installed("openssl"));
    let bench = Workbench::new(&["rsa2048", "p384"]);
    let inner = signed(&bench.read("m.ko"), &bench.signer("p384", SignerOptions::default()));
    let outer = signed(&inner, &bench.signer("rsa2048", SignerOptions::default()));
    assert!(bench.openssl_verifies(&outer, "rsa2048.pem"));
    assert!(!bench.openssl_verifies(&outer, "p384.pem"));
    let outermost = gantry_kmod::signature::split(&outer).unwrap().unwrap();
    assert!(bench.openssl_verifies(outermost.payload, "p384.pem"));
}

#[test]
fn kms_52_signatures_of_sign_file_verify() {
    need!(installed("openssl"), sign_file());
    let (bench, sign_file) = (Workbench::new(&NAMES), sign_file().unwrap());
    for name in NAMES {
        for digest in DIGESTS {
            for identify_by in IDENTIFIERS {
                let (key, pem) = (format!("{name}.key"), format!("{name}.pem"));
                let how = (digest, identify_by);
                let mut file = theirs(&bench, &sign_file, how, (&key, &pem), "m.ko");
                let trusted = NAMES.map(|name| bench.certificate(name));
                let by = verify_module(&file, &trusted, WeakDigests::Refuse);
                let by = by.unwrap_or_else(|error| panic!("{name} {digest}: {error}"));
                assert_eq!(by, &bench.certificate(name), "{name} {digest} {identify_by:?}");
                file[100] ^= 1;
                assert!(verify_module(&file, &trusted, WeakDigests::Refuse).is_err(), "{name}");
            }
        }
    }
}

#[test]
fn openssl_verifies_weak_digests_that_were_allowed() {
    need!(installed("openssl"));
    let bench = Workbench::new(&["p256", "p384"]);
    let module = bench.read("m.ko");
    for (name, digest) in
        [("p256", Digest::Sha1), ("p256", Digest::Sha224), ("p384", Digest::Sha224)]
    {
        let weak_digests = WeakDigests::Allow;
        let options = SignerOptions { digest, weak_digests, ..SignerOptions::default() };
        let file = signed(&module, &bench.signer(name, options));
        let certificate = format!("{name}.pem");
        assert!(bench.openssl_verifies(&file, &certificate), "{name} {digest}");
    }
}

#[test]
fn modinfo_shows_what_we_show() {
    need!(installed("openssl"), installed("modinfo"));
    let bench = Workbench::new(&NAMES);
    let module = bench.read("m.ko");
    for name in NAMES {
        for digest in DIGESTS {
            let options = options(digest, IdentifyBy::IssuerAndSerial);
            let file = signed(&module, &bench.signer(name, options));
            bench.write("signed.ko", &file);
            let shown = |field: &str| bench.modinfo("signed.ko", field);
            let info = SignatureInfo::of(&file).unwrap();
            assert_eq!(shown("sig_id").as_deref(), Some(info.sig_id), "{name}");
            assert_eq!(shown("signer"), info.signer, "{name}");
            assert_eq!(shown("sig_key"), Some(info.sig_key), "{name}");
            assert_eq!(shown("sig_hashalgo"), Some(info.sig_hashalgo.to_string()), "{name}");
            assert_eq!(shown("signature"), Some(info.signature), "{name}");
            let module = ModuleInfo::parse(&file).unwrap();
            for field in ["name", "vermagic", "depends", "license"] {
                let ours = module.field(field).map(|value| value.trim().to_owned());
                assert_eq!(shown(field), ours, "{field}");
            }
        }
    }
}
