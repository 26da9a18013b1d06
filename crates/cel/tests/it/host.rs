//! Functions and values that the host brings.

use std::any::Any;
use std::sync::Arc;

use gantry_cel::{
    Binding, Budget, Environment, EvalError, HostFunctionBody, HostMap, HostValue, Map, Type, Value,
};

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
    let allowed: HostFunctionBody = Arc::new(|args| match args {
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

/// Numbers by their names, and nought for names that it does not list.
#[derive(Debug)]
struct Numbers;

impl HostMap for Numbers {
    fn get(&self, name: &str) -> Result<Option<Value<'_>>, EvalError> {
        match name {
            "one" => Ok(Some(Value::Int(1))),
            "two" => Ok(Some(Value::Int(2))),
            "odd" => Err(EvalError::Failed("odd is no number".to_owned())),
            _ => Ok(Some(Value::Int(0))),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.names().contains(&name)
    }

    fn names(&self) -> Vec<&str> {
        vec!["one", "two"]
    }
}

#[test]
fn host_maps_behave_like_maps() {
    let environment = Environment::new().with_variable("numbers", Type::map(Type::Int));
    let table = [
        ("an entry", "numbers.one == 1", Ok(true)),
        ("an index", "numbers['two'] == 2", Ok(true)),
        ("what the host answers to other names", "numbers.three == 0", Ok(true)),
        ("a name it lists", "'one' in numbers", Ok(true)),
        ("a name it does not list", "'three' in numbers", Ok(false)),
        ("its size", "size(numbers) == 2", Ok(true)),
        ("its names", "numbers.all(name, name in ['one', 'two'])", Ok(true)),
        ("its entries", "numbers == {'two': 2, 'one': 1}", Ok(true)),
        ("other entries", "numbers == {'two': 2}", Ok(false)),
        ("a fault", "numbers.odd == 1", Err("odd is no number")),
        ("a fault that nobody looks at", "numbers.one == 1 || numbers.odd == 1", Ok(true)),
    ];
    for (why, source, expected) in table {
        let program = environment.compile(source, Some(&Type::Bool)).unwrap();
        let bindings = [("numbers", Binding::Value(Value::Map(Map::Host(&Numbers))))];
        let answer = program.evaluate(&bindings, &mut Budget::default());
        let answer = answer.map(|answer| answer.as_bool() == Some(true));
        let expected = expected.map_err(|text| EvalError::Failed(text.to_owned()));
        assert_eq!(answer, expected, "{why}");
    }
}
