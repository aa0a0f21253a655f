//! Runs one form in one situation and judges what came of it.

use std::path::Path;
use std::time::Duration;

use crate::common::session::{Done, Session, mentions, names};
use crate::common::snapshot::{Snapshot, kept};
use crate::common::tree::Tree;
use crate::common::wait::wait_until;
use crate::common::{NOT_OBSERVED, STALE};
use crate::form::{Act, Form, Outcome, Situation, Tells};
use crate::native::{self, Native};
use crate::situation;

/// How long a directory may take to settle after the command: a publication can come with the last close.
const SETTLING: Duration = Duration::from_secs(3);

/// A form that has been run; what was wrong with it, and what the guard must have said.
#[derive(Debug)]
pub(crate) struct Row {
    form: Form,
    situation: Situation,
    expected: Outcome,
    wrong: Vec<String>,
}

pub(crate) fn run(tree: &Tree, situation: Situation, form: &Form, a: &mut Session) -> Row {
    let version = situation::version(situation);
    let native = native::of(form, version);
    let directory = tree.at(form.directory());
    let mut row = Row {
        form: *form,
        situation,
        expected: form.expected(situation),
        wrong: Vec::new(),
    };
    let before = native::look(&directory);
    row.expect(before.get(form.target) == native.before.get(form.target), || {
        "the target was not laid out".to_owned()
    });
    let done = a.at(&directory, form.command);
    match row.expected {
        Outcome::Refused(code) => {
            row.refused(&directory, &before, &native, &done, code);
            row.again(&directory, &native, a);
        }
        Outcome::Allowed | Outcome::AllowedInTheEnd => row.allowed(&directory, &native, &done),
        Outcome::AllowedKept => {
            row.allowed(&directory, &native, &done);
            row.kept(tree, version);
        }
    }
    row
}

impl Row {
    fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(otherwise());
        }
    }

    fn allowed(&mut self, directory: &Path, native: &Native, done: &Done) {
        let settled = wait_until(SETTLING, || native::look(directory) == native.after);
        self.expect(settled, || {
            format!(
                "here and natively differ:\n{}{done:?}",
                native::look(directory).difference(&native.after)
            )
        });
        self.expect(done.code == native.code, || {
            format!("ends with {done:?}, natively with {native:?}")
        });
    }

    /// The target is as it was, whatever else stood there is as it was or as it is natively, and the tool says so.
    fn refused(&mut self, directory: &Path, before: &Snapshot, native: &Native, done: &Done, code: &str) {
        let now = native::look(directory);
        let target = self.form.target;
        self.expect(now.get(target) == before.get(target), || {
            format!(
                "the target is {:?}, it was {:?}; {done:?}",
                now.get(target),
                before.get(target)
            )
        });
        for (name, entry) in &before.0 {
            let as_it_may_be = now.get(name) == Some(entry) || now.get(name) == native.after.get(name);
            self.expect(as_it_may_be, || {
                format!("{name} is {:?}, it was {entry:?}", now.get(name))
            });
        }
        let status = matches!(self.form.tells, Tells::Nothing(_)) || done.code != 0;
        self.expect(status, || format!("the tool reports success: {done:?}"));
        let text = match code {
            STALE => "Stale file handle",
            NOT_OBSERVED if self.form.act == Act::Remove || self.form.tells == Tells::ErrnoOfRemoval => {
                "Device or resource busy"
            }
            _ => "File exists",
        };
        let shown = !matches!(self.form.tells, Tells::Errno | Tells::ErrnoOfRemoval) || done.stderr.contains(text);
        self.expect(shown, || format!("the tool does not say {text:?}: {done:?}"));
    }

    /// Takes the step that the refusal names and runs the form again.
    fn again(&mut self, directory: &Path, native: &Native, a: &mut Session) {
        let step = a.at(directory, &format!("cat {} >/dev/null", self.form.named));
        self.expect(step.ok(), || format!("the advised step fails: {step:?}"));
        let done = a.at(directory, self.form.command);
        let target = self.form.target;
        let same = || native::look(directory).get(target) == native.after.get(target);
        let settled = wait_until(SETTLING, same);
        self.expect(settled && done.code == native.code, || {
            let now = native::look(directory);
            format!(
                "after the advised step: {done:?}, target {:?}, natively {native:?}",
                now.get(target)
            )
        });
    }

    fn kept(&mut self, tree: &Tree, version: u32) {
        let content = self.form.content(version);
        let found = wait_until(SETTLING, || kept(&tree.root(), content.as_bytes()));
        self.expect(found, || {
            "the removed content is kept nowhere in the backing tree".to_owned()
        });
    }

    /// All that was wrong, given everything that the guard has told owner A.
    pub(crate) fn judge(&self, said: &[String]) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        let directory = self.form.directory();
        let path = format!("{directory}/{}", self.form.named);
        let target = format!("{directory}/{}", self.form.target);
        match self.expected {
            Outcome::Refused(code) if self.form.tells != Tells::StatusWithoutLine => {
                if !names(said, &path, code) && !names(said, &target, code) {
                    wrong.push(format!("no line says {code} of {path}"));
                }
            }
            Outcome::Refused(_) | Outcome::AllowedInTheEnd => {}
            Outcome::Allowed | Outcome::AllowedKept => {
                let told = said.iter().filter(|line| in_directory(line, &directory));
                wrong.extend(told.map(|line| format!("refused what must pass: {line}")));
            }
        }
        let name = format!(
            "{} [{:?}, expected {:?}]",
            self.form.name, self.situation, self.expected
        );
        wrong.into_iter().map(|what| format!("{name}: {what}")).collect()
    }
}

fn in_directory(line: &str, directory: &str) -> bool {
    // The path stands behind the operation: forms are named like operations.
    let path = line
        .split_once("refused: ")
        .and_then(|(_, said)| said.split_once(' '))
        .map_or(line, |(_, said)| said);
    path.contains(&format!("/{directory}/")) || mentions(path, directory) || path.starts_with(&format!("{directory}/"))
}
