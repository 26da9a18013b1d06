use gantry_api::devices::{Attribute, AttributeValue};
use proptest::prelude::*;

use super::*;

fn text(name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), value: AttributeValue::String(value.to_owned()) }
}

fn amount(name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), value: AttributeValue::Quantity(value.parse().unwrap()) }
}

fn version(name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), value: AttributeValue::SemVer(value.to_owned()) }
}

fn evaluate(source: &str, pool: &[Attribute], device: &[Attribute]) -> Verdict {
    let device = Subject {
        device_attributes: device,
        pool_attributes: pool,
        driver: "foozer.example.com",
        pool: "node-a-foozer",
        name: Some("dev-0"),
        device_type: Some("foozer"),
    };
    evaluate_all(&[Constraints::default().get(Some(source))], &device)
}

/// Returns the error or refusal, if there is one.
fn failure(source: &str, device: &[Attribute]) -> String {
    match evaluate(source, &[], device) {
        Verdict::Refused(Refusal::Error(text)) => text,
        verdict @ (Verdict::Met | Verdict::Refused(_)) => panic!("{source}: {verdict:?}"),
    }
}

#[test]
fn expressions_see_attributes_by_kind() {
    let device = [
        text("vendor", "example.com"),
        text("odd-name", "x"),
        Attribute { name: "cores".to_owned(), value: AttributeValue::Int(8) },
        Attribute { name: "ecc".to_owned(), value: AttributeValue::Bool(true) },
        amount("memory", "10Gi"),
        version("firmware", "1.8.2"),
    ];
    let table = [
        ("text", "device.vendor == 'example.com'", true),
        ("an odd name", "device['odd-name'] == 'x'", true),
        ("a number", "device.cores > 4 && device.cores == 8", true),
        ("a truth", "device.ecc", true),
        ("an amount and its text", "device.memory >= '10Gi'", true),
        ("a larger one", "device.memory >= '20Gi'", false),
        ("an amount and a number", "device.memory > 1000", true),
        ("members of an amount", "device.memory.isGreaterThan(quantity('1G'))", true),
        ("its sum", "device.memory.add(quantity('1Gi')) == '11Gi'", true),
        ("its approximation", "device.memory.asApproximateFloat() > 1e9", true),
        ("its integer", "device.memory.isInteger() && device.memory.asInteger() > 0", true),
        ("its sign", "device.memory.sign() == 1", true),
        ("a comparison", "device.memory.compareTo(quantity('10Gi')) == 0", true),
        ("a version and its text", "device.firmware >= '1.8.0'", true),
        ("by number, not by letter", "device.firmware < '1.10.0'", true),
        (
            "members of a version",
            "device.firmware.major() == 1 && device.firmware.patch() == 2",
            true,
        ),
        ("a loose version", "device.firmware.isLessThan(semver('v2', true))", true),
        ("text stays text", "device.vendor < 'example.org'", true),
        ("a missing one with a default", "device.?model.orValue('none') == 'none'", true),
        ("a test", "has(device.model) || has(device.vendor)", true),
        ("a binding", "cel.bind(v, device.vendor, v.startsWith('exa') && v.size() == 11)", true),
        ("text functions", "device.vendor.split('.')[1].upperAscii() == 'COM'", true),
        ("a pattern", "device.vendor.matches('^[a-z.]+$')", true),
        ("a found part", "device.vendor.find('[a-z]+') == 'example'", true),
        ("sets", "sets.contains(['a', 'b'], ['a'])", true),
        ("lists", "[3, 1, 2].sum() == 6 && [1, 2].isSorted()", true),
        ("macros", "['example.com', 'example.org'].exists(v, v == device.vendor)", true),
        ("all entries", "device.all(key, key.size() > 1)", true),
        ("membership", "'vendor' in device && !('model' in device)", true),
        (
            "reserved entries",
            "device.driver == 'foozer.example.com' && device.name == 'dev-0'",
            true,
        ),
        ("more of them", "device.pool == 'node-a-foozer' && device.deviceType == 'foozer'", true),
    ];
    for (why, source, met) in table {
        let expected = if met { Verdict::Met } else { Verdict::Refused(Refusal::Constraints) };
        assert_eq!(evaluate(source, &[], &device), expected, "{why}: {source}");
    }
}

#[test]
fn attributes_hide_reserved_entries_and_devices_hide_pools() {
    let pool = [text("driver", "pool's"), text("model", "pool's"), text("vendor", "pool's")];
    let device = [text("model", "device's")];
    let source = "device.driver == \"pool's\" && device.model == \"device's\"";
    assert_eq!(evaluate(source, &pool, &device), Verdict::Met);
    let whole = "device.map(key, device[key]).filter(v, v == \"pool's\").size() == 2";
    assert_eq!(evaluate(whole, &pool, &device), Verdict::Met, "driver and vendor, not model");
}

#[test]
fn a_counted_device_has_no_name() {
    let constraint = Constraint::new("device.name == 'a'");
    let failed = evaluation_error("no such key: name".to_owned());
    assert_eq!(constraint.evaluate(&Subject::default()), failed);
}

#[test]
fn failures_say_why() {
    let device = [amount("memory", "1Gi"), version("firmware", "1.8.2"), text("a", "b")];
    let table = [
        ("a missing entry", "device.model == 'x'", "no such key: model"),
        ("a missing odd entry", "device['odd-name'] == 'x'", "no such key: odd-name"),
        ("an answer of another kind", "device.a", "expression returned non-bool value"),
        ("a literal of another kind", "1 + 1", "expression returned non-bool value"),
        ("text that is no amount", "device.memory > '1KM'", "unable to parse quantity's suffix"),
        ("text that is no version", "device.firmware > '1'", "No Major.Minor.Patch elements found"),
        ("an amount and a version", "device.memory == device.firmware", "no such overload"),
        (
            "more than may be spent",
            "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, \
             [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, \
             [0,1,2,3,4,5,6,7,8,9].all(e, a + b + c + d + e >= 0 && device.a != 'c')))))",
            "operation cancelled: actual cost limit exceeded",
        ),
    ];
    for (why, source, expected) in table {
        assert_eq!(failure(source, &device), expected, "{why}: {source}");
    }
}

