//! x
fn main() {
    for v in gantry_inventory::VARIABLES {
        let scope = if v.per_cluster { "cluster" } else { "host" };
        println!("| `{}` | {} | {} | {} | {} |", v.name, v.shape, scope, v.default, v.about);
    }
    println!("====");
    for v in gantry_inventory::CONNECTION_VARIABLES {
        println!("| `{}` | {} | {} | {} |", v.name, v.shape, v.default, v.about);
    }
}
