//! How what was bought for a job is known: labels, annotations and names.

use gantry_reconcile::Key;
use gantry_reconcile::names::hash;

/// Keeps a job until everything is given back.
pub const FINALIZER: &str = "instascale.codeflare.dev/finalizer";
/// The annotation of a job that says why it has no nodes, for people.
pub const MESSAGE: &str = "instascale.codeflare.dev/message";
/// The annotation of a job whose nodes did not come in time: what was asked for then.
pub const GAVE_UP: &str = "instascale.codeflare.dev/gave-up";
/// The label of a copied MachineSet: the mark of the job it was copied for.
pub const COPY: &str = "instascale.codeflare.dev-aw";
/// The label of what was made for a job: which grant it was made for.
pub const GRANT: &str = "instascale.codeflare.dev-grant";
/// The annotation of what was made for a job: the namespace and name of the job.
pub const OWNER: &str = "instascale.codeflare.dev/owner";
/// The annotation of a MachineSet that names the last grants it was given back by, newest first.
///
/// A request that was sent before that, and arrives after, finds the set changed; and whoever has not
/// heard yet that the grant is over finds it here, on the object it would change.
pub const RETURNED: &str = "instascale.codeflare.dev/returned";

/// How many grants are remembered. No request and no news are late by so many.
const REMEMBERED: usize = 16;

/// The longest key or value of a label, and name of a MachineSet, which becomes one.
const LONGEST: usize = 63;

/// The marks of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The label, and its value, of machines, nodes and pools: `<job>-<namespace>`.
    pub mine: String,
    /// The label of a MachineSet that says how many of its machines were bought for the job.
    pub bought: String,
    /// The label, and its value, that samples and client libraries look for on nodes: the job's name.
    pub name: String,
    /// The namespace and name of the job, for annotations.
    pub owner: String,
}

impl Marks {
    /// The marks of the job with this key.
    #[must_use]
    pub fn of(job: &Key) -> Self {
        let both = format!("{}-{}", job.name(), job.namespace());
        Self {
            bought: cut(&format!("instascale.codeflare.dev-{both}"), LONGEST),
            mine: cut(&both, LONGEST),
            name: cut(job.name(), LONGEST),
            owner: format!("{}/{}", job.namespace(), job.name()),
        }
    }

    /// The labels of a node of the job.
    #[must_use]
    pub fn labels(&self) -> [(&str, &str); 2] {
        [(&self.mine, &self.mine), (&self.name, &self.name)]
    }
}

/// The job that an annotation names.
#[must_use]
pub fn owner(text: &str) -> Option<Key> {
    let (namespace, name) = text.split_once('/')?;
    (!namespace.is_empty() && !name.is_empty()).then(|| Key::new(namespace, name))
}

/// `text`, or as much of it as fits before eight digits that stand for the whole.
fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    // Names of objects are ASCII, so every place is the border of a character.
    let digits = digits(&[text], 8);
    let room = longest.saturating_sub(digits.len() + 1);
    format!("{}-{digits}", text.get(..room).unwrap_or_default())
}

/// Digits that follow from `parts`.
fn digits(parts: &[&str], count: usize) -> String {
    let mut number = hash(parts);
    // The low bits of the hash are weak.
    number ^= number >> 32;
    number = number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^= number >> 32;
    let text = format!("{number:016x}");
    text.get(..count).unwrap_or_default().to_owned()
}

/// What a grant is known by: it follows from the job and the moment, so that whoever decides the same
/// at the same moment gives it the same name.
#[must_use]
pub fn grant(job: &Key, uid: &str, since: &str) -> String {
    digits(&[job.namespace(), job.name(), uid, since], 12)
}

/// The name of the copy of a MachineSet: `<job>-<namespace>-<type>`.
#[must_use]
pub fn copy(job: &Key, instance: &str) -> String {
    let name = format!("{}-{}-{instance}", job.name(), job.namespace());
    let plain = plain(&name, |it| it == '.');
    match plain == name {
        true => cut(&plain, LONGEST),
        // Two names that differ in what was replaced stay two.
        false => {
            let digits = digits(&[&name], 8);
            let room = LONGEST - digits.len() - 1;
            let base = plain.get(..room).unwrap_or(&plain);
            format!("{}-{digits}", base.trim_end_matches(['-', '.']))
        }
    }
}

/// The name of a pool: as much of the job's as leaves room for a dash and four digits.
#[must_use]
pub fn pool(job: &Key, grant: &str, instance: &str, attempt: usize, longest: usize) -> String {
    let digits = digits(&[grant, instance, &attempt.to_string()], 4);
    let base = plain(job.name(), |_| false);
    let base = base.trim_matches('-');
    // The first must be a letter.
    let base = match base.starts_with(|it: char| it.is_ascii_lowercase()) {
        true => base.to_owned(),
        false => format!("aw-{base}"),
    };
    let room = longest.saturating_sub(digits.len() + 1);
    let base = base.get(..room).unwrap_or(&base).trim_end_matches('-');
    format!("{base}-{digits}")
}

