//! `gantry modules sign`: signs the modules in an image.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use gantry_kernel_modules::effects::{self, ImageBlobs, RegistryImage, SharedBlobs};
use gantry_kernel_modules::{SignImageOptions, SignedFile, SignedImage, sign_image};
use gantry_kmod::cms::IdentifyBy;
use gantry_kmod::{Digest, ExistingSignatures, Signer};
use gantry_oci::layout::Layout;
use gantry_oci::{Document, Pattern, Reference, Repository, blob};
use gantry_process::clock::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::container_files::{ContainerFiles, PathError};
use super::registry_flags::{RegistryAccess, RegistryScope};
use super::{ExitReason, Failure, image_files, key_files};
use crate::cli::{CommandOutcome, OutputFormat, render};
use crate::output::Output;

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
    #[arg(long, value_name = "IMAGE")]
    #[arg(required_unless_present_any = ["oci_layout_in", "archive_in"])]
    unsigned_image: Option<Reference>,

    /// The name of the signed image.
    #[arg(long, value_name = "IMAGE")]
    #[arg(required_unless_present_any = ["no_push", "oci_layout_out", "oci_archive"])]
    signed_image: Option<Reference>,

    /// A module to sign: an absolute path or a pattern with *, ? or [...]; may be repeated.
    #[arg(long = "file", value_name = "PATH", required = true)]
    files: Vec<Pattern>,

    /// The private key, in PEM or DER; of a mounted Secret, its key `key` or `tls.key`.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,

    /// The certificate, in PEM or DER; of a mounted Secret, its key `cert` or `tls.crt`.
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

    /// A label that the signed image gets; may be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = super::named_value)]
    labels: Vec<(String, String)>,

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

    /// Read the unsigned image from an archive: an oci-archive, or what docker save writes.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["unsigned_image", "oci_layout_in"])]
    #[arg(help_heading = "Files")]
    archive_in: Option<PathBuf>,

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

