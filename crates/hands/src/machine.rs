//! The host that this process runs on, or one below a scratch root, as a machine.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use aws_lc_rs::rand;
use gantry_process::clock::Clock;
use gantry_provision::{
    Action, Digest, Distribution, Failure, Lock, Machine, PackageTool, State, Want, image_list,
    installed, newly_installed, package_tool, unit_state,
};
use rustix::fs::FlockOperation;

use crate::files::Root;
use crate::programs::Programs;

/// What belongs to us on a host.
const OWN: &str = "/var/lib/gantry";
const SYSTEMCTL: &str = "/usr/bin/systemctl";
const CTR: &str = "/usr/bin/ctr";
/// How often a guard that others remove is taken.
const MAX_GUARD_ATTEMPTS: usize = 100;
/// The namespace of images that kubelets use.
const IMAGE_NAMESPACE: &str = "--namespace=k8s.io";

/// A host.
#[derive(Debug)]
pub struct HostMachine {
    root: Root,
    programs: Programs,
    clock: Clock,
    tool: Option<PackageTool>,
    /// What is installed, until something is.
    packages: Option<BTreeMap<String, String>>,
    images: Option<BTreeMap<String, String>>,
}

/// A name becomes part of a path.
fn file_name(cluster: &str) -> Result<&str, Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
    if cluster.is_empty() || cluster.starts_with('.') || !cluster.chars().all(is_plain) {
        return Err(Failure::lasting(format!("`{cluster}` is not the name of a cluster")));
    }
    Ok(cluster)
}

impl HostMachine {
    /// The host below a root folder.
    ///
    /// # Errors
    /// The process has no more descriptors, or the root is unreadable.
    pub fn new(root: PathBuf, clock: Clock) -> Result<Self, Failure> {
        let root = Root(root);
        let programs = Programs::new(&root, clock.clone())
            .map_err(|error| Failure::lasting(format!("could not start: {error}")))?;
        let os_release = match root.text("/etc/os-release")? {
            State::Text { text } => text,
            _ => String::new(),
        };
        let tool = package_tool(Distribution::parse(&os_release).family);
        Ok(Self { root, programs, clock, tool, packages: None, images: None })
    }

    fn tool(&self) -> Result<&PackageTool, Failure> {
        let error = "packages of this distribution cannot be installed; set gantry_packages: none";
        self.tool.as_ref().ok_or_else(|| Failure::lasting(error))
    }

    fn packages(&mut self) -> Result<&BTreeMap<String, String>, Failure> {
        if self.packages.is_none() {
            let list = self.tool()?.list.clone();
            let output = self.programs.run(&list)?;
            self.packages = Some(installed(&output));
        }
        self.packages.as_ref().ok_or_else(|| Failure::lasting("packages were not listed"))
    }

    fn with_names(&mut self, argv: &[&str], names: &[String]) -> Result<String, Failure> {
        let mut argv = argv.to_vec();
        argv.extend(names.iter().map(String::as_str));
        self.packages = None;
        self.programs.run(&argv)
    }

    /// Purges packages one after the other, those first that nothing else needs; several rounds
    /// are needed, since they need one another.
    fn purge(&mut self, names: &[String]) -> Result<Vec<String>, Failure> {
        let purge = self.tool()?.purge.clone();
        let is_there = self.packages()?.clone();
        let mut left: Vec<String> =
            names.iter().filter(|name| is_there.contains_key(*name)).cloned().collect();
        let mut reasons = Vec::new();
        for _ in 0..names.len() {
            let before = left.len();
            let mut rest = Vec::new();
            reasons.clear();
            for name in left {
                if let Err(failure) = self.with_names(&purge, std::slice::from_ref(&name)) {
                    if failure.is_transient {
                        return Err(failure);
                    }
                    reasons.push(format!("{name} stays: {}", failure.error));
                    rest.push(name);
                }
            }
            left = rest;
            if left.is_empty() || left.len() == before {
                break;
            }
        }
        Ok(reasons)
    }

    fn unit_config_path(name: &str) -> String {
        format!("{OWN}/units/{}", name.replace('/', "-"))
    }

    fn unit(&mut self, name: &str) -> Result<State, Failure> {
        let show = "--property=LoadState,UnitFileState,ActiveState";
        let output = self.programs.run(&[SYSTEMCTL, "show", show, "--", name])?;
        let config = self.root.read_own(&Self::unit_config_path(name))?;
        let config = String::from_utf8(config).ok().and_then(|text| Digest::parse(text.trim()));
        Ok(unit_state(&output, config))
    }

