//! Laws for any module: what is signed verifies, and any change is noticed.

use std::sync::LazyLock;

use gantry_kmod::cms::IdentifyBy;
use gantry_kmod::verify::VerifyError;
use gantry_kmod::{
    Certificate, Compression, Digest, ExistingSignatures, SignOutcome, Signer, SignerOptions,
    WeakDigests, sign_module, signature, verify_module,
};
use proptest::prelude::*;

use crate::{certificate, signer_with};

/// One signer for each kind of key, digest and identifier.
static SIGNERS: LazyLock<Vec<Signer>> = LazyLock::new(|| {
    let mut signers = Vec::new();
    for name in ["rsa2048", "p256", "p384"] {
        for digest in [Digest::Sha256, Digest::Sha384, Digest::Sha512] {
            for identify_by in [IdentifyBy::IssuerAndSerial, IdentifyBy::KeyIdentifier] {
                let weak_digests = WeakDigests::Refuse;
                signers
                    .push(signer_with(name, SignerOptions { digest, weak_digests, identify_by }));
            }
        }
    }
    signers
});

fn trusted(signer: &Signer) -> &[Certificate] {
    std::slice::from_ref(signer.certificate())
}

fn signed(module: &[u8], signer: &Signer) -> Vec<u8> {
    match sign_module(module, signer, ExistingSignatures::Append).unwrap() {
        SignOutcome::Signed { file, .. } => file,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn kms_61_what_is_signed_verifies_and_any_change_is_noticed(
        rest in prop::collection::vec(any::<u8>(), 0..2000),
        which in 0..18usize,
        packed in 0..4usize,
        at in any::<prop::sample::Index>(),
        change in 1..=255u8,
    ) {
        let compression =
            [Compression::None, Compression::Gzip, Compression::Xz, Compression::Zstd][packed];
        let signer = &SIGNERS[which];
        let module = [b"\x7fELF", &rest[..]].concat();
        let file = signed(&compression.compress(&module).unwrap(), signer);
        verify_module(&file, trusted(signer), WeakDigests::Refuse).unwrap();
        let again = sign_module(&file, signer, ExistingSignatures::Append).unwrap();
        prop_assert_eq!(again, SignOutcome::AlreadySigned);

        let mut changed = compression.decompress(&file, file.len().max(100_000)).unwrap();
        prop_assert_eq!(signature::strip(&changed), &module[..]);
        changed[at.index(module.len())] ^= change;
        let refused = verify_module(&changed, trusted(signer), WeakDigests::Refuse);
        prop_assert!(matches!(refused, Err(VerifyError::Mismatch)), "{:?}", refused);
    }

    /// The end of a file is the signature itself and the trailer. Before that are names of
    /// algorithms, some of which neither kernels nor we look at.
    #[test]
    fn kms_61_a_changed_signature_never_verifies(
        which in 0..18usize,
        from_end in 1..100usize,
        change in 1..=255u8,
    ) {
        let signer = &SIGNERS[which];
        let mut file = signed(b"\x7fELF module", signer);
        let at = file.len() - from_end;
        file[at] ^= change;
        let verified = verify_module(&file, trusted(signer), WeakDigests::Allow);
        prop_assert!(verified.is_err(), "byte {} from the end", from_end);
    }

    #[test]
    fn no_file_panics(mut file in prop::collection::vec(any::<u8>(), 0..600), tail in 0..4usize) {
        let cms_like = signed(b"\x7fELF", &SIGNERS[0]);
        file.extend_from_slice(&cms_like[cms_like.len() - [0, 28, 40, 300][tail]..]);
        let _ = verify_module(&file, &[certificate("rsa2048")], WeakDigests::Allow);
        let _ = gantry_kmod::module::SignatureInfo::of(&file);
        let _ = sign_module(&file, &SIGNERS[0], ExistingSignatures::Replace);
    }
}
