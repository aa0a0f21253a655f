//! Answering `why` for the control server: which mount's rules hold, and whose views are shown.
//!
//! It never judges: the guard runs its own decision.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::control::{Code, Failure, Whose, WhyReply, WhyRequest};
use crate::fs::{Asker, Explained, Guard, Mount, Question, View, errno_text};
use crate::guard::{OwnerId, Policy};
use crate::owner::Attribution;

/// Owners shown at most, where everybody's view is asked for.
const MAX_VIEWS: usize = 20;

/// The owner that a process is on a mount.
pub(crate) fn owner_on_mount(guard: &Guard, mount: u64, asker: &Asker) -> Option<OwnerId> {
    let mount = find_mount(guard, mount)?;
    let thread = guard.owners().thread(asker.pid)?;
    let owner = guard
        .owners()
        .owner_of(&thread, &mount.options().attribution, asker.uid);
    (owner != OwnerId::NOBODY).then_some(owner)
}

/// What is known of a path.
pub(crate) fn why(
    guard: &Arc<Guard>,
    request: &WhyRequest,
    whose: Whose,
    asker: Asker,
) -> Result<Result<WhyReply, PathBuf>, Failure> {
    let owners: Vec<Option<OwnerId>> = match whose {
        Whose::Own(owner) | Whose::Named(owner) => vec![Some(owner)],
        Whose::All => {
            let all = guard.owners().list();
            all.iter().map(|owner| Some(owner.id)).chain([None]).collect()
        }
    };
    let only = if let [Some(owner)] = owners.as_slice() {
        Some(*owner)
    } else {
        None
    };
    let mount = request
        .mount
        .and_then(|mount| find_mount(guard, mount))
        .or_else(|| mount_for(guard, only));
    if mount.is_none() {
        // As a mount that begins now would: it looks at them first.
        if let Err(problem) = guard.look_at_rules() {
            log::info!("{problem}");
        }
    }
    let path: Vec<OsString> = request.path.iter().cloned().map(Into::into).collect();
    let question = Question {
        path: &path,
        operation: request.operation,
        owners: &owners,
        policy: mount
            .as_ref()
            .map_or_else(Policy::default, |mount| mount.options().policy),
        mount: mount.as_ref().map(|mount| mount.id()),
        read_only: mount.as_ref().is_some_and(|mount| mount.options().read_only),
        asker,
        difference: request.difference && only.is_some(),
    };
    let explained = guard
        .explain(&question)
        .map_err(|error| Failure::new(Code::Failed, errno_text(error.errno())))?;
    let mut explanation = match explained {
        Explained::Elsewhere(path) => return Ok(Err(path)),
        Explained::Answer(explanation) => *explanation,
    };
    let before = explanation.views.len();
    if whose == Whose::All {
        explanation.views.retain(says_something);
        let kept = explanation.views.len().saturating_sub(MAX_VIEWS);
        explanation.views.drain(..kept);
    }
    Ok(Ok(WhyReply {
        own: match whose {
            Whose::Own(owner) => Some(guard.owners().name(owner).to_string()),
            Whose::Named(_) | Whose::All => None,
        },
        others: before - explanation.views.len(),
        root: guard.root_path().map(Path::to_owned),
        unmounted: mount.is_none(),
        rules_problem: guard.rules_problem().map(|problem| problem.to_string()),
        explanation,
    }))
}

/// Whether an owner has anything to do with the path; who has not is like anybody.
fn says_something(view: &View) -> bool {
    let changed = view.changed.as_ref().is_some_and(|changed| changed.own);
    view.owner.is_none() || view.view != "unseen" || view.last_refusal.is_some() || changed
}

fn find_mount(guard: &Guard, id: u64) -> Option<Arc<Mount>> {
    guard.mounts().into_iter().find(|mount| mount.id() == id)
}

/// The mount on which an owner would make its change: its own, else one that tells owners apart, else any.
fn mount_for(guard: &Guard, owner: Option<OwnerId>) -> Option<Arc<Mount>> {
    let mounts = guard.mounts();
    let name = owner.map(|owner| guard.owners().name(owner));
    let fits = |mount: &&Arc<Mount>| match mount.options().attribution {
        Attribution::Fixed(fixed) => {
            let fixed_name = guard.owners().name(fixed);
            let below = |name: &str| {
                name.strip_prefix(&*fixed_name)
                    .is_some_and(|rest| rest.starts_with('/'))
            };
            owner == Some(fixed) || name.as_deref().is_some_and(below)
        }
        Attribution::By(_) => false,
    };
    let by_rule = |mount: &&Arc<Mount>| matches!(mount.options().attribution, Attribution::By(_));
    mounts
        .iter()
        .find(fits)
        .or_else(|| mounts.iter().find(by_rule))
        .or_else(|| mounts.first())
        .cloned()
}
