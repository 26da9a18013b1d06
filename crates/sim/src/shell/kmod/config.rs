//! The files below `/etc/modprobe.d`. Pure.

use crate::kernel::canonical_name;

/// The directories with configuration, the most important first.
pub(super) const DIRECTORIES: [&str; 5] = [
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
];

/// What the configuration says about modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    /// The modules that are loaded before and after one.
    pub(super) soft_dependencies: Vec<SoftDependency>,
    /// The parameters of modules.
    pub(super) options: Vec<(String, String)>,
    /// Other names of modules.
    pub(super) aliases: Vec<(String, String)>,
    /// Lines that are not simulated.
    pub(super) ignored: Vec<String>,
}

/// The modules that are loaded before and after one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SoftDependency {
    /// The module.
    pub(super) module: String,
    /// Those before it.
    pub(super) pre: Vec<String>,
    /// Those after it.
    pub(super) post: Vec<String>,
}

impl SoftDependency {
    /// Reads `pre: a b post: c`.
    pub(super) fn parse(module: &str, text: &str) -> Self {
        let mut parsed = Self { module: canonical_name(module), ..Self::default() };
        let mut list = None;
        for word in text.split_whitespace() {
            match word {
                "pre:" => list = Some(true),
                "post:" => list = Some(false),
                name => match list {
                    Some(true) => parsed.pre.push(canonical_name(name)),
                    Some(false) => parsed.post.push(canonical_name(name)),
                    None => {}
                },
            }
        }
        parsed
    }
}

impl Config {
    /// Adds the lines of a file.
    pub(super) fn add(&mut self, text: &str) {
        // A backslash continues a line.
        let text = text.replace("\\\n", " ");
        for line in text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'))
        {
            let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim();
            let (module, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let (name, rest) = (canonical_name(module), rest.trim().to_owned());
            match command {
                "softdep" => self.soft_dependencies.push(SoftDependency::parse(module, &rest)),
                "options" => self.options.push((name, rest)),
                "alias" => self.aliases.push((name, canonical_name(&rest))),
                // They matter only to modules that are looked up by alias.
                "blacklist" => {}
                _ => self.ignored.push(line.to_owned()),
            }
        }
    }

    /// Returns the module that a name means.
    pub(super) fn resolve(&self, name: &str) -> String {
        let name = canonical_name(name);
        let alias = self.aliases.iter().find(|(alias, _)| *alias == name);
        alias.map_or(name, |(_, module)| module.clone())
    }

    /// Returns the parameters of a module.
    pub(super) fn parameters(&self, module: &str) -> Vec<&str> {
        let all = self.options.iter().filter(|(name, _)| name == module);
        all.map(|(_, parameters)| parameters.as_str()).collect()
    }
}
