//! What the authors of those that wait may create, asked by whoever looks.

use std::collections::{BTreeMap, BTreeSet};

use gantry_process::clock::Clock;
use gantry_queue::UserAccess;
use gantry_queue::access::{self, AccessQuestion, AccessReview, Attributes, AuthorRecording, Need};
use gantry_queue::app_wrapper::{AppWrapper, TypeName};
use gantry_queue::author::{Author, CONFIGURATION};
use gantry_reconcile::{ApiPath, Resource, World};
use gantry_sharing::inventory::ObjectKind;
use jiff::Timestamp;

use super::served;
use crate::cli::reach::{AskError, Reached};
use crate::output::Output;

/// How many questions are asked at most. Nobody waits for more of them.
const MOST: usize = 200;

/// Puts down what the server says about authors. Where whoever looks may not ask, it is taken that they may
/// create what they wrap: the operator fails the others within seconds.
pub(super) async fn fill(
    cluster: &Reached,
    world: &World,
    access: UserAccess,
    output: &mut Output,
) -> anyhow::Result<()> {
    let now = Clock::system().now();
    let recording = recording(cluster, output).await?;
    // Nobody follows the changes.
    let _ = world.facts::<AuthorRecording>().record((), recording, now);
    let wrappers = world.shelf::<AppWrapper>().all();
    let questions: BTreeSet<AccessQuestion> =
        wrappers.iter().flat_map(|it| access::questions(it, access)).collect();
    let mut kinds: BTreeMap<TypeName, Option<Resource>> = BTreeMap::new();
    let mut trusts = None;
    for (at, question) in questions.into_iter().enumerate() {
        if at == MOST && trusts.is_none() {
            trusts = Some(format!("more than {MOST} rights would have to be asked for"));
        }
        let answer = match &trusts {
            Some(_) => AccessReview::Allowed,
            None => match ask(cluster, &question, &mut kinds).await {
                Ok(answer) => answer,
                Err(AskError::Forbidden { .. }) => {
                    trusts = Some("may not ask what others may do".to_owned());
                    AccessReview::Allowed
                }
                Err(error) => return Err(error.into()),
            },
        };
        let _ = world.facts::<AccessReview>().record(question, answer, now);
    }
    if let Some(why) = trusts {
        output.warning(format_args!(
            "{why}: it is taken that authors may create what they wrap; the operator fails the others"
        ));
    }
    Ok(())
}

async fn recording(cluster: &Reached, output: &mut Output) -> anyhow::Result<AuthorRecording> {
    let path = ObjectKind::MutatingWebhookConfiguration.path(CONFIGURATION)?;
    match cluster.get(&path).await {
        Ok(object) => Ok(AuthorRecording::read(&object)),
        Err(AskError::Absent { .. }) => Ok(AuthorRecording { since: None }),
        Err(AskError::Forbidden { .. }) => {
            output.warning(format_args!(
                "may not read {path}: it is taken that the authors of all AppWrappers were recorded"
            ));
            Ok(AuthorRecording { since: Some(Timestamp::MIN) })
        }
        Err(error) => Err(error.into()),
    }
}

async fn ask(
    cluster: &Reached,
    question: &AccessQuestion,
    kinds: &mut BTreeMap<TypeName, Option<Resource>>,
) -> Result<AccessReview, AskError> {
    let AccessQuestion { author, namespace, need } = question;
    let Some(author) = Author::read(author) else { return Ok(AccessReview::NoSuchKind) };
    let asked = match need {
        Need::Privilege(privilege) => Attributes::of(privilege),
        Need::Create(name) => {
            if !kinds.contains_key(name) {
                kinds.insert(name.clone(), served(cluster, name).await?);
            }
            let Some(Some(resource)) = kinds.get(name) else { return Ok(AccessReview::NoSuchKind) };
            Attributes::create(resource)
        }
    };
    let review = author.review(namespace, &asked);
    let path = ApiPath::from_static("/apis/authorization.k8s.io/v1/subjectaccessreviews");
    let said = cluster.review(&path, &review).await?;
    Ok(AccessReview::read(&said, asked))
}
