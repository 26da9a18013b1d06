//! Semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{EvalResult, LibraryFunction, no_overload};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::value::Value;

const COMPONENT_SIGNATURES: &[&str] = &["kubernetes.Semver.() int"];

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "semver",
        signatures: &["(string) kubernetes.Semver", "(string,bool) kubernetes.Semver"],
        charge: CostRule::Text,
        run: semver,
    },
    LibraryFunction {
        name: "isSemver",
        signatures: &["(string) bool", "(string,bool) bool"],
        charge: CostRule::Text,
        run: is_semver,
    },
    LibraryFunction {
        name: "major",
        signatures: COMPONENT_SIGNATURES,
        charge: CostRule::Nominal,
        run: major,
    },
    LibraryFunction {
        name: "minor",
        signatures: COMPONENT_SIGNATURES,
        charge: CostRule::Nominal,
        run: minor,
    },
    LibraryFunction {
        name: "patch",
        signatures: COMPONENT_SIGNATURES,
        charge: CostRule::Nominal,
        run: patch,
    },
];

/// A version; what was built from it is checked and not kept, since it decides nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    prerelease: Vec<PrereleaseIdentifier>,
}

/// A part of a pre-release: numbers come before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PrereleaseIdentifier {
    Number(u64),
    Word(String),
}

impl Semver {
    /// The version that `text` spells.
    ///
    /// # Errors
    /// In the words of a server when it spells none.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, prerelease) = match rest.split_once('-') {
            Some((patch, prerelease)) => (patch, Some(prerelease)),
            None => (rest, None),
        };
        let numbers = [
            number(major, "Major", "major")?,
            number(minor, "Minor", "minor")?,
            number(patch, "Patch", "patch")?,
        ];
        let prerelease = match prerelease {
            Some(parts) => parts.split('.').map(prerelease_identifier).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_word(part) {
                return Err(format!("Invalid character(s) found in build meta data {part:?}"));
            }
        }
        Ok(Self { numbers, prerelease })
    }

    /// The version that `text` spells with a leading `v`, leading zeros or missing parts.
    fn parse_loose(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(ToOwned::to_owned).collect();
        for part in parts.iter_mut().filter(|part| part.len() > 1) {
            let trimmed = part.trim_start_matches('0');
            let digit = trimmed.starts_with(|letter: char| letter.is_ascii_digit());
            *part = if digit { trimmed.to_owned() } else { format!("0{trimmed}") };
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
                let what = "short version cannot contain PreRelease/Build meta data";
                return Err(what.to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    /// Which version comes first; a pre-release comes before what it prepares.
    pub(crate) fn precedence(&self, other: &Self) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.prerelease.cmp(&other.prerelease),
        })
    }
}

fn number(text: &str, name: &str, lower: &str) -> Result<u64, String> {
    if text.bytes().any(|byte| !byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {lower} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn prerelease_identifier(text: &str) -> Result<PrereleaseIdentifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            let what = "Numeric PreRelease version must not contain leading zeroes";
            return Err(format!("{what} {text:?}"));
        }
        let range = |_| format!("strconv.ParseUint: parsing {text:?}: value out of range");
        return text.parse().map(PrereleaseIdentifier::Number).map_err(range);
    }
    if !is_word(text) {
        return Err(format!("Invalid character(s) found in prerelease {text:?}"));
    }
    Ok(PrereleaseIdentifier::Word(text.to_owned()))
}

fn parse(args: &[Value<'_>]) -> Result<Result<Semver, String>, EvalError> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => {
            Ok(Semver::parse(text))
        }
        [Value::String(text), Value::Bool(true)] => Ok(Semver::parse_loose(text)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn semver<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let version = parse(args)?.map_err(EvalError::failed)?;
    Ok(Value::Semver(Arc::new(version)))
}

fn is_semver<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    Ok(Value::Bool(parse(args)?.is_ok()))
}

fn component<'v>(args: &[Value<'v>], place: usize) -> EvalResult<'v> {
    let [Value::Semver(version)] = args else { return no_overload() };
    let number = version.numbers.get(place).copied().unwrap_or(0);
    Ok(Value::Int(i64::try_from(number).unwrap_or(i64::MAX)))
}

fn major<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    component(args, 0)
}

fn minor<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    component(args, 1)
}

fn patch<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    component(args, 2)
}
