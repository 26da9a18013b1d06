//! Converts autoscalers: `v1` has one metric and keeps the rest of `v2` in annotations.

use serde_json::{Map, Value, json};

use super::object;
use crate::read::read;
use crate::types::named_type;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// Every annotation that belongs to the conversion; none of them is ever a user's.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// The utilization that is used when no metric is given.
const DEFAULT_UTILIZATION: i32 = 80;

type Entries = Map<String, Value>;

pub(super) fn to_v1(mut autoscaler: Entries) -> Entries {
    let mut spec = take(&mut autoscaler, "spec");
    let mut status = take(&mut autoscaler, "status");
    let mut kept = Vec::new();

    let (cpu, others): (Vec<Value>, Vec<Value>) =
        take_list(&mut spec, "metrics").into_iter().partition(|metric| {
            is_cpu(metric) && !metric["resource"]["target"]["averageUtilization"].is_null()
        });
    if let Some(metric) = cpu.first() {
        let utilization = metric["resource"]["target"]["averageUtilization"].clone();
        spec.insert("targetCPUUtilizationPercentage".to_owned(), utilization);
    }
    if !others.is_empty() {
        kept.push((METRICS, others.iter().map(|metric| old_metric(metric, &SPEC)).collect()));
    }
    if let Some(behavior) = spec.remove("behavior").filter(Value::is_object) {
        kept.push((BEHAVIOR, old_behavior(&behavior)));
    }

    let metrics = take_list(&mut status, "currentMetrics");
    for metric in metrics.iter().filter(|metric| is_cpu(metric)) {
        let utilization = &metric["resource"]["current"]["averageUtilization"];
        if !utilization.is_null() {
            status.insert("currentCPUUtilizationPercentage".to_owned(), utilization.clone());
        }
    }
    if !metrics.is_empty() {
        let metrics = metrics.iter().map(|metric| old_metric(metric, &STATUS)).collect();
        kept.push((CURRENT_METRICS, metrics));
    }
    let conditions = take_list(&mut status, "conditions");
    if !conditions.is_empty() {
        kept.push((CONDITIONS, Value::Array(conditions)));
    }

    let mut annotations = drop_annotations(&mut autoscaler);
    for (name, value) in kept {
        annotations.insert(name.to_owned(), Value::String(go_json(&value)));
    }
    put_annotations(&mut autoscaler, annotations);
    autoscaler.insert("spec".to_owned(), Value::Object(spec));
    autoscaler.insert("status".to_owned(), Value::Object(status));
    autoscaler
}

