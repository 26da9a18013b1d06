//! A simulated host: files, units, packages, settings, images, and everything that goes wrong.

use std::collections::{BTreeMap, BTreeSet};

use gantry_provision::{
    Action, Digest, Failure, Host, Lock, Lost, Machine, Reply, Request, State, Want, serve,
};

use crate::planning::BUNDLED;

/// A file, a folder or a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Inode {
    File(Vec<u8>, u32),
    Directory(u32),
    Link(String),
}

/// What is compared before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) inodes: BTreeMap<String, Inode>,
    pub(crate) packages: BTreeSet<String>,
    /// Enabled, active.
    pub(crate) units: BTreeMap<String, (bool, bool)>,
    pub(crate) sysctls: BTreeMap<String, String>,
    pub(crate) swap: bool,
    pub(crate) images: BTreeMap<String, String>,
}

/// What goes wrong, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// The host dies at this write, counted from 1.
    pub(crate) dies_at: Option<u64>,
    /// Of so many requests one is carried out twice, and one loses its reply.
    pub(crate) unreliable: Option<(u64, fastrand::Rng)>,
}

/// A host that is not there.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedHost {
    pub(crate) disk: Disk,
    pub(crate) modules: BTreeMap<String, State>,
    pub(crate) journals: BTreeMap<String, String>,
    pub(crate) saved: BTreeMap<(String, String), (Vec<u8>, u32)>,
    pub(crate) locks: BTreeMap<String, Lock>,
    pub(crate) unit_configs: BTreeMap<String, Digest>,
    pub(crate) faults: Faults,
    pub(crate) clock: u64,
    pub(crate) writes: u64,
    pub(crate) starts: u64,
    pub(crate) requests: Vec<String>,
    is_dead: bool,
    random: u8,
}

/// What packages need, and what they bring.
const NEEDS: [(&str, &[&str]); 3] =
    [("containerd", &["libseccomp2"]), ("nfs-common", &["rpcbind"]), ("docker.io", &["libltdl7"])];

impl SimulatedHost {
    pub(crate) fn new() -> Self {
        let mut disk = Disk { swap: true, ..Disk::default() };
        for folder in ["/etc", "/etc/sysctl.d", "/etc/modules-load.d", "/opt", "/usr", "/usr/local"]
        {
            disk.inodes.insert(folder.to_owned(), Inode::Directory(0o755));
        }
        disk.inodes.insert("/usr/local/bin".to_owned(), Inode::Directory(0o755));
        let fstab = b"UUID=1 / ext4 defaults 0 1\n/swap none swap sw 0 0\n";
        disk.inodes.insert("/etc/fstab".to_owned(), Inode::File(fstab.to_vec(), 0o644));
        disk.inodes.insert("/etc/motd".to_owned(), Inode::File(b"before\n".to_vec(), 0o600));
        disk.packages.insert("curl".to_owned());
        for (key, value) in [("net.ipv4.ip_forward", "0"), ("vm.overcommit_memory", "0")] {
            disk.sysctls.insert(key.to_owned(), value.to_owned());
        }
        disk.sysctls.insert("net.core.somaxconn".to_owned(), "128".to_owned());
        let modules = BTreeMap::from([
            ("overlay".to_owned(), State::Present),
            ("br_netfilter".to_owned(), State::Loadable),
        ]);
        Self {
            disk,
            modules,
            journals: BTreeMap::new(),
            saved: BTreeMap::new(),
            locks: BTreeMap::new(),
            unit_configs: BTreeMap::new(),
            faults: Faults::default(),
            clock: 1_000,
            writes: 0,
            starts: 0,
            requests: Vec::new(),
            is_dead: false,
            random: 0,
        }
    }

    /// The host after it was started again.
    pub(crate) fn revive(&mut self) {
        self.is_dead = false;
        self.faults = Faults::default();
    }

    /// Everything that is on disk and not of the cluster, as text to look for secrets in.
    pub(crate) fn journal_text(&self) -> String {
        self.journals.values().cloned().collect()
    }

    /// Counts a write; the host may die before it or after it.
    fn write(&mut self) -> Result<bool, Failure> {
        if self.is_dead {
            return Err(dead());
        }
        self.writes += 1;
        let dies = self.faults.dies_at == Some(self.writes);
        self.is_dead = dies;
        // Half of the deaths come when the write has reached the disk.
        Ok(!dies || self.writes.is_multiple_of(2))
    }

    fn end(&self) -> Result<(), Failure> {
        if self.is_dead { Err(dead()) } else { Ok(()) }
    }

