//! Functions and values that the host brings.

use std::any::Any;
use std::sync::Arc;

use gantry_cel::{Binding, Budget, Environment, EvalError, HostRun, HostValue, Type, Value};

#[derive(Debug)]
struct Authorizer;

impl HostValue for Authorizer {
    fn type_name(&self) -> &str {
        "kubernetes.authorization.Authorizer"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn a_function_of_the_host_is_checked_charged_and_called() {
    let allowed: HostRun = Arc::new(|args| match args {
        [Value::Host(host), Value::String(verb)] if host.as_any().is::<Authorizer>() => {
            Ok(Value::Bool(&**verb == "get"))
        }
        _ => Err(EvalError::NoSuchOverload),
    });
    let name = "kubernetes.authorization.Authorizer";
    let signature = format!("{name}.(string) bool");
    let environment = Environment::new()
        .with_variable("authorizer", Type::opaque(name))
        .with_function("may", &[&signature], 350_000, Arc::clone(&allowed))
        .unwrap();
    let bindings = [("authorizer", Binding::Value(Value::Host(Arc::new(Authorizer))))];
    let answer = |expression: &str| {
        let program = environment.compile(expression, Some(&Type::Bool)).unwrap();
        program.evaluate(&bindings, &mut Budget::default()).map(|answer| answer.as_bool())
    };
    assert_eq!(answer("authorizer.may('get')"), Ok(Some(true)));
    assert_eq!(answer("authorizer.may('get') && authorizer.may('list')"), Ok(Some(false)));
    let three = "authorizer.may('get') && authorizer.may('get') && authorizer.may('get')";
    assert_eq!(answer(three), Err(EvalError::CostExceeded));
    assert!(environment.compile("authorizer.may(1)", None).is_err());
    assert!(environment.compile("'x'.may('get')", None).is_err());
    let unreadable = Environment::new().with_function("f", &["string -> int"], 1, allowed);
    assert_eq!(unreadable.unwrap_err().0, "string -> int");
}