    fn set_unit(
        &mut self,
        name: &str,
        enabled: bool,
        active: bool,
        config: Option<&Digest>,
    ) -> Result<(), Failure> {
        let State::Unit { enabled: was_enabled, active: was_active, config: current } =
            self.unit(name)?
        else {
            return Err(Failure::lasting(format!("there is no unit {name}")));
        };
        self.programs.run(&[SYSTEMCTL, "daemon-reload"])?;
        if enabled != was_enabled {
            let verb = if enabled { "enable" } else { "disable" };
            self.programs.run(&[SYSTEMCTL, verb, "--", name])?;
        }
        let is_other = config.is_some() && config != current.as_ref();
        let verb = match (active, was_active) {
            (true, true) if is_other => Some("restart"),
            (true, false) => Some("start"),
            (false, true) => Some("stop"),
            (true, true) | (false, false) => None,
        };
        if let Some(verb) = verb {
            self.programs.run(&[SYSTEMCTL, verb, "--", name])?;
        }
        // After the start: a crash in between restarts it once more, and never too seldom.
        let path = Self::unit_config_path(name);
        match config {
            Some(config) => self.root.write(&path, config.as_str().as_bytes(), 0o600, None),
            None => self.root.remove(&path).map(|_| ()),
        }
    }

    fn images(&mut self) -> Result<&BTreeMap<String, String>, Failure> {
        if self.images.is_none() {
            // Without a runtime there are no images.
            let has_runtime = self.root.at(CTR).exists();
            let output = if has_runtime {
                self.programs.run(&[CTR, IMAGE_NAMESPACE, "images", "list"])?
            } else {
                String::new()
            };
            self.images = Some(image_list(&output));
        }
        self.images.as_ref().ok_or_else(|| Failure::lasting("images were not listed"))
    }

    fn import(&mut self, reference: &str, digest: &str, body: &[u8]) -> Result<(), Failure> {
        let archive = format!("{OWN}/import.tar");
        self.images = None;
        self.root.write(&archive, body, 0o600, None)?;
        let at = self.root.at(&archive).display().to_string();
        let imported = self.programs.run(&[CTR, IMAGE_NAMESPACE, "images", "import", &at]);
        self.root.remove(&archive)?;
        imported?;
        match self.images()?.get(reference) {
            Some(found) if found == digest => Ok(()),
            Some(found) => Err(Failure::lasting(format!(
                "the archive has {reference} with {found}, and {digest} is expected"
            ))),
            None => Err(Failure::lasting(format!("the archive has no {reference}"))),
        }
    }

    fn setting(key: &str) -> Result<String, Failure> {
        let is_plain = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        };
        if !key.split('.').all(is_plain) {
            return Err(Failure::lasting(format!("`{key}` is not the key of a setting")));
        }
        Ok(format!("/proc/sys/{}", key.replace('.', "/")))
    }

    fn module(&self, name: &str) -> Result<State, Failure> {
        let is_loaded = self.root.at("/sys/module").join(name).exists();
        let known = self.root.read_own("/proc/filesystems")?;
        let known = String::from_utf8_lossy(&known).into_owned();
        if is_loaded || known.split_whitespace().any(|it| it == name) {
            return Ok(State::Present);
        }
        if !self.root.at("/usr/sbin/modinfo").exists() {
            return Ok(State::Absent);
        }
        let (code, _) = self.programs.try_run(&["/usr/sbin/modinfo", "-n", name])?;
        Ok(if code == 0 { State::Loadable } else { State::Absent })
    }

    fn mounted(&self, path: &str) -> Result<State, Failure> {
        let mounts = self.root.read_own("/proc/self/mounts")?;
        let mounts = String::from_utf8_lossy(&mounts).into_owned();
        let mounted = mounts.lines().rev().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.get(1) == Some(&path)).then(|| State::Mounted {
                source: words.first().copied().unwrap_or_default().to_owned(),
                file_system: words.get(2).copied().unwrap_or_default().to_owned(),
            })
        });
        Ok(mounted.unwrap_or(State::Absent))
    }

    fn swap(&self) -> Result<State, Failure> {
        let swaps = self.root.read_own("/proc/swaps")?;
        let lines = String::from_utf8_lossy(&swaps).lines().count();
        Ok(if lines > 1 { State::Present } else { State::Absent })
    }

    fn journal_path(cluster: &str) -> Result<String, Failure> {
        Ok(format!("{OWN}/journal/{}.jsonl", file_name(cluster)?))
    }

    fn saved_path(cluster: &str, name: &str) -> Result<String, Failure> {
        Ok(format!("{OWN}/before/{}/{}", file_name(cluster)?, file_name(name)?))
    }

    fn lock_path(cluster: &str) -> Result<String, Failure> {
        Ok(format!("{OWN}/lock/{}", file_name(cluster)?))
    }

    /// Lets processes that replace a lock do so one after the other.
    fn guard(&self) -> Result<std::fs::File, Failure> {
        let folder = format!("{OWN}/lock");
        let at = self.root.at(&format!("{folder}/.guard"));
        let failed = |error: std::io::Error| crate::files::failure("guard", &at, &error);
        for _ in 0..MAX_GUARD_ATTEMPTS {
            self.make_own(&folder)?;
            let guard = std::fs::File::create(&at).map_err(failed)?;
            rustix::fs::flock(&guard, FlockOperation::LockExclusive)
                .map_err(|error| failed(error.into()))?;
            // One that was removed meanwhile guards nothing.
            let own = guard.metadata().map_err(failed)?.ino();
            if std::fs::metadata(&at).is_ok_and(|found| found.ino() == own) {
                return Ok(guard);
            }
        }
        let error = format!("others take and release {} all the time", at.display());
        Err(Failure { error, is_transient: true })
    }

    fn make_own(&self, folder: &str) -> Result<(), Failure> {
        for path in [OWN.to_owned(), folder.to_owned()] {
            if !self.root.at(&path).is_dir() {
                self.root.make_directory(&path, 0o700)?;
            }
        }
        Ok(())
    }
}

