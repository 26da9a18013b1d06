//! The programs that are there.

use std::io::ErrorKind;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::Shell;
use super::input::Heard;
use super::{INTERRUPTED, MISUSED, NOT_FOUND};

/// The largest file of a volume that is shown.
const LARGEST_FILE: usize = 4 << 20;

/// The programs, as `ls /bin` lists them.
const PROGRAMS: [&str; 12] = [
    "cat", "date", "echo", "env", "false", "hostname", "ls", "printenv", "pwd", "sh", "sleep",
    "true",
];

/// What only a shell has.
const PARTS: [&str; 5] = [":", "cd", "exit", "export", "unset"];

/// The directories there are, and what is in them.
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

/// The program of that name or path.
pub(super) fn program(name: &str) -> Option<&'static str> {
    let name = ["/bin/", "/usr/bin/"].iter().find_map(|it| name.strip_prefix(it)).unwrap_or(name);
    PROGRAMS.into_iter().find(|known| *known == name)
}

/// Whether it is no program but something a shell does itself.
pub(super) fn is_part_of_the_shell(name: &str) -> bool {
    PARTS.contains(&name)
}

impl Shell<'_> {
    /// Runs a program, or a part of the shell, that is there.
    pub(super) async fn command(&mut self, name: &str, arguments: &[&str]) -> u8 {
        match (name, arguments) {
            ("true" | ":", _) => 0,
            ("false", _) => 1,
            ("echo", ["-n", words @ ..]) => self.say(&words.join(" ")).await,
            ("echo", words) => self.say(&(words.join(" ") + "\n")).await,
            ("cat", names) => self.cat(names).await,
            ("env", []) => {
                let all = self.variables.iter();
                let all: String = all.map(|(name, value)| format!("{name}={value}\n")).collect();
                self.say(&all).await
            }
            ("env", [argument, ..]) => {
                let words = format!("env: can't execute '{argument}': No such file or directory");
                self.fail(&words, NOT_FOUND).await
            }
            ("printenv", []) => Box::pin(self.command("env", &[])).await,
            ("printenv", names) => self.print_variables(names).await,
            ("hostname", []) => self.say(&format!("{}\n", self.setting.hostname)).await,
            ("hostname", _) => self.fail("hostname: sethostname: Operation not permitted", 1).await,
            ("pwd", _) => self.say(&format!("{}\n", self.place)).await,
            ("cd", arguments) => self.change_place(arguments.first().unwrap_or(&"/root")).await,
            ("ls", arguments) => self.list_places(arguments).await,
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
            ("unset", names) => {
                for name in names {
                    self.variables.remove(*name);
                }
                0
            }
            (name, _) => self.fail(&format!("sh: {name}: not found"), NOT_FOUND).await,
        }
    }

    async fn say(&mut self, text: &str) -> u8 {
        self.out.write(text.as_bytes()).await;
        0
    }

    async fn fail(&mut self, words: &str, code: u8) -> u8 {
        self.complain(words).await;
        code
    }

    /// What is typed, or what is in files.
    async fn cat(&mut self, names: &[&str]) -> u8 {
        let mut code = 0;
        for &name in if names.is_empty() { &["-"][..] } else { names } {
            match self.resolve(name).as_str() {
                _ if name == "-" => loop {
                    match self.input.next(&mut self.out).await {
                        Heard::Bytes(bytes) => self.out.write(&bytes).await,
                        Heard::Interrupt => return INTERRUPTED,
                        Heard::End => break,
                    }
                },
                "/etc/hostname" => {
                    self.say(&format!("{}\n", self.setting.hostname)).await;
                }
                path if self.setting.files.resolve(path).is_some() => {
                    match self.setting.files.read(path, LARGEST_FILE).await {
                        Ok(bytes) => self.out.write(&bytes).await,
                        Err(error) => {
                            let words = match error.kind() {
                                ErrorKind::NotFound => "No such file or directory".to_owned(),
                                _ => error.to_string(),
                            };
                            let words = format!("cat: can't open '{name}': {words}");
                            code = self.fail(&words, 1).await;
                        }
                    }
                }
                path => {
                    let words = match directory(path) {
                        Some(_) => "read error: Is a directory".to_owned(),
                        None => format!("can't open '{name}': No such file or directory"),
                    };
                    code = self.fail(&format!("cat: {words}"), 1).await;
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
                    self.say(&line).await;
                }
                None => code = 1,
            }
        }
        code
    }

    async fn change_place(&mut self, name: &str) -> u8 {
        let path = self.resolve(name);
        if directory(&path).is_none() {
            return self
                .fail(&format!("sh: cd: can't cd to {name}: No such file or directory"), 2)
                .await;
        }
        self.place = path;
        0
    }

    async fn list_places(&mut self, arguments: &[&str]) -> u8 {
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
            let mounted = self.setting.files.list(&path).await;
            let own = || directory(&path).map(|it| it.iter().map(|it| (*it).to_owned()).collect());
            let text = match mounted.or_else(own) {
                Some(entries) => {
                    let title = if many { format!("{name}:\n") } else { String::new() };
                    let entries: String = entries.iter().map(|it| format!("{it}\n")).collect();
                    title + &entries
                }
                None if exists(&path) || self.setting.files.has(&path).await => format!("{name}\n"),
                None => {
                    let words = format!("ls: {name}: No such file or directory");
                    code = self.fail(&words, 1).await;
                    continue;
                }
            };
            self.say(&text).await;
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
        let now = self.setting.clock.now().to_zoned(TimeZone::UTC);
        match jiff::fmt::strtime::format(format, &now) {
            Ok(text) => self.say(&(text + "\n")).await,
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
        let Shell { setting, input, out, .. } = self;
        tokio::select! {
            // Each may be dropped: time goes on, and what was typed is kept.
            () = setting.clock.sleep(all) => 0,
            () = input.interrupted(out) => INTERRUPTED,
        }
    }

    async fn exit_code(&mut self, argument: Option<&str>) -> u8 {
        let Some(text) = argument else { return self.last };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u32>() {
            // Only the last byte gets through, as everywhere.
            Ok(code) if digits => code.to_le_bytes()[0],
            Ok(_) | Err(_) => {
                self.fail(&format!("sh: exit: Illegal number: {text}"), MISUSED).await
            }
        }
    }

    /// The whole path of a name.
    fn resolve(&self, name: &str) -> String {
        let mut parts: Vec<&str> = Vec::new();
        let from = if name.starts_with('/') { "" } else { &self.place };
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

/// What is in a directory.
fn directory(path: &str) -> Option<&'static [&'static str]> {
    DIRECTORIES.iter().find(|(known, _)| *known == path).map(|(_, entries)| *entries)
}

fn exists(path: &str) -> bool {
    let Some((parent, name)) = path.rsplit_once('/') else { return false };
    let parent = if parent.is_empty() { "/" } else { parent };
    directory(parent).is_some_and(|entries| entries.contains(&name))
}

/// A time to sleep: `5`, `0.5`, `2m`, `infinity`.
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
