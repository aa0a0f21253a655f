//! `unclobber allow`: one change that would be refused is let through.
//!
//! It never says who the caller is: the guard asks the kernel.

use std::process::ExitCode;

use super::args::AllowArgs;
use super::guarding;
use super::output::{Problem, print};
use super::rules::Subject;

/// Asks the guard of the file's directory.
pub(crate) fn allow(args: &AllowArgs) -> Result<ExitCode, Problem> {
    let subject = Subject::find(Some(&args.path), None)?;
    let what = format!("cannot allow a change of {}", args.path.display());
    let Some(mut client) = subject.client()? else {
        return Err(Problem::new(what, format!("{} is not guarded", subject.root.display()))
            .hint("`unclobber status` lists what is guarded; a guard that is started later refuses anew"));
    };
    let path = subject.path.clone().unwrap_or_default();
    let seconds = args.lasts.as_secs();
    let owner = client
        .allow(path.clone(), args.owner.clone(), seconds, subject.mount)
        .map_err(|error| guarding::client_problem(what, &error))?;
    let text = if args.json {
        let value = serde_json::json!({ "v": 1, "path": path, "owner": owner, "seconds": seconds });
        format!("{value}\n")
    } else {
        let whom = owner.map_or_else(|| "whoever makes it first".to_owned(), |owner| format!("owner {owner}"));
        format!("the next change of {path} is let through: {whom}, within {seconds} s, once\n")
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
