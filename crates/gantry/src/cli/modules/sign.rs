//! `gantry modules sign`: signs the modules in an image.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use gantry_kernel_modules::effects::{self, ImageBlobs, RegistryImage, SharedBlobs};
use gantry_kernel_modules::{SignImageOptions, SignedFile, SignedImage, sign_image};
use gantry_kmod::cms::IdentifyBy;
use gantry_kmod::{Digest, ExistingSignatures, Signer};
use gantry_oci::layout::{Layout, save_image, write_archive};
use gantry_oci::{BlobSource, Descriptor, Document, Pattern, Reference, Repository, blob};
use gantry_process::clock::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::registry_flags::{self, RegistryAccess};
use super::{ExitReason, Failure, key_files};
use crate::cli::{CommandOutcome, OutputFormat, render};
use crate::output::Output;

/// The largest result that Kubernetes keeps of a container.
const MAX_TERMINATION_MESSAGE: usize = 4096;

/// Sign kernel modules in a container image, and push the signed image.
///
/// The signed image is the unsigned one with one more layer, which has the signed files. Files that
/// are already signed by this key stay as they are; if all are, the image keeps its digest. With
/// SOURCE_DATE_EPOCH the same input gives the same digest. Nothing is pushed if any file fails.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry modules sign --unsigned-image registry.example/driver:v1-unsigned \\
      --signed-image registry.example/driver:v1 --file '/opt/lib/modules/*/driver.ko' \\
      --key-file key.pem --cert-file cert.pem --auth-file ~/.docker/config.json
  gantry modules sign --oci-layout-in unsigned --oci-layout-out signed \\
      --file /opt/driver.ko --key-file key.pem --cert-file cert.pem

Exit codes:
  0  signed, or nothing to sign
  1  a file of the command line could not be read or written
  2  the command line is wrong
  3  the unsigned image could not be pulled
  4  a file is not in the image
  5  key or certificate cannot be used, or do not belong together
  6  a file is no kernel module, or the image is malformed
  7  the signed image could not be pushed
  8  the signed image does not verify")]
#[expect(clippy::struct_excessive_bools, reason = "these are flags, one by one")]
pub(super) struct Arguments {
    /// The image with unsigned modules.
    #[arg(long, value_name = "IMAGE", required_unless_present = "oci_layout_in")]
    unsigned_image: Option<Reference>,

    /// The name of the signed image.
    #[arg(long, value_name = "IMAGE")]
    #[arg(required_unless_present_any = ["no_push", "oci_layout_out", "oci_archive"])]
    signed_image: Option<Reference>,

    /// A module to sign: an absolute path or a pattern with *, ? or [...]; may be repeated.
    #[arg(long = "file", value_name = "PATH", required = true)]
    files: Vec<Pattern>,

    /// The private key, in PEM or DER.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,

    /// The certificate, in PEM or DER.
    #[arg(long, value_name = "FILE")]
    cert_file: PathBuf,

    /// A file with the passphrase of the key.
    #[arg(long, value_name = "FILE")]
    pin_file: Option<PathBuf>,

    /// The digest: sha256, sha384 or sha512.
    #[arg(long, value_name = "HASH", default_value = "sha256")]
    hash: Digest,

    /// Accept SHA-1 and SHA-224, where the key can sign them.
    #[arg(long)]
    allow_weak_digest: bool,

    /// What happens to signatures that files have already.
    #[arg(long, value_name = "ACTION", default_value = "append")]
    existing: Existing,

    /// Credentials for pulling, in the format of Docker; may be repeated.
    #[arg(long = "auth-file", value_name = "FILE", help_heading = "Registries")]
    auth_files: Vec<PathBuf>,

    /// Credentials for pushing; those for pulling if there are none.
    #[arg(long = "push-auth-file", value_name = "FILE", help_heading = "Registries")]
    push_auth_files: Vec<PathBuf>,

    /// Pull over plain HTTP if the registry does not speak TLS.
    #[arg(long, help_heading = "Registries")]
    insecure_pull: bool,

    /// Do not verify the certificate of the registry when pulling.
    #[arg(long, help_heading = "Registries")]
    skip_tls_verify_pull: bool,

    /// Push over plain HTTP if the registry does not speak TLS.
    #[arg(long, help_heading = "Registries")]
    insecure_push: bool,

    /// Do not verify the certificate of the registry when pushing.
    #[arg(long, help_heading = "Registries")]
    skip_tls_verify_push: bool,

    /// More certificate authorities for registries, in PEM.
    #[arg(long, value_name = "FILE", help_heading = "Registries")]
    ca_file: Option<PathBuf>,

    /// Sign and verify, but push nothing.
    #[arg(long, help_heading = "Registries")]
    no_push: bool,

    /// Read the unsigned image from a directory in the OCI image layout.
    #[arg(long, value_name = "DIR", conflicts_with = "unsigned_image", help_heading = "Files")]
    oci_layout_in: Option<PathBuf>,

