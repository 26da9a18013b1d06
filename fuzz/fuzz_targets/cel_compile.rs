//! Compiles any text as an expression: it compiles or returns an error with the reason.
#![no_main]

use std::sync::LazyLock;

use gantry_cel::{Environment, Type};
use libfuzzer_sys::fuzz_target;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let item = Type::object("item", [("name".to_owned(), Type::string())]);
    let fields = [
        ("a".to_owned(), Type::Int),
        ("b".to_owned(), Type::string()),
        ("c".to_owned(), Type::list(item)),
        ("m".to_owned(), Type::map(Type::Double)),
        ("d".to_owned(), Type::Duration),
        ("t".to_owned(), Type::Timestamp),
        ("x".to_owned(), Type::IntOrString { max_length: None }),
    ];
    let whole = Type::object("whole", fields);
    Environment::new()
        .with_variable("self", whole.clone())
        .with_variable("oldSelf", Type::optional(whole))
        .with_variable("y", Type::Dyn)
});

fuzz_target!(|text: &str| {
    match ENVIRONMENT.compile(text, Some(&Type::Bool)) {
        Ok(program) => {
            let _ = (program.estimate(), program.mentions("oldSelf"), program.result_type());
        }
        Err(error) => {
            let _ = error.to_string();
        }
    }
});
