//! The commands that look at the node's kernel and load modules into it.
//!
//! Texts and exit codes are those of kmod 30. Modules are found by the names of their files; the
//! indexes that `depmod` writes are not read.

mod config;
mod modinfo;
mod modprobe;
mod options;

use std::io;

use gantry_kmod::Errno;

use self::options::{OptionSpec, parse_options};
use super::Shell;
use super::commands::MAX_FILE_BYTES;
use crate::image::module_name;
use crate::kernel::{
    InsertError, InsertRequest, Kernel, RemoveError, TAINT_OUT_OF_TREE, TAINT_PROPRIETARY,
    TAINT_UNSIGNED, canonical_name,
};

/// The exit code of a command that failed.
const FAILED: u8 = 1;

/// The release of a container whose node has no readable kernel.
const UNKNOWN_RELEASE: &str = "6.8.0-gantry";

impl Shell<'_> {
    /// Runs a command of the kernel's tools.
    pub(super) async fn kernel_command(&mut self, name: &str, arguments: &[&str]) -> u8 {
        match name {
            "depmod" => self.depmod(arguments).await,
            "dmesg" => self.dmesg(arguments).await,
            "insmod" => self.insmod(arguments).await,
            "lsmod" => self.lsmod(arguments).await,
            "modinfo" => self.modinfo(arguments).await,
            "modprobe" => self.modprobe(arguments).await,
            "rmmod" => self.rmmod(arguments).await,
            _ => self.uname(arguments).await,
        }
    }

    /// Returns a copy of the node's kernel.
    fn kernel(&self) -> Option<Kernel> {
        self.context.kernel.as_ref().map(|it| it.kernel.snapshot())
    }

    /// Returns the release of the node's kernel.
    pub(super) fn release(&self) -> String {
        self.kernel().map_or_else(|| UNKNOWN_RELEASE.to_owned(), |it| it.release().to_owned())
    }

    /// Whether the node's kernel has loaded a module.
    pub(super) fn has_module(&self, name: &str) -> bool {
        self.kernel().is_some_and(|it| it.is_loaded(name))
    }

    /// Returns the content of a file in `/proc` that shows the kernel.
    pub(super) fn proc_file(&self, path: &str) -> Option<String> {
        let kernel = self.kernel()?;
        match path {
            "/proc/modules" => Some(proc_modules(&kernel)),
            "/proc/sys/kernel/tainted" => Some(format!("{}\n", kernel.taint())),
            "/proc/sys/kernel/osrelease" => Some(format!("{}\n", kernel.release())),
            "/proc/version" => {
                Some(format!("Linux version {} (gantry, simulated)\n", kernel.release()))
            }
            _ => None,
        }
    }

    /// Reads a file of a volume or of the image.
    pub(super) async fn read_file(&self, path: &str) -> io::Result<Vec<u8>> {
        if self.context.files.resolve(path).is_some() {
            return self.context.files.read(path, MAX_FILE_BYTES).await;
        }
        let (root, release) = (self.context.root.clone(), self.release());
        let path = path.to_owned();
        let read = move || root.read_file(&path, &release, u64::MAX);
        tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
    }

    /// Loads the module in a file that was read.
    async fn load(&self, process: &'static str, module: LoadFile) -> Result<(), InsertError> {
        let not_permitted = Err(InsertError::Refused(Errno::NotPermitted));
        let Some(access) = &self.context.kernel else { return not_permitted };
        if !access.may_load_modules {
            return not_permitted;
        }
        let (kernel, now) = (access.kernel.clone(), self.context.clock.now());
        // Dropped with the command, but what was begun is done: a kernel does not stop half-way.
        let load = move || {
            let LoadFile { path, bytes, parameters } = module;
            let release = kernel.snapshot().release().to_owned();
            let file_name = module_name(&path).unwrap_or_else(|| path.clone());
            let request =
                InsertRequest { process, file_name: &file_name, parameters: &parameters, now };
            match bytes {
                ModuleBytes::File(bytes) => kernel.insert(&bytes, request),
                ModuleBytes::InTree(module) if module_matches(&path, &release) => {
                    kernel.insert_in_tree(module, request)
                }
                ModuleBytes::InTree(_) => Err(InsertError::Refused(Errno::NoExec)),
            }
        };
        let loaded = tokio::task::spawn_blocking(load).await;
        loaded.unwrap_or(Err(InsertError::NoMemory))
    }

    /// Removes a module. The outer error is the message of a container without permission.
    fn unload(&self, name: &str) -> Result<Result<(), RemoveError>, &'static str> {
        match &self.context.kernel {
            Some(access) if access.may_load_modules => Ok(access.kernel.remove(name)),
            Some(_) | None => Err("Operation not permitted"),
        }
    }

    async fn lsmod(&mut self, arguments: &[&str]) -> u8 {
        if !arguments.is_empty() {
            return self.fail("Usage: lsmod", FAILED).await;
        }
        let mut text = "Module                  Size  Used by\n".to_owned();
        if let Some(kernel) = self.kernel() {
            for module in kernel.modules() {
                let users = kernel.users(&module.name);
                let by =
                    if users.is_empty() { String::new() } else { format!(" {}", users.join(",")) };
                let (name, size, count) = (&module.name, module.size, users.len());
                text.push_str(&format!("{name:<19} {size:>8}  {count}{by}\n"));
            }
        }
        self.print(&text).await
    }

    async fn dmesg(&mut self, arguments: &[&str]) -> u8 {
        if let Some(argument) = arguments.first() {
            return self.fail(&format!("dmesg: option {argument} is not simulated"), FAILED).await;
        }
        let kernel = self.kernel();
        let messages = kernel.iter().flat_map(Kernel::messages);
        let text: String = messages
            .map(|it| {
                let (seconds, micros) = (it.uptime.as_secs(), it.uptime.subsec_micros());
                format!("[{seconds:>5}.{micros:06}] {}\n", it.text)
            })
            .collect();
        self.print(&text).await
    }

    async fn uname(&mut self, arguments: &[&str]) -> u8 {
        let release = self.release();
        let fields = [
            ('s', "--kernel-name", "Linux"),
            ('n', "--nodename", &self.context.hostname),
            ('r', "--kernel-release", &release),
            ('v', "--kernel-version", "#1 SMP PREEMPT_DYNAMIC gantry"),
            ('m', "--machine", "x86_64"),
            ('o', "--operating-system", "GNU/Linux"),
        ];
        let mut wanted = String::new();
        for &argument in arguments {
            let long = fields.iter().find(|(_, long, _)| *long == argument);
            let letters = argument.strip_prefix('-').filter(|it| !it.is_empty());
            match (long, letters) {
                (Some((letter, ..)), _) => wanted.push(*letter),
                (None, Some(letters)) if letters.chars().all(|it| "snrvmoa".contains(it)) => {
                    wanted.push_str(letters);
                }
                (None, Some(_)) if argument == "--all" => wanted.push('a'),
                (None, Some(letters)) => {
                    let message = match letters.chars().find(|it| !"snrvmoa".contains(*it)) {
                        Some(letter) if !letters.starts_with('-') => {
                            format!("uname: invalid option -- '{letter}'")
                        }
                        Some(_) | None => format!("uname: unrecognized option '{argument}'"),
                    };
                    return self.fail(&message, FAILED).await;
                }
                (None, None) => {
                    return self.fail(&format!("uname: extra operand '{argument}'"), FAILED).await;
                }
            }
        }
        if wanted.is_empty() {
            wanted.push('s');
        }
        let all = wanted.contains('a');
        let shown = fields.iter().filter(|(letter, ..)| all || wanted.contains(*letter));
        let shown: Vec<&str> = shown.map(|(_, _, value)| *value).collect();
        let text = shown.join(" ") + "\n";
        self.print(&text).await
    }

    async fn insmod(&mut self, arguments: &[&str]) -> u8 {
        let spec = OptionSpec { short: "psvVhf", long: &[("--force", 'f'), ("--verbose", 'v')] };
        let (_, words) = match parse_options(spec, arguments) {
            Ok(parsed) => parsed,
            Err(why) => return self.fail(&format!("insmod: {why}"), FAILED).await,
        };
        let Some((file, parameters)) = words.split_first() else {
            return self.fail("insmod: ERROR: missing filename.", FAILED).await;
        };
        let path = self.resolve(file);
        let release = self.release();
        let bytes = match self.context.root.in_tree_module(&path, &release) {
            Some(module) => Ok(ModuleBytes::InTree(module)),
            None => self.read_file(&path).await.map(ModuleBytes::File),
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                let why = format!("could not insert module {file}: Is a directory");
                return self.fail(&format!("insmod: ERROR: {why}"), FAILED).await;
            }
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::NotFound => "No such file or directory".to_owned(),
                    _ => error.to_string(),
                };
                let why = format!("could not load module {file}: {why}");
                return self.fail(&format!("insmod: ERROR: {why}"), FAILED).await;
            }
        };
        let parameters = parameters.join(" ");
        match self.load("insmod", LoadFile { path, bytes, parameters }).await {
            Ok(()) => 0,
            Err(error) => {
                let why = format!("could not insert module {file}: {}", error.insmod_message());
                self.fail(&format!("insmod: ERROR: {why}"), FAILED).await
            }
        }
    }

    async fn rmmod(&mut self, arguments: &[&str]) -> u8 {
        let spec = OptionSpec { short: "fsvVhw", long: &[("--force", 'f'), ("--verbose", 'v')] };
        let (_, words) = match parse_options(spec, arguments) {
            Ok(parsed) => parsed,
            Err(why) => return self.fail(&format!("rmmod: {why}"), FAILED).await,
        };
        if words.is_empty() {
            return self.fail("rmmod: ERROR: missing module name.", FAILED).await;
        }
        let mut code = 0;
        for word in &words {
            let name = module_name(word).unwrap_or_else(|| canonical_name(word));
            let users: Vec<String> = self
                .kernel()
                .map(|it| it.users(&name).into_iter().map(str::to_owned).collect())
                .unwrap_or_default();
            let loaded = self.kernel().is_some_and(|it| it.is_loaded(&name));
            let why = if !loaded {
                Some(format!("Module {name} is not currently loaded"))
            } else if !users.is_empty() {
                Some(format!("Module {name} is in use by: {}", users.join(" ")))
            } else {
                match self.unload(&name) {
                    Ok(Ok(())) => None,
                    Ok(Err(RemoveError::NotLoaded)) => {
                        Some(format!("Module {name} is not currently loaded"))
                    }
                    Ok(Err(RemoveError::InUse)) => Some(format!("Module {name} is in use")),
                    Err(why) => Some(format!("could not remove module {name}: {why}")),
                }
            };
            if let Some(why) = why {
                code = self.fail(&format!("rmmod: ERROR: {why}"), FAILED).await;
            }
        }
        code
    }

    /// Checks that there are modules to index. Nothing is written: images cannot be changed, and
    /// indexes are not read.
    async fn depmod(&mut self, arguments: &[&str]) -> u8 {
        let spec = OptionSpec {
            short: "aAb:o:C:eE:F:inP:vVhwm",
            long: &[("--all", 'a'), ("--quick", 'A'), ("--basedir", 'b'), ("--dry-run", 'n')],
        };
        let (options, words) = match parse_options(spec, arguments) {
            Ok(parsed) => parsed,
            Err(why) => return self.fail(&format!("depmod: {why}"), FAILED).await,
        };
        let release = words.first().cloned().unwrap_or_else(|| self.release());
        if !release.starts_with(|it: char| it.is_ascii_digit()) {
            let message = format!("depmod: ERROR: Bad version passed {release}");
            return self.fail(&message, FAILED).await;
        }
        let directory = options.last_value('b').map(|it| self.resolve(it)).unwrap_or_default();
        let directory = directory.trim_end_matches('/');
        let base = format!("{directory}/lib/modules/{release}");
        let root = &self.context.root;
        let is_there = !root.module_files(directory, &release, &self.release()).is_empty()
            || root.image().is_some_and(|it| it.is_directory(&base));
        if is_there {
            return 0;
        }
        let missing = "No such file or directory";
        self.print_error(&format!("depmod: ERROR: could not open directory {base}: {missing}"))
            .await;
        self.fail(&format!("depmod: FATAL: could not search modules: {missing}"), FAILED).await
    }
}

