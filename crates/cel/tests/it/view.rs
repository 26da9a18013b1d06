//! JSON trees as expressions see them.

use std::sync::Arc;

use gantry_cel::{
    Binding, Budget, Environment, EvalError, EvaluatedValue, ListKind, ListType, Type, Value,
};
use serde_json::{Value as Json, json};

fn evaluate(expression: &str, ty: &Type, tree: &Json) -> Result<Json, String> {
    let environment = Environment::new().with_variable("self", ty.clone());
    let program = environment.compile(expression, None).map_err(|error| error.to_string())?;
    let bindings = [("self", Binding::Tree(tree, ty))];
    let answer = program.evaluate(&bindings, &mut Budget::default());
    answer.map(EvaluatedValue::into_json).map_err(|error| error.to_string())
}

fn object(fields: &[(&str, Type)]) -> Type {
    Type::object("object", fields.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())))
}

fn list(element: Type, kind: ListKind) -> Type {
    Type::List(Arc::new(ListType { element, kind, max_items: None }))
}

#[test]
fn text_with_a_format_is_what_the_format_says() {
    let ty = object(&[
        ("at", Type::Timestamp),
        ("day", Type::Date),
        ("wait", Type::Duration),
        ("data", Type::bytes()),
        ("port", Type::IntOrString { max_length: None }),
        ("ratio", Type::Double),
    ]);
    let tree = json!({
        "at": "2024-02-29T12:00:00Z", "day": "2024-03-01", "wait": "1h30m", "data": "aGk=",
        "port": "http", "ratio": 1,
    });
    let table = [
        ("self.at.getMonth()", json!(1)),
        ("self.at < timestamp('2024-03-01T00:00:00Z')", json!(true)),
        ("self.day - self.at", json!("43200s")),
        ("self.wait == duration('90m')", json!(true)),
        ("self.wait.getMinutes()", json!(90)),
        ("self.data == b'hi'", json!(true)),
        ("size(self.data)", json!(2)),
        ("type(self.port) == string ? self.port : string(self.port)", json!("http")),
        ("self.ratio == 1.0", json!(true)),
        ("self.ratio / 2.0", json!(0.5)),
    ];
    for (expression, expected) in table {
        assert_eq!(evaluate(expression, &ty, &tree), Ok(expected), "{expression}");
    }
    let wrong = evaluate("self.at.getMonth()", &ty, &json!({"at": "soon"}));
    assert_eq!(wrong, Err("Invalid date-time formatted string soon".to_owned()));
    let long = evaluate("self.wait", &ty, &json!({"wait": "3 days"}));
    assert_eq!(long, Ok(json!("259200s")));
}

#[test]
fn integers_are_not_lost_to_floating_point() {
    let ty = object(&[("n", Type::Int)]);
    let tree = json!({"n": 9_007_199_254_740_993_i64});
    assert_eq!(evaluate("self.n + 1", &ty, &tree), Ok(json!(9_007_199_254_740_994_i64)));
    assert_eq!(evaluate("-self.n", &Type::Dyn, &tree), Ok(json!(-9_007_199_254_740_993_i64)));
    assert_eq!(evaluate("type(self.n) == int", &Type::Dyn, &tree), Ok(json!(true)));
}