    fn state(&self, want: &Want) -> State {
        let owner = (0, 0);
        match want {
            Want::Path(path) => match self.disk.inodes.get(path) {
                None => State::Absent,
                Some(Inode::File(bytes, mode)) => {
                    State::File { digest: Digest::of(bytes), mode: *mode, owner }
                }
                Some(Inode::Directory(mode)) => State::Directory { mode: *mode, owner },
                Some(Inode::Link(target)) => State::Link { target: target.clone() },
            },
            Want::Text(path) => match self.disk.inodes.get(path) {
                Some(Inode::File(bytes, _)) => {
                    State::Text { text: String::from_utf8(bytes.clone()).unwrap() }
                }
                _ => State::Absent,
            },
            Want::Package(name) => match self.disk.packages.contains(name) {
                true => State::Package { version: "1.6.20".to_owned() },
                false => State::Absent,
            },
            Want::Unit(name) => match self.disk.units.get(name) {
                Some((enabled, active)) => State::Unit {
                    enabled: *enabled,
                    active: *active,
                    config: self.unit_configs.get(name).cloned(),
                },
                None => State::Absent,
            },
            Want::Sysctl(key) => match self.disk.sysctls.get(key) {
                Some(value) => State::Value { value: value.clone() },
                None => State::Absent,
            },
            Want::Module(name) => self.modules.get(name).cloned().unwrap_or(State::Absent),
            Want::Image(reference) => match self.disk.images.get(reference) {
                Some(digest) => State::Image { digest: digest.clone() },
                None => State::Absent,
            },
            Want::Swap if self.disk.swap => State::Present,
            Want::Swap | Want::Mount(_) | Want::Port(_) => State::Absent,
        }
    }

    fn parents(&self, path: &str) -> Vec<String> {
        let mut parents = Vec::new();
        let mut rest = path;
        while let Some((parent, _)) = rest.rsplit_once('/') {
            if parent.is_empty() || self.disk.inodes.contains_key(parent) {
                break;
            }
            parents.push(parent.to_owned());
            rest = parent;
        }
        parents
    }

    fn put(&mut self, path: &str, inode: Inode) {
        for parent in self.parents(path) {
            self.disk.inodes.insert(parent, Inode::Directory(0o755));
        }
        self.disk.inodes.insert(path.to_owned(), inode);
    }

    fn missing(&self, names: &[String]) -> BTreeSet<String> {
        let needed = names.iter().flat_map(|name| {
            let needs = NEEDS.iter().find(|(it, _)| it == name).map_or(&[][..], |(_, it)| *it);
            std::iter::once(name.clone()).chain(needs.iter().map(|it| (*it).to_owned()))
        });
        needed.filter(|it| !self.disk.packages.contains(it)).collect()
    }

    fn install(&mut self, name: &str) {
        self.disk.packages.insert(name.to_owned());
        if name == "containerd" {
            self.put("/etc/containerd/config.toml", Inode::File(b"# default\n".to_vec(), 0o644));
            self.disk.units.insert("containerd.service".to_owned(), (true, true));
        }
        if name == "chrony" {
            self.disk.units.insert("chrony.service".to_owned(), (true, false));
        }
    }

    fn purge(&mut self, name: &str) {
        self.disk.packages.remove(name);
        if name == "containerd" {
            self.disk.inodes.remove("/etc/containerd/config.toml");
            self.disk.inodes.remove("/etc/containerd");
            self.disk.units.remove("containerd.service");
        }
        if name == "chrony" {
            self.disk.units.remove("chrony.service");
        }
    }
}

fn dead() -> Failure {
    Failure { error: "dead".to_owned(), is_transient: true }
}

impl Machine for SimulatedHost {
    fn observe(&mut self, want: &Want) -> Result<State, Failure> {
        self.end()?;
        Ok(self.state(want))
    }

    fn besides(&mut self, action: &Action) -> Result<Vec<Want>, Failure> {
        Ok(match action {
            Action::File { path, .. }
            | Action::Link { path, .. }
            | Action::Directory { path, .. } => {
                self.parents(path).into_iter().map(Want::Path).collect()
            }
            Action::Packages { names } => {
                self.missing(names).into_iter().map(Want::Package).collect()
            }
            _ => Vec::new(),
        })
    }

