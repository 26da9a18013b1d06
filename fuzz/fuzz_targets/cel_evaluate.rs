//! Evaluates expressions over random trees: there is a result or an error, within the cost budget.
#![no_main]

use std::sync::LazyLock;

use arbitrary::Unstructured;
use gantry_cel::{Binding, Budget, Environment, Type, cost};
use gantry_fuzz::{or_skip, tree};
use libfuzzer_sys::fuzz_target;

static TYPES: LazyLock<[Type; 3]> = LazyLock::new(|| {
    let item = Type::object("item", [("name".to_owned(), Type::string())]);
    let fields = [
        ("a".to_owned(), Type::Int),
        ("b".to_owned(), Type::string()),
        ("c".to_owned(), Type::list(item)),
        ("name".to_owned(), Type::bytes()),
        ("spec".to_owned(), Type::map(Type::Double)),
        ("labels".to_owned(), Type::map(Type::string())),
        ("80".to_owned(), Type::Duration),
        ("TCP".to_owned(), Type::Timestamp),
        ("x/y".to_owned(), Type::IntOrString { max_length: None }),
    ];
    [Type::Dyn, Type::object("whole", fields), Type::list(Type::Dyn)]
});

static ENVIRONMENTS: LazyLock<[Environment; 3]> = LazyLock::new(|| {
    TYPES.each_ref().map(|ty| {
        Environment::new()
            .with_variable("self", ty.clone())
            .with_variable("oldSelf", Type::optional(ty.clone()))
    })
});

fuzz_target!(|data: (u8, &str, &[u8])| {
    let (which, text, rest) = data;
    let which = usize::from(which) % ENVIRONMENTS.len();
    let Ok(program) = ENVIRONMENTS[which].compile(text, None) else { return };
    let mut u = Unstructured::new(rest);
    let (new, old) = (or_skip!(tree::free(&mut u)), or_skip!(tree::free(&mut u)));
    let ty = &TYPES[which];
    let bindings =
        [("self", Binding::Tree(&new, ty)), ("oldSelf", Binding::OptionalTree(Some(&old), ty))];
    let mut budget = Budget::new(cost::RUNTIME_COST_BUDGET, cost::PER_CALL_LIMIT);
    match program.evaluate(&bindings, &mut budget) {
        Ok(result) => {
            let _ = result.into_json();
        }
        Err(error) => {
            let _ = error.to_string();
        }
    }
});
