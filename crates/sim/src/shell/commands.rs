//! The built-in programs.

use std::io::ErrorKind;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::Shell;
use super::input::InputEvent;
use super::{INTERRUPTED_EXIT_CODE, NOT_FOUND_EXIT_CODE, USAGE_EXIT_CODE};

/// The largest file of a volume that is printed.
pub(super) const MAX_FILE_BYTES: usize = 4 << 20;

/// The programs, as `ls /bin` lists them.
const PROGRAMS: [&str; 22] = [
    "[", "cat", "date", "depmod", "dmesg", "echo", "env", "false", "hostname", "insmod", "ls",
    "lsmod", "modinfo", "modprobe", "printenv", "pwd", "rmmod", "sh", "sleep", "test", "true",
    "uname",
];

/// The builtins of the shell.
const BUILTINS: [&str; 6] = [":", "cd", "exit", "export", "set", "unset"];

/// The directories, and their content.
const DIRECTORIES: [(&str, &[&str]); 13] = [
    ("/", &["bin", "dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "usr", "var"]),
    ("/bin", &PROGRAMS),
    ("/dev", &[]),
    ("/etc", &["hostname"]),
    ("/home", &[]),
    ("/proc", &[]),
    ("/root", &[]),
    ("/run", &[]),
    ("/sys", &[]),
    ("/tmp", &[]),
    ("/usr", &["bin"]),
    ("/usr/bin", &PROGRAMS),
    ("/var", &[]),
];

/// Returns the program of that name or path.
pub(super) fn program(name: &str) -> Option<&'static str> {
    let directories = ["/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/"];
    let name = directories.iter().find_map(|it| name.strip_prefix(it)).unwrap_or(name);
    PROGRAMS.into_iter().find(|known| *known == name)
}

/// Returns whether it is a builtin of the shell rather than a program.
pub(super) fn is_builtin(name: &str) -> bool {
    BUILTINS.contains(&name)
}

impl Shell<'_> {
    /// Runs an existing program or builtin.
    pub(super) async fn command(&mut self, name: &str, arguments: &[&str]) -> u8 {
        match (name, arguments) {
            ("true" | ":", _) => 0,
            ("false", _) => 1,
            ("echo", ["-n", words @ ..]) => self.print(&words.join(" ")).await,
            ("echo", words) => self.print(&(words.join(" ") + "\n")).await,
            ("cat", names) => self.cat(names).await,
            ("env", []) => {
                let all = self.variables.iter();
                let all: String = all.map(|(name, value)| format!("{name}={value}\n")).collect();
                self.print(&all).await
            }
            ("env", [argument, ..]) => {
                let message = format!("env: can't execute '{argument}': No such file or directory");
                self.fail(&message, NOT_FOUND_EXIT_CODE).await
            }
            ("printenv", []) => Box::pin(self.command("env", &[])).await,
            ("printenv", names) => self.print_variables(names).await,
            ("hostname", []) => self.print(&format!("{}\n", self.context.hostname)).await,
            ("hostname", _) => self.fail("hostname: sethostname: Operation not permitted", 1).await,
            ("pwd", _) => self.print(&format!("{}\n", self.working_directory)).await,
            ("cd", arguments) => self.change_directory(arguments.first().unwrap_or(&"/root")).await,
            ("ls", arguments) => self.list_directories(arguments).await,
            ("date", arguments) => self.date(arguments).await,
            ("sleep", arguments) => self.sleep(arguments).await,
            ("exit", arguments) => {
                let code = self.exit_code(arguments.first().copied()).await;
                self.exit = Some(code);
                code
            }
            ("export", arguments) => {
                let mut code = 0;
                for argument in arguments {
                    if let Some((name, value)) = argument.split_once('=') {
                        code = self.assign(name.to_owned(), value.to_owned()).await;
                    }
                }
                code
            }
            ("set", options) => {
                let known = ["-e", "-u", "-x", "-eu", "-ex", "-eux", "+e", "+x"];
                if let Some(other) = options.iter().find(|it| !known.contains(it)) {
                    let message = format!("sh: set: {other} is not simulated");
                    return self.fail(&message, USAGE_EXIT_CODE).await;
                }
                for option in options.iter().filter(|it| it.contains('e')) {
                    self.exit_on_error = option.starts_with('-');
                }
                0
            }
            (
                "depmod" | "dmesg" | "insmod" | "lsmod" | "modinfo" | "modprobe" | "rmmod"
                | "uname",
                arguments,
            ) => Box::pin(self.kernel_command(name, arguments)).await,
            ("test" | "[", arguments) => self.test(name, arguments).await,
            ("unset", names) => {
                for name in names {
                    self.variables.remove(*name);
                }
                0
            }
            (name, _) => self.fail(&format!("sh: {name}: not found"), NOT_FOUND_EXIT_CODE).await,
        }
    }

    pub(super) async fn print(&mut self, text: &str) -> u8 {
        self.out.write(text.as_bytes()).await;
        0
    }

    pub(super) async fn fail(&mut self, message: &str, code: u8) -> u8 {
        self.print_error(message).await;
        code
    }

    /// Prints the input, or files.
    async fn cat(&mut self, names: &[&str]) -> u8 {
        let mut code = 0;
        for &name in if names.is_empty() { &["-"][..] } else { names } {
            match self.resolve(name).as_str() {
                _ if name == "-" => loop {
                    match self.input.next(&mut self.out).await {
                        InputEvent::Bytes(bytes) => self.out.write(&bytes).await,
                        InputEvent::Interrupt => return INTERRUPTED_EXIT_CODE,
                        InputEvent::End => break,
                    }
                },
                "/etc/hostname" => {
                    self.print(&format!("{}\n", self.context.hostname)).await;
                }
                path if self.context.files.resolve(path).is_some() => {
                    match self.context.files.read(path, MAX_FILE_BYTES).await {
                        Ok(bytes) => self.out.write(&bytes).await,
                        Err(error) => {
                            let message = match error.kind() {
                                ErrorKind::NotFound => "No such file or directory".to_owned(),
                                _ => error.to_string(),
                            };
                            let message = format!("cat: can't open '{name}': {message}");
                            code = self.fail(&message, 1).await;
                        }
                    }
                }
                path if self.proc_file(path).is_some() => {
                    let text = self.proc_file(path).unwrap_or_default();
                    self.print(&text).await;
                }
                path if self.context.root.is_file(path) => match self.read_file(path).await {
                    Ok(bytes) if bytes.len() <= MAX_FILE_BYTES => self.out.write(&bytes).await,
                    Ok(_) => {
                        let message = format!("cat: read error: '{name}' is too large");
                        code = self.fail(&message, 1).await;
                    }
                    Err(error) => {
                        let message = format!("cat: can't open '{name}': {error}");
                        code = self.fail(&message, 1).await;
                    }
                },
                path => {
                    let message = match directory(path) {
                        Some(_) => "read error: Is a directory".to_owned(),
                        None => format!("can't open '{name}': No such file or directory"),
                    };
                    code = self.fail(&format!("cat: {message}"), 1).await;
                }
            }
        }
        code
    }

    async fn print_variables(&mut self, names: &[&str]) -> u8 {
        let mut code = 0;
        for &name in names {
            match self.variables.get(name) {
                Some(value) => {
                    let line = format!("{value}\n");
                    self.print(&line).await;
                }
                None => code = 1,
            }
        }
        code
    }

    async fn change_directory(&mut self, name: &str) -> u8 {
        let path = self.resolve(name);
        if directory(&path).is_none() && !self.context.root.is_directory(&path) {
            return self
                .fail(&format!("sh: cd: can't cd to {name}: No such file or directory"), 2)
                .await;
        }
        self.working_directory = path;
        0
    }

    async fn list_directories(&mut self, arguments: &[&str]) -> u8 {
        let is_option = |it: &&str| it.len() > 1 && it.starts_with('-');
        for option in arguments.iter().copied().filter(is_option) {
            if let Some(letter) = option.chars().skip(1).find(|it| !"aA1".contains(*it)) {
                return self.fail(&format!("ls: option -{letter} is not simulated"), 1).await;
            }
        }
        let mut names: Vec<&str> = arguments.iter().copied().filter(|it| !is_option(it)).collect();
        if names.is_empty() {
            names.push(".");
        }
        let (many, mut code) = (names.len() > 1, 0);
        for name in names {
            let path = self.resolve(name);
            let mounted = self.context.files.list(&path).await;
            let image = || self.context.root.list(&path, &self.release());
            let own = || directory(&path).map(|it| it.iter().map(|it| (*it).to_owned()).collect());
            let text = match mounted.or_else(image).or_else(own) {
                Some(entries) => {
                    let title = if many { format!("{name}:\n") } else { String::new() };
                    let entries: String = entries.iter().map(|it| format!("{it}\n")).collect();
                    title + &entries
                }
                None if exists(&path)
                    || self.context.root.is_file(&path)
                    || self.context.files.exists(&path).await =>
                {
                    format!("{name}\n")
                }
                None => {
                    let message = format!("ls: {name}: No such file or directory");
                    code = self.fail(&message, 1).await;
                    continue;
                }
            };
            self.print(&text).await;
        }
        code
    }

    async fn date(&mut self, arguments: &[&str]) -> u8 {
        let mut format = "%a %b %e %H:%M:%S UTC %Y";
        for &argument in arguments {
            match argument.strip_prefix('+') {
                Some(wanted) => format = wanted,
                None if argument == "-u" => {}
                None => {
                    return self.fail(&format!("date: invalid date '{argument}'"), 1).await;
                }
            }
        }
        let now = self.context.clock.now().to_zoned(TimeZone::UTC);
        match jiff::fmt::strtime::format(format, &now) {
            Ok(text) => self.print(&(text + "\n")).await,
            Err(_) => self.fail(&format!("date: invalid format '{format}'"), 1).await,
        }
    }

    async fn sleep(&mut self, arguments: &[&str]) -> u8 {
        if arguments.is_empty() {
            return self.fail("sleep: missing operand", 1).await;
        }
        let mut all = Duration::ZERO;
        for &argument in arguments {
            let Some(one) = duration(argument) else {
                return self.fail(&format!("sleep: invalid number '{argument}'"), 1).await;
            };
            all = all.saturating_add(one);
        }
        let Shell { context, input, out, .. } = self;
        tokio::select! {
            // Each may be dropped: time goes on, and the input is kept.
            () = context.clock.sleep(all) => 0,
            () = input.interrupted(out) => INTERRUPTED_EXIT_CODE,
        }
    }

    async fn exit_code(&mut self, argument: Option<&str>) -> u8 {
        let Some(text) = argument else { return self.last_exit_code };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u32>() {
            // Only the last byte is the exit code, as everywhere.
            Ok(code) if digits => code.to_le_bytes()[0],
            Ok(_) | Err(_) => {
                self.fail(&format!("sh: exit: Illegal number: {text}"), USAGE_EXIT_CODE).await
            }
        }
    }

    /// Returns the absolute path of a name.
    pub(super) fn resolve(&self, name: &str) -> String {
        let mut parts: Vec<&str> = Vec::new();
        let from = if name.starts_with('/') { "" } else { &self.working_directory };
        for part in from.split('/').chain(name.split('/')) {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }
}

/// Returns the content of a directory.
pub(super) fn directory(path: &str) -> Option<&'static [&'static str]> {
    DIRECTORIES.iter().find(|(known, _)| *known == path).map(|(_, entries)| *entries)
}

pub(super) fn exists(path: &str) -> bool {
    let Some((parent, name)) = path.rsplit_once('/') else { return false };
    let parent = if parent.is_empty() { "/" } else { parent };
    directory(parent).is_some_and(|entries| entries.contains(&name))
}

/// Parses a time to sleep: `5`, `0.5`, `2m`, `infinity`.
fn duration(text: &str) -> Option<Duration> {
    if matches!(text, "inf" | "infinity") {
        return Some(Duration::MAX);
    }
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, text.as_bytes().last().copied()),
        None => (text, None),
    };
    // Unlike Rust, no exponents and no signs.
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let factor = match unit {
        Some(b'm') => 60.0,
        Some(b'h') => 3_600.0,
        Some(b'd') => 86_400.0,
        _ => 1.0,
    };
    let seconds = number.parse::<f64>().ok()? * factor;
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}
