//! `gantry modules sign-file`: signs one module, as the kernel's `scripts/sign-file` does.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gantry_kmod::cms::IdentifyBy;
use gantry_kmod::sign::SignError;
use gantry_kmod::{Digest, ExistingSignatures, SignOutcome, signature};

use super::{ExitReason, Failure, key_files};
use crate::cli::CommandOutcome;
use crate::config;
use crate::output::Output;

/// Sign one kernel module, with the arguments of the kernel's `scripts/sign-file`.
///
/// The signature is appended to the module; with RSA keys the result is the same, byte for byte. A
/// file that is compressed with gzip, xz or zstd is unpacked, signed and compressed again. A file
/// whose outermost signature is already by this key stays as it is. The passphrase of an encrypted
/// key is the value of KBUILD_SIGN_PIN, or in --pin-file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry modules sign-file sha256 key.pem cert.pem driver.ko
  gantry modules sign-file -k sha512 key.pem cert.der driver.ko.xz signed.ko.xz

Exit codes:
  0  signed, or signed by this key before
  1  the module could not be read, or the result could not be written
  2  the command line is wrong
  5  key or certificate cannot be used, or do not belong together
  6  the file is no kernel module
  8  the result does not verify")]
#[expect(clippy::struct_excessive_bools, reason = "these are flags, one by one")]
pub(super) struct Arguments {
    /// Name the certificate by its key identifier instead of issuer and serial number.
    #[arg(short = 'k')]
    key_identifier: bool,

    /// Also write the signature alone, to MODULE.p7s.
    #[arg(short = 'p')]
    save_signature: bool,

    /// Write the signature alone, to MODULE.p7s, and leave the module as it is.
    #[arg(short = 'd')]
    detached: bool,

    /// A file with the passphrase of the key.
    #[arg(long, value_name = "FILE")]
    pin_file: Option<PathBuf>,

    /// Accept SHA-1 and SHA-224, where the key can sign them.
    #[arg(long)]
    allow_weak_digest: bool,

    /// The digest: sha256, sha384 or sha512.
    #[arg(value_name = "HASH")]
    hash: Digest,

    /// The private key, in PEM or DER.
    #[arg(value_name = "KEY")]
    key: PathBuf,

    /// The certificate, in PEM or DER.
    #[arg(value_name = "X509")]
    certificate: PathBuf,

    /// The kernel module.
    #[arg(value_name = "MODULE")]
    module: PathBuf,

    /// Where the signed module is written; without it, the module is replaced.
    #[arg(value_name = "DEST")]
    destination: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<CommandOutcome, Failure> {
    let identify_by = match arguments.key_identifier {
        true => IdentifyBy::KeyIdentifier,
        false => IdentifyBy::default(),
    };
    let options = key_files::options(arguments.hash, arguments.allow_weak_digest, identify_by);
    let passphrase = match key_files::passphrase(arguments.pin_file.as_deref(), &arguments.key)? {
        Some(passphrase) => Some(passphrase),
        None => config::sign_pin(),
    };
    let passphrase = passphrase.as_ref().map(|it| it.as_slice());
    let Arguments { key, certificate, module, .. } = arguments;
    let signer = key_files::signer(key, certificate, passphrase, options, output)?;
    let file = std::fs::read(module)
        .with_context(|| format!("could not read the module {}", module.display()))?;
    let outcome = gantry_kmod::sign_module(&file, &signer, ExistingSignatures::Append);
    let outcome = outcome.map_err(|error| {
        let reason = match &error {
            SignError::SelfVerification(_) => ExitReason::Verification,
            SignError::Key(_) | SignError::Encode(_) => ExitReason::KeyOrCertificate,
            SignError::NotElf(_)
            | SignError::TooLarge { .. }
            | SignError::Decompress(_)
            | SignError::Compress { .. } => ExitReason::Repack,
        };
        let named = format!("cannot sign {}", module.display());
        reason.because(anyhow::Error::new(error).context(named))
    })?;
    let signed = match outcome {
        SignOutcome::Signed { file: signed, warnings } => {
            for warning in warnings {
                output.warning(format_args!("{}: {warning}", module.display()));
            }
            signed
        }
        SignOutcome::AlreadySigned | SignOutcome::Skipped => {
            output.note(format_args!("{} is already signed by this key", module.display()));
            file
        }
    };
    if arguments.save_signature || arguments.detached {
        let compression = gantry_kmod::Compression::detect(&signed);
        let unpacked = compression
            .decompress(&signed, gantry_kmod::MAX_MODULE_SIZE)
            .context("could not unpack the signed module")?;
        let outermost =
            signature::stack(&unpacked).next().context("the module has no signature")?;
        let mut path = module.clone().into_os_string();
        path.push(".p7s");
        write(Path::new(&path), outermost.cms)?;
    }
    if !arguments.detached {
        write(arguments.destination.as_ref().unwrap_or(module), &signed)?;
    }
    Ok(CommandOutcome::Success)
}

/// Replaces a file as a whole; its mode stays.
fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let named = || format!("could not write {}", path.display());
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(named)?;
    file.write_all(content).with_context(named)?;
    let permissions = match std::fs::metadata(path) {
        Ok(metadata) => metadata.permissions(),
        Err(_) => std::os::unix::fs::PermissionsExt::from_mode(0o644),
    };
    file.as_file().set_permissions(permissions).with_context(named)?;
    file.as_file().sync_all().with_context(named)?;
    file.persist(path).with_context(named)?;
    Ok(())
}
