//! 1 to 13: constraints.

use std::sync::Arc;

use gantry_api::devices::{Attribute, AttributeValue};
use gantry_devices::constraint::{Constraint, Constraints, Subject, evaluate_all};
use gantry_devices::problem::{Reason, Refusal, Verdict};

const NOT_MET: Verdict = Verdict::Refused(Refusal::Constraints);

fn text(name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), value: AttributeValue::String(value.to_owned()) }
}

fn evaluate(source: Option<&str>, pool: &[Attribute], device: &[Attribute]) -> Verdict {
    let subject =
        Subject { pool_attributes: pool, device_attributes: device, ..Subject::default() };
    let constraint: Option<Arc<Constraint>> = Constraints::default().get(source);
    evaluate_all(&[constraint], &subject)
}

const VENDOR: &str = "device.vendor == 'example.com'";
const BOTH: &str = "device.vendor == 'example.com' && device.model == 'foozer-1000'";

#[test]
fn scenario_01_no_expression_is_true() {
    assert_eq!(evaluate(None, &[], &[]), Verdict::Met);
}

#[test]
fn scenario_02_an_empty_expression_is_true() {
    assert_eq!(evaluate(Some(""), &[], &[]), Verdict::Met);
}

#[test]
fn scenario_03_the_right_vendor() {
    assert_eq!(evaluate(Some(VENDOR), &[], &[text("vendor", "example.com")]), Verdict::Met);
}

#[test]
fn scenario_04_the_wrong_vendor() {
    assert_eq!(evaluate(Some(VENDOR), &[], &[text("vendor", "example.org")]), NOT_MET);
}

#[test]
fn scenario_05_attributes_of_pool_and_device() {
    let (pool, device) = ([text("vendor", "example.com")], [text("model", "foozer-1000")]);
    assert_eq!(evaluate(Some(BOTH), &pool, &device), Verdict::Met);
}

#[test]
fn scenario_06_the_wrong_vendor_of_the_pool() {
    let (pool, device) = ([text("vendor", "example.org")], [text("model", "foozer-1000")]);
    assert_eq!(evaluate(Some(BOTH), &pool, &device), NOT_MET);
}

#[test]
fn scenario_07_both_attributes_in_one_list() {
    let of = |vendor| [text("vendor", vendor), text("model", "foozer-1000")];
    assert_eq!(evaluate(Some(BOTH), &of("example.com"), &[]), Verdict::Met);
    assert_eq!(evaluate(Some(BOTH), &of("example.org"), &[]), NOT_MET);
}

fn memory() -> [Attribute; 1] {
    let value = AttributeValue::Quantity("10Gi".parse().unwrap());
    [Attribute { name: "memory".to_owned(), value }]
}

#[test]
fn scenario_08_enough_memory() {
    assert_eq!(evaluate(Some("device.memory >= '10Gi'"), &[], &memory()), Verdict::Met);
}

#[test]
fn scenario_09_not_enough_memory() {
    assert_eq!(evaluate(Some("device.memory >= '20Gi'"), &[], &memory()), NOT_MET);
}

#[test]
fn scenario_10_a_lone_equals_sign_does_not_compile() {
    let verdict = evaluate(Some("device.bandwidth = '1G'"), &[], &[]);
    let Verdict::Refused(refusal @ Refusal::Error(_)) = verdict else { panic!("{verdict:?}") };
    let told = Reason::Refused(refusal).to_string();
    assert!(told.starts_with("error evaluating constraints: compilation failed: ERROR"), "{told}");
}

#[test]
fn scenario_11_a_missing_attribute_is_an_error_of_that_device() {
    let Verdict::Refused(refusal) = evaluate(Some("device.model == 'a'"), &[], &memory()) else {
        panic!("met")
    };
    let told = Reason::Refused(refusal).to_string();
    assert_eq!(told, "error evaluating constraints: no such key: model");
}

#[test]
fn scenario_12_the_device_overrides_the_pool() {
    let (pool, device) = ([text("vendor", "example.org")], [text("vendor", "example.com")]);
    assert_eq!(evaluate(Some(VENDOR), &pool, &device), Verdict::Met);
}

#[test]
fn scenario_13_versions() {
    let value = AttributeValue::SemVer("1.8.2".to_owned());
    let pool = [Attribute { name: "firmwareVersion".to_owned(), value }];
    assert_eq!(evaluate(Some("device.firmwareVersion >= '1.8.0'"), &pool, &[]), Verdict::Met);
}
