//! `unclobber why`: what an owner knows of a path, what would happen to a change now, and what to do next.
//!
//! It never changes or records anything, and never looks the path up in the mount: that would be an observation.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::args::WhyArgs;
use super::guarding;
use super::locate::{Located, locate};
use super::output::{FAILED, Problem, RUN_FAILED, Style, print};
use super::why_screen;
use crate::control::{WhyReply, WhyRequest};
use crate::fs::{Operation, Outcome};

/// The version of the JSON form.
const VERSION: u32 = 1;
/// Times a path may lead from one tree into another.
const MAX_TREES: usize = 40;

/// Explains a path; the exit code says whether the change would be allowed.
pub(crate) fn why(args: &WhyArgs) -> Result<ExitCode, Problem> {
    explain(args).map_err(|problem| {
        if problem.code == FAILED {
            problem.code(RUN_FAILED)
        } else {
            problem
        }
    })
}

fn explain(args: &WhyArgs) -> Result<ExitCode, Problem> {
    let (answer, base) = ask(args)?;
    if args.json {
        let mut value =
            serde_json::to_value(&answer.explanation).map_err(|error| Problem::new("cannot write JSON", error))?;
        value["v"] = json!(VERSION);
        value["directory"] = json!(base.to_string_lossy());
        value["own"] = json!(answer.own);
        value["others"] = json!(answer.others);
        value["mounted"] = json!(!answer.unmounted);
        value["rules_problem"] = json!(answer.rules_problem);
        print(&format!("{value:#}\n"))?;
    } else {
        print(&why_screen::screen(args, &answer, &base, Style::of_output()))?;
    }
    let refused = answer
        .explanation
        .views
        .iter()
        .any(|view| view.outcome != Outcome::Allowed);
    Ok(if refused {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

fn ask(args: &WhyArgs) -> Result<(WhyReply, PathBuf), Problem> {
    let follow = !matches!(args.op, Operation::Remove | Operation::Create);
    let mut path = args.path.clone();
    for _ in 0..MAX_TREES {
        let Located {
            mut client,
            names,
            mount,
            base,
        } = locate(&path, follow)?;
        let request = WhyRequest {
            path: names.into_iter().map(OsString::into).collect(),
            owner: args.owner.clone(),
            operation: args.op,
            mount,
            difference: args.diff,
        };
        let answer = client
            .why(request)
            .map_err(|error| guarding::client_problem(format!("cannot ask about {}", args.path.display()), &error))?;
        match answer {
            Ok(answer) => return Ok((answer, base)),
            Err(elsewhere) => path = from(&base, &elsewhere),
        }
    }
    Err(too_far(&args.path))
}

/// Where a path leads from the root of a tree, whose own path has no symbolic links: `..` there is not for the guard.
fn from(base: &Path, elsewhere: &Path) -> PathBuf {
    let mut above = base;
    let mut rest = elsewhere;
    while let (Ok(further), Some(parent)) = (rest.strip_prefix(".."), above.parent()) {
        (rest, above) = (further, parent);
    }
    above.join(rest)
}

fn too_far(path: &Path) -> Problem {
    Problem::new(format!("cannot follow {}", path.display()), "too many symbolic links")
        .hint("a symbolic link of the path leads back to itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_out_of_a_tree_goes_on_outside() {
        assert_eq!(from(Path::new("/a/b"), Path::new("../b/c")), Path::new("/a/b/c"));
        assert_eq!(from(Path::new("/a/b"), Path::new("../../x")), Path::new("/x"));
        assert_eq!(from(Path::new("/a/b"), Path::new("/x/y")), Path::new("/x/y"));
    }
}
