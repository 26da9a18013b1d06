//! Expressions that are refused before they run.

use gantry_cel::{CompileError, Environment, Type};

fn environment() -> Environment {
    let spec = Type::object(
        "spec",
        [("replicas".to_owned(), Type::Int), ("names".to_owned(), Type::list(Type::string()))],
    );
    Environment::new()
        .with_variable("self", Type::object("object", [("spec".to_owned(), spec)]))
        .with_variable("variables.x", Type::Int)
}

#[test]
fn compile_errors_point_at_source() {
    let table = [
        (
            "self.spec.size > 1",
            "compilation failed: ERROR: <input>:1:10: undefined field 'size'\n | self.spec.size > \
             1\n | .........^",
        ),
        (
            "self.spec.replicas > 1 &&\n  other",
            "compilation failed: ERROR: <input>:2:3: undeclared reference to 'other' (in container \
             '')\n |   other\n | ..^",
        ),
        (
            "self.spec.replicas + self.spec.names",
            "compilation failed: ERROR: <input>:1:20: found no matching overload for '_+_' applied \
             to '(int, list(string))'\n | self.spec.replicas + self.spec.names\n | \
             ...................^",
        ),
        (
            "self.spec.names.all(n, n > 1)",
            "compilation failed: ERROR: <input>:1:26: found no matching overload for '_>_' applied \
             to '(string, int)'\n | self.spec.names.all(n, n > 1)\n | .........................^",
        ),
        (
            "self.spec == 1 || has(self.spec.nope)",
            "compilation failed: ERROR: <input>:1:11: found no matching overload for '_==_' applied \
             to '(spec, int)'\n | self.spec == 1 || has(self.spec.nope)\n | ..........^\nERROR: \
             <input>:1:22: undefined field 'nope'\n | self.spec == 1 || has(self.spec.nope)\n | \
             .....................^",
        ),
        (
            "self.spec.replicas == null",
            "compilation failed: ERROR: <input>:1:20: found no matching overload for '_==_' applied \
             to '(int, null)'\n | self.spec.replicas == null\n | ...................^",
        ),
        (
            "has(self.spec.nope)",
            "compilation failed: ERROR: <input>:1:4: undefined field 'nope'\n | \
             has(self.spec.nope)\n | ...^",
        ),
    ];
    for (expression, expected) in table {
        let fault = environment().compile(expression, Some(&Type::Bool)).unwrap_err();
        assert_eq!(fault.to_string(), expected, "{expression}");
    }
}

#[test]
fn result_must_have_expected_type() {
    let wrong = environment().compile("self.spec.replicas", Some(&Type::Bool)).unwrap_err();
    assert!(matches!(&wrong, CompileError::WrongResult { found: Type::Int, .. }), "{wrong}");
    assert_eq!(wrong.to_string(), "must evaluate to bool but got int");
    let right = environment().compile("'a' + self.spec.names[0]", Some(&Type::string()));
    assert!(right.is_ok(), "{right:?}");
    let unknown = environment().compile("dyn(self.spec.replicas)", Some(&Type::Bool));
    assert!(unknown.is_ok(), "what is not known may be right: {unknown:?}");
}

#[test]
fn a_declared_name_with_dots_wins() {
    assert!(environment().compile("variables.x + 1", None).is_ok());
    let fault = environment().compile("variables.y + 1", None).unwrap_err();
    assert!(fault.to_string().contains("undeclared reference to 'variables'"), "{fault}");
}
