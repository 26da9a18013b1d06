//! Prints results about files in the format of the original.

use std::collections::BTreeMap;

use gantry_yaml::{self as yaml, WriteError};
use serde_json::Value;

use super::{FileOutcome, FileResult, Wording};

/// The line between sections.
const RULE: &str = "-------------------------------";

/// Returns the text of the original: whether the claims can be satisfied, and then how, or, if
/// verbose, why not.
///
/// # Errors
/// If something cannot be written as YAML.
pub fn file_text(
    nodes: &[FileResult],
    verbose: bool,
    wording: Wording,
) -> Result<String, WriteError> {
    let Some(best) = best(nodes) else {
        let mut text = "failed to satisfy the claim\n".to_owned();
        for node in nodes.iter().filter(|_| verbose) {
            text += &format!("{RULE}\n{}", summary(node, wording));
        }
        return Ok(text);
    };
    let told = match verbose {
        false => summary(best, wording),
        true => yaml::write(&tree(best, wording))?,
    };
    Ok(format!("succeeded in satisfying the claim\n{RULE}\n{told}"))
}

/// Returns the node with the highest score, the first of several, of those that satisfy all claims.
pub(crate) fn best(nodes: &[FileResult]) -> Option<&FileResult> {
    let serving = nodes.iter().filter(|node| node.outcome == FileOutcome::Succeeded);
    serving.reduce(|best, node| if node.score > best.score { node } else { best })
}

/// Returns a line for everything that was checked on a node.
fn summary(node: &FileResult, wording: Wording) -> String {
    let noun = wording.noun();
    let FileResult { capacity_claim_results, node_name, score, outcome: standing } = node;
    let standing = match standing {
        FileOutcome::Succeeded => "succeeded",
        FileOutcome::Failed => "failed",
        FileOutcome::Undecided => "the search ended without a result",
    };
    let mut lines = vec![format!("node \"{node_name}\" ({score}): {standing}")];
    for claim in capacity_claim_results {
        let standing = if claim.score > 0 { "succeeded" } else { "failed" };
        let (name, score) = (&claim.claim_name, claim.score);
        lines.push(format!("- capacity claim \"{name}\" ({score}): {standing}"));
        for claim in &claim.device_claim_results {
            let (name, score) = (&claim.claim_name, claim.score);
            let standing = claim.failure_reason.as_deref().unwrap_or("succeeded");
            lines.push(format!("  - {noun} claim \"{name}\" ({score}): {standing}"));
            for (at, pool) in claim.pool_results.iter().enumerate() {
                let standing = row_note(pool.failure_reason.as_deref(), at, claim.best);
                let standing = standing.unwrap_or("succeeded");
                let (name, score) = (&pool.pool_name, pool.score);
                lines.push(format!("    - pool \"{name}\" ({score}): {standing}"));
                for (at, device) in pool.device_results.iter().flatten().enumerate() {
                    let standing = row_note(device.failure_reason.as_deref(), at, pool.best);
                    let standing = standing.unwrap_or("success");
                    let (name, score) = (&device.device_name, device.score);
                    lines.push(format!("      - {noun} \"{name}\" ({score}): {standing}"));
                }
            }
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Returns why something does not serve, or that it is the best.
fn row_note(failure: Option<&str>, at: usize, best: i64) -> Option<&str> {
    failure.or_else(|| (i64::try_from(at) == Ok(best)).then_some("best"))
}

/// Returns everything that was checked, as a tree with the names of the wording, in alphabetical
/// order.
#[must_use]
pub fn tree(node: &FileResult, wording: Wording) -> Value {
    with_wording(serde_json::to_value(node).unwrap_or_default(), wording)
}

/// The names of fields when devices were called resources.
const OLD_NAMES: [(&str, &str); 3] = [
    ("deviceClaimResults", "resourceClaimResults"),
    ("deviceName", "resourceName"),
    ("deviceResults", "resourceResults"),
];

fn with_wording(tree: Value, wording: Wording) -> Value {
    let name = |name: String| match wording {
        Wording::Device => name,
        Wording::Resource => {
            let old = OLD_NAMES.iter().find(|(new, _)| *new == name);
            old.map_or(name, |(_, old)| (*old).to_owned())
        }
    };
    match tree {
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields: BTreeMap<String, Value> =
                fields.map(|(field, value)| (name(field), with_wording(value, wording))).collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => items.into_iter().map(|item| with_wording(item, wording)).collect(),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}