#[test]
fn fields_have_escaped_names_and_undeclared_ones_are_not_there() {
    let ty =
        object(&[("node-port", Type::Int), ("namespace", Type::string()), ("a__b", Type::Int)]);
    let tree = json!({"node-port": 1, "namespace": "x", "a__b": 2, "unknown": 3});
    let table = [
        ("self.node__dash__port", Ok(json!(1))),
        ("self.__namespace__", Ok(json!("x"))),
        ("self.namespace", Ok(json!("x"))),
        ("self.a__underscores__b", Ok(json!(2))),
        ("has(self.node__dash__port)", Ok(json!(true))),
    ];
    for (expression, expected) in table {
        assert_eq!(evaluate(expression, &ty, &tree), expected, "{expression}");
    }
    assert_eq!(evaluate("has(self.a__underscores__b)", &ty, &json!({})), Ok(json!(false)));
    let missing = evaluate("self.node__dash__port", &ty, &json!({}));
    assert_eq!(missing, Err("no such key: node__dash__port".to_owned()));
    // Keys of a map are data, and are not escaped.
    let labels = Type::map(Type::string());
    assert_eq!(evaluate("self['a-b']", &labels, &json!({"a-b": "c"})), Ok(json!("c")));
    // A tree whose hidden content differs is the same tree to an expression.
    let environment =
        Environment::new().with_variable("self", ty.clone()).with_variable("oldSelf", ty.clone());
    let program = environment.compile("self == oldSelf", Some(&Type::Bool)).unwrap();
    let old = json!({"node-port": 1, "namespace": "x", "a__b": 2, "unknown": 4});
    let bindings = [("self", Binding::Tree(&tree, &ty)), ("oldSelf", Binding::Tree(&old, &ty))];
    let answer = program.evaluate(&bindings, &mut Budget::default());
    assert_eq!(answer, Ok(EvaluatedValue::Bool(true)));
}

#[test]
fn null_is_present_and_null() {
    let ty = object(&[("x", object(&[("y", Type::Int)])), ("s", Type::string())]);
    let tree = json!({"x": null, "s": null});
    assert_eq!(evaluate("has(self.x)", &ty, &tree), Ok(json!(true)));
    assert_eq!(evaluate("self.x == null", &ty, &tree), Ok(json!(true)));
    assert_eq!(evaluate("self.x != null && self.x.y > 1", &ty, &tree), Ok(json!(false)));
    assert_eq!(evaluate("self.x != null", &ty, &json!({"x": {}})), Ok(json!(true)));
    assert_eq!(evaluate("dyn(self.s) == null", &ty, &tree), Ok(json!(true)));
}

#[test]
fn lists_compare_and_join_as_their_kind_says() {
    let pair = object(&[("name", Type::string()), ("v", Type::Int)]);
    let by_name = || ListKind::Map(vec!["name".to_owned()]);
    let ty = object(&[
        ("a", list(Type::Int, ListKind::Atomic)),
        ("b", list(Type::Int, ListKind::Atomic)),
        ("s", list(Type::Int, ListKind::Set)),
        ("t", list(Type::Int, ListKind::Set)),
        ("m", list(pair.clone(), by_name())),
        ("n", list(pair, by_name())),
    ]);
    let tree = json!({
        "a": [1, 2], "b": [2, 1],
        "s": [1, 2], "t": [2, 1],
        "m": [{"name": "x", "v": 1}, {"name": "y", "v": 2}],
        "n": [{"name": "y", "v": 2}, {"name": "x", "v": 1}],
    });
    let table = [
        ("self.a == self.b", json!(false)),
        ("self.a + self.b", json!([1, 2, 2, 1])),
        ("self.s == self.t", json!(true)),
        ("self.s == [2, 1]", json!(true)),
        ("self.s + [2, 3]", json!([1, 2, 3])),
        ("self.s + self.t == self.s", json!(true)),
        ("self.m == self.n", json!(true)),
        ("self.m != self.n", json!(false)),
        ("(self.m + self.n).map(e, e.name)", json!(["x", "y"])),
        ("(self.m + self.n.filter(e, e.v > 5)) == self.n", json!(true)),
    ];
    for (expression, expected) in table {
        assert_eq!(evaluate(expression, &ty, &tree), Ok(expected), "{expression}");
    }
    let changed = json!({
        "m": [{"name": "x", "v": 1}, {"name": "y", "v": 2}],
        "n": [{"name": "z", "v": 9}, {"name": "y", "v": 3}],
    });
    let merged = json!([
        {"name": "x", "v": 1}, {"name": "y", "v": 3}, {"name": "z", "v": 9}
    ]);
    assert_eq!(evaluate("self.m + self.n", &ty, &changed), Ok(merged));
    assert_eq!(evaluate("self.m == self.n", &ty, &changed), Ok(json!(false)));
}

