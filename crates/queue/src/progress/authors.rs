//! What the rights of its author mean to one AppWrapper.

use gantry_reconcile::{Key, Step, World};
use jiff::Timestamp;

use super::{ItemSeen, Standing, failure};
use crate::access::{self, KeptBack};
use crate::app_wrapper::AppWrapper;
use crate::author::Author;
use crate::dispatch::Made;
use crate::settings::UserAccess;
use crate::state;

/// Why the author of an AppWrapper may not have it, where that matters: it waits, or items of it are still
/// to be made and could be.
pub(super) fn kept_back(
    world: &World,
    wrapper: &AppWrapper,
    items: &[ItemSeen],
    access: UserAccess,
    now: Timestamp,
) -> Option<KeptBack> {
    if wrapper.is_queued() {
        return access::may_pass(world, wrapper, access, now).err();
    }
    let arrives = wrapper.is_pending() && state::leaving(wrapper).is_none();
    let whole = items.iter().all(|it| it.made.is_ok());
    let missing = items.iter().any(|it| it.standing != Standing::Ours);
    let asks = arrives && whole && missing;
    asks.then(|| access::may_create(world, wrapper, access, now).err()).flatten()
}

/// The step that creates an item, with the rights it is created with. One that has to be created in the name of
/// an author nobody recorded is not created: nobody may have it with the rights of the queue instead.
pub(super) fn made_for(wrapper: &AppWrapper, made: &Made, access: UserAccess) -> Option<Step> {
    let step = Step::new(made.clone().create());
    match access {
        UserAccess::Unchecked | UserAccess::Reviewed => Some(step),
        UserAccess::OnBehalf => {
            let author = Author::read(wrapper.author()?)?;
            Some(step.on_behalf_of(author.into_user()))
        }
    }
}

/// Why one that waits has failed, where its author may not have it. Nothing was given to it yet, so there is
/// nothing to take back.
pub(super) fn barred(wrapper: &AppWrapper, kept_back: Option<&KeptBack>) -> Option<String> {
    let denied = matches!(kept_back, Some(KeptBack::Denied { .. })) && wrapper.is_queued();
    kept_back.filter(|_| denied).map(|it| failure(wrapper, it))
}

/// The AppWrappers whose authors matter.
pub(super) fn undecided(world: &World) -> Vec<Key> {
    let wrappers = world.shelf::<AppWrapper>().all();
    let undecided = wrappers.iter().filter(|it| it.is_queued() || it.is_pending());
    undecided.map(|it| it.metadata.key()).collect()
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::{Key, Resource};
    use serde_json::json;

    use super::*;

    #[test]
    fn ds_9_an_item_is_created_with_the_rights_of_its_author() {
        let by = |author: Option<&str>| -> AppWrapper {
            let annotations = author.map(|it| json!({crate::app_wrapper::AUTHOR: it}));
            let metadata = json!({"name": "a", "namespace": "n", "annotations": annotations.unwrap_or(json!({}))});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let made = Made {
            resource: Resource::namespaced("batch", "v1", "jobs", "Job"),
            key: Key::new("n", "j"),
            body: json!({"metadata": {"name": "j", "namespace": "n"}}),
        };
        let alice = Some(r#"{"username":"alice","uid":"7","groups":["team"],"extra":{"k":["v"]}}"#);
        let whose = |author, access| {
            let step = made_for(&by(author), &made, access);
            step.map(|it| it.on_behalf_of.map(|it| (it.name, it.uid, it.groups, it.extra.len())))
        };
        let user = ("alice".to_owned(), "7".to_owned(), vec!["team".to_owned()], 1);
        let table = [
            ("with the rights of the queue", alice, UserAccess::Unchecked, Some(None)),
            ("which was asked before", alice, UserAccess::Reviewed, Some(None)),
            ("in the author's name", alice, UserAccess::OnBehalf, Some(Some(user))),
            ("nobody was recorded", None, UserAccess::OnBehalf, None),
            ("nobody can be read", Some("alice"), UserAccess::OnBehalf, None),
        ];
        for (why, author, access, expected) in table {
            assert_eq!(whose(author, access), expected, "{why}");
        }
    }
}
