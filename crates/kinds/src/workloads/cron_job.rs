//! Defaults and validates CronJobs.

use gantry_schema::FieldError;
use serde_json::Value;

use super::default_template;
use super::job::{check_template_spec, default_patterns};
use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::metadata::{check_annotations, check_labels};
use crate::tree::{at, at_mut, flag, is_set, set_default, text};

/// A job's name is its CronJob's with eleven more characters, and must stay a label.
const LONGEST_NAME: usize = 52;

pub(crate) const RULES: Rules = Rules {
    default,
    validate: |object| {
        let mut faults = validate(object);
        if text(object, "metadata.name").len() > LONGEST_NAME {
            let detail = format!("must be no more than {LONGEST_NAME} characters");
            let path = Path::new("metadata").child("name");
            faults.value(path, text(object, "metadata.name"), &detail);
        }
        faults.into_vec()
    },
    validate_update: |new, _| -> Vec<FieldError> { validate(new).into_vec() },
    warnings: crate::warnings::cron_job,
    ..Rules::NONE
};

fn default(object: &mut Value) {
    default_template(object, "spec.jobTemplate.spec.template");
    if let Some(spec) = at_mut(object, "spec.jobTemplate.spec") {
        default_patterns(spec);
    }
    set_default(object, "spec.concurrencyPolicy", "Allow");
    set_default(object, "spec.suspend", false);
    set_default(object, "spec.successfulJobsHistoryLimit", 3);
    set_default(object, "spec.failedJobsHistoryLimit", 1);
}

fn validate(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    if faults.require(spec, &path, "schedule") {
        check_schedule(spec, &path.child("schedule"), &mut faults);
    }
    faults.not_negative(spec, &path, "startingDeadlineSeconds");
    faults.require_one_of(spec, &path, "concurrencyPolicy", &["Allow", "Forbid", "Replace"]);
    if let Some(zone) = at(spec, "timeZone").as_str() {
        check_zone(zone, &path.child("timeZone"), &mut faults);
    }
    faults.not_negative(spec, &path, "successfulJobsHistoryLimit");
    faults.not_negative(spec, &path, "failedJobsHistoryLimit");
    let template = at(spec, "jobTemplate");
    let path = path.child("jobTemplate");
    check_labels(at(template, "metadata"), &path, "labels", &mut faults);
    check_annotations(at(template, "metadata"), &path, &mut faults);
    let path = path.child("spec");
    check_template_spec(at(template, "spec"), &path, &mut faults);
    if flag(template, "spec.manualSelector") {
        faults.not_supported(path.child("manualSelector"), true, &["nil", "false"]);
    }
    if is_set(template, "spec.selector") {
        let value = at(template, "spec.selector").clone();
        faults.value(path.child("selector"), value, "`selector` will be auto-generated");
    }
    faults
}

fn check_zone(zone: &str, path: &Path, faults: &mut FieldErrors) {
    if zone.is_empty() {
        faults.value(path.clone(), zone, "timeZone must be nil or non-empty string");
    } else if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in \
                      https://www.iana.org/time-zones";
        faults.value(path.clone(), zone, detail);
    } else if !is_zone(zone) {
        faults.value(path.clone(), zone, &format!("unknown time zone {zone}"));
    }
}

/// Returns whether a text can name a time zone. Only a time zone database knows which of them
/// exist; an area that no database has is rejected here.
fn is_zone(zone: &str) -> bool {
    const AREAS: [&str; 17] = [
        "Africa",
        "America",
        "Antarctica",
        "Arctic",
        "Asia",
        "Atlantic",
        "Australia",
        "Brazil",
        "Canada",
        "Chile",
        "Etc",
        "Europe",
        "Indian",
        "Mexico",
        "Pacific",
        "US",
        "SystemV",
    ];
    let fits = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-' | b'+' | b'/');
    let (area, rest) = zone.split_once('/').unwrap_or((zone, "-"));
    zone.bytes().all(fits)
        && !rest.is_empty()
        && (AREAS.contains(&area)
            || (!zone.contains('/') && area.starts_with(|it: char| it.is_ascii_uppercase())))
}

fn check_schedule(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let schedule = text(spec, "schedule");
    if schedule.contains("TZ=") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        faults.value(path.clone(), schedule, detail);
        return;
    }
    if let Err(complaint) = parse_schedule(schedule) {
        faults.value(path.clone(), schedule, &complaint);
    }
}

/// The five fields of a schedule: their limits, and the names that stand for numbers.
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

fn parse_schedule(schedule: &str) -> Result<(), String> {
    if let Some(name) = schedule.strip_prefix('@') {
        let known = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"];
        let every = name.strip_prefix("every ").is_some_and(|it| !it.trim().is_empty());
        return if known.contains(&name) || every {
            Ok(())
        } else {
            Err(format!("unrecognized descriptor: {schedule}"))
        };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let found = fields.len();
        return Err(format!("expected exactly 5 fields, found {found}: [{}]", fields.join(" ")));
    }
    for (field, limits) in fields.iter().zip(FIELDS) {
        for part in field.split(',') {
            parse_range(part, limits)?;
        }
    }
    Ok(())
}

fn parse_range(part: &str, (least, most, names): (u32, u32, &[&str])) -> Result<(), String> {
    let number = |text: &str| -> Result<u32, String> {
        if let Some(place) = names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
            return u32::try_from(place).map(|it| it + least).map_err(|error| error.to_string());
        }
        text.parse::<u32>().map_err(|_| {
            format!(
                "failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": invalid syntax"
            )
        })
    };
    let (range, step) = match part.split_once('/') {
        None => (part, None),
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {part}")),
        Some((range, step)) => (range, Some(number(step)?)),
    };
    let (start, end) = if matches!(range, "*" | "?") {
        (least, most)
    } else {
        match range.split_once('-') {
            None => (number(range)?, if step.is_some() { most } else { number(range)? }),
            Some((_, end)) if end.contains('-') => return Err(format!("too many hyphens: {part}")),
            Some((start, end)) => (number(start)?, number(end)?),
        }
    };
    if start < least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {part}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {part}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
    }
    if step == Some(0) {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_as_five_fields() {
        for good in ["*/5 * * * *", "0 0 1,15 jan-mar MON", "@daily", "@every 1h", "5/10 ? 1 1 0"] {
            assert_eq!(parse_schedule(good), Ok(()), "{good}");
        }
        let table = [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("@some", "unrecognized descriptor: @some"),
        ];
        for (bad, said) in table {
            assert_eq!(parse_schedule(bad).unwrap_err(), said, "{bad}");
        }
    }
}
