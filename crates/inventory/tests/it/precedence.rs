//! Which of several values wins, and where it comes from.

use gantry_inventory::{ExtraVariables, Input, Source, read};
use proptest::prelude::*;

use super::{file, input, read_well, rendered, source};

/// One place for each layer, the weakest first. Each sets the variable to its own name.
const LAYERS: [&str; 9] = [
    "all inline",
    "parent inline",
    "child inline",
    "all file",
    "parent file",
    "child file",
    "host inline",
    "host file",
    "extra",
];

/// An inventory where the variable `x` is set in these layers.
fn layered(layers: &[bool]) -> Input {
    let set = |layer: usize| {
        if layers[layer] { format!("{{x: {}}}", LAYERS[layer]) } else { "{}".to_owned() }
    };
    let hosts = format!(
        "all: {{vars: {}, children: {{parent: {{vars: {}, children: {{child: {{vars: {}, \
         hosts: {{h: {}}}}}}}}}}}}}\n",
        set(0),
        set(1),
        set(2),
        set(6)
    );
    let mut input = input(vec![source(&[
        ("hosts.yaml", &hosts),
        ("group_vars/all.yaml", &set(3)),
        ("group_vars/parent.yaml", &set(4)),
        ("group_vars/child.yaml", &set(5)),
        ("host_vars/h.yaml", &set(7)),
    ])]);
    if layers[8] {
        input.extra_variables.push(ExtraVariables::Text("x=extra".to_owned()));
    }
    input
}

proptest! {
    #[test]
    fn pvs_8_the_strongest_layer_wins(layers in proptest::collection::vec(any::<bool>(), 9)) {
        let (inventory, findings) = read(&layered(&layers));
        prop_assert_eq!(rendered(&inventory, &findings), "");
        let host = inventory.tree.host_named("h").unwrap();
        let variables = inventory.variables(host);
        let values: Vec<&str> = variables
            .get("x")
            .map(|candidates| candidates.iter().filter_map(|it| it.value.text()).collect())
            .unwrap_or_default();
        let expected: Vec<&str> = LAYERS
            .iter()
            .zip(&layers)
            .filter_map(|(name, set)| set.then_some(*name))
            .collect();
        prop_assert_eq!(values, expected);
    }
}

fn winner(files: &[(&str, &str)]) -> String {
    let inventory = read_well(files);
    let host = inventory.tree.host_named("h").unwrap();
    inventory.host_json(host)["x"].as_str().unwrap().to_owned()
}

#[test]
fn pvs_8_groups_of_equal_depth_are_ordered_by_priority_and_name() {
    let table = [
        ("later name", "b: {hosts: {h: }, vars: {x: b}}\na: {hosts: {h: }, vars: {x: a}}\n", "b"),
        (
            "priority",
            "a: {hosts: {h: }, vars: {x: a, ansible_group_priority: 2}}\n\
             b: {hosts: {h: }, vars: {x: b}}\n",
            "a",
        ),
        (
            "depth beats priority",
            "a: {hosts: {h: }, vars: {x: a, ansible_group_priority: 9}}\n\
             b: {children: {c: {hosts: {h: }, vars: {x: c}}}}\n",
            "c",
        ),
        (
            "the longest way counts",
            "a: {children: {b: {children: {c: }}, c: }}\nc: {hosts: {h: }, vars: {x: c}}\n\
             d: {children: {e: {hosts: {h: }, vars: {x: e}}}}\n",
            "c",
        ),
        (
            "a later file of the same group",
            "a: {hosts: {h: }, vars: {x: one}}\nall: {children: {a: {vars: {x: two}}}}\n",
            "two",
        ),
    ];
    for (why, text, expected) in table {
        assert_eq!(winner(&[("hosts.yaml", text)]), expected, "{why}");
    }
}

#[test]
fn pvs_8_files_of_later_sources_win_over_deeper_groups() {
    let inventory = "p: {children: {c: {hosts: {h: }}}}\n";
    let first = source(&[("one.yaml", inventory), ("group_vars/c.yaml", "x: first child")]);
    let second = source(&[("two.yaml", inventory), ("group_vars/p.yaml", "x: second parent")]);
    let (inventory, _) = read(&input(vec![first, second]));
    let host = inventory.tree.host_named("h").unwrap();
    assert_eq!(inventory.host_json(host)["x"], "second parent");
}

#[test]
fn pvs_8_priority_in_a_file_has_no_effect() {
    let files = [
        ("hosts.yaml", "a: {hosts: {h: }, vars: {x: a}}\nb: {hosts: {h: }, vars: {x: b}}\n"),
        ("group_vars/a.yaml", "ansible_group_priority: 9\n"),
    ];
    assert_eq!(winner(&files), "b");
}

#[test]
fn prv_3_origins_name_the_winner_and_all_losers() {
    let files = [
        (
            "hosts.yaml",
            "all:\n  vars:\n    x: 1\n    site: \"{{ lookup('env', 'SITE') }}\"\nmaster:\n  \
             hosts:\n    h: {x: 3}\n",
        ),
        ("group_vars/master.yaml", "x: 2\nsecret: !vault y\n"),
    ];
    let inventory = read_well(&files);
    let host = inventory.tree.host_named("h").unwrap();
    let expected = "\
secret = «encrypted»
  from group_vars/master.yaml:2 (group_vars of master)
site = \"lab\"
  from hosts.yaml:4 (variables of group all)
x = 3
  from hosts.yaml:7 (variables of the host)
  over group_vars/master.yaml:1 (group_vars of master): 2
  over hosts.yaml:3 (variables of group all): 1
";
    assert_eq!(inventory.origins(host), expected);
}

#[test]
fn pvs_8_folders_are_read_in_order() {
    let files = vec![
        file("20-more", "[web]\nb x=2\n[web:vars]\ny=more\n"),
        file("10-hosts.yaml", "web: {hosts: {a: {x: 1}}, vars: {y: first}}\n"),
        file("group_vars/web.yaml", "z: file\n"),
        file("notes.md", "this is not an inventory"),
        file("sub/c.ini", "c\n"),
    ];
    let folder = Source::Folder { path: "inventory".to_owned(), files };
    let (inventory, findings) = read(&input(vec![folder]));
    assert_eq!(rendered(&inventory, &findings), "");
    let names: Vec<&str> = inventory.tree.hosts().map(|(_, it)| it.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let b = inventory.host_json(inventory.tree.host_named("b").unwrap());
    assert_eq!(b, serde_json::json!({"x": 2, "y": "more", "z": "file"}));
}
