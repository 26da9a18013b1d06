//! Runs pieces of shell the way a person at a terminal does: a home of their own, kubectl and
//! gantry in the path, a kubeconfig in the environment.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use gantry_testkit::programs::Programs;

/// A person at a terminal.
#[derive(Debug)]
pub(super) struct Shell {
    home: tempfile::TempDir,
    path: String,
}

/// What a piece of shell left behind.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Shell {
    /// A new home with a copy of this kubeconfig, which may be changed.
    pub(super) fn new(kubeconfig: &Path) -> Self {
        let shell = Self::without_cluster();
        fs::copy(kubeconfig, shell.home().join("kubeconfig")).unwrap();
        shell
    }

    /// A new home that knows no cluster yet.
    pub(super) fn without_cluster() -> Self {
        let home = tempfile::tempdir().unwrap();
        let bin = home.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let kubectl = Programs::find().unwrap().path("kubectl").unwrap();
        symlink(kubectl, bin.join("kubectl")).unwrap();
        symlink(env!("CARGO_BIN_EXE_gantry"), bin.join("gantry")).unwrap();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
        Self { home, path }
    }

    /// The home folder, in which everything runs.
    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Makes a folder of this repository visible under a name.
    pub(super) fn link(&self, name: &str, folder: &str) {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder);
        symlink(folder.canonicalize().unwrap(), self.home().join(name)).unwrap();
    }

    /// Runs a piece of shell to its end.
    pub(super) fn run(&self, script: &str) -> Outcome {
        let output = self.command("sh").args(["-c", script]).output().unwrap();
        Outcome {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// A program in this home, with nothing of ours in its environment.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", self.home())
            .env("TMPDIR", self.home())
            .env("KUBECONFIG", self.home().join("kubeconfig"))
            .current_dir(self.home())
            .stdin(Stdio::null());
        command
    }
}

/// A program at work; it is ended with us.
#[derive(Debug)]
pub(super) struct Child(std::process::Child);

impl Child {
    /// Starts it.
    pub(super) fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// What it prints, once.
    pub(super) fn out(&mut self) -> ChildStdout {
        self.0.stdout.take().unwrap()
    }

    /// Waits for its end: the code, and what it complained about.
    pub(super) fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.0.wait().unwrap().code(), text)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It has ended, or a test has failed; neither leaves anything to be said.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
