//! Compares conversions between two versions of one object with Kubernetes' own conversion.

use gantry_builtin::convert;
use serde::Deserialize;
use serde_json::Value;

use crate::golden;

#[derive(Deserialize)]
struct ConversionCase {
    from: Value,
    to: Value,
}

fn other(object: &Value) -> Value {
    let object = object.clone();
    match (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()) {
        ("v1", "Event") => convert::event_from_core(object),
        ("events.k8s.io/v1", "Event") => convert::event_to_core(object),
        ("autoscaling/v1", "HorizontalPodAutoscaler") => convert::autoscaler_to_v2(object),
        ("autoscaling/v2", "HorizontalPodAutoscaler") => convert::autoscaler_to_v1(object),
        other => panic!("{other:?} has one view"),
    }
    .unwrap()
}

#[test]
fn conversions_match_kubernetes() {
    let views: Vec<ConversionCase> = golden(include_bytes!("golden/convert.json.gz"));
    assert!(views.len() > 50);
    for ConversionCase { from, to } in views {
        assert_eq!(other(&from).to_string(), to.to_string(), "{from}");
    }
}

/// Converting to another version and back loses nothing. An autoscaler may gain zeros on its first
/// way through `v1`, upstream too; after that it stays as it is.
#[test]
fn conversion_there_and_back_loses_nothing() {
    let views: Vec<ConversionCase> = golden(include_bytes!("golden/convert.json.gz"));
    for ConversionCase { from, to } in views {
        let back = other(&to);
        if from["kind"] == "Event" {
            assert_eq!(back.to_string(), from.to_string());
        }
        let settled = other(&other(&back));
        assert_eq!(other(&other(&settled)).to_string(), settled.to_string());
        for part in ["metrics", "behavior"] {
            if to["apiVersion"] == "autoscaling/v1" {
                let count = |list: &Value| list.as_array().map_or(0, Vec::len);
                let before = &from["spec"][part];
                assert!(count(&back["spec"][part]) >= count(before), "{from}");
                assert_eq!(
                    back["spec"][part].is_object(),
                    before.as_object().is_some_and(|it| !it.is_empty())
                );
            }
        }
    }
}
