//! Brings each situation about, for all forms at once.

use std::fmt::Write as _;

use crate::common::session::Session;
use crate::common::tree::Tree;
use crate::form::{Form, Situation};
use crate::native;

/// The backing tree as it is before the guard begins.
pub(crate) fn lay_out(tree: &Tree, situation: Situation, forms: &[Form]) {
    let mut shell = Session::plain(tree, "outsider");
    let version = (situation != Situation::Own).then_some(1);
    for form in forms {
        native::lay_out(tree, &mut shell, form, version);
    }
}

/// What happens between the guard's beginning and the forms.
pub(crate) fn come_about(tree: &Tree, situation: Situation, forms: &[Form], a: &mut Session, b: &mut Session) {
    match situation {
        Situation::Unseen => {}
        Situation::SeenByAnother => {
            read(b, tree, forms);
            all(
                a,
                tree,
                &each(forms, |_, path| {
                    format!("ls -l {path} && test -s {path} && stat {path}")
                }),
            );
        }
        Situation::StaleByOwner => {
            read(a, tree, forms);
            read(b, tree, forms);
            all(b, tree, &each(forms, |form, path| write(form, path, 2)));
        }
        Situation::StaleByOutsider => {
            read(a, tree, forms);
            outsider(tree, forms);
        }
        Situation::ForeignByOwner => {
            read(b, tree, forms);
            all(b, tree, &each(forms, |form, path| write(form, path, 2)));
        }
        Situation::ForeignByOutsider => outsider(tree, forms),
        Situation::Current => read(a, tree, forms),
        Situation::Own => {
            all(a, tree, &each(forms, |form, path| write(form, path, 1)));
            for form in forms {
                let done = a.at(&tree.at(form.directory()), form.after);
                assert!(done.ok(), "{}: after, by owner a: {done:?}", form.name);
            }
        }
    }
}

/// The version of the content that stands in the target when the form is run.
pub(crate) fn version(situation: Situation) -> u32 {
    match situation {
        Situation::Unseen | Situation::SeenByAnother | Situation::Current | Situation::Own => 1,
        Situation::StaleByOwner
        | Situation::StaleByOutsider
        | Situation::ForeignByOwner
        | Situation::ForeignByOutsider => 2,
    }
}

fn outsider(tree: &Tree, forms: &[Form]) {
    for form in forms {
        tree.write(&format!("{}/{}", form.directory(), form.target), &form.content(2));
    }
}

/// One process of the owner reads every target.
fn read(session: &mut Session, tree: &Tree, forms: &[Form]) {
    let paths: Vec<String> = forms
        .iter()
        .map(|form| format!("'{}/{}'", form.directory(), form.target))
        .collect();
    all(session, tree, &format!("cat {}", paths.join(" ")));
}

fn each(forms: &[Form], line: impl Fn(&Form, &str) -> String) -> String {
    forms.iter().fold(String::new(), |mut text, form| {
        let path = format!("'{}/{}'", form.directory(), form.target);
        writeln!(text, "{} || exit 9", line(form, &path)).expect("writing to a string");
        text
    })
}

/// The shell itself writes the file, as a redirection does.
fn write(form: &Form, path: &str, version: u32) -> String {
    format!("printf '{}' >{path}", form.content(version).replace('\n', "\\n"))
}

fn all(session: &mut Session, tree: &Tree, text: &str) {
    let done = session.at(&tree.root(), &format!("(\n{text}\n) >/dev/null"));
    assert!(done.ok(), "bringing the situation about: {done:?} {:?}", session.said());
}
