//! Signs an image with Gantry, and with the programs of others.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use gantry_process::clock::Clock;

use crate::image::{FOLDER, Modules, SIGNED, UNSIGNED};
use crate::peak_memory::peak_megabytes;

/// How often the memory of a program is read. The peak that the kernel keeps does not get lost in
/// between, so only the last moments before the end are not counted.
const MEMORY_INTERVAL: Duration = Duration::from_millis(2);

/// The folders of sign-file in packages of Debian.
const SIGN_FILE_FOLDERS: &str = "/usr/lib";

/// The programs, and the key that both ways sign with.
#[derive(Debug)]
pub(crate) struct Tools {
    gantry: PathBuf,
    sign_file: PathBuf,
    key: PathBuf,
    certificate: PathBuf,
    clock: Clock,
    /// What umoci needs where it does not run as root.
    rootless: bool,
}

/// The cost of signing an image once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measurement {
    /// From the start of the first program to the end of the last one.
    pub(crate) time: Duration,
    /// The highest peak memory of a program.
    pub(crate) peak_megabytes: f64,
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s, {:.0} MB", self.time.as_secs_f64(), self.peak_megabytes)
    }
}

impl Tools {
    /// Checks that the programs exist, and makes a key in `folder`.
    pub(crate) fn new(
        gantry: PathBuf,
        sign_file: Option<&Path>,
        folder: &Path,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        ensure!(gantry.is_file(), "there is no {}: build it first", gantry.display());
        let umoci = Command::new("umoci").arg("--version").output();
        umoci.context("could not run umoci; testbed/images installs it")?;
        let sign_file = match sign_file {
            Some(path) => path.to_owned(),
            None => installed_sign_file()?,
        };
        let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
        let words = "req -x509 -newkey rsa:4096 -nodes -subj /CN=bench -days 30 -keyout";
        let made = Command::new("openssl")
            .args(words.split(' '))
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .context("could not run openssl; testbed/images installs it")?;
        ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
        let user = Command::new("id").arg("-u").output().context("could not run id")?;
        let rootless = String::from_utf8_lossy(&user.stdout).trim() != "0";
        Ok(Self { gantry, sign_file, key, certificate, clock, rootless })
    }

    /// Signs with Gantry, and returns the layout with the signed image.
    pub(crate) async fn with_gantry(
        &self,
        unsigned: &Path,
        place: &Path,
    ) -> anyhow::Result<(PathBuf, Measurement)> {
        let layout = place.join("gantry");
        let pattern = format!("{FOLDER}/*.ko");
        // The image is named but not pushed: the name is the tag in the layout.
        let name = format!("registry.example/bench:{SIGNED}");
        let words: [&Path; 15] = [
            "modules".as_ref(),
            "sign".as_ref(),
            "--no-push".as_ref(),
            "--oci-layout-in".as_ref(),
            unsigned,
            "--oci-layout-out".as_ref(),
            &layout,
            "--signed-image".as_ref(),
            name.as_ref(),
            "--file".as_ref(),
            pattern.as_ref(),
            "--key-file".as_ref(),
            &self.key,
            "--cert-file".as_ref(),
            &self.certificate,
        ];
        let start = self.clock.moment();
        let peak_megabytes = self.run(&self.gantry, words, place).await?;
        let time = self.clock.moment() - start;
        Ok((layout, Measurement { time, peak_megabytes }))
    }

    /// Unpacks the image with umoci, signs each module with sign-file, and packs it again.
    ///
    /// umoci writes to the layout that it reads, so it gets a copy, which is not measured.
    pub(crate) async fn with_umoci(
        &self,
        unsigned: &Path,
        place: &Path,
        modules: &Modules,
    ) -> anyhow::Result<(PathBuf, Measurement)> {
        let (layout, bundle) = (place.join("umoci"), place.join("bundle"));
        copy(unsigned, &layout)?;
        let from = format!("{}:{UNSIGNED}", layout.display());
        let to = format!("{}:{SIGNED}", layout.display());
        let bundle_text = bundle.display().to_string();
        let umoci = Path::new("umoci");
        let mut unpack = vec!["unpack"];
        if self.rootless {
            unpack.push("--rootless");
        }
        unpack.extend(["--image", &from, &bundle_text]);
        let start = self.clock.moment();
        let mut peak = self.run(umoci, unpack, place).await?;
        let folder = bundle.join("rootfs").join(FOLDER.trim_start_matches('/'));
        for name in modules.names() {
            let module = folder.join(name);
            let words: [&Path; 4] = ["sha256".as_ref(), &self.key, &self.certificate, &module];
            // Its memory is far below that of umoci, and it ends too soon to be watched.
            let status = Command::new(&self.sign_file).args(words).status();
            let status = status.with_context(|| format!("could not run {:?}", self.sign_file))?;
            ensure!(status.success(), "sign-file {}: {status}", module.display());
        }
        let repack = ["repack", "--image", &to, &bundle_text];
        peak = peak.max(self.run(umoci, repack, place).await?);
        let time = self.clock.moment() - start;
        Ok((layout, Measurement { time, peak_megabytes: peak }))
    }

    /// Runs a program to its end, and returns its peak memory in megabytes.
    async fn run<Word: Into<OsString>>(
        &self,
        program: &Path,
        words: impl IntoIterator<Item = Word>,
        place: &Path,
    ) -> anyhow::Result<f64> {
        let log = place.join("log");
        let file = fs::File::create(&log)?;
        let mut child = Command::new(program)
            .args(words.into_iter().map(Into::into))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("could not run {}", program.display()))?;
        let mut peak: f64 = 0.0;
        loop {
            if let Some(now) = peak_megabytes(child.id()) {
                peak = peak.max(now);
            }
            match child.try_wait()? {
                None => self.clock.sleep(MEMORY_INTERVAL).await,
                Some(status) if status.success() => return Ok(peak),
                Some(status) => {
                    let text = fs::read_to_string(&log).unwrap_or_default();
                    bail!("{}: {status}\n{text}", program.display())
                }
            }
        }
    }
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&path, &copied)?;
        } else {
            fs::copy(&path, &copied)?;
        }
    }
    Ok(())
}

/// The newest sign-file that is installed.
fn installed_sign_file() -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(SIGN_FILE_FOLDERS)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let program = path.join("scripts/sign-file");
        if name.starts_with("linux-kbuild-") && program.is_file() {
            found.push(program);
        }
    }
    found.sort();
    found.pop().context("there is no sign-file; testbed/kernels installs linux-kbuild")
}
