//! Boots a kernel in a virtual machine: prepares its files, runs it, and reads what it printed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gantry_process::clock::Clock;
use tokio::sync::Semaphore;

use super::Kernel;
use super::firmware::{self, FirmwareError, Settings};
use super::initramfs::{Initramfs, InitramfsError};
use super::keys::SigningKey;
use super::outcome::{BootOutcome, OutcomeError};
use crate::run::{Run, RunError};

/// How long a boot may take. It takes 10 to 20 seconds where nothing else runs.
const BOOT_TIMEOUT: Duration = Duration::from_secs(300);

/// How often the machine is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How much of the console an error has: a panic of a kernel and what led to it.
const CONSOLE_TAIL: usize = 4000;

/// `MODULE_INIT_COMPRESSED_FILE`: the kernel unpacks the file.
const COMPRESSED_FILE: u32 = 4;

/// Emulation takes a whole processor, so machines of one process run one after the other.
static MACHINES: Semaphore = Semaphore::const_new(1);

/// How a kernel is booted, and the attempts to make in it.
#[derive(Clone, Debug, Default)]
pub struct Boot {
    trusted: Vec<Vec<u8>>,
    enforcement: Enforcement,
    files: Vec<(String, Vec<u8>)>,
    names: Vec<String>,
    attempts: Vec<Attempt>,
}

/// What makes a kernel refuse modules.
#[derive(Clone, Debug, Default)]
pub enum Enforcement {
    /// Nothing does: it only marks itself as tainted.
    #[default]
    Off,
    /// The option `module.sig_enforce=1`.
    Signatures,
    /// The option `lockdown=integrity` alone.
    Lockdown,
    /// Secure Boot, without any option. The machine's owner signs the kernel, and the firmware
    /// trusts this key for kernels and modules.
    SecureBoot(SigningKey),
}

/// One attempt to load a module.
#[derive(Clone, Debug)]
pub enum Attempt {
    /// The system call `finit_module`; its error number is the status.
    Load(Vec<u8>),
    /// The same, with the flag that has the kernel unpack the file.
    LoadCompressed(Vec<u8>),
    /// The program `insmod`; its exit code is the status.
    Insmod(Vec<u8>),
    /// Any program of the initramfs with its arguments, separated by spaces, such as
    /// `modprobe -d /opt hello`.
    Run(String),
}

impl Boot {
    /// Starts without attempts, and with nothing that makes a kernel refuse modules.
    #[must_use]
    pub fn new(enforcement: Enforcement) -> Self {
        Self { enforcement, ..Self::default() }
    }

    /// Puts a certificate, as DER, into the firmware's `db`, whose certificates the kernel trusts.
    #[must_use]
    pub fn trust(mut self, certificate: Vec<u8>) -> Self {
        self.trusted.push(certificate);
        self
    }

    /// Puts a file into the initramfs.
    #[must_use]
    pub fn file(mut self, path: &str, content: Vec<u8>) -> Self {
        self.files.push((path.to_owned(), content));
        self
    }

    /// Adds an attempt; its outcome has the same name.
    #[must_use]
    pub fn attempt(mut self, name: &str, attempt: Attempt) -> Self {
        self.names.push(name.to_owned());
        self.attempts.push(attempt);
        self
    }

    /// What `init` reads, one line an attempt, and the modules that the lines name.
    fn lines(&self) -> (Vec<String>, Vec<(String, &[u8])>) {
        let mut modules = Vec::new();
        let mut lines = Vec::new();
        for (number, attempt) in self.attempts.iter().enumerate() {
            let path = format!("/modules/{number}.ko");
            let (line, module) = match attempt {
                Attempt::Load(module) => (format!("finit 0 {path}"), Some(module)),
                Attempt::LoadCompressed(module) => {
                    (format!("finit {COMPRESSED_FILE} {path}"), Some(module))
                }
                Attempt::Insmod(module) => (format!("run insmod {path}"), Some(module)),
                // An attempt is a line; a second one would be another attempt.
                Attempt::Run(words) => (format!("run {}", words.replace('\n', " ")), None),
            };
            lines.push(line);
            modules.extend(module.map(|module| (path, &module[..])));
        }
        (lines, modules)
    }
}

impl Enforcement {
    /// Options for the kernel.
    fn options(&self) -> &'static str {
        match self {
            Self::Off | Self::SecureBoot(_) => "",
            Self::Signatures => " module.sig_enforce=1",
            Self::Lockdown => " lockdown=integrity",
        }
    }

    fn owner(&self) -> Option<&SigningKey> {
        match self {
            Self::Off | Self::Signatures | Self::Lockdown => None,
            Self::SecureBoot(owner) => Some(owner),
        }
    }
}

