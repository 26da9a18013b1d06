//! Modules that are signed already, and compressed ones.

use gantry_kmod::compression::DecompressError;
use gantry_kmod::module::ModuleError;
use gantry_kmod::sign::{ModuleWarning, SignError};
use gantry_kmod::{
    Compression, ExistingSignatures, SignOutcome, WeakDigests, sign_module, signature,
    verify_module,
};

use crate::{certificate, fixture, signer};

const COMPRESSIONS: [Compression; 4] =
    [Compression::None, Compression::Gzip, Compression::Xz, Compression::Zstd];

fn packed(compression: Compression, module: &[u8]) -> Vec<u8> {
    compression.compress(module).unwrap()
}

fn unpacked(file: &[u8]) -> Vec<u8> {
    Compression::detect(file).decompress(file, 1 << 20).unwrap()
}

#[test]
fn kms_55_existing_signatures_are_kept_replaced_or_skipped() {
    let ours = signer("rsa2048");
    let unsigned = fixture("sample.ko");
    let theirs = fixture("signed/rsa3072.sha512.ko");
    let once = fixture("signed/rsa2048.sha256.ko");
    let twice = fixture("signed/stacked.ko");
    use ExistingSignatures as E;
    let table = [
        // why                         before     existing     after (None: untouched)   skipped
        ("append to an unsigned", &unsigned, E::Append, Some(&once), false),
        ("replace without any", &unsigned, E::Replace, Some(&once), false),
        ("skip without any", &unsigned, E::Skip, Some(&once), false),
        ("append to theirs", &theirs, E::Append, Some(&twice), false),
        ("replace theirs", &theirs, E::Replace, Some(&once), false),
        ("skip theirs", &theirs, E::Skip, None, true),
        ("append to ours", &once, E::Append, None, false),
        ("replace ours", &once, E::Replace, None, false),
        ("skip ours", &once, E::Skip, None, false),
        ("append to both", &twice, E::Append, None, false),
        ("replace both", &twice, E::Replace, None, false),
    ];
    for (why, before, existing, after, skipped) in table {
        for compression in COMPRESSIONS {
            let outcome = sign_module(&packed(compression, before), &ours, existing).unwrap();
            match (outcome, after) {
                (SignOutcome::Signed { file, .. }, Some(after)) => {
                    assert_eq!(Compression::detect(&file), compression, "{why}");
                    assert!(unpacked(&file) == **after, "{why}, {compression}");
                    let again = sign_module(&file, &ours, existing).unwrap();
                    assert_eq!(again, SignOutcome::AlreadySigned, "{why}");
                }
                (SignOutcome::AlreadySigned, None) => assert!(!skipped, "{why}"),
                (SignOutcome::Skipped, None) => assert!(skipped, "{why}"),
                (outcome, _) => panic!("{why}: {outcome:?}"),
            }
        }
    }
}

#[test]
fn kms_55_our_signature_below_another_does_not_count() {
    let mut file = fixture("signed/rsa2048.sha256.ko");
    let other = fixture("signed/p256.sha256.ko");
    file.extend_from_slice(&other[fixture("sample.ko").len()..]);
    let outcome = sign_module(&file, &signer("rsa2048"), ExistingSignatures::Append).unwrap();
    let SignOutcome::Signed { file, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(signature::stack(&file).count(), 3);
    verify_module(&file, &[certificate("rsa2048")], WeakDigests::Refuse).unwrap();
}

#[test]
fn kms_56_files_compressed_by_others_are_read() {
    let signed = fixture("signed/rsa2048.sha256.ko");
    for name in ["signed.ko.gz", "signed.ko.xz", "defaults.ko.xz", "signed.ko.zst"] {
        let file = fixture(&format!("compressed/{name}"));
        assert!(name.ends_with(Compression::detect(&file).suffix()), "{name}");
        assert!(unpacked(&file) == signed, "{name}");
        let trusted = [certificate("rsa2048")];
        verify_module(&file, &trusted, WeakDigests::Refuse).unwrap();
        let outcome = sign_module(&file, &signer("rsa2048"), ExistingSignatures::Append).unwrap();
        assert_eq!(outcome, SignOutcome::AlreadySigned, "{name}");
    }
}

#[test]
fn kms_56_a_signature_after_the_compressed_stream_is_no_signature() {
    let signed = fixture("signed/rsa2048.sha256.ko");
    let block = &signed[fixture("sample.ko").len()..];
    for compression in [Compression::Gzip, Compression::Xz, Compression::Zstd] {
        let file = [&packed(compression, &fixture("sample.ko"))[..], block].concat();
        let refused = sign_module(&file, &signer("rsa2048"), ExistingSignatures::Append);
        let trailing =
            matches!(refused, Err(SignError::Decompress(DecompressError::TrailingBytes { .. })));
        assert!(trailing, "{compression}: {refused:?}");
    }
}

#[test]
fn other_elf_files_are_signed_with_a_warning_and_others_refused() {
    let sign = |file: &[u8]| sign_module(file, &signer("p256"), ExistingSignatures::Append);
    let mut program = fixture("sample.ko");
    program[16] = 2; // ET_EXEC
    let SignOutcome::Signed { warnings, .. } = sign(&program).unwrap() else { panic!() };
    assert_eq!(warnings, [ModuleWarning::NotRelocatable]);
    let SignOutcome::Signed { warnings, .. } = sign(b"\x7fELF and nothing").unwrap() else {
        panic!()
    };
    assert!(matches!(warnings[..], [ModuleWarning::Unreadable(_)]), "{warnings:?}");
    for file in [&b""[..], b"#!/bin/sh\n", &packed(Compression::Gzip, b"text")] {
        let refused = sign(file);
        assert!(matches!(refused, Err(SignError::NotElf(ModuleError::NotElf))), "{refused:?}");
    }
}
