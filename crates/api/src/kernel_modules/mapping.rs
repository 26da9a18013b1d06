//! Kernel mappings: the kernels that an image is for.

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build::Build;
use super::reference::Tls;
use super::sign::Sign;

/// Kernels, and the image for them. Exactly one of `literal` and `regexp` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelMapping {
    /// The kernel, exactly as the node reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub literal: Option<String>,
    /// A regular expression that is searched for in the kernel's version; anchor it with `^` and
    /// `$` to match the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regexp: Option<String>,
    /// The image for these kernels; that of the container by default. Variables such as
    /// `${KERNEL_FULL_VERSION}` are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_image: Option<String>,
    /// What is different about building for these kernels. An empty object means nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// What is different about signing for these kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign: Option<Sign>,
    /// How far the registry of the image is trusted. Replaces that of the container as a whole.
    #[serde(rename = "registryTLS", skip_serializing_if = "Option::is_none")]
    pub registry_tls: Option<Tls>,
    /// Modules to unload first on these kernels. Replaces the list of the container, even by
    /// nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_tree_modules_to_remove: Option<Vec<String>>,
}

/// The kernels of a mapping, as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matcher<'a> {
    /// The kernel with this version.
    Literal(&'a str),
    /// Every kernel in whose version the expression is found.
    Regexp(&'a str),
}

impl KernelMapping {
    /// The kernels of the mapping.
    ///
    /// # Errors
    /// The message of rule W-2 or W-3, unless exactly one of the two fields is set.
    pub fn matcher(&self) -> Result<Matcher<'_>, &'static str> {
        let literal = self.literal.as_deref().filter(|text| !text.is_empty());
        let regexp = self.regexp.as_deref().filter(|text| !text.is_empty());
        match (literal, regexp) {
            (Some(literal), None) => Ok(Matcher::Literal(literal)),
            (None, Some(regexp)) => Ok(Matcher::Regexp(regexp)),
            (Some(_), Some(_)) => Err("literal and regexp exclude each other"),
            (None, None) => Err("set literal or regexp"),
        }
    }

    /// Whether the mapping is for this kernel. A kernel that ends with `+` is also tried without it
    /// (D-7).
    ///
    /// # Errors
    /// The message of rule W-1, W-2 or W-3, if the mapping is invalid.
    pub fn matches(&self, kernel: &str) -> Result<bool, String> {
        let matches: Box<dyn Fn(&str) -> bool> = match self.matcher()? {
            Matcher::Literal(literal) => Box::new(move |kernel| kernel == literal),
            Matcher::Regexp(regexp) => {
                let regexp = compile(regexp).map_err(|why| format!("invalid regexp: {why}"))?;
                Box::new(move |kernel| regexp.is_match(kernel))
            }
        };
        Ok(matches(kernel) || kernel.strip_suffix('+').is_some_and(matches))
    }
}

/// Compiles the expression of a mapping.
///
/// The dialect is that of RE2, less `\Q…\E`, which the engine does not have.
pub(super) fn compile(expression: &str) -> Result<Regex, String> {
    if quotes(expression) {
        return Err(r"\Q…\E is not supported; put a backslash before each special character".into());
    }
    Regex::new(expression).map_err(|error| {
        // The engine prints a diagram of several lines; the last one is the message.
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        last.trim_start_matches("error:").trim().to_owned()
    })
}

/// Whether the expression uses `\Q` or `\E` as an escape, not after an escaped backslash.
fn quotes(expression: &str) -> bool {
    let mut characters = expression.chars();
    while let Some(character) = characters.next() {
        if character == '\\' && matches!(characters.next(), Some('Q' | 'E')) {
            return true;
        }
    }
    false
}

/// Returns each mapping that no kernel can reach, with the earlier one that hides it.
///
/// Certain cases only: whether one expression includes another is not decided.
pub(super) fn unreachable(mappings: &[KernelMapping]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut earlier: Vec<(usize, Matcher<'_>, Option<Regex>)> = Vec::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let Ok(matcher) = mapping.matcher() else { continue };
        let first = earlier.iter().find(|(_, other, regex)| match (matcher, other) {
            (Matcher::Literal(kernel), Matcher::Literal(other)) => {
                kernel == *other || kernel.strip_suffix('+') == Some(*other)
            }
            (Matcher::Literal(kernel), Matcher::Regexp(_)) => {
                regex.as_ref().is_some_and(|regex| regex.is_match(kernel))
            }
            (Matcher::Regexp(one), Matcher::Regexp(other)) => one == *other || matches_all(other),
            (Matcher::Regexp(_), Matcher::Literal(_)) => false,
        });
        if let Some((first, _, _)) = first {
            found.push((index, *first));
        }
        let regex = match matcher {
            Matcher::Regexp(expression) => compile(expression).ok(),
            Matcher::Literal(_) => None,
        };
        earlier.push((index, matcher, regex));
    }
    found
}

/// Returns whether the expression is one of the ways to write "any kernel".
fn matches_all(expression: &str) -> bool {
    let mut rest = expression;
    loop {
        let before = rest;
        rest = rest.strip_prefix('^').unwrap_or(rest);
        rest = rest.strip_suffix('$').unwrap_or(rest);
        if let Some(inner) = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            rest = inner.strip_prefix("?:").unwrap_or(inner);
        }
        if rest == before {
            return matches!(rest, "" | "." | ".*" | ".+" | ".*?" | ".+?");
        }
    }
}