#[test]
fn the_old_value_may_be_optional() {
    let environment = Environment::new()
        .with_variable("self", Type::Int)
        .with_variable("oldSelf", Type::optional(Type::Int));
    let rule = "!oldSelf.hasValue() || self >= oldSelf.value()";
    let program = environment.compile(rule, Some(&Type::Bool)).unwrap();
    assert!(program.mentions("oldSelf") && program.mentions("self") && !program.mentions("x"));
    let int = Type::Int;
    let (new, old) = (json!(3), json!(5));
    for (old, expected) in [(None, true), (Some(&old), false), (Some(&new), true)] {
        let bindings =
            [("self", Binding::Tree(&new, &int)), ("oldSelf", Binding::OptionalTree(old, &int))];
        let answer = program.evaluate(&bindings, &mut Budget::default());
        assert_eq!(answer, Ok(EvaluatedValue::Bool(expected)), "{old:?}");
    }
    let unbound = program.evaluate(&[("self", Binding::Tree(&new, &int))], &mut Budget::default());
    assert_eq!(unbound, Err(EvalError::NoSuchAttribute("oldSelf".to_owned())));
}

#[test]
fn unused_variables_are_not_read() {
    let environment = Environment::new().with_variable("oldSelf", Type::Int);
    let program = environment.compile("[1].all(oldSelf, oldSelf == 1)", None).unwrap();
    assert!(!program.mentions("oldSelf"), "the variable of the macro hides the other");
    let program = environment.compile("cel.bind(x, oldSelf, x + x)", None).unwrap();
    assert!(program.mentions("oldSelf"));
    let bound = [("oldSelf", Binding::Value(Value::Int(4)))];
    let answer = program.evaluate(&bound, &mut Budget::default()).unwrap();
    assert_eq!(answer, EvaluatedValue::Other(json!(8)));
}

/// The shapes that admission policies in the field rely on.
#[test]
fn policies_read_untyped_objects() {
    let environment = Environment::new()
        .with_variable("object", Type::Dyn)
        .with_variable("oldObject", Type::Dyn)
        .with_variable("request", Type::Dyn);
    let request = json!({"userInfo": {"username": "system:serviceaccount:ns:name"}});
    let old = json!({"metadata": {"name": "a"}});
    let new = json!({"metadata": {"name": "a", "labels": {"k": "v"}}});
    let bindings = [
        ("object", Binding::Tree(&new, &Type::Dyn)),
        ("oldObject", Binding::Tree(&old, &Type::Dyn)),
        ("request", Binding::Tree(&request, &Type::Dyn)),
    ];
    let table = [
        ("request.userInfo.username.matches('^system:serviceaccount:[a-z]+:name$')", json!(true)),
        ("oldObject.metadata.?labels['k'].orValue('')", json!("")),
        ("object.metadata.?labels['k'].orValue('')", json!("v")),
        ("dyn('v').orValue('none')", json!("v")),
        ("object.metadata.?labels[?'q'].orValue('none')", json!("none")),
        ("has(oldObject.metadata.labels) && oldObject.metadata.labels.k == 'v'", json!(false)),
        ("object.metadata.labels.all(k, v, k.size() == v.size())", json!(true)),
    ];
    for (expression, expected) in table {
        let program = environment.compile(expression, None).unwrap();
        let answer = program.evaluate(&bindings, &mut Budget::default()).unwrap();
        assert_eq!(answer.into_json(), expected, "{expression}");
    }
    let program = environment.compile("object.nokey == 1", Some(&Type::Bool)).unwrap();
    let fault = program.evaluate(&bindings, &mut Budget::default()).unwrap_err();
    assert_eq!(fault.to_string(), "no such key: nokey");
}
