//! `gantry modules verify`: says whether kernel modules are signed by a trusted certificate.

use std::path::PathBuf;

use anyhow::Context as _;
use gantry_kernel_modules::{VerifiedFile, effects, verify_image};
use gantry_kmod::{Certificate, WeakDigests};
use gantry_oci::{Pattern, Reference};
use serde_json::{Value, json};

use super::registry_flags::{RegistryAccess, RegistryScope};
use super::{ExitReason, Failure, image_files, key_files};
use crate::cli::{CommandOutcome, OutputFormat, render};
use crate::output::Output;

/// Say whether kernel modules are signed by a trusted certificate, as a kernel would.
///
/// Modules are files, also compressed ones, or those of an image that --file names. Only the
/// outermost signature counts, and the certificate itself must be trusted: kernels follow no
/// chains of certificates for modules.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry modules verify --cert-file cert.pem driver.ko other.ko.xz
  gantry modules verify --cert-file cert.pem --image registry.example/driver:v1 \\
      --file '/opt/lib/modules/*/driver.ko'

Exit codes:
  0  all modules are signed by a trusted certificate
  1  a module could not be read
  2  the command line is wrong
  3  the image could not be pulled
  4  a file is not in the image
  5  a certificate cannot be used
  6  the image is malformed
  8  a module is not signed by a trusted certificate")]
pub(super) struct Arguments {
    /// A certificate that is trusted, in PEM or DER; may be repeated.
    #[arg(long = "cert-file", value_name = "FILE", required = true)]
    cert_files: Vec<PathBuf>,

    /// Verify the modules of an image.
    #[arg(long, value_name = "IMAGE", requires = "files")]
    image: Option<Reference>,

    /// Verify the modules of an image in an archive: an oci-archive, or what docker save writes.
    #[arg(long, value_name = "FILE", requires = "files", conflicts_with = "image")]
    archive_in: Option<PathBuf>,

    /// A module in the image: an absolute path or a pattern; may be repeated.
    #[arg(long = "file", value_name = "PATH", conflicts_with = "modules")]
    files: Vec<Pattern>,

    /// Credentials for pulling, in the format of Docker; may be repeated.
    #[arg(long = "auth-file", value_name = "FILE", help_heading = "Registries")]
    auth_files: Vec<PathBuf>,

    /// Pull over plain HTTP if the registry does not speak TLS.
    #[arg(long, help_heading = "Registries")]
    insecure_pull: bool,

    /// Do not verify the certificate of the registry.
    #[arg(long, help_heading = "Registries")]
    skip_tls_verify_pull: bool,

    /// More certificate authorities for registries, in PEM.
    #[arg(long, value_name = "FILE", help_heading = "Registries")]
    ca_file: Option<PathBuf>,

    /// Accept SHA-1 and SHA-224, as kernels do.
    #[arg(long)]
    allow_weak_digest: bool,

    /// Print the result in this form.
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,

    /// Files of kernel modules.
    #[arg(value_name = "MODULE", required_unless_present_any = ["image", "archive_in"])]
    #[arg(conflicts_with_all = ["image", "archive_in"])]
    modules: Vec<PathBuf>,
}

/// What was found about one module.
struct Verdict {
    name: String,
    /// The subject of the certificate that signed it, or why it is refused.
    signer: Result<String, String>,
}

impl From<VerifiedFile> for Verdict {
    fn from(file: VerifiedFile) -> Self {
        Self { name: file.path, signer: file.signer.map_err(|error| error.to_string()) }
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<CommandOutcome, Failure> {
    let trusted = arguments.cert_files.iter().map(|it| key_files::certificate(it));
    let trusted: Vec<Certificate> = trusted.collect::<Result<_, _>>()?;
    let weak = match arguments.allow_weak_digest {
        true => WeakDigests::Allow,
        false => WeakDigests::Refuse,
    };
    let verdicts = match (&arguments.image, &arguments.archive_in) {
        (Some(image), _) => of_image(arguments, image, trusted, weak)?,
        (None, Some(archive)) => {
            let (document, blobs) = image_files::open_archive(archive)?;
            let verified = verify_image(&*blobs, &document, &arguments.files, &trusted, weak)?;
            verified.into_iter().map(Verdict::from).collect()
        }
        (None, None) => of_files(&arguments.modules, &trusted, weak)?,
    };
    report(&verdicts, arguments.output, output)?;
    match verdicts.iter().all(|it| it.signer.is_ok()) {
        true => Ok(CommandOutcome::Success),
        false => Ok(CommandOutcome::FailureWithCode(ExitReason::Verification as u8)),
    }
}

fn of_files(
    modules: &[PathBuf],
    trusted: &[Certificate],
    weak: WeakDigests,
) -> Result<Vec<Verdict>, Failure> {
    let mut verdicts = Vec::new();
    for path in modules {
        let file = std::fs::read(path)
            .with_context(|| format!("could not read the module {}", path.display()))?;
        let signer = gantry_kmod::verify_module(&file, trusted, weak);
        let signer = signer.map(|it| it.subject().to_owned()).map_err(|it| it.to_string());
        verdicts.push(Verdict { name: path.display().to_string(), signer });
    }
    Ok(verdicts)
}

fn of_image(
    arguments: &Arguments,
    image: &Reference,
    trusted: Vec<Certificate>,
    weak: WeakDigests,
) -> Result<Vec<Verdict>, Failure> {
    let access = RegistryAccess {
        auth_files: &arguments.auth_files,
        insecure: arguments.insecure_pull,
        skip_tls_verify: arguments.skip_tls_verify_pull,
        ca_file: arguments.ca_file.as_deref(),
    };
    let client = RegistryScope::Machine.client(access, image.repository())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    let patterns = arguments.files.clone();
    let verified = runtime.block_on(async {
        let pulled = effects::open_image(&client, image).await;
        let pulled = pulled.map_err(|error| ExitReason::Pull.because(error))?;
        let verify =
            move || verify_image(&pulled.blobs, &pulled.document, &patterns, &trusted, weak);
        let verified = tokio::task::spawn_blocking(verify).await;
        Ok::<_, Failure>(verified.context("verifying ended early")??)
    })?;
    Ok(verified.into_iter().map(Verdict::from).collect())
}

fn report(
    verdicts: &[Verdict],
    form: Option<OutputFormat>,
    output: &mut Output,
) -> anyhow::Result<()> {
    if let Some(form) = form {
        let files = verdicts.iter().map(|it| match &it.signer {
            Ok(signer) => json!({"path": it.name, "verified": true, "signer": signer}),
            Err(why) => json!({"path": it.name, "verified": false, "reason": why}),
        });
        let result = json!({"files": files.collect::<Vec<Value>>()});
        return Ok(output.result_text(&render(&result, form)?)?);
    }
    let mut rows = vec![["FILE", "VERIFIED", "SIGNER"].map(str::to_owned)];
    for it in verdicts {
        let (verified, signer) = match &it.signer {
            Ok(signer) => ("yes", signer),
            Err(why) => ("no", why),
        };
        rows.push([it.name.clone(), verified.to_owned(), signer.clone()]);
    }
    output.result_text(&gantry_columns::align(&rows, gantry_columns::TABLE_GAP))?;
    Ok(())
}