pub(super) fn to_v2(mut autoscaler: Entries) -> Entries {
    let mut spec = take(&mut autoscaler, "spec");
    let mut status = take(&mut autoscaler, "status");
    let annotations = autoscaler.get("metadata").map(|meta| &meta["annotations"]);
    let kept = |name: &str| -> Option<Value> {
        let text = annotations?.get(name)?.as_str()?;
        serde_json::from_str(text).ok()
    };

    // Invalid annotations are ignored: any user may write annotations.
    let mut metrics = kept(METRICS)
        .and_then(|metrics| new_list(&metrics, "MetricSpec", |metric| new_metric(metric, &SPEC)))
        .unwrap_or_default();
    if let Some(utilization) = spec.remove("targetCPUUtilizationPercentage").filter(is_some) {
        metrics.push(cpu_metric(&utilization));
    }
    if metrics.is_empty() {
        metrics.push(cpu_metric(&Value::from(DEFAULT_UTILIZATION)));
    }
    spec.insert("metrics".to_owned(), Value::Array(metrics));
    if let Some(behavior) = kept(BEHAVIOR).and_then(|behavior| new_behavior(&behavior)) {
        spec.insert("behavior".to_owned(), behavior);
    }

    let utilization = status.remove("currentCPUUtilizationPercentage").filter(is_some);
    let current = kept(CURRENT_METRICS)
        .and_then(|metrics| {
            new_list(&metrics, "MetricStatus", |metric| new_metric(metric, &STATUS))
        })
        .or_else(|| Some(vec![cpu_status(&utilization?)]));
    if let Some(current) = current {
        status.insert("currentMetrics".to_owned(), Value::Array(current));
    }
    let conditions = kept(CONDITIONS).and_then(|conditions| {
        new_list(&conditions, "HorizontalPodAutoscalerCondition", |condition| {
            Some(condition.clone())
        })
    });
    if let Some(conditions) = conditions {
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }

    let annotations = drop_annotations(&mut autoscaler);
    put_annotations(&mut autoscaler, annotations);
    autoscaler.insert("spec".to_owned(), Value::Object(spec));
    autoscaler.insert("status".to_owned(), Value::Object(status));
    autoscaler
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn cpu_metric(utilization: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": utilization});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn cpu_status(utilization: &Value) -> Value {
    let current = json!({"averageUtilization": utilization});
    json!({"type": "Resource", "resource": {"name": "cpu", "current": current}})
}

/// The differences between target metrics and current metrics.
struct MetricFieldNames {
    /// The field that has the numbers in `v2`.
    numbers: &'static str,
    value: &'static str,
    average_value: &'static str,
    utilization: &'static str,
    /// Whether numbers have a type.
    typed: bool,
}

const SPEC: MetricFieldNames = MetricFieldNames {
    numbers: "target",
    value: "targetValue",
    average_value: "targetAverageValue",
    utilization: "targetAverageUtilization",
    typed: true,
};

const STATUS: MetricFieldNames = MetricFieldNames {
    numbers: "current",
    value: "currentValue",
    average_value: "currentAverageValue",
    utilization: "currentAverageUtilization",
    typed: false,
};

/// Converts a metric of `v2` to the form of `v1` in an annotation, with its order of fields.
fn old_metric(metric: &Value, words: &MetricFieldNames) -> Value {
    let numbers = |source: &Value, name: &str| source[words.numbers].get(name).cloned();
    let zero = || Some(Value::from("0"));
    let selector = |source: &Value| source["metric"].get("selector").cloned();
    let of = |source: &Value| source["metric"].get("name").cloned();
    let object = metric.get("object").map(|source| {
        entries([
            ("target", source.get("describedObject").cloned()),
            ("metricName", of(source)),
            (words.value, numbers(source, "value").or_else(zero)),
            ("selector", selector(source)),
            ("averageValue", numbers(source, "averageValue")),
        ])
    });
    let pods = metric.get("pods").map(|source| {
        entries([
            ("metricName", of(source)),
            (words.average_value, numbers(source, "averageValue").or_else(zero)),
            ("selector", selector(source)),
        ])
    });
    // The target may be left out, the current value is always set.
    let measured = |value: Option<Value>| if words.typed { value } else { value.or_else(zero) };
    let resource = |source: &Value| {
        entries([
            ("name", source.get("name").cloned()),
            (words.utilization, numbers(source, "averageUtilization")),
            (words.average_value, measured(numbers(source, "averageValue"))),
            ("container", source.get("container").cloned()),
        ])
    };
    let external = metric.get("external").map(|source| {
        entries([
            ("metricName", of(source)),
            ("metricSelector", selector(source)),
            (words.value, measured(numbers(source, "value"))),
            (words.average_value, numbers(source, "averageValue")),
        ])
    });
    entries([
        ("type", metric.get("type").cloned()),
        ("object", object),
        ("pods", pods),
        ("resource", metric.get("resource").map(resource)),
        ("containerResource", metric.get("containerResource").map(resource)),
        ("external", external),
    ])
}

/// Converts a metric from an annotation to `v2`.
fn new_metric(metric: &Value, words: &MetricFieldNames) -> Option<Value> {
    let zero = || Some(Value::from("0"));
    let number = |source: &Value, name: &str| source.get(name).filter(|it| is_some(it)).cloned();
    let named = |source: &Value, selector: &str| {
        let selector = source.get(selector).cloned();
        Some(entries([("name", source.get("metricName").cloned()), ("selector", selector)]))
    };
    let numbers = |kind: &str, value, average_value, utilization| {
        Some(entries([
            ("type", words.typed.then(|| Value::from(kind))),
            ("value", value),
            ("averageValue", average_value),
            ("averageUtilization", utilization),
        ]))
    };
    let object = |source: &Value| {
        let average = number(source, "averageValue");
        let kind = if average.is_none() { "Value" } else { "AverageValue" };
        entries([
            ("describedObject", source.get("target").cloned()),
            (
                words.numbers,
                numbers(kind, number(source, words.value).or_else(zero), average, None),
            ),
            ("metric", named(source, "selector")),
        ])
    };
    let pods = |source: &Value| {
        let average = number(source, words.average_value).or_else(zero);
        let target = numbers("AverageValue", None, average, None);
        entries([(words.numbers, target), ("metric", named(source, "selector"))])
    };
    let resource = |source: &Value| {
        let utilization = number(source, words.utilization);
        let average = number(source, words.average_value);
        let average = if words.typed { average } else { average.or_else(zero) };
        let kind = if utilization.is_none() { "AverageValue" } else { "Utilization" };
        entries([
            ("name", source.get("name").cloned()),
            ("container", source.get("container").cloned()),
            (words.numbers, numbers(kind, None, average, utilization)),
        ])
    };
    let external = |source: &Value| {
        let value = number(source, words.value);
        let value = if words.typed { value } else { value.or_else(zero) };
        let kind = if value.is_none() { "AverageValue" } else { "Value" };
        let target = numbers(kind, value, number(source, words.average_value), None);
        entries([(words.numbers, target), ("metric", named(source, "metricSelector"))])
    };
    if !metric.is_object() {
        return None;
    }
    let source = |name: &str| metric.get(name).filter(|it| it.is_object());
    Some(entries([
        ("type", metric.get("type").cloned()),
        ("object", source("object").map(object)),
        ("pods", source("pods").map(pods)),
        ("resource", source("resource").map(resource)),
        ("containerResource", source("containerResource").map(resource)),
        ("external", source("external").map(external)),
    ]))
}

/// Converts the elements of a list in an annotation, if all of them are valid.
fn new_list(
    list: &Value,
    name: &str,
    element: impl Fn(&Value) -> Option<Value>,
) -> Option<Vec<Value>> {
    let id = named_type(&format!("io.k8s.api.autoscaling.v2.{name}"))?;
    let typed = |value: &Value| Some(read(id, element(value)?).ok()?.value);
    list.as_array()?.iter().map(typed).collect()
}

/// The fields of a behavior, as `v2` has them and as the annotation has them. The annotation
/// exposes an internal type: all fields, in capitals.
const RULES: [(&str, &str); 4] = [
    ("stabilizationWindowSeconds", "StabilizationWindowSeconds"),
    ("selectPolicy", "SelectPolicy"),
    ("policies", "Policies"),
    ("tolerance", "Tolerance"),
];
const POLICY: [(&str, &str); 3] =
    [("type", "Type"), ("value", "Value"), ("periodSeconds", "PeriodSeconds")];

fn old_behavior(behavior: &Value) -> Value {
    let written = |from: &Value, fields: &[(&str, &str)]| -> Value {
        let fields = fields.iter();
        fields.map(|(new, old)| ((*old).to_owned(), from[*new].clone())).collect()
    };
    let rules = |rules: &Value| {
        if !rules.is_object() {
            return Value::Null;
        }
        let mut rules = written(rules, &RULES);
        if let Some(policies) = rules["Policies"].as_array() {
            rules["Policies"] = policies.iter().map(|policy| written(policy, &POLICY)).collect();
        }
        rules
    };
    json!({"ScaleUp": rules(&behavior["scaleUp"]), "ScaleDown": rules(&behavior["scaleDown"])})
}

fn new_behavior(behavior: &Value) -> Option<Value> {
    // Go reads names in any letter case here.
    let any_case = |from: &Value, name: &str| {
        let mut entries = from.as_object()?.iter();
        entries.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
    };
    let taken = |from: &Value, fields: &[(&str, &str)]| -> Value {
        let fields =
            fields.iter().filter_map(|(new, old)| Some(((*new).to_owned(), any_case(from, old)?)));
        fields.collect()
    };
    let rules = |name: &str| {
        let rules = any_case(behavior, name).filter(Value::is_object)?;
        let mut rules = taken(&rules, &RULES);
        if let Some(policies) = rules["policies"].as_array() {
            rules["policies"] = policies.iter().map(|policy| taken(policy, &POLICY)).collect();
        }
        Some(rules)
    };
    let (up, down) = (rules("ScaleUp"), rules("ScaleDown"));
    if up.is_none() && down.is_none() {
        return None;
    }
    let id = named_type("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior")?;
    Some(read(id, entries([("scaleUp", up), ("scaleDown", down)])).ok()?.value)
}

/// An object with those of the entries that have a value.
fn entries<const N: usize>(all: [(&str, Option<Value>); N]) -> Value {
    let set = all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    set.collect()
}

fn is_some(value: &Value) -> bool {
    !value.is_null()
}

fn take(from: &mut Entries, name: &str) -> Entries {
    from.get_mut(name).map(Value::take).map(object).unwrap_or_default()
}

fn take_list(from: &mut Entries, name: &str) -> Vec<Value> {
    match from.remove(name) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

fn drop_annotations(autoscaler: &mut Entries) -> Entries {
    let annotations = autoscaler.get_mut("metadata").and_then(|meta| meta.get_mut("annotations"));
    let mut annotations = annotations.map(Value::take).map(object).unwrap_or_default();
    annotations.retain(|name, _| !ANNOTATIONS.contains(&name.as_str()));
    annotations
}

fn put_annotations(autoscaler: &mut Entries, annotations: Entries) {
    let metadata = autoscaler.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
}

/// JSON as Go writes it: safe inside HTML.
fn go_json(value: &Value) -> String {
    let mut written = String::new();
    for letter in value.to_string().chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                written.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            other => written.push(other),
        }
    }
    written
}
