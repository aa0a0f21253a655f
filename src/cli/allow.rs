//! `unclobber allow`: one change that would be refused is let through; which exceptions wait, and taking them back.
//!
//! It never says who the caller is: the guard asks the kernel.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::args::AllowArgs;
use super::guarding;
use super::output::{FAILED, Problem, lasting, print};
use super::rules::Subject;
use crate::control::{Allowance, Client};
use crate::guard::printable;

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Asks the guard of the file's directory.
pub(crate) fn allow(args: &AllowArgs) -> Result<ExitCode, Problem> {
    let path = args.path.as_deref().unwrap_or_else(|| Path::new("."));
    if args.list {
        return list(path, args.json);
    }
    let subject = Subject::find(Some(path), None)?;
    let what = if args.cancel {
        format!("cannot cancel what is allowed for {}", path.display())
    } else {
        format!("cannot allow a change of {}", path.display())
    };
    let client = client_of(&subject, &what)?;
    let path = subject.path.clone().unwrap_or_default();
    if args.cancel {
        return cancel(client, what, path, args);
    }
    give(client, what, path, args, subject.mount)
}

fn client_of(subject: &Subject, what: &str) -> Result<Client, Problem> {
    subject.client()?.ok_or_else(|| {
        Problem::new(what, format!("{} is not guarded", subject.root.display()))
            .hint("`unclobber status` lists what is guarded; a guard that is started later refuses anew")
    })
}

fn give(
    mut client: Client,
    what: String,
    path: String,
    args: &AllowArgs,
    mount: Option<u64>,
) -> Result<ExitCode, Problem> {
    let seconds = args.lasts.as_secs();
    let owner = client
        .allow(path.clone(), args.owner.clone(), seconds, mount)
        .map_err(|error| guarding::client_problem(what, &error))?;
    let text = if args.json {
        let value = json!({ "v": VERSION, "path": path, "owner": owner, "seconds": seconds });
        format!("{value}\n")
    } else {
        let (path, time) = (printable(&path), lasting(seconds));
        format!(
            "the next change of {path} that would be refused is let through: {}, within {time}, once\n",
            whom(owner.as_deref())
        )
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn cancel(mut client: Client, what: String, path: String, args: &AllowArgs) -> Result<ExitCode, Problem> {
    let count = client
        .disallow(path.clone(), args.owner.clone())
        .map_err(|error| guarding::client_problem(what.as_str(), &error))?;
    if args.json {
        let value = json!({ "v": VERSION, "path": path, "owner": args.owner, "cancelled": count });
        print(&format!("{value}\n"))?;
    } else if count > 0 {
        print(&format!("no change of {} is let through any more\n", printable(&path)))?;
    } else {
        return Err(Problem::new(what, "no exception of yours waits for it")
            .hint("`unclobber allow --list` shows those that wait; one that was used is gone"));
    }
    Ok(ExitCode::from(if count > 0 { 0 } else { FAILED }))
}

fn list(dir: &Path, as_json: bool) -> Result<ExitCode, Problem> {
    let subject = Subject::find(None, Some(dir))?;
    let what = format!("cannot list what is allowed in {}", subject.root.display());
    let waiting = client_of(&subject, &what)?
        .allowances()
        .map_err(|error| guarding::client_problem(what, &error))?;
    let text = if as_json {
        let one = |one: &Allowance| json!({ "path": one.path, "owner": one.owner, "seconds": one.seconds });
        let value = json!({
            "v": VERSION,
            "directory": subject.root.to_string_lossy(),
            "waiting": waiting.iter().map(one).collect::<Vec<_>>(),
        });
        format!("{value:#}\n")
    } else {
        table(&waiting)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn table(waiting: &[Allowance]) -> String {
    if waiting.is_empty() {
        return "no exception waits to be used\n".to_owned();
    }
    let row = |one: &Allowance| {
        let (left, whom) = (lasting(one.seconds), whom(one.owner.as_deref()));
        format!("{left:>9}  {whom:<24}  {}\n", printable(&one.path))
    };
    let rows: String = waiting.iter().map(row).collect();
    format!("{:>9}  {:<24}  PATH\n{rows}", "TIME LEFT", "FOR")
}

fn whom(owner: Option<&str>) -> String {
    owner.map_or_else(
        || "whoever makes it first".to_owned(),
        |owner| format!("owner {}", printable(owner)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_a_table() {
        assert_eq!(table(&[]), "no exception waits to be used\n");
        let one = Allowance {
            path: "a\nb".to_owned(),
            owner: Some("A".to_owned()),
            seconds: 45,
            by_owner: false,
        };
        let text = table(&[one, Allowance::default()]);
        assert!(text.contains("     45 s  owner A                   a\\nb\n"), "{text}");
        assert!(text.contains("whoever makes it first"), "{text}");
    }
}
