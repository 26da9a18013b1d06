//! Labels, annotations and names that identify what was bought for a job.

use gantry_reconcile::Key;
use gantry_reconcile::names::hash;

/// The finalizer that keeps a job until everything is released.
pub const FINALIZER: &str = "instascale.codeflare.dev/finalizer";
/// The annotation of a job that explains why it has no nodes.
pub const MESSAGE_ANNOTATION: &str = "instascale.codeflare.dev/message";
/// The annotation of a job whose nodes were not ready in time: the demand at that time.
pub const GAVE_UP_ANNOTATION: &str = "instascale.codeflare.dev/gave-up";
/// The label of a copied MachineSet: the owner label of the job it was copied for.
pub const COPY_LABEL: &str = "instascale.codeflare.dev-aw";
/// The label of objects created for a job: the grant they were created for.
pub const GRANT_LABEL: &str = "instascale.codeflare.dev-grant";
/// The annotation of objects created for a job: the namespace and name of the job.
pub const OWNER_ANNOTATION: &str = "instascale.codeflare.dev/owner";
/// The annotation of a MachineSet that names the last grants that were released from it, newest
/// first.
///
/// A request that was sent before a release, and arrives after it, finds the set changed; and a
/// process whose cache does not show yet that the grant is over finds it here, on the object it
/// would change.
pub const RETURNED_ANNOTATION: &str = "instascale.codeflare.dev/returned";

/// How many grants are remembered. No request and no cache is late by so many.
const MAX_REMEMBERED_GRANTS: usize = 16;

/// The maximum length of a label key or value, and of the name of a MachineSet, which becomes one.
const MAX_LABEL_LENGTH: usize = 63;

/// The owner labels of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerLabels {
    /// The label, and its value, of machines, nodes and pools: `<job>-<namespace>`.
    pub owner_label: String,
    /// The label of a MachineSet with the number of its machines that were bought for the job.
    pub purchase_label: String,
    /// The label, and its value, that samples and client libraries look for on nodes: the job's
    /// name.
    pub name: String,
    /// The namespace and name of the job, for annotations.
    pub owner: String,
}

impl OwnerLabels {
    /// Returns the labels of the job with this key.
    #[must_use]
    pub fn of(job: &Key) -> Self {
        let both = format!("{}-{}", job.name(), job.namespace());
        Self {
            purchase_label: truncate_with_hash(
                &format!("instascale.codeflare.dev-{both}"),
                MAX_LABEL_LENGTH,
            ),
            owner_label: truncate_with_hash(&both, MAX_LABEL_LENGTH),
            name: truncate_with_hash(job.name(), MAX_LABEL_LENGTH),
            owner: format!("{}/{}", job.namespace(), job.name()),
        }
    }

    /// Returns the labels of a node of the job.
    #[must_use]
    pub fn labels(&self) -> [(&str, &str); 2] {
        [(&self.owner_label, &self.owner_label), (&self.name, &self.name)]
    }
}

/// Returns the job that an annotation names.
#[must_use]
pub fn parse_owner(text: &str) -> Option<Key> {
    let (namespace, name) = text.split_once('/')?;
    (!namespace.is_empty() && !name.is_empty()).then(|| Key::new(namespace, name))
}

/// Returns `text`, or as much of it as fits before eight digits that are a hash of the whole.
fn truncate_with_hash(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    // Names of objects are ASCII, so every index is a character boundary.
    let digits = hash_digits(&[text], 8);
    let room = longest.saturating_sub(digits.len() + 1);
    format!("{}-{digits}", text.get(..room).unwrap_or_default())
}

/// Returns digits that are a hash of `parts`.
fn hash_digits(parts: &[&str], count: usize) -> String {
    let mut number = hash(parts);
    // The low bits of the hash are weak.
    number ^= number >> 32;
    number = number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^= number >> 32;
    let text = format!("{number:016x}");
    text.get(..count).unwrap_or_default().to_owned()
}

/// Returns the identifier of a grant: it is derived from the job and the time, so that processes
/// that make the same decision at the same time give it the same identifier.
#[must_use]
pub fn grant_id(job: &Key, uid: &str, since: &str) -> String {
    hash_digits(&[job.namespace(), job.name(), uid, since], 12)
}

/// Returns the name of the copy of a MachineSet: `<job>-<namespace>-<type>`.
#[must_use]
pub fn copy_name(job: &Key, instance: &str) -> String {
    let name = format!("{}-{}-{instance}", job.name(), job.namespace());
    let plain = sanitize(&name, |it| it == '.');
    match plain == name {
        true => truncate_with_hash(&plain, MAX_LABEL_LENGTH),
        // Two names that differ only in replaced characters stay different.
        false => {
            let digits = hash_digits(&[&name], 8);
            let room = MAX_LABEL_LENGTH - digits.len() - 1;
            let base = plain.get(..room).unwrap_or(&plain);
            format!("{}-{digits}", base.trim_end_matches(['-', '.']))
        }
    }
}

/// Returns the name of a pool: as much of the job's name as leaves space for a dash and four
/// digits.
#[must_use]
pub fn pool_name(job: &Key, grant: &str, instance: &str, attempt: usize, longest: usize) -> String {
    let digits = hash_digits(&[grant, instance, &attempt.to_string()], 4);
    let base = sanitize(job.name(), |_| false);
    let base = base.trim_matches('-');
    // The first character must be a letter.
    let base = match base.starts_with(|it: char| it.is_ascii_lowercase()) {
        true => base.to_owned(),
        false => format!("aw-{base}"),
    };
    let room = longest.saturating_sub(digits.len() + 1);
    let base = base.get(..room).unwrap_or(&base).trim_end_matches('-');
    format!("{base}-{digits}")
}

