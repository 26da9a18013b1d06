use super::*;
/// stub
pub fn behaviour(group: &str, resource: &str) -> &'static Behaviour {
    static STATUS: Behaviour = Behaviour { status: Status::KeepsSpec, generation: Generation::On(&["spec"]), ..Behaviour::PLAIN };
    match (group, resource) { ("", "configmaps"|"secrets"|"serviceaccounts"|"events"|"endpoints") => &Behaviour::PLAIN, _ => &STATUS }
}
