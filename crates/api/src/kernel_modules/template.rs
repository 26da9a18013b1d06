//! Variables in images and paths of a Module: `${KERNEL_FULL_VERSION}` and the like.
//!
//! `$NAME` and `${NAME}` stand for the value of a variable, `${NAME:-text}` for the text when the
//! variable has no value or an empty one, and `$$` for a dollar sign.

use std::fmt;

/// The variables that templates may use, with the values that a reader of a manifest can check
/// references with.
pub const VARIABLES: &[(&str, &str)] = &[
    ("CONTAINER_IMAGE", "example.com/image:tag"),
    ("KERNEL_DEBIAN_FLAVOR", "amd64"),
    ("KERNEL_DEBIAN_RELEASE", "13"),
    ("KERNEL_FULL_VERSION", "5.10.0-13-amd64"),
    ("KERNEL_RHEL_ARCH", "x86_64"),
    ("KERNEL_RHEL_RELEASE", "348.23.1.el8_5"),
    ("KERNEL_RHEL_VARIANT", "rt"),
    ("KERNEL_RHEL_VERSION", "el8_5"),
    ("KERNEL_UBUNTU_FLAVOR", "generic"),
    ("KERNEL_UBUNTU_RELEASE", "104"),
    ("KERNEL_VERSION", "5.10.0-13-amd64"),
    ("KERNEL_X", "5"),
    ("KERNEL_XYZ", "5.10.0"),
    ("KERNEL_Y", "10"),
    ("KERNEL_Z", "0"),
    ("MOD_NAME", "module"),
    ("MOD_NAMESPACE", "default"),
];

/// The variables of a Module that do not depend on a kernel.
pub const MODULE_VARIABLES: &[&str] = &["MOD_NAME", "MOD_NAMESPACE"];

/// A text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    segments: Vec<Segment>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    Variable { name: String, default: Option<String> },
}

/// A text that is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A brace is not closed.
    #[error("unterminated \"${{\"; close it with \"}}\", or write \"$$\" for a dollar sign")]
    Unterminated,
    /// There is no such variable.
    #[error("unknown variable \"{0}\"; the variables are {list}", list = VariableList)]
    UnknownVariable(String),
    /// A dollar sign stands before something that is no name.
    #[error("\"${0}\" is no variable; write \"$$\" for a dollar sign")]
    InvalidName(String),
}

/// The variable that a template needs and that has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("variable \"{0}\" has no value; give a default with \"${{{0}:-text}}\"")]
pub struct UndefinedVariable(pub String);

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// A brace is not closed, or a variable is unknown.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut segments = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            literal.push_str(&rest[..dollar]);
            let after = &rest[dollar + 1..];
            if let Some(escaped) = after.strip_prefix('$') {
                literal.push('$');
                rest = escaped;
                continue;
            }
            let (name, default, remaining) = match after.strip_prefix('{') {
                Some(inner) => {
                    let end = inner.find('}').ok_or(TemplateError::Unterminated)?;
                    let (name, default) = match inner[..end].split_once(":-") {
                        Some((name, default)) => (name, Some(default.to_owned())),
                        None => (&inner[..end], None),
                    };
                    (name, default, &inner[end + 1..])
                }
                None => {
                    let end = after.find(|c| !is_name_character(c)).unwrap_or(after.len());
                    (&after[..end], None, &after[end..])
                }
            };
            check_name(name)?;
            if !literal.is_empty() {
                segments.push(Segment::Text(std::mem::take(&mut literal)));
            }
            segments.push(Segment::Variable { name: name.to_owned(), default });
            rest = remaining;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            segments.push(Segment::Text(literal));
        }
        Ok(Self { segments })
    }

    /// The names of the variables in it, in order of their first use.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Variable { name, .. } => Some(name.as_str()),
            Segment::Text(_) => None,
        })
    }

    /// Whether its result depends on the kernel.
    #[must_use]
    pub fn depends_on_kernel(&self) -> bool {
        self.variables().any(|name| name.starts_with("KERNEL_") || name == "CONTAINER_IMAGE")
    }

    /// Replaces the variables by their values.
    ///
    /// # Errors
    /// A variable has no value and no default.
    pub fn render(
        &self,
        value: impl Fn(&str) -> Option<String>,
    ) -> Result<String, UndefinedVariable> {
        let mut text = String::new();
        for segment in &self.segments {
            match segment {
                Segment::Text(literal) => text.push_str(literal),
                Segment::Variable { name, default } => {
                    let found = match default {
                        Some(default) => value(name)
                            .filter(|it| !it.is_empty())
                            .unwrap_or_else(|| default.clone()),
                        None => value(name).ok_or_else(|| UndefinedVariable(name.clone()))?,
                    };
                    text.push_str(&found);
                }
            }
        }
        Ok(text)
    }
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn check_name(name: &str) -> Result<(), TemplateError> {
    let valid = !name.is_empty()
        && name.chars().all(is_name_character)
        && !name.starts_with(|first: char| first.is_ascii_digit());
    if !valid {
        return Err(TemplateError::InvalidName(name.to_owned()));
    }
    match VARIABLES.iter().any(|(known, _)| *known == name) {
        true => Ok(()),
        false => Err(TemplateError::UnknownVariable(name.to_owned())),
    }
}

/// Lists the variables in messages.
struct VariableList;

impl fmt::Display for VariableList {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, _)) in VARIABLES.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(to, "{separator}{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> Result<String, String> {
        let template = Template::parse(text).map_err(|error| error.to_string())?;
        let value = |name: &str| match name {
            "KERNEL_X" => Some("6".to_owned()),
            "KERNEL_RHEL_VERSION" => Some(String::new()),
            _ => None,
        };
        template.render(value).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_are_replaced() {
        let table = [
            ("", ""),
            ("plain", "plain"),
            ("a:$KERNEL_X", "a:6"),
            ("a:${KERNEL_X}-b", "a:6-b"),
            ("$KERNEL_X.$KERNEL_X", "6.6"),
            ("${KERNEL_Y:-none}", "none"),
            ("${KERNEL_RHEL_VERSION:-none}", "none"),
            ("${KERNEL_RHEL_VERSION}", ""),
            ("${KERNEL_X:-none}", "6"),
            ("$$KERNEL_X$$", "$KERNEL_X$"),
        ];
        for (text, expected) in table {
            assert_eq!(rendered(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn kms_9_what_is_no_template_is_refused() {
        let table = [
            ("${KERNEL_XYZ", "unterminated"),
            ("$", "is no variable"),
            ("a$-b", "is no variable"),
            ("${}", "is no variable"),
            ("${9}", "is no variable"),
            ("${KERNEL}", "unknown variable \"KERNEL\""),
            ("$KERNEL_Xb", "unknown variable \"KERNEL_Xb\""),
            ("${kernel_x}", "unknown variable \"kernel_x\""),
            ("${KERNEL_Y}", "has no value"),
        ];
        for (text, expected) in table {
            let error = rendered(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
