//! What `--list-tasks`, `--list-tags` and `explain` print.

use std::fmt::Write as _;

use crate::plan::tags;
use crate::step::{Behavior, Stage, Step};

/// Lists steps by stage, in the form of the original's `--list-tasks`.
#[must_use]
pub fn list_tasks(name: &str, steps: &[&Step]) -> String {
    let mut text = format!("\nplaybook: {name}\n");
    let mut play = 0;
    for stage in Stage::ALL {
        let of_stage: Vec<&&Step> = steps.iter().filter(|step| step.stage == stage).collect();
        if of_stage.is_empty() {
            continue;
        }
        play += 1;
        let (number, stage) = (stage.number(), stage.name());
        let _ = writeln!(text, "\n  play #{play} (all): stage {number} {stage}\tTAGS: []");
        text.push_str("    tasks:\n");
        for step in of_stage {
            let held = if matches!(step.behavior, Behavior::NotBuilt) { " (held)" } else { "" };
            let tags = step.tag_names().join(", ");
            let _ = writeln!(text, "      {}{held}\tTAGS: [{tags}]\towns: {}", step.id, step.owns);
        }
    }
    let held = steps.iter().filter(|step| matches!(step.behavior, Behavior::NotBuilt)).count();
    if held > 0 {
        let _ = writeln!(text, "\n{held} steps are held: this version names them and has them not");
    }
    text
}

/// Lists the tags of steps, in the form of the original's `--list-tags`.
#[must_use]
pub fn list_tags(name: &str, steps: &[Step]) -> String {
    let tags = tags(steps).join(", ");
    format!("\nplaybook: {name}\n\n  play #1 (all): all\tTAGS: []\n      TASK TAGS: [{tags}]\n")
}

/// Explains a step, a tag or a variable.
///
/// # Errors
/// Nothing has that name; the message suggests one.
pub fn explain(name: &str, steps: &[Step]) -> Result<String, String> {
    if let Some(step) = steps.iter().find(|step| step.id == name) {
        return Ok(explain_step(step));
    }
    if let Some(variable) = gantry_inventory::variable(name) {
        let scope = if variable.per_cluster { "one value per cluster" } else { "per host" };
        return Ok(format!(
            "variable {name}: {}\n  type: {} ({scope})\n  default: {}\n",
            variable.about,
            variable.shape,
            variable.default.replace('`', "")
        ));
    }
    let tagged: Vec<&Step> =
        steps.iter().filter(|step| step.tags.iter().any(|tag| tag == name)).collect();
    if !tagged.is_empty() {
        let mut text = format!("tag {name}: {} steps\n", tagged.len());
        for step in tagged {
            text.push('\n');
            text.push_str(&explain_step(step));
        }
        return Ok(text);
    }
    let tags = tags(steps);
    let known = steps.iter().map(|step| step.id.as_ref());
    let known = known.chain(tags.iter().map(String::as_str));
    let known = known.chain(gantry_inventory::VARIABLES.iter().map(|it| it.name));
    let hint = gantry_inventory::suggest(name, known);
    let hint = hint.map(|it| format!(" (did you mean `{it}`?)")).unwrap_or_default();
    Err(format!("no step, tag or variable is named `{name}`{hint}; see create --list-tasks"))
}

fn explain_step(step: &Step) -> String {
    let tags = if step.tags.is_empty() { "none".to_owned() } else { step.tag_names().join(", ") };
    let root = if step.needs_root { "yes" } else { "no" };
    let held = match &step.behavior {
        Behavior::NotBuilt => "\n  held: this version names the step and has it not",
        Behavior::BuiltIn { .. } | Behavior::User(_) => "",
    };
    format!(
        "step {}: {}\n  stage: {} {}\n  tags: {tags}\n  hosts: {}\n  owns: {}\n  needs root: \
         {root}{held}\n",
        step.id,
        step.about,
        step.stage.number(),
        step.stage.name(),
        step.hosts.name(),
        step.owns
    )
}