/// The files of a machine, all in the folder of its run.
struct MachineFiles {
    vmlinuz: PathBuf,
    initramfs: PathBuf,
    variables: PathBuf,
    /// What the kernel prints to its console.
    console: PathBuf,
    /// What `init` prints.
    output: PathBuf,
}

pub(super) async fn boot(kernel: &Kernel, boot: &Boot) -> Result<BootOutcome, BootError> {
    let clock = Clock::system();
    // A closed semaphore would only mean that nothing bounds us; nothing closes this one.
    let _permit = MACHINES.acquire().await.ok();
    let mut run = Run::begin(kernel.runs(), &clock).await?;
    let files = prepare(kernel, boot, &run)?;
    let arguments = arguments(kernel, boot, &files);
    run.start("qemu", &kernel.programs().qemu, &arguments)?;
    let start = clock.moment();
    let deadline = start + BOOT_TIMEOUT;
    let failed = |run: &Run, why: OutcomeError| BootError::Failed {
        release: kernel.release().to_owned(),
        console: console_tail(&files.console) + &run.tails(),
        source: why,
    };
    while run.exited_process().is_none() {
        if clock.moment() > deadline {
            let (made, expected) = (attempts_begun(&files.output), boot.attempts.len());
            return Err(failed(&run, OutcomeError::Unfinished { made, expected }));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
    let took = clock.moment() - start;
    let output = fs::read(&files.output).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    match BootOutcome::parse(&output, &boot.names) {
        Ok(outcome) => Ok(BootOutcome { took, ..outcome }),
        Err(error) => Err(failed(&run, error)),
    }
}

fn prepare(kernel: &Kernel, boot: &Boot, run: &Run) -> Result<MachineFiles, BootError> {
    let programs = kernel.programs();
    let file = |name: &str| run.folder().join(name);
    let write = |path: &Path, content: &[u8]| {
        let failed = |source| BootError::File { path: path.to_path_buf(), source };
        fs::write(path, content).map_err(failed)
    };
    let files = MachineFiles {
        vmlinuz: file("vmlinuz"),
        initramfs: file("initramfs"),
        variables: file("variables.fd"),
        console: file("console.log"),
        output: file("output.log"),
    };
    let (lines, modules) = boot.lines();
    let mut initramfs = Initramfs::new(programs, &lines)?;
    let modules = modules.into_iter().map(|(path, module)| (path, module.to_vec()));
    for (path, content) in boot.files.iter().cloned().chain(modules) {
        initramfs.add(&path, content);
    }
    write(&files.initramfs, &initramfs.archive())?;

    let mut settings = Settings { trusted: boot.trusted.clone(), owner: None };
    let read = |path: &Path| {
        fs::read(path).map_err(|source| BootError::File { path: path.to_path_buf(), source })
    };
    match boot.enforcement.owner() {
        None => write(&files.vmlinuz, &read(&kernel.vmlinuz())?)?,
        Some(owner) => {
            settings.trusted.push(owner.certificate_der());
            settings.owner = Some(owner.certificate_der());
            sign_kernel(kernel, owner, run, &files.vmlinuz)?;
        }
    }
    let variables = firmware::with_settings(&read(&programs.variables)?, &settings)?;
    write(&files.variables, &variables)?;
    Ok(files)
}

/// Signs a kernel as the firmware wants it. A signature that it has already may stay: one that is
/// trusted is enough.
fn sign_kernel(
    kernel: &Kernel,
    owner: &SigningKey,
    run: &Run,
    signed: &Path,
) -> Result<(), BootError> {
    let key = run.write("owner.key", &owner.key)?;
    let certificate = run.write("owner.pem", &owner.certificate)?;
    let output = Command::new(&kernel.programs().sbsign)
        .arg("--key")
        .arg(key)
        .arg("--cert")
        .arg(certificate)
        .arg("--output")
        .arg(signed)
        .arg(kernel.vmlinuz())
        .output()
        .map_err(|source| BootError::File { path: kernel.programs().sbsign.clone(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(BootError::SignKernel { release: kernel.release().to_owned(), said })
}

fn arguments(kernel: &Kernel, boot: &Boot, files: &MachineFiles) -> Vec<String> {
    let programs = kernel.programs();
    let (firmware, machine, memory) = match boot.enforcement.owner() {
        None => (&programs.firmware, "q35", "512"),
        // Variables that only the firmware may change need its own mode of the processor.
        Some(_) => (&programs.secure_firmware, "q35,smm=on", "768"),
    };
    let path = |path: &Path| path.display().to_string();
    let flash = |unit, options: &str, file: &Path| {
        format!("if=pflash,format=raw,unit={unit}{options},file={}", path(file))
    };
    let options = boot.enforcement.options();
    let mut arguments = [
        ["-accel", "tcg"],
        ["-machine", machine],
        ["-cpu", "max"],
        ["-smp", "1"],
        ["-m", memory],
        ["-display", "none"],
        ["-vga", "none"],
        ["-monitor", "none"],
        ["-nic", "none"],
        ["-drive", &flash(0, ",readonly=on", firmware)],
        ["-drive", &flash(1, "", &files.variables)],
        ["-serial", &format!("file:{}", path(&files.console))],
        ["-serial", &format!("file:{}", path(&files.output))],
        ["-kernel", &path(&files.vmlinuz)],
        ["-initrd", &path(&files.initramfs)],
        // On a busy machine the kernel's check of its timer fails, and it panics.
        ["-append", &format!("console=ttyS0 quiet panic=-1 no_timer_check{options}")],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect::<Vec<_>>();
    arguments.extend(["-no-reboot", "-no-user-config"].map(str::to_owned));
    if boot.enforcement.owner().is_some() {
        let secure = "driver=cfi.pflash01,property=secure,value=on";
        arguments.extend(["-global", secure].map(str::to_owned));
    }
    arguments
}

fn attempts_begun(output: &Path) -> usize {
    let output = fs::read(output).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().filter(|it| it.starts_with("attempt ")).count()
}

/// The end of the console, for a person to read.
fn console_tail(console: &Path) -> String {
    let console = fs::read(console).unwrap_or_default();
    let start = console.len().saturating_sub(CONSOLE_TAIL);
    format!("--- console\n{}\n", String::from_utf8_lossy(&console[start..]).trim_end())
}

/// Why a kernel could not be booted.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// Its machine could not be started.
    #[error("could not run a virtual machine")]
    Run(#[from] RunError),
    /// The initramfs cannot be written.
    #[error("could not make an initramfs")]
    Initramfs(#[from] InitramfsError),
    /// The firmware's variables cannot be written.
    #[error("cannot write the variables of the firmware")]
    Firmware(#[from] FirmwareError),
    /// A file cannot be read or written, or a program not run.
    #[error("could not use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel could not be signed for Secure Boot.
    #[error("cannot sign kernel {release}: {said}")]
    SignKernel {
        /// The kernel.
        release: String,
        /// The error message of `sbsign`.
        said: String,
    },
    /// The machine ended early, or did not end.
    #[error("kernel {release} did not make all attempts: {source}\n{console}")]
    Failed {
        /// The kernel.
        release: String,
        /// The end of its console and of what the emulator printed.
        console: String,
        /// What is missing.
        source: OutcomeError,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_a_line() {
        let boot = Boot::new(Enforcement::Signatures)
            .attempt("plain", Attempt::Load(vec![1]))
            .attempt("words", Attempt::Run("modprobe -d /opt\nhello".to_owned()))
            .attempt("packed", Attempt::LoadCompressed(vec![2]))
            .attempt("program", Attempt::Insmod(vec![3]));
        let (lines, modules) = boot.lines();
        let expected = [
            "finit 0 /modules/0.ko",
            "run modprobe -d /opt hello",
            "finit 4 /modules/2.ko",
            "run insmod /modules/3.ko",
        ];
        assert_eq!(lines, expected);
        let expected = [("/modules/0.ko", 1), ("/modules/2.ko", 2), ("/modules/3.ko", 3)];
        let expected = expected.map(|(path, byte)| (path.to_owned(), vec![byte]));
        assert_eq!(modules, expected.each_ref().map(|(path, it)| (path.clone(), &it[..])));
    }

    #[test]
    fn secure_boot_needs_no_option() {
        let key = SigningKey::ecdsa("owner").unwrap();
        let table = [
            (Enforcement::Off, "", false),
            (Enforcement::Signatures, " module.sig_enforce=1", false),
            (Enforcement::Lockdown, " lockdown=integrity", false),
            (Enforcement::SecureBoot(key), "", true),
        ];
        for (enforcement, options, owned) in table {
            assert_eq!(enforcement.options(), options, "{enforcement:?}");
            assert_eq!(enforcement.owner().is_some(), owned, "{enforcement:?}");
        }
    }
}