#[test]
fn constraints_that_do_not_compile_refuse_every_device() {
    let table = [
        ("a lone equals sign", "device.bandwidth = '1G'", "Syntax error"),
        ("an unknown name", "gadget.model == 'x'", "undeclared reference to 'gadget'"),
        ("an unknown function", "device.model.reboot()", "undeclared reference to 'reboot'"),
        (
            "too long",
            &format!("device.a == '{}'", "x".repeat(10 * 1024)),
            "longer than 10240 bytes",
        ),
    ];
    for (why, source, expected) in table {
        let constraint = Constraint::new(source);
        let fault = constraint.compile_error().expect(why).to_owned();
        assert!(fault.contains(expected), "{why}: {fault}");
        for _ in 0..2 {
            let verdict = constraint.evaluate(&Subject::default());
            assert_eq!(verdict, evaluation_error(fault.clone()), "{why}");
        }
    }
}

#[test]
fn an_invalid_version_is_an_error_only_where_used() {
    let device = [version("firmware", "latest"), text("a", "b")];
    assert_eq!(evaluate("device.a == 'b'", &[], &device), Verdict::Met);
    let expected = "attribute \"firmware\": No Major.Minor.Patch elements found";
    assert_eq!(failure("device.firmware > '1.0.0'", &device), expected);
    assert_eq!(failure("device.size() > 1", &device), expected);
}

#[test]
fn no_constraint_and_an_empty_one_are_met() {
    let constraints = Constraints::default();
    assert!(constraints.get(None).is_none() && constraints.get(Some("")).is_none());
    assert_eq!(evaluate_all(&[None, None], &Subject::default()), Verdict::Met);
}

#[test]
fn the_first_constraint_that_is_not_met_decides() {
    let constraints = Constraints::default();
    let get = |source| constraints.get(Some(source));
    let subject = Subject::default();
    let failed = evaluation_error("no such key: a".to_owned());
    let table = [
        ("both met", ["true", "1 < 2"], Verdict::Met),
        ("the first", ["false", "device.a == 1"], Verdict::Refused(Refusal::Constraints)),
        ("the second", ["true", "device.a == 1"], failed.clone()),
        ("an error before a no", ["device.a == 1", "false"], failed),
    ];
    for (why, [class, term], expected) in table {
        assert_eq!(evaluate_all(&[get(class), get(term)], &subject), expected, "{why}");
    }
}

#[test]
fn constraints_are_compiled_once_and_cached_by_entries() {
    let constraints = Constraints::default();
    let source = Some("device.model == 'a'");
    let (one, two) = (constraints.get(source).unwrap(), constraints.get(source).unwrap());
    assert!(Arc::ptr_eq(&one, &two));
    for (name, model) in [("d0", "a"), ("d1", "a"), ("d2", "b"), ("d3", "b")] {
        let attributes = [text("model", model)];
        let subject =
            Subject { device_attributes: &attributes, name: Some(name), ..Subject::default() };
        let expected =
            if model == "a" { Verdict::Met } else { Verdict::Refused(Refusal::Constraints) };
        assert_eq!(one.evaluate(&subject), expected);
    }
    assert_eq!(one.verdict_cache().len(), 2, "two models, whatever the names");
    let whole = constraints.get(Some("device.size() > 0")).unwrap();
    for name in ["d0", "d1"] {
        let subject = Subject { name: Some(name), ..Subject::default() };
        assert_eq!(whole.evaluate(&subject), Verdict::Met);
    }
    assert_eq!(whole.verdict_cache().len(), 2, "it may have looked at the name");
    let by_name = constraints.get(Some("device.name == 'd0'")).unwrap();
    assert!(whole.depends_on_identity() && by_name.depends_on_identity());
    assert!(!one.depends_on_identity());
}

fn any_attributes() -> impl Strategy<Value = Vec<Attribute>> {
    let value = prop_oneof![
        "[ab]{0,2}".prop_map(AttributeValue::String),
        (0_i64..3).prop_map(AttributeValue::Int),
        any::<bool>().prop_map(AttributeValue::Bool),
        (0_u32..3).prop_map(|n| AttributeValue::Quantity(n.into())),
        "[01]\\.[01]\\.0".prop_map(AttributeValue::SemVer),
    ];
    let attribute = ("[xyz]", value).prop_map(|(name, value)| Attribute { name, value });
    proptest::collection::vec(attribute, 0..4)
}

proptest! {
    /// A verdict that is cached for one device is never used for another that the expression can
    /// tell apart from it.
    #[test]
    fn cached_verdicts_equal_fresh_ones(
        devices in proptest::collection::vec((any_attributes(), any_attributes()), 1..12),
        source in prop_oneof![
            Just("device.x == 'a' || device.y > 1"),
            Just("device.?x.orValue('b') == 'b'"),
            Just("device.exists(key, key == 'x') && device.size() > 5"),
            Just("device.z >= '1' && has(device.y)"),
            Just("'x' in device ? device['y'] == 1 : device.z"),
        ],
    ) {
        let remembering = Constraint::new(source);
        for (pool, device) in &devices {
            let subject = Subject {
                pool_attributes: pool,
                device_attributes: device,
                ..Subject::default()
            };
            prop_assert_eq!(remembering.evaluate(&subject), Constraint::new(source).evaluate(&subject));
        }
    }
}