impl Arguments {
    /// The same arguments with the paths of a container.
    pub(super) fn in_container(mut self, files: &ContainerFiles) -> Result<Self, PathError> {
        files.map_input(&mut self.key_file)?;
        files.map_input(&mut self.cert_file)?;
        for path in self.auth_files.iter_mut().chain(&mut self.push_auth_files) {
            files.map_input(path)?;
        }
        let optional =
            [&mut self.pin_file, &mut self.ca_file, &mut self.oci_layout_in, &mut self.archive_in];
        for path in optional.into_iter().flatten() {
            files.map_input(path)?;
        }
        for path in [&mut self.oci_layout_out, &mut self.oci_archive].into_iter().flatten() {
            files.map_output(path)?;
        }
        // A container without that file has no termination message, as on a machine.
        files.map_output(&mut self.termination_log)?;
        Ok(self)
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<CommandOutcome, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    runtime.block_on(execute(arguments, &RegistryScope::Machine, output))
}

/// Signs as the arguments say.
pub(super) async fn execute(
    arguments: &Arguments,
    registries: &RegistryScope,
    output: &mut Output,
) -> Result<CommandOutcome, Failure> {
    // Everything that can be wrong with the command line is checked before anything is pulled.
    let options =
        key_files::options(arguments.hash, arguments.allow_weak_digest, IdentifyBy::default());
    let passphrase = key_files::passphrase(arguments.pin_file.as_deref(), &arguments.key_file)?;
    let passphrase = passphrase.as_ref().map(|it| it.as_slice());
    let Arguments { key_file, cert_file, .. } = arguments;
    let signer = key_files::signer(key_file, cert_file, passphrase, options, output)?;
    let created = match arguments.source_date_epoch {
        Some(seconds) => Timestamp::from_second(seconds)
            .with_context(|| format!("SOURCE_DATE_EPOCH={seconds} is no time"))?,
        None => Clock::system().now(),
    };
    let result = sign(arguments, registries, signer, created, output).await?;
    report(arguments, &result, output)?;
    Ok(CommandOutcome::Success)
}

/// Signs the image and writes it to where it goes.
async fn sign(
    arguments: &Arguments,
    registries: &RegistryScope,
    signer: Signer,
    created: Timestamp,
    output: &mut Output,
) -> Result<SignResult, Failure> {
    let unsigned = open(arguments, registries).await?;
    let options = SignImageOptions {
        patterns: arguments.files.clone(),
        existing: match arguments.existing {
            Existing::Append => ExistingSignatures::Append,
            Existing::Replace => ExistingSignatures::Replace,
            Existing::Skip => ExistingSignatures::Skip,
        },
        created,
        base_name: arguments.unsigned_image.as_ref().map(ToString::to_string),
        labels: arguments.labels.iter().cloned().collect(),
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
    let save = move || {
        image_files::save(&*saved, &image, layout.as_deref(), archive.as_deref(), name.as_deref())
    };
    tokio::task::spawn_blocking(save).await.context("writing ended early")??;
    let Some(to) = arguments.signed_image.as_ref().filter(|_| !arguments.no_push) else {
        return Ok(SignResult { image: digest.to_string(), files });
    };
    let auth_files = match arguments.push_auth_files.is_empty() {
        true => &arguments.auth_files,
        false => &arguments.push_auth_files,
    };
    let access = RegistryAccess {
        auth_files,
        insecure: arguments.insecure_push,
        skip_tls_verify: arguments.skip_tls_verify_push,
        ca_file: arguments.ca_file.as_deref(),
    };
    let client = registries.client(access, to.repository())?;
    output.note(format_args!("pushing {to}"));
    let mount_from = unsigned.repository.as_slice();
    let pushed = effects::push_image(&client, to, &root, &blobs, mount_from).await;
    pushed.map_err(|error| ExitReason::Push.because(error))?;
    Ok(SignResult { image: format!("{}@{digest}", to.repository()), files })
}

/// Opens the unsigned image.
async fn open(arguments: &Arguments, registries: &RegistryScope) -> Result<Unsigned, Failure> {
    if let Some(path) = &arguments.oci_layout_in {
        let opened = Layout::open(path).and_then(|layout| {
            let document = blob::read_document(&layout, layout.image(None)?)?;
            Ok(Unsigned { document, blobs: Arc::new(layout), repository: None })
        });
        let named = || format!("could not read the image in {}", path.display());
        return opened.with_context(named).map_err(|it| ExitReason::Pull.because(it));
    }
    if let Some(path) = &arguments.archive_in {
        let (document, blobs) = image_files::open_archive(path)?;
        return Ok(Unsigned { document, blobs, repository: None });
    }
    let access = RegistryAccess {
        auth_files: &arguments.auth_files,
        insecure: arguments.insecure_pull,
        skip_tls_verify: arguments.skip_tls_verify_pull,
        ca_file: arguments.ca_file.as_deref(),
    };
    let image = arguments.unsigned_image.as_ref().context("--unsigned-image is missing")?;
    let client = registries.client(access, image.repository())?;
    let opened = effects::open_image(&client, image).await;
    let RegistryImage { document, blobs } =
        opened.map_err(|error| ExitReason::Pull.because(error))?;
    let repository = Some(image.repository().clone());
    Ok(Unsigned { document, blobs: Arc::new(blobs), repository })
}

/// Prints the result, and writes it to where Kubernetes reads it.
fn report(arguments: &Arguments, signed: &SignResult, output: &mut Output) -> anyhow::Result<()> {
    let files = signed.files.iter();
    let files: Vec<Value> =
        files.map(|it| json!({"path": it.path, "result": it.result.to_string()})).collect();
    let result = json!({"image": signed.image, "files": files});
    image_files::write_termination_message(&arguments.termination_log, &result)?;
    if let Some(form) = arguments.output {
        return Ok(output.result_text(&render(&result, form)?)?);
    }
    let mut rows = vec![["FILE".to_owned(), "RESULT".to_owned()]];
    rows.extend(signed.files.iter().map(|it| [it.path.clone(), it.result.to_string()]));
    output.result_text(&gantry_columns::align(&rows, gantry_columns::TABLE_GAP))?;
    output.result(format_args!("\n{}", signed.image))?;
    Ok(())
}