impl Machine for HostMachine {
    fn observe(&mut self, want: &Want) -> Result<State, Failure> {
        match want {
            Want::Path(path) => self.root.state(path),
            Want::Text(path) => self.root.text(path),
            Want::Package(name) => Ok(match self.packages()?.get(name) {
                Some(version) => State::Package { version: version.clone() },
                None => State::Absent,
            }),
            Want::Unit(name) => self.unit(name),
            Want::Sysctl(key) => Ok(match self.root.text(&Self::setting(key)?)? {
                State::Text { text } => {
                    State::Value { value: text.split_whitespace().collect::<Vec<_>>().join(" ") }
                }
                _ => State::Absent,
            }),
            Want::Module(name) => self.module(name),
            Want::Mount(path) => self.mounted(path),
            Want::Image(reference) => Ok(match self.images()?.get(reference) {
                Some(digest) => State::Image { digest: digest.clone() },
                None => State::Absent,
            }),
            Want::Swap => self.swap(),
            // Ports are facts.
            Want::Port(_) => Err(Failure::lasting("ports are observed with the facts")),
        }
    }

    fn besides(&mut self, action: &Action) -> Result<Vec<Want>, Failure> {
        match action {
            Action::File { path, .. }
            | Action::Directory { path, .. }
            | Action::Link { path, .. } => {
                Ok(self.root.missing_parents(path).into_iter().map(Want::Path).collect())
            }
            Action::Packages { names } => {
                let Some(simulate) = self.tool()?.simulate.clone() else { return Ok(Vec::new()) };
                let output = self.with_names(&simulate, names)?;
                Ok(newly_installed(&output).into_iter().map(Want::Package).collect())
            }
            Action::Restore { .. }
            | Action::Remove { .. }
            | Action::RemovePackages { .. }
            | Action::Unit { .. }
            | Action::Sysctl { .. }
            | Action::Module { .. }
            | Action::Mount { .. }
            | Action::Unmount { .. }
            | Action::Image { .. }
            | Action::RemoveImage { .. }
            | Action::Swap { .. }
            | Action::Run { .. }
            | Action::RunUndo { .. } => Ok(Vec::new()),
        }
    }

