//! `unclobber undo`: what an owner's last changes displaced, back where it was.
//!
//! It never replaces anything: where something is in the way, it says so and leaves both.

use std::process::ExitCode;

use super::args::UndoArgs;
use super::attic::{Attic, plain};
use super::output::{FAILED, Problem, note, print};
use crate::store::Kept;

/// Restores the last displaced files.
pub(crate) fn undo(args: &UndoArgs) -> Result<ExitCode, Problem> {
    let attic = Attic::open(args.dir.as_deref())?;
    let (all, _) = attic.list()?;
    let of_owner = |kept: &&Kept| {
        let noted = kept.note.as_ref();
        noted.is_some_and(|noted| args.owner.as_ref().is_none_or(|owner| *owner == noted.owner))
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
        match attic.restore_in_place(kept) {
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
