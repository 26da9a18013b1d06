//! Locates the programs of the test bed, and the folder of runs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with the programs, and the folder that contains the runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    folder: PathBuf,
    runs: PathBuf,
}

impl Programs {
    /// Reads the folders from `testbed/build`; `GANTRY_TESTBED` names another folder.
    ///
    /// # Errors
    /// There is no cache folder, or the script does not run.
    pub fn find() -> Result<Self, ProgramsError> {
        let runs = cache_folder().ok_or(ProgramsError::NoCache)?.join("testbed/runs");
        let folder = match setting("GANTRY_TESTBED") {
            Some(folder) => PathBuf::from(folder),
            None => ask_the_script()?,
        };
        Ok(Self { folder, runs })
    }

    /// The folder with the programs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder that contains the runs. It outlives them, so that a later start finds what an
    /// earlier one left behind.
    #[must_use]
    pub fn runs(&self) -> &Path {
        &self.runs
    }

    /// The path of one file of the test bed.
    ///
    /// # Errors
    /// The file was not built.
    pub fn path(&self, name: &'static str) -> Result<PathBuf, ProgramsError> {
        let path = self.folder.join(name);
        if path.exists() {
            return Ok(path);
        }
        Err(ProgramsError::NotBuilt { name, folder: self.folder.clone() })
    }
}

/// Returns Gantry's cache folder; none if the environment names no place for it.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    cache(setting)
}

/// Gantry's cache folder, by the same rule as in the Makefile and in `testbed/build`.
fn cache(setting: impl Fn(&'static str) -> Option<String>) -> Option<PathBuf> {
    if let Some(cache) = setting("GANTRY_CACHE") {
        return Some(PathBuf::from(cache));
    }
    let home = || setting("HOME").map(|home| Path::new(&home).join(".cache"));
    Some(setting("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?.join("gantry"))
}

/// Returns a variable of the environment; an empty one counts as unset, as in the scripts.
#[expect(clippy::disallowed_methods, reason = "this is the edge of tests, which have no settings")]
fn setting(name: &'static str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn ask_the_script() -> Result<PathBuf, ProgramsError> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/build");
    let output = Command::new(&script)
        .arg("--print-dir")
        .output()
        .map_err(|source| ProgramsError::Script { script, source })?;
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
}

/// Why the programs of the test bed were not found.
#[derive(Debug, thiserror::Error)]
pub enum ProgramsError {
    /// No cache folder is known.
    #[error("cannot find a cache folder: set HOME or GANTRY_CACHE")]
    NoCache,
    /// The script that prints the folders did not run.
    #[error("could not run {}", script.display())]
    Script {
        /// The script.
        script: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A program is missing.
    #[error("cannot find {name} in {}: run `make testbed`", folder.display())]
    NotBuilt {
        /// The program.
        name: &'static str,
        /// Where it should be.
        folder: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_scripts_have_it() {
        let table = [
            ("ours is meant for this", vec![("GANTRY_CACHE", "/g"), ("HOME", "/h")], Some("/g")),
            ("the desktop's", vec![("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], Some("/x/gantry")),
            ("the usual place", vec![("HOME", "/h")], Some("/h/.cache/gantry")),
            ("no place at all", vec![], None),
        ];
        for (why, settings, expected) in table {
            let setting = |name| {
                let found = settings.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(cache(setting), expected.map(PathBuf::from), "{why}");
        }
    }

    #[test]
    fn a_missing_program_says_what_to_do() {
        let folder = PathBuf::from("/nowhere");
        let programs = Programs { runs: folder.clone(), folder };
        let error = programs.path("etcd").unwrap_err().to_string();
        assert_eq!(error, "cannot find etcd in /nowhere: run `make testbed`");
    }
}
