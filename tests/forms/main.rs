//! Every form of replace, edit, append and remove, in every situation, on a real mount.
//!
//! The table says for each form what it means to do; `form::expected` says what must come of that. A row is run first on a
//! plain directory (it must really change its target there, or the row shows nothing), then by owner A in the guarded tree.
//! Where it is refused, the step that the refusal names is taken and the form is run again: it must then succeed.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;
mod form;
mod native;
mod row;
mod situation;
mod table_files;
mod table_git;
mod table_programs;
mod table_shell;

use std::collections::BTreeSet;

use common::session::Session;
use common::tree::{Tree, require_fuse, say, tool_is_there};
use form::{Act, Form, Situation};

/// The whole table, without the rows whose tools are missing here.
fn forms() -> Vec<Form> {
    let all = table_shell::FORMS
        .iter()
        .chain(table_files::FORMS)
        .chain(table_programs::FORMS)
        .chain(table_git::FORMS);
    let all: Vec<Form> = all.copied().collect();
    let tools: BTreeSet<&str> = all.iter().flat_map(|form| form.needs.iter().copied()).collect();
    let missing: BTreeSet<&str> = tools.into_iter().filter(|tool| !tool_is_there(tool)).collect();
    all.into_iter()
        .filter(|form| !form.needs.iter().any(|tool| missing.contains(tool)))
        .collect()
}

/// Says the rows that cannot be run here, once.
#[test]
fn every_tool_of_the_table_is_there() {
    let all = table_shell::FORMS
        .iter()
        .chain(table_files::FORMS)
        .chain(table_programs::FORMS)
        .chain(table_git::FORMS);
    for form in all {
        for tool in form.needs.iter().filter(|tool| !tool_is_there(tool)) {
            say(&format!("SKIPPED form {}: {tool} is not installed", form.name));
        }
    }
}

/// Names are directories: two rows of one name would share their target.
#[test]
fn every_form_has_a_directory_of_its_own() {
    let mut seen = BTreeSet::new();
    for form in forms() {
        assert!(seen.insert(form.directory()), "two forms are called {}", form.name);
    }
    assert!(seen.len() > 100, "only {} forms can be run here", seen.len());
}

/// On a plain directory each form does what its row says, and does it for both versions of the content.
#[test]
fn every_form_works_on_a_plain_directory() {
    let mut wrong = Vec::new();
    for form in forms() {
        let outcome = native::of(&form, 1);
        let changed = outcome.before.get(form.target) != outcome.after.get(form.target);
        if changed == (form.act == Act::Untouched) {
            wrong.push(format!("{}: target changed: {changed}, {outcome:?}", form.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn run(situation: Situation, name: &str) {
    if !require_fuse(name) {
        return;
    }
    let forms: Vec<Form> = forms()
        .into_iter()
        .filter(|form| !form.without.contains(&situation))
        .collect();
    let tree = Tree::new();
    situation::lay_out(&tree, situation, &forms);
    let mut a = Session::guarded(&tree, "a", &[]);
    let mut b = Session::guarded(&tree, "b", &[]);
    situation::come_about(&tree, situation, &forms, &mut a, &mut b);
    let rows: Vec<row::Row> = forms
        .iter()
        .map(|form| row::run(&tree, situation, form, &mut a))
        .collect();
    let said = a.close();
    let mut wrong: Vec<String> = rows.iter().flat_map(|row| row.judge(&said)).collect();
    wrong.extend(
        b.close()
            .iter()
            .map(|line| format!("owner b, who only read and rewrote, was told: {line}")),
    );
    let count = wrong.len();
    assert!(
        wrong.is_empty(),
        "{name}: {count} of {} rows are wrong\n{}",
        rows.len(),
        wrong.join("\n")
    );
}

// semantics: D5 D6 D7 D15 D17 D18 D19 E1 E6 E7 A1 A2 V3
#[test]
fn unseen() {
    run(Situation::Unseen, "unseen");
}

// semantics: O2 O12
#[test]
fn seen_by_another_owner_only() {
    run(Situation::SeenByAnother, "seen by another owner only");
}

// semantics: D7 D8 D17 D18 D19 E2 E7 G5 V2
#[test]
fn stale_through_another_owner() {
    run(Situation::StaleByOwner, "stale through another owner");
}

// semantics: D8 E2 E7 N1 V8
#[test]
fn stale_through_an_outsider() {
    run(Situation::StaleByOutsider, "stale through an outsider");
}

// semantics: D5 D6 E1 E7 V7
#[test]
fn foreign_through_another_owner() {
    run(Situation::ForeignByOwner, "foreign through another owner");
}

// semantics: D5 D6 E1 E7 N1 V9
#[test]
fn foreign_through_an_outsider() {
    run(Situation::ForeignByOutsider, "foreign through an outsider");
}

// semantics: D4 O3 V1
#[test]
fn current() {
    run(Situation::Current, "current");
}

// semantics: D4 O4
#[test]
fn own() {
    run(Situation::Own, "own");
}