    fn perform(
        &mut self,
        cluster: &str,
        action: &Action,
        body: &[u8],
    ) -> Result<Vec<String>, Failure> {
        let is_whole = self.write()?;
        if let Action::Packages { names } = action {
            // A package tool that dies has installed some of them, what others need first.
            let mut missing: Vec<String> = self.missing(names).into_iter().collect();
            missing.sort_by_key(|name| names.contains(name));
            let count = if is_whole { missing.len() } else { missing.len() / 2 };
            missing.iter().take(count).for_each(|name| self.install(name));
            return self.end().map(|()| Vec::new());
        }
        if !is_whole {
            return Err(dead());
        }
        let mut notes = Vec::new();
        match action {
            Action::File { path, mode, .. } => {
                self.put(path, Inode::File(body.to_vec(), *mode));
            }
            Action::Restore { path, saved, mode, .. } => {
                let (bytes, _) = &self.saved[&(cluster.to_owned(), saved.clone())];
                self.put(path, Inode::File(bytes.clone(), *mode));
            }
            Action::Directory { path, mode } => self.put(path, Inode::Directory(*mode)),
            Action::Link { path, target } => self.put(path, Inode::Link(target.clone())),
            Action::Remove { path } => {
                let below = format!("{path}/");
                if self.disk.inodes.keys().any(|it| it.starts_with(&below)) {
                    notes.push(format!("{path} is not empty"));
                } else {
                    self.disk.inodes.remove(path);
                }
            }
            Action::RemovePackages { names } => {
                for name in names {
                    let needed = self.disk.packages.iter().find(|it| {
                        let needs =
                            NEEDS.iter().find(|(of, _)| of == it).map_or(&[][..], |it| it.1);
                        !names.contains(it) && needs.contains(&name.as_str())
                    });
                    match needed {
                        Some(other) => notes.push(format!("{name} is needed by {other}")),
                        None => self.purge(name),
                    }
                }
            }
            Action::Unit { name, enabled, active, config } => {
                let Some(unit) = self.disk.units.get_mut(name) else {
                    return Err(Failure::lasting(format!("there is no {name}")));
                };
                *unit = (*enabled, *active);
                self.starts += 1;
                match config {
                    Some(config) => self.unit_configs.insert(name.clone(), config.clone()),
                    None => self.unit_configs.remove(name),
                };
            }
            Action::Sysctl { key, value } => {
                self.disk.sysctls.insert(key.clone(), value.clone());
            }
            Action::Module { name } => {
                self.modules.insert(name.clone(), State::Present);
                for key in ["iptables", "ip6tables"] {
                    let key = format!("net.bridge.bridge-nf-call-{key}");
                    self.disk.sysctls.insert(key, "0".to_owned());
                }
            }
            Action::Image { reference, digest, .. } => {
                self.disk.images.insert(reference.clone(), digest.clone());
            }
            Action::RemoveImage { reference } => {
                self.disk.images.remove(reference);
            }
            Action::Swap { on } => self.disk.swap = *on,
            Action::Run { creates: Want::Path(path), .. } => {
                self.put(path, Inode::File(b"made".to_vec(), 0o600));
            }
            Action::RunUndo { removes: Want::Path(path), .. } => {
                self.disk.inodes.remove(path);
            }
            other => return Err(Failure::lasting(format!("not simulated: {other}"))),
        }
        self.end().map(|()| notes)
    }

    fn save(&mut self, cluster: &str, path: &str, name: &str) -> Result<(), Failure> {
        if self.write()? {
            let Some(Inode::File(bytes, mode)) = self.disk.inodes.get(path) else { unreachable!() };
            let key = (cluster.to_owned(), name.to_owned());
            self.saved.insert(key, (bytes.clone(), *mode));
        }
        self.end()
    }

    fn journal(&mut self, cluster: &str) -> Result<String, Failure> {
        self.end()?;
        Ok(self.journals.get(cluster).cloned().unwrap_or_default())
    }

    fn append(&mut self, cluster: &str, length: usize, line: &str) -> Result<(), Failure> {
        let is_whole = self.write()?;
        let journal = self.journals.entry(cluster.to_owned()).or_default();
        journal.truncate(length);
        // A line that is torn.
        journal.push_str(if is_whole { line } else { &line[..line.len() / 2] });
        self.end()
    }

    fn forget(&mut self, cluster: &str) -> Result<(), Failure> {
        if self.write()? {
            self.journals.remove(cluster);
            self.saved.retain(|(of, _), _| of != cluster);
            self.unit_configs.clear();
        }
        self.end()
    }

    fn read_lock(&mut self, cluster: &str) -> Result<Option<Lock>, Failure> {
        self.end()?;
        Ok(self.locks.get(cluster).cloned())
    }

    fn write_lock(
        &mut self,
        cluster: &str,
        read: Option<&Lock>,
        with: Option<&Lock>,
    ) -> Result<(), Failure> {
        if self.locks.get(cluster) != read {
            return Err(Failure { error: "the lock has changed".to_owned(), is_transient: true });
        }
        match with {
            Some(lock) => self.locks.insert(cluster.to_owned(), lock.clone()),
            None => self.locks.remove(cluster),
        };
        Ok(())
    }

    fn now(&mut self) -> u64 {
        self.clock
    }

    fn random(&mut self) -> Result<[u8; 32], Failure> {
        self.random = self.random.wrapping_add(1);
        Ok([self.random; 32])
    }
}

impl Host for SimulatedHost {
    fn ask(&mut self, request: &Request, body: &[u8]) -> Result<Reply, Lost> {
        self.requests.push(format!("{request:?}"));
        let fault = |faults: &mut Faults| match &mut faults.unreliable {
            Some((one_of, random)) => random.u64(0..*one_of),
            None => u64::MAX,
        };
        let fault = fault(&mut self.faults);
        let mut reply = serve(self, request.clone(), body);
        if fault == 0 {
            reply = serve(self, request.clone(), body);
        }
        if self.is_dead || fault == 1 {
            return Err(Lost("the connection was lost".to_owned()));
        }
        Ok(reply)
    }

    fn bundled(&self, digest: &Digest) -> Option<Vec<u8>> {
        BUNDLED.into_iter().find(|bytes| Digest::of(bytes) == *digest).map(<[u8]>::to_vec)
    }
}