/// The name of a pretended node.
#[must_use]
pub fn node(group: &str, grant: &str, number: u32) -> String {
    let end = format!("{grant}-{number}");
    let room = LONGEST.saturating_sub(end.len() + 1);
    format!("{}-{end}", group.get(..room).unwrap_or(group).trim_end_matches(['-', '.']))
}

/// Lower-case letters, digits, dashes, and what else is allowed; a dash for everything else.
fn plain(text: &str, allowed: impl Fn(char) -> bool) -> String {
    let keep = |it: &char| it.is_ascii_lowercase() || it.is_ascii_digit() || allowed(*it);
    let lower = text.chars().map(|it| it.to_ascii_lowercase());
    lower.map(|it| if keep(&it) { it } else { '-' }).collect()
}

/// The annotation [`RETURNED`] with one grant more.
#[must_use]
pub fn returned(before: Option<&String>, grant: &str) -> String {
    let before = before.map(String::as_str).unwrap_or_default();
    let others = before.split(',').filter(|it| !it.is_empty() && *it != grant);
    [grant].into_iter().chain(others).take(REMEMBERED).collect::<Vec<_>>().join(",")
}

/// Whether [`RETURNED`] names a grant.
#[must_use]
pub fn is_returned(text: Option<&String>, grant: &str) -> bool {
    text.is_some_and(|text| text.split(',').any(|it| it == grant))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_label(text: &str) -> bool {
        let fine = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        let ends = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
        text.len() <= LONGEST
            && text.chars().all(fine)
            && ends(text.chars().next())
            && ends(text.chars().last())
    }

    #[test]
    fn marks_are_those_of_the_original() {
        let marks = Marks::of(&Key::new("default", "gpu-job"));
        assert_eq!(marks.mine, "gpu-job-default");
        assert_eq!(marks.bought, "instascale.codeflare.dev-gpu-job-default");
        assert_eq!(marks.name, "gpu-job");
        assert_eq!(owner(&marks.owner), Some(Key::new("default", "gpu-job")));
    }

    #[test]
    fn is_5_long_names_are_cut_and_stay_apart() {
        let table = [(20, 17), (25, 12), (26, 12), (60, 60), (253, 63), (1, 1)];
        for (name, namespace) in table {
            let job = |end: &str| {
                let name = format!("{}{end}", "n".repeat(name));
                Marks::of(&Key::new(&"s".repeat(namespace), &name))
            };
            let (one, two) = (job("a"), job("b"));
            for mark in [&one.mine, &one.bought, &one.name] {
                assert!(is_label(mark), "{mark}");
            }
            assert!(one.mine != two.mine && one.bought != two.bought && one.name != two.name);
        }
        let exact = Marks::of(&Key::new(&"s".repeat(12), &"n".repeat(25)));
        assert_eq!(exact.bought.len(), 63, "37 characters are not cut");
        assert!(exact.bought.ends_with("-ssssssssssss"), "{}", exact.bought);
    }

    #[test]
    fn names_are_legal_and_follow_from_what_they_are_for() {
        let job = Key::new("team-a", "train");
        assert_eq!(copy(&job, "m5.xlarge"), "train-team-a-m5.xlarge");
        let azure = copy(&job, "Standard_D4s_v3");
        assert!(azure.starts_with("train-team-a-standard-d4s-v3-"), "{azure}");
        assert_ne!(azure, copy(&job, "Standard-D4s_v3"), "what was replaced is not forgotten");
        let long = copy(&Key::new(&"s".repeat(63), &"n".repeat(200)), "Standard_D4s_v3");
        assert!(is_label(&long), "{long}");

        for (name, longest) in
            [("train", 30), ("a-very-long-name-of-a-job.v2", 15), ("9.b", 15), ("--", 15)]
        {
            let id = pool(&Key::new("n", name), "g", "m5.xlarge", 0, longest);
            let (base, digits) = id.rsplit_once('-').unwrap();
            assert!(id.len() <= longest && digits.len() == 4, "{id}");
            assert!(base.starts_with(|it: char| it.is_ascii_lowercase()), "{id}");
            assert!(!base.ends_with('-') && !id.contains('.'), "{id}");
            assert_eq!(id, pool(&Key::new("n", name), "g", "m5.xlarge", 0, longest));
            assert_ne!(id, pool(&Key::new("n", name), "h", "m5.xlarge", 0, longest));
        }
        assert!(pool(&job, "g", "m5.xlarge", 0, 30).starts_with("train-"));
        assert!(is_label(&node(&"g".repeat(50), &grant(&job, "u", "now"), 12)));
    }

    #[test]
    fn a_bounded_number_of_grants_is_remembered() {
        let mut text = None;
        for number in 0..20 {
            text = Some(returned(text.as_ref(), &format!("g{number}")));
        }
        assert!(is_returned(text.as_ref(), "g19") && is_returned(text.as_ref(), "g4"));
        assert!(!is_returned(text.as_ref(), "g3") && !is_returned(text.as_ref(), "g"));
        let again = returned(text.as_ref(), "g10");
        assert_eq!(again.split(',').count(), REMEMBERED, "{again}");
    }
}