    /// Write the signed image to a directory in the OCI image layout.
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    oci_layout_out: Option<PathBuf>,

    /// Write the signed image to an archive that other tools call oci-archive.
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    oci_archive: Option<PathBuf>,

    /// Where the result is written for Kubernetes, if that file exists.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/dev/termination-log",
        help_heading = "Files"
    )]
    termination_log: PathBuf,

    /// The time of the new layer, in seconds since 1970.
    #[arg(long, value_name = "SECONDS", env = "SOURCE_DATE_EPOCH")]
    source_date_epoch: Option<i64>,

    /// Print the result in this form.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,
}

/// What happens to signatures that files have already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Existing {
    /// Keep them, and add ours.
    Append,
    /// Remove them first.
    Replace,
    /// Leave files that have any.
    Skip,
}

/// What the command reports.
struct SignResult {
    /// The pushed image with its digest; the digest alone if nothing was pushed.
    image: String,
    files: Vec<SignedFile>,
}

/// The unsigned image.
struct Unsigned {
    document: Document,
    blobs: SharedBlobs,
    /// The repository it is in, if it is in a registry.
    repository: Option<Repository>,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<CommandOutcome, Failure> {
    // Everything that can be wrong with the command line is checked before anything is pulled.
    let options =
        key_files::options(arguments.hash, arguments.allow_weak_digest, IdentifyBy::default());
    let passphrase = key_files::passphrase(arguments.pin_file.as_deref())?;
    let passphrase = passphrase.as_ref().map(|it| it.as_slice());
    let Arguments { key_file, cert_file, .. } = arguments;
    let signer = key_files::signer(key_file, cert_file, passphrase, options, output)?;
    let created = match arguments.source_date_epoch {
        Some(seconds) => Timestamp::from_second(seconds)
            .with_context(|| format!("SOURCE_DATE_EPOCH={seconds} is no time"))?,
        None => Clock::system().now(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    let result = runtime.block_on(sign(arguments, signer, created, output))?;
    report(arguments, &result, output)?;
    Ok(CommandOutcome::Success)
}

/// Signs the image and writes it to where it goes.
async fn sign(
    arguments: &Arguments,
    signer: Signer,
    created: Timestamp,
    output: &mut Output,
) -> Result<SignResult, Failure> {
    let unsigned = open(arguments).await?;
    let options = SignImageOptions {
        patterns: arguments.files.clone(),
        existing: match arguments.existing {
            Existing::Append => ExistingSignatures::Append,
            Existing::Replace => ExistingSignatures::Replace,
            Existing::Skip => ExistingSignatures::Skip,
        },
        created,
        base_name: arguments.unsigned_image.as_ref().map(ToString::to_string),
    };
    if let Some(image) = &arguments.unsigned_image {
        output.note(format_args!("signing {image}"));
    }
    let (blobs, document) = (Arc::clone(&unsigned.blobs), unsigned.document.clone());
    let sign = move || sign_image(&*blobs, &document, &signer, &options);
    let signed = tokio::task::spawn_blocking(sign).await.context("signing ended early")??;
    for note in &signed.notes {
        output.note(note);
    }
    for file in &signed.files {
        for warning in &file.warnings {
            output.warning(format_args!("{}: {warning}", file.path));
        }
    }
    let SignedImage { document, new_blobs, files, notes: _ } = signed;
    let root = document.descriptor();
    let digest = root.digest().clone();
    let blobs: SharedBlobs = Arc::new(ImageBlobs { new: new_blobs, base: unsigned.blobs });
    let (saved, image) = (Arc::clone(&blobs), root.clone());
    let (layout, archive) = (arguments.oci_layout_out.clone(), arguments.oci_archive.clone());
    let name = arguments.signed_image.as_ref().map(|it| it.manifest_name().to_owned());
    let save =
        move || save_files(&*saved, &image, layout.as_deref(), archive.as_deref(), name.as_deref());
    tokio::task::spawn_blocking(save).await.context("writing ended early")??;
    let Some(to) = arguments.signed_image.as_ref().filter(|_| !arguments.no_push) else {
        return Ok(SignResult { image: digest.to_string(), files });
    };
    let auth_files = match arguments.push_auth_files.is_empty() {
        true => &arguments.auth_files,
        false => &arguments.push_auth_files,
    };
    let client = registry_flags::client(RegistryAccess {
        auth_files,
        insecure: arguments.insecure_push,
        skip_tls_verify: arguments.skip_tls_verify_push,
        ca_file: arguments.ca_file.as_deref(),
    })?;
    output.note(format_args!("pushing {to}"));
    let mount_from = unsigned.repository.as_slice();
    let pushed = effects::push_image(&client, to, &root, &blobs, mount_from).await;
    pushed.map_err(|error| ExitReason::Push.because(error))?;
    Ok(SignResult { image: format!("{}@{digest}", to.repository()), files })
}

/// Opens the unsigned image.
async fn open(arguments: &Arguments) -> Result<Unsigned, Failure> {
    if let Some(path) = &arguments.oci_layout_in {
        let opened = Layout::open(path).and_then(|layout| {
            let document = blob::read_document(&layout, layout.image(None)?)?;
            Ok(Unsigned { document, blobs: Arc::new(layout), repository: None })
        });
        let named = || format!("could not read the image in {}", path.display());
        return opened.with_context(named).map_err(|it| ExitReason::Pull.because(it));
    }
    let client = registry_flags::client(RegistryAccess {
        auth_files: &arguments.auth_files,
        insecure: arguments.insecure_pull,
        skip_tls_verify: arguments.skip_tls_verify_pull,
        ca_file: arguments.ca_file.as_deref(),
    })?;
    let image = arguments.unsigned_image.as_ref().context("--unsigned-image is missing")?;
    let opened = effects::open_image(&client, image).await;
    let RegistryImage { document, blobs } =
        opened.map_err(|error| ExitReason::Pull.because(error))?;
    let repository = Some(image.repository().clone());
    Ok(Unsigned { document, blobs: Arc::new(blobs), repository })
}

/// Writes the signed image to a layout and to an archive, where they are wanted.
fn save_files(
    blobs: &dyn BlobSource,
    root: &Descriptor,
    layout: Option<&Path>,
    archive: Option<&Path>,
    name: Option<&str>,
) -> Result<(), Failure> {
    let failed = |error: anyhow::Error| ExitReason::Repack.because(error);
    if let Some(path) = layout {
        let saved =
            Layout::create(path).and_then(|mut layout| save_image(blobs, &mut layout, root, name));
        saved.with_context(|| format!("could not write {}", path.display())).map_err(failed)?;
    }
    if let Some(path) = archive {
        let named = || format!("could not write {}", path.display());
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or_else(|| Path::new(".")))
            .with_context(named)
            .map_err(failed)?;
        write_archive(blobs, root, name, &mut file).with_context(named).map_err(failed)?;
        file.persist(path).with_context(named).map_err(failed)?;
    }
    Ok(())
}

/// Prints the result, and writes it to where Kubernetes reads it.
fn report(arguments: &Arguments, signed: &SignResult, output: &mut Output) -> anyhow::Result<()> {
    let files = signed.files.iter();
    let files: Vec<Value> =
        files.map(|it| json!({"path": it.path, "result": it.result.to_string()})).collect();
    let result = json!({"image": signed.image, "files": files});
    // Only where a kubelet made the file: a command on a laptop leaves nothing in /dev.
    if arguments.termination_log.exists() {
        std::fs::write(&arguments.termination_log, termination_message(&result))
            .with_context(|| format!("could not write {}", arguments.termination_log.display()))?;
    }
    if let Some(form) = arguments.output {
        return Ok(output.result_text(&render(&result, form)?)?);
    }
    let mut rows = vec![["FILE".to_owned(), "RESULT".to_owned()]];
    rows.extend(signed.files.iter().map(|it| [it.path.clone(), it.result.to_string()]));
    output.result_text(&gantry_columns::align(&rows, gantry_columns::TABLE_GAP))?;
    output.result(format_args!("\n{}", signed.image))?;
    Ok(())
}

/// Returns the result in at most as many bytes as Kubernetes keeps: without the last files if it
/// would have more, and with the number of those.
fn termination_message(result: &Value) -> String {
    let text = result.to_string();
    if text.len() <= MAX_TERMINATION_MESSAGE {
        return text;
    }
    let mut shorter = result.clone();
    let files = result["files"].as_array().cloned().unwrap_or_default();
    for kept in (0..files.len()).rev() {
        shorter["files"] = Value::from(&files[..kept]);
        shorter["moreFiles"] = json!(files.len() - kept);
        let text = shorter.to_string();
        if text.len() <= MAX_TERMINATION_MESSAGE {
            return text;
        }
    }
    json!({"image": result["image"]}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_fit_into_what_kubernetes_keeps() {
        let file = json!({"path": format!("/opt/{}.ko", "m".repeat(100)), "result": "signed"});
        for count in [0, 1, 20, 1000] {
            let files = vec![file.clone(); count];
            let text = termination_message(&json!({"image": "a@sha256:b", "files": files}));
            assert!(text.len() <= MAX_TERMINATION_MESSAGE, "{count} files: {}", text.len());
            let read: Value = serde_json::from_str(&text).unwrap();
            let shown = read["files"].as_array().unwrap().len();
            let more = read["moreFiles"].as_u64().unwrap_or(0);
            assert_eq!(shown as u64 + more, count as u64, "no file is dropped silently");
            assert_eq!(read["image"], "a@sha256:b");
        }
    }
}
