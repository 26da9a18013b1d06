//! Names of repositories within one registry.

use std::fmt;
use std::str::FromStr;

use gantry_oci::{ReferenceError, ReferenceProblem, Repository};

/// The path of a repository, for instance `team/driver`.
///
/// It consists of parts of lower-case letters, digits and separators between them. So none of its
/// parts is `.` or `..`, and it cannot lead out of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepositoryName(String);

/// Replaces the slash in names of directories; no repository has it in its name.
const SLASH_REPLACEMENT: char = '+';

impl RepositoryName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of its directory. All repositories are beside each other, so that no repository is
    /// a directory of another one.
    pub(crate) fn directory(&self) -> String {
        self.0.replace('/', &SLASH_REPLACEMENT.to_string())
    }

    /// Reads the name of a directory; `None` if it is not one of [`RepositoryName::directory`].
    pub(crate) fn from_directory(name: &str) -> Option<Self> {
        if name.contains('/') {
            return None;
        }
        name.replace(SLASH_REPLACEMENT, "/").parse().ok()
    }
}

impl FromStr for RepositoryName {
    type Err = ReferenceProblem;

    fn from_str(text: &str) -> Result<Self, ReferenceProblem> {
        // Any host will do: the grammar of the path is the same for all but Docker Hub.
        let repository: Repository =
            format!("localhost/{text}").parse().map_err(|error: ReferenceError| error.problem)?;
        match repository.path() == text {
            true => Ok(Self(text.to_owned())),
            false => Err(ReferenceProblem::Path),
        }
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reg_12_names_that_could_leave_a_directory_do_not_exist() {
        let valid = ["a", "a/b", "a-b/c_d/e.f", "a__b", "library/nginx", "0/1/2/3"];
        for name in valid {
            let parsed: RepositoryName = name.parse().unwrap();
            assert_eq!(RepositoryName::from_directory(&parsed.directory()), Some(parsed));
        }
        let long = "a".repeat(256);
        let invalid = [
            "", "/", "..", "a/..", "../a", "a/../b", ".", "a/./b", "/a", "a/", "a//b", "A", "a b",
            "a%2fb", "a+b", "a\0b", "a\\b", "-a", "a-", "_a", "a:b", "a@b", "é", "a\n", &long,
        ];
        for name in invalid {
            assert!(name.parse::<RepositoryName>().is_err(), "{name:?}");
        }
        for directory in ["..", ".", "", "lock", "A", "a/b", "a++b", "+a"] {
            let expected = directory == "lock";
            let found = RepositoryName::from_directory(directory);
            assert_eq!(found.is_some(), expected, "{directory:?}");
        }
    }

    proptest! {
        /// The directory of every name is one component that is not hidden and short enough.
        #[test]
        fn directories_are_single_components(name in "[a-z0-9./_+%-]{0,30}") {
            if let Ok(name) = name.parse::<RepositoryName>() {
                let directory = name.directory();
                prop_assert!(!directory.contains('/') && !directory.starts_with('.'));
                prop_assert!(directory.len() <= 255);
                prop_assert_eq!(RepositoryName::from_directory(&directory), Some(name));
            }
        }
    }
}