/// A module file to load.
struct LoadFile {
    path: String,
    bytes: ModuleBytes,
    parameters: String,
}

/// The content of a module file.
#[derive(Clone, Debug)]
enum ModuleBytes {
    /// The bytes of a file.
    File(Vec<u8>),
    /// A module of the node's kernel.
    InTree(&'static crate::kernel::InTreeModule),
}

/// Returns whether a file of the host's modules is for a release.
fn module_matches(path: &str, release: &str) -> bool {
    path.split('/').any(|it| it == release)
}

/// Formats the loaded modules as `/proc/modules` has them.
fn proc_modules(kernel: &Kernel) -> String {
    let mut text = String::new();
    for module in kernel.modules() {
        let users = kernel.users(&module.name);
        let by: String = users.iter().map(|it| format!("{it},")).collect();
        let by = if by.is_empty() { "-".to_owned() } else { by };
        let letters: String =
            [(TAINT_PROPRIETARY, 'P'), (TAINT_OUT_OF_TREE, 'O'), (TAINT_UNSIGNED, 'E')]
                .iter()
                .filter(|(flag, _)| module.taint & flag != 0)
                .map(|(_, letter)| *letter)
                .collect();
        let taint = if letters.is_empty() { String::new() } else { format!(" ({letters})") };
        let (name, size, count) = (&module.name, module.size, users.len());
        text.push_str(&format!("{name} {size} {count} {by} Live 0x0000000000000000{taint}\n"));
    }
    text
}

#[cfg(test)]
mod tests;
