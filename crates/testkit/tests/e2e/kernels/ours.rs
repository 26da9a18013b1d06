//! Our own signer in the table of attempts, and our predictions compared with what kernels do.

use gantry_kmod::cms::IdentifyBy;
use gantry_kmod::verify::{Enforcement, VerifyError};
use gantry_kmod::{
    Certificate, Compression, Digest, ExistingSignatures, PrivateKey, SignOutcome, SignerOptions,
    WeakDigests, sign_module, verify_module,
};
use gantry_testkit::kernel::{Attempt, BootOutcome, Kernel, SigningKey};

use super::table::{Expected, Keys, MODERN, Row, Signer, row};

const NAME: &str = "gantry";

/// Our signer.
pub(super) fn signer() -> Signer {
    let append = |identify_by| {
        move |module: &[u8], key: &str, certificate: &str, digest: &str| {
            sign(module, (key, certificate), digest, identify_by, ExistingSignatures::Append)
        }
    };
    Signer {
        name: NAME,
        sign: Box::new(append(IdentifyBy::IssuerAndSerial)),
        sign_by_key_identifier: Box::new(append(IdentifyBy::KeyIdentifier)),
        compress: Box::new(|module| Compression::Xz.compress(module).unwrap()),
    }
}

/// What only our signer does: it replaces signatures, and signs inside of compressed files.
pub(super) fn existing_signatures(kernel: &Kernel, keys: &Keys) -> Vec<Row> {
    let module = kernel.leaf_module().unwrap();
    let by = IdentifyBy::IssuerAndSerial;
    let sign = |module: &[u8], key: &SigningKey, existing| {
        sign(module, (&key.key, &key.certificate), "sha256", by, existing)
    };
    let foreign = sign(&module, &keys.stranger, ExistingSignatures::Append);
    let replaced = sign(&foreign, &keys.enrolled, ExistingSignatures::Replace);
    let once = sign(&module, &keys.enrolled, ExistingSignatures::Append);
    assert_eq!(replaced, once, "nothing of the other signature is left");
    let packed = Compression::Xz.compress(&foreign).unwrap();
    let packed = sign(&packed, &keys.enrolled, ExistingSignatures::Append);
    let mut rows = vec![row(NAME, "replaced", Attempt::Load(replaced), Expected::Loaded)];
    if kernel.version() >= MODERN {
        let attempt = Attempt::LoadCompressed(packed);
        rows.push(row(NAME, "signed inside of xz", attempt, Expected::Loaded));
    }
    rows
}

/// Compares what we say a kernel does with what it did.
pub(super) fn check_predictions(
    trusted: &[Vec<u8>],
    enforcement: Enforcement,
    rows: &[Row],
    outcome: &BootOutcome,
) {
    let trusted: Vec<_> = trusted.iter().map(|der| Certificate::parse(der).unwrap()).collect();
    for (row, attempt) in rows.iter().zip(&outcome.attempts) {
        let (Attempt::Load(module) | Attempt::LoadCompressed(module)) = &row.attempt else {
            continue;
        };
        let verified = verify_module(module, &trusted, WeakDigests::Allow);
        // Of SHA-224 signatures we say that we cannot verify them, which predicts nothing.
        if matches!(verified, Err(VerifyError::Unsupported(Digest::Sha224))) {
            continue;
        }
        let refusal = verified.err().and_then(|error| error.kernel_refusal(enforcement));
        let errno = refusal.map_or(0, |refusal| i32::from(refusal.errno.number()));
        assert_eq!(errno, attempt.status, "{attempt:?}");
        if let Some(refusal) = refusal {
            // Lockdown names the program that loads the module, here another one.
            let log = refusal.log.map(|log| log.rsplit(": ").next().unwrap_or(log));
            let said = log.map_or(attempt.messages.is_empty(), |log| attempt.has_message(log));
            assert!(said, "predicted {log:?}: {attempt:?}");
        }
    }
}

fn sign(
    module: &[u8],
    (key, certificate): (&str, &str),
    digest: &str,
    identify_by: IdentifyBy,
    existing: ExistingSignatures,
) -> Vec<u8> {
    let key = PrivateKey::parse(key.as_bytes(), None).unwrap();
    let certificate = Certificate::parse(certificate.as_bytes()).unwrap();
    let options = SignerOptions {
        digest: digest.parse().unwrap(),
        weak_digests: WeakDigests::Allow,
        identify_by,
    };
    let signer = gantry_kmod::Signer::new(key, certificate, options).unwrap();
    match sign_module(module, &signer, existing).unwrap() {
        SignOutcome::Signed { file, warnings } => {
            assert_eq!(warnings, [], "it is one of the kernel's own modules");
            file
        }
        outcome @ (SignOutcome::AlreadySigned | SignOutcome::Skipped) => {
            unreachable!("another key's signature, or none, is signed over: {outcome:?}")
        }
    }
}