/// Returns the name of a simulated node.
#[must_use]
pub fn node_name(group: &str, grant: &str, number: u32) -> String {
    let end = format!("{grant}-{number}");
    let room = MAX_LABEL_LENGTH.saturating_sub(end.len() + 1);
    format!("{}-{end}", group.get(..room).unwrap_or(group).trim_end_matches(['-', '.']))
}

/// Keeps lower-case letters, digits, dashes, and other allowed characters; replaces the rest by
/// dashes.
fn sanitize(text: &str, allowed: impl Fn(char) -> bool) -> String {
    let keep = |it: &char| it.is_ascii_lowercase() || it.is_ascii_digit() || allowed(*it);
    let lower = text.chars().map(|it| it.to_ascii_lowercase());
    lower.map(|it| if keep(&it) { it } else { '-' }).collect()
}

/// Returns the annotation [`RETURNED_ANNOTATION`] with one more grant.
#[must_use]
pub fn with_returned(before: Option<&String>, grant: &str) -> String {
    let before = before.map(String::as_str).unwrap_or_default();
    let others = before.split(',').filter(|it| !it.is_empty() && *it != grant);
    [grant].into_iter().chain(others).take(MAX_REMEMBERED_GRANTS).collect::<Vec<_>>().join(",")
}

/// Returns whether [`RETURNED_ANNOTATION`] names a grant.
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
        text.len() <= MAX_LABEL_LENGTH
            && text.chars().all(fine)
            && ends(text.chars().next())
            && ends(text.chars().last())
    }

    #[test]
    fn marks_are_those_of_the_original() {
        let marks = OwnerLabels::of(&Key::new("default", "gpu-job"));
        assert_eq!(marks.owner_label, "gpu-job-default");
        assert_eq!(marks.purchase_label, "instascale.codeflare.dev-gpu-job-default");
        assert_eq!(marks.name, "gpu-job");
        assert_eq!(parse_owner(&marks.owner), Some(Key::new("default", "gpu-job")));
    }

    #[test]
    fn is_5_long_names_are_cut_and_stay_apart() {
        let table = [(20, 17), (25, 12), (26, 12), (60, 60), (253, 63), (1, 1)];
        for (name, namespace) in table {
            let job = |end: &str| {
                let name = format!("{}{end}", "n".repeat(name));
                OwnerLabels::of(&Key::new(&"s".repeat(namespace), &name))
            };
            let (one, two) = (job("a"), job("b"));
            for mark in [&one.owner_label, &one.purchase_label, &one.name] {
                assert!(is_label(mark), "{mark}");
            }
            assert!(
                one.owner_label != two.owner_label
                    && one.purchase_label != two.purchase_label
                    && one.name != two.name
            );
        }
        let exact = OwnerLabels::of(&Key::new(&"s".repeat(12), &"n".repeat(25)));
        assert_eq!(exact.purchase_label.len(), 63, "37 characters are not cut");
        assert!(exact.purchase_label.ends_with("-ssssssssssss"), "{}", exact.purchase_label);
    }

    #[test]
    fn names_are_legal_and_follow_from_what_they_are_for() {
        let job = Key::new("team-a", "train");
        assert_eq!(copy_name(&job, "m5.xlarge"), "train-team-a-m5.xlarge");
        let azure = copy_name(&job, "Standard_D4s_v3");
        assert!(azure.starts_with("train-team-a-standard-d4s-v3-"), "{azure}");
        assert_ne!(azure, copy_name(&job, "Standard-D4s_v3"), "what was replaced is not forgotten");
        let long = copy_name(&Key::new(&"s".repeat(63), &"n".repeat(200)), "Standard_D4s_v3");
        assert!(is_label(&long), "{long}");

        for (name, longest) in
            [("train", 30), ("a-very-long-name-of-a-job.v2", 15), ("9.b", 15), ("--", 15)]
        {
            let id = pool_name(&Key::new("n", name), "g", "m5.xlarge", 0, longest);
            let (base, digits) = id.rsplit_once('-').unwrap();
            assert!(id.len() <= longest && digits.len() == 4, "{id}");
            assert!(base.starts_with(|it: char| it.is_ascii_lowercase()), "{id}");
            assert!(!base.ends_with('-') && !id.contains('.'), "{id}");
            assert_eq!(id, pool_name(&Key::new("n", name), "g", "m5.xlarge", 0, longest));
            assert_ne!(id, pool_name(&Key::new("n", name), "h", "m5.xlarge", 0, longest));
        }
        assert!(pool_name(&job, "g", "m5.xlarge", 0, 30).starts_with("train-"));
        assert!(is_label(&node_name(&"g".repeat(50), &grant_id(&job, "u", "now"), 12)));
    }

    #[test]
    fn a_bounded_number_of_grants_is_remembered() {
        let mut text = None;
        for number in 0..20 {
            text = Some(with_returned(text.as_ref(), &format!("g{number}")));
        }
        assert!(is_returned(text.as_ref(), "g19") && is_returned(text.as_ref(), "g4"));
        assert!(!is_returned(text.as_ref(), "g3") && !is_returned(text.as_ref(), "g"));
        let again = with_returned(text.as_ref(), "g10");
        assert_eq!(again.split(',').count(), MAX_REMEMBERED_GRANTS, "{again}");
    }
}
