//! Which steps run: `--tags` and `--skip-tags`.

use crate::finding::did_you_mean;

/// The tags of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagSelection {
    /// Tags to run; without any, everything runs but what has the tag `never`.
    pub only: Vec<String>,
    /// Tags to skip.
    pub skip: Vec<String>,
}

/// Tags with a meaning of their own.
pub const SPECIAL_TAGS: [&str; 5] = ["all", "always", "never", "tagged", "untagged"];

impl TagSelection {
    /// Whether a step with these tags runs.
    #[must_use]
    pub fn runs(&self, tags: &[&str]) -> bool {
        let named = |list: &[String], name: &str| list.iter().any(|it| it == name);
        let is_untagged = tags.is_empty();
        let shares = |list: &[String]| {
            list.iter().any(|it| tags.contains(&it.as_str()) || is_untagged && it == "untagged")
        };
        let is_never = tags.contains(&"never");
        let takes_all = self.only.is_empty() || named(&self.only, "all");
        let takes = tags.contains(&"always")
            || takes_all && !is_never
            || shares(&self.only)
            || named(&self.only, "tagged") && !is_untagged && !is_never;
        let skips = if named(&self.skip, "all") {
            !tags.contains(&"always") || named(&self.skip, "always")
        } else {
            shares(&self.skip) || named(&self.skip, "tagged") && !is_untagged
        };
        takes && !skips
    }

    /// Returns a message about the first tag that no step has.
    #[must_use]
    pub fn unknown(&self, known: &[&str]) -> Option<String> {
        let is_known =
            |tag: &&String| known.contains(&tag.as_str()) || SPECIAL_TAGS.contains(&tag.as_str());
        let wrong = self.only.iter().chain(&self.skip).find(|tag| !is_known(tag))?;
        let hint = did_you_mean(wrong, known.iter().copied());
        Some(format!("no step has the tag `{wrong}`{hint}; there are: {}", known.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(only: &str, skip: &str) -> TagSelection {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        TagSelection { only: words(only), skip: words(skip) }
    }

    #[test]
    fn prv_5_tags_select_steps() {
        // Tags of steps:          config,  (none), always, never,  never+debug
        let table = [
            ("", "", [true, true, true, false, false]),
            ("all", "", [true, true, true, false, false]),
            ("config", "", [true, false, true, false, false]),
            ("other", "", [false, false, true, false, false]),
            ("debug", "", [false, false, true, false, true]),
            ("never", "", [false, false, true, true, true]),
            ("tagged", "", [true, false, true, false, false]),
            ("untagged", "", [false, true, true, false, false]),
            ("", "config", [false, true, true, false, false]),
            ("", "always", [true, true, false, false, false]),
            ("", "tagged", [false, true, false, false, false]),
            ("", "untagged", [true, false, true, false, false]),
            ("", "all", [false, false, true, false, false]),
            ("", "all always", [false, false, false, false, false]),
            ("config", "config", [false, false, true, false, false]),
        ];
        let steps: [&[&str]; 5] = [&["config"], &[], &["always"], &["never"], &["never", "debug"]];
        for (only, skip, expected) in table {
            let selection = selection(only, skip);
            assert_eq!(steps.map(|tags| selection.runs(tags)), expected, "{only:?} {skip:?}");
        }
    }

    #[test]
    fn prv_5_a_tag_that_no_step_has_is_an_error() {
        let known = ["config", "apply"];
        assert_eq!(selection("config all", "never").unknown(&known), None);
        let message = selection("confg", "").unknown(&known).unwrap();
        assert!(message.contains("did you mean `config`?"), "{message}");
        assert!(selection("", "x").unknown(&known).is_some());
    }
}
