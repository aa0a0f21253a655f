//! `unclobber undo`: what an owner's last changes displaced, back where it was.
//!
//! What a replacement has put in the place of something is exchanged with it, and kept: it does away with nothing.

use std::process::ExitCode;

use super::args::UndoArgs;
use super::attic::{Attic, plain};
use super::output::{FAILED, Problem, note, print};
use crate::store::{Kept, UNDO};

/// Restores the last displaced files.
pub(crate) fn undo(args: &UndoArgs) -> Result<ExitCode, Problem> {
    let attic = Attic::open(args.dir.as_deref())?;
    let (all, _) = attic.list()?;
    let of_owner = |kept: &&Kept| {
        let noted = kept.note.as_ref();
        noted.is_some_and(|noted| {
            noted.operation != UNDO && args.owner.as_ref().is_none_or(|owner| *owner == noted.owner)
        })
    };
    let last: Vec<&Kept> = all
        .iter()
        .rev()
        .filter(|kept| kept.file.is_some())
        .filter(of_owner)
        .take(args.last)
        .collect();
    if last.is_empty() {
        let whose = args
            .owner
            .as_deref()
            .map_or_else(String::new, |owner| format!(" of {}", plain(owner)));
        return Err(Problem::new(
            "nothing to undo",
            format!("no change{whose} is in the attic of {}", attic.place.path.display()),
        )
        .hint("`unclobber attic list` shows what is kept, and whose change displaced it"));
    }
    let mut failed = 0;
    for kept in &last {
        match attic.undo(kept) {
            Ok(done) => print(&format!("{done}\n"))?,
            Err(problem) => {
                failed += 1;
                problem.show();
            }
        }
    }
    if failed > 0 {
        note(&format!(
            "{failed} of {} could not be restored and are still in the attic",
            last.len()
        ));
        return Ok(ExitCode::from(FAILED));
    }
    attic.tidy();
    Ok(ExitCode::SUCCESS)
}
