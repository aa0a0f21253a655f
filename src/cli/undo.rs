//! `unclobber undo`: what an owner's last changes displaced, back where it was.
//!
//! What a replacement has put in the place of something is exchanged with it, and kept: it does away with nothing.

use std::process::ExitCode;

use super::args::UndoArgs;
use super::attic::{Attic, plain};
use super::output::{FAILED, Problem, counted, note, print};
use super::why_screen::shell_word;
use crate::store::{Kept, UNDO};

/// Kept files that cannot be restored are passed over and told, at most.
const MOST_FAILED: usize = 20;

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
    let there = all.iter().rev().filter(|kept| kept.file.is_some());
    let mut candidates = there.filter(of_owner).peekable();
    if candidates.peek().is_none() {
        return Err(nothing_to_undo(args, &attic, &all));
    }
    let (mut done, mut failed) = (0, 0);
    // What cannot be restored must not hide what was displaced before it.
    while done < args.last && failed < MOST_FAILED {
        let Some(kept) = candidates.next() else { break };
        match attic.undo(kept, &all) {
            Ok(told) => {
                done += 1;
                print(&format!("{told}\n"))?;
            }
            Err(problem) => {
                failed += 1;
                problem.show();
            }
        }
    }
    if done + failed < args.last && candidates.next().is_none() {
        note(&format!(
            "the last {} were asked for, and there {} only {}",
            args.last,
            if done + failed == 1 { "was" } else { "were" },
            done + failed
        ));
    }
    if failed > 0 {
        let are = if failed == 1 { "is" } else { "are" };
        note(&format!(
            "{} could not be restored and {are} still in the attic; {done} restored",
            counted(u64::try_from(failed).unwrap_or(u64::MAX), "kept file")
        ));
        return Ok(ExitCode::from(FAILED));
    }
    attic.tidy();
    Ok(ExitCode::SUCCESS)
}

fn nothing_to_undo(args: &UndoArgs, attic: &Attic, all: &[Kept]) -> Problem {
    let whose = args
        .owner
        .as_deref()
        .map_or_else(String::new, |owner| format!(" of {}", plain(owner)));
    let dir = attic.place.path.display();
    if let Some(above) = attic.above() {
        return Problem::new("nothing to undo", format!("{dir} has no attic")).hint(format!(
            "{} above it has one: unclobber undo {}",
            above.display(),
            shell_word(&above)
        ));
    }
    let problem = Problem::new("nothing to undo", format!("no change{whose} is in the attic of {dir}"));
    let there = || all.iter().filter(|kept| kept.file.is_some());
    let mut owners: Vec<String> = there()
        .filter_map(|kept| kept.note.as_ref())
        .filter(|noted| noted.operation != UNDO)
        .map(|noted| plain(&noted.owner))
        .collect();
    owners.sort_unstable();
    owners.dedup();
    let list = attic.command("list");
    problem.hint(match (owners.as_slice(), there().next()) {
        ([_, ..], _) => format!(
            "what changes of {} displaced is kept: name one with --owner, or leave it out for the last of anybody; `{list}` shows \
             all of it",
            owners.join(", ")
        ),
        ([], Some(_)) => format!(
            "`{list}` shows what is kept: what an undo has put aside, or nothing was noted about, comes back by `{} ID --to PATH`",
            attic.command("restore")
        ),
        ([], None) => "name the guarded directory itself: unclobber undo DIR. Content is kept only where it was displaced unread or \
                       had been made by others; not of a file that has another name still (a hard link), which has the \
                       content; not with --attic off or --mode observe; and not for longer than --attic-age"
            .to_owned(),
    })
}
