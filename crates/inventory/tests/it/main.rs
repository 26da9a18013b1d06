//! Inventories as their authors write them: many files in, hosts, variables and findings out.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod broken;
mod expressions;
mod precedence;
mod roles;
mod shapes;

use gantry_inventory::{Finding, Inventory, Source, TextFile, VaultPassword, read};

fn file(inside: &str, text: &str) -> TextFile {
    TextFile {
        path: inside.to_owned(),
        inside: inside.to_owned(),
        text: text.to_owned(),
        is_private: false,
    }
}

/// A source with an inventory as the first file, and files of variables after it.
fn source(files: &[(&str, &str)]) -> Source {
    let mut files = files.iter().map(|(name, text)| file(name, text));
    Source::File { file: files.next().unwrap(), variables: files.collect() }
}

fn input(sources: Vec<Source>) -> gantry_inventory::Input {
    gantry_inventory::Input {
        sources,
        environment: [("SITE".to_owned(), "lab".to_owned())].into(),
        ..gantry_inventory::Input::default()
    }
}

fn password(text: &str) -> VaultPassword {
    VaultPassword { label: None, password: text.as_bytes().to_vec().into() }
}

/// An inventory without an error.
fn read_well(files: &[(&str, &str)]) -> Inventory {
    let (inventory, findings) = read(&input(vec![source(files)]));
    assert_eq!(rendered(&inventory, &findings), "");
    inventory
}

fn rendered(inventory: &Inventory, findings: &[Finding]) -> String {
    findings.iter().map(|finding| finding.render(&inventory.files)).collect()
}
