//! Tests in booted kernels which signed modules they load, and with which words they refuse the
//! others. Where the machine lacks something for it, the tests print that and why.

mod ours;
mod table;

use gantry_kmod::verify::Enforcement::{Enforce, Lockdown};
use gantry_testkit::kernel::{
    Attempt, Boot, BootOutcome, Enforcement, Identifier, Kernel, Kernels,
};

use self::table::{Expected, Keys, Row, Signer};
use super::print_line;

/// The kernels, unless something is missing; then it is printed.
fn kernels(test: &str) -> Option<Kernels> {
    match Kernels::find() {
        Ok(kernels) => Some(kernels),
        Err(reason) => {
            print_line(&format!("skipped: {test}: {reason}"));
            None
        }
    }
}

/// Everything that signs modules: the kernel's own program, which is the reference, and ours.
fn signers(kernels: &Kernels) -> Vec<Signer> {
    let reference = |identifier| {
        let sign_file = kernels.sign_file().clone();
        move |module: &[u8], key: &str, certificate: &str, digest: &str| {
            sign_file.sign(module, key, certificate, digest, identifier).unwrap()
        }
    };
    let kernel = kernels.all()[0].clone();
    let reference = Signer {
        name: "sign-file",
        sign: Box::new(reference(Identifier::IssuerAndSerial)),
        sign_by_key_identifier: Box::new(reference(Identifier::KeyIdentifier)),
        compress: Box::new(move |module| kernel.compress(module).unwrap()),
    };
    vec![reference, ours::signer()]
}

/// Boots a kernel once for all rows, and compares every outcome.
async fn check(kernel: &Kernel, boot: Boot, rows: &[Row]) -> BootOutcome {
    let mut boot = boot;
    for row in rows {
        boot = boot.attempt(&row.name, row.attempt.clone());
    }
    // The console is in the error, as it was printed.
    let said = kernel.boot(&boot).await.inspect_err(|error| print_line(&error.to_string()));
    let outcome = said.unwrap();
    let (release, took) = (&outcome.release, outcome.took);
    print_line(&format!("{} attempts in kernel {release} took {took:.1?}", rows.len()));
    assert_eq!(outcome.release, kernel.release());
    let wrong: Vec<String> = rows
        .iter()
        .zip(&outcome.attempts)
        .filter(|(row, attempt)| !row.expected.matches(attempt))
        .map(|(row, attempt)| format!("expected {:?}\nfound    {attempt:?}\n", row.expected))
        .collect();
    assert!(wrong.is_empty(), "kernel {}:\n{}", kernel.release(), wrong.concat());
    outcome
}

#[tokio::test]
async fn kernels_that_enforce_signatures_load_what_is_signed_by_a_trusted_key() {
    let Some(kernels) =
        kernels("kernels_that_enforce_signatures_load_what_is_signed_by_a_trusted_key")
    else {
        return;
    };
    let keys = Keys::new();
    for kernel in kernels.all() {
        let signers = signers(&kernels);
        let mut rows = table::enforced(kernel, &keys, &signers);
        rows.extend(table::weak_digests(kernel, &keys, &signers[0]));
        rows.extend(ours::existing_signatures(kernel, &keys));
        let boot = keys.trusted().into_iter().fold(Boot::new(Enforcement::Signatures), Boot::trust);
        let outcome = check(kernel, boot, &rows).await;
        // Others lack algorithms, which is no fault of a signature.
        if kernel.version() >= table::MODERN {
            ours::check_predictions(&keys.trusted(), Enforce, &rows, &outcome);
        }
        assert!(outcome.enforced);
        assert!(outcome.lockdown.starts_with("[none]"), "{}", outcome.lockdown);
        let listed = |name: &str| outcome.keys.iter().any(|key| key.contains(name));
        assert!(listed("enrolled") && !listed("stranger"), "{:?}", outcome.keys);
    }
}

#[tokio::test]
async fn secure_boot_enforces_signatures_without_any_option() {
    let Some(kernels) = kernels("secure_boot_enforces_signatures_without_any_option") else {
        return;
    };
    let keys = Keys::new();
    let kernel = kernels.all().last().unwrap();
    let rows = table::essential(kernel, &keys, &signers(&kernels), table::Refusal::Enforced);
    let boot = Boot::new(Enforcement::SecureBoot(keys.enrolled.clone()));
    let outcome = check(kernel, boot, &rows).await;
    ours::check_predictions(&[keys.enrolled.certificate_der()], Enforce, &rows, &outcome);
    assert!(outcome.enforced);
    assert!(outcome.lockdown.contains("[integrity]"), "{}", outcome.lockdown);
    let said = |words: &str| outcome.messages.iter().any(|message| message.contains(words));
    assert!(said("Secure boot enabled"), "{:#?}", outcome.messages);
}

#[tokio::test]
async fn a_kernel_that_is_only_locked_down_says_operation_not_permitted() {
    let Some(kernels) = kernels("a_kernel_that_is_only_locked_down_says_operation_not_permitted")
    else {
        return;
    };
    let keys = Keys::new();
    let kernel = kernels.all().last().unwrap();
    let rows = table::essential(kernel, &keys, &signers(&kernels), table::Refusal::LockedDown);
    let boot = keys.trusted().into_iter().fold(Boot::new(Enforcement::Lockdown), Boot::trust);
    let outcome = check(kernel, boot, &rows).await;
    ours::check_predictions(&keys.trusted(), Lockdown, &rows, &outcome);
    assert!(!outcome.enforced);
    assert!(outcome.lockdown.contains("[integrity]"), "{}", outcome.lockdown);
}

#[tokio::test]
async fn a_kernel_that_enforces_nothing_loads_everything_and_is_tainted() {
    let Some(kernels) = kernels("a_kernel_that_enforces_nothing_loads_everything_and_is_tainted")
    else {
        return;
    };
    let kernel = &kernels.all()[0];
    let module = kernel.leaf_module().unwrap();
    let row = Row {
        name: "unsigned".to_owned(),
        attempt: Attempt::Load(module),
        expected: Expected::Loaded,
    };
    let outcome = check(kernel, Boot::new(Enforcement::Off), &[row]).await;
    let attempt = &outcome.attempts[0];
    assert!(attempt.has_message("module verification failed: signature and/or required key"));
    // Unsigned, and nothing else: the module is one of the kernel's own.
    assert_eq!(attempt.taint, 1 << 13);
}
