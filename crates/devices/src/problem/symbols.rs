//! Interned names and attribute values, so that a search compares integers.

use std::collections::HashMap;

use gantry_api::devices::AttributeValue;

/// A name: of an attribute, a resource, a kind of topology domain or a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(u32);

impl Symbol {
    pub(crate) const fn number(self) -> u32 {
        self.0
    }
}

/// The value of an attribute. Two are equal if and only if kind and value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueSymbol(pub(crate) u32);

/// The value of an attribute, as match groups compare it: quantities by amount, versions by text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A text.
    String(String),
    /// An integer.
    Int(i64),
    /// An amount, in 10⁻⁹ units.
    Quantity(i128),
    /// A semantic version, in its canonical spelling.
    SemVer(String),
    /// A boolean.
    Bool(bool),
}

impl From<&AttributeValue> for Value {
    fn from(value: &AttributeValue) -> Self {
        match value {
            AttributeValue::String(text) => Self::String(text.clone()),
            AttributeValue::Int(number) => Self::Int(*number),
            AttributeValue::Quantity(amount) => Self::Quantity(amount.nanos()),
            AttributeValue::SemVer(version) => Self::SemVer(version.clone()),
            AttributeValue::Bool(truth) => Self::Bool(*truth),
        }
    }
}

/// Every name and value of an inventory, numbered in the order of insertion.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    numbers: HashMap<String, Symbol>,
    names: Vec<String>,
    values: HashMap<Value, ValueSymbol>,
}

impl Symbols {
    /// Returns the number of a name, a new one if it has none.
    pub fn intern(&mut self, name: &str) -> Symbol {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        let symbol = Symbol(number(self.names.len()));
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), symbol);
        symbol
    }

    /// Returns the number of a value, a new one if it has none.
    pub fn intern_value(&mut self, value: &Value) -> ValueSymbol {
        if let Some(known) = self.values.get(value) {
            return *known;
        }
        let symbol = ValueSymbol(number(self.values.len()));
        self.values.insert(value.clone(), symbol);
        symbol
    }

    /// Returns the number of a name; `None` if nothing in the inventory has it.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Symbol> {
        self.numbers.get(name).copied()
    }

    /// Returns the name of a number of this table; empty for the number of another.
    #[must_use]
    pub fn name(&self, symbol: Symbol) -> &str {
        usize::try_from(symbol.0).ok().and_then(|at| self.names.get(at)).map_or("", String::as_str)
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("an inventory fits in memory, which holds fewer than 2^32 names")
}