    fn perform(
        &mut self,
        cluster: &str,
        action: &Action,
        body: &[u8],
    ) -> Result<Vec<String>, Failure> {
        match action {
            Action::File { path, mode, .. } => self.root.write(path, body, *mode, None)?,
            Action::Restore { path, saved, mode, owner, .. } => {
                let from = Self::saved_path(cluster, saved)?;
                if !self.root.at(&from).exists() {
                    let error = format!("what {path} contained is not there any more: {from}");
                    return Err(Failure::lasting(error));
                }
                let bytes = self.root.read_own(&from)?;
                self.root.write(path, &bytes, *mode, Some(*owner))?;
            }
            Action::Directory { path, mode } => self.root.make_directory(path, *mode)?,
            Action::Link { path, target } => self.root.link(path, target)?,
            Action::Remove { path } => return Ok(self.root.remove(path)?.into_iter().collect()),
            Action::Packages { names } => {
                let install = self.tool()?.install.clone();
                self.with_names(&install, names)?;
            }
            Action::RemovePackages { names } => return self.purge(names),
            Action::Unit { name, enabled, active, config } => {
                self.set_unit(name, *enabled, *active, config.as_ref())?;
            }
            Action::Sysctl { key, value } => {
                let at = self.root.at(&Self::setting(key)?);
                std::fs::write(&at, value)
                    .map_err(|error| crate::files::failure("set", &at, &error))?;
            }
            Action::Module { name } => {
                self.programs.run(&["/usr/sbin/modprobe", "--", name])?;
            }
            Action::Mount { path, source, file_system, options } => {
                let argv = ["/usr/bin/mount", "-t", file_system, "-o", options, "--", source, path];
                self.programs.run(&argv)?;
            }
            Action::Unmount { path } => {
                self.programs.run(&["/usr/bin/umount", "--", path])?;
            }
            Action::Image { reference, digest, .. } => self.import(reference, digest, body)?,
            Action::RemoveImage { reference } => {
                self.images = None;
                let argv = [CTR, IMAGE_NAMESPACE, "images", "remove", "--sync", reference];
                self.programs.run(&argv)?;
            }
            Action::Swap { on } => {
                let program = if *on { "/usr/sbin/swapon" } else { "/usr/sbin/swapoff" };
                self.programs.run(&[program, "-a"])?;
            }
            Action::Run { argv, creates, undo: _ } => {
                self.programs.run(&words(argv))?;
                if self.observe(creates)? == State::Absent {
                    let error = format!("{} did not make {creates}", argv.join(" "));
                    return Err(Failure::lasting(error));
                }
            }
            Action::RunUndo { argv, removes } => {
                if self.observe(removes)? != State::Absent {
                    self.programs.run(&words(argv))?;
                }
            }
        }
        Ok(Vec::new())
    }

    fn save(&mut self, cluster: &str, path: &str, name: &str) -> Result<(), Failure> {
        let to = Self::saved_path(cluster, name)?;
        self.make_own(&format!("{OWN}/before"))?;
        self.make_own(&format!("{OWN}/before/{}", file_name(cluster)?))?;
        let bytes = self.root.read_own(path)?;
        self.root.write(&to, &bytes, 0o600, None)
    }

    fn journal(&mut self, cluster: &str) -> Result<String, Failure> {
        let path = Self::journal_path(cluster)?;
        let bytes = self.root.read_own(&path)?;
        // A torn line may end within a character.
        Ok(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned()
            }
        })
    }

    fn append(&mut self, cluster: &str, length: usize, line: &str) -> Result<(), Failure> {
        self.make_own(&format!("{OWN}/journal"))?;
        self.root.append(&Self::journal_path(cluster)?, length, line.as_bytes())
    }

    fn forget(&mut self, cluster: &str) -> Result<(), Failure> {
        let folder = format!("{OWN}/before/{}", file_name(cluster)?);
        let at = self.root.at(&folder);
        if at.is_dir() {
            std::fs::remove_dir_all(&at)
                .map_err(|error| crate::files::failure("remove", &at, &error))?;
        }
        self.root.remove(&Self::journal_path(cluster)?)?;
        // Folders that another cluster has something in stay.
        for folder in ["before", "journal", "lock", "units"] {
            self.root.remove(&format!("{OWN}/{folder}"))?;
        }
        self.root.remove(OWN)?;
        Ok(())
    }

    fn read_lock(&mut self, cluster: &str) -> Result<Option<Lock>, Failure> {
        let path = Self::lock_path(cluster)?;
        let bytes = self.root.read_own(&path)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let lock = serde_json::from_slice(&bytes).map(Some);
        lock.map_err(|error| Failure::lasting(format!("{path} is not a lock: {error}")))
    }

    fn write_lock(
        &mut self,
        cluster: &str,
        read: Option<&Lock>,
        with: Option<&Lock>,
    ) -> Result<(), Failure> {
        let path = Self::lock_path(cluster)?;
        let _guard = self.guard()?;
        if self.read_lock(cluster)?.as_ref() != read {
            let error = format!("the lock of {cluster} has changed");
            return Err(Failure { error, is_transient: true });
        }
        match with {
            Some(lock) => {
                let text = serde_json::to_vec(lock)
                    .map_err(|error| Failure::lasting(format!("could not write: {error}")))?;
                self.root.write(&path, &text, 0o600, None)
            }
            None => {
                self.root.remove(&path)?;
                self.root.remove(&format!("{OWN}/lock/.guard"))?;
                self.root.remove(&format!("{OWN}/lock"))?;
                self.root.remove(OWN)?;
                Ok(())
            }
        }
    }

    fn now(&mut self) -> u64 {
        u64::try_from(self.clock.now().as_second()).unwrap_or_default()
    }

    fn random(&mut self) -> Result<[u8; 32], Failure> {
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).map_err(|_| Failure::lasting("there are no random bytes"))?;
        Ok(bytes)
    }
}

fn words(argv: &[String]) -> Vec<&str> {
    argv.iter().map(String::as_str).collect()
}
