//! The whole input space of the decision table, against a table written by hand.

use Intent::{Append, Create, Edit, Link, Remove, RenameOver, Replace};
use Standing::{Absent, Current, Stale, Unseen};
use There::{Directory, Nothing, Other, Regular};

use super::super::*;

const INTENTS: [Intent; 7] = [Create, Replace, RenameOver, Link, Edit, Append, Remove];
const THERE: [There; 4] = [Nothing, Regular, Directory, Other];
const STANDINGS: [Standing; 4] = [Unseen, Absent, Current, Stale];

/// One row: the cells are in the order of [`INTENTS`].
struct Row {
    there: &'static [There],
    standing: &'static [Standing],
    cells: [&'static str; 7],
}

/// `docs/SEMANTICS.md`, "The table". What a cell of the unseen row becomes is in [`unseen`].
///
/// `new` create exclusively · `ok` allow · `posix` the backing filesystem answers · `read` NOT_OBSERVED ·
/// `again` STALE · `none` NOT_FOUND · `kind` NOT_REGULAR_FILE · `unseen`, `unseen-` depends on the rest of the case
const TABLE: &[Row] = &[
    //                                                                    create   replace   rename    link     edit      append   remove
    Row {
        there: &[Nothing],
        standing: &[Unseen, Absent],
        cells: ["new", "new", "new", "new", "none", "new", "posix"],
    },
    Row {
        there: &[Nothing],
        standing: &[Current, Stale],
        cells: ["again", "again", "again", "new", "again", "new", "posix"],
    },
    Row {
        there: &[Regular],
        standing: &[Unseen, Absent],
        cells: ["read", "unseen", "unseen", "posix", "unseen", "ok", "unseen-"],
    },
    Row {
        there: &[Regular],
        standing: &[Current],
        cells: ["read", "ok", "ok", "posix", "ok", "ok", "ok"],
    },
    Row {
        there: &[Regular],
        standing: &[Stale],
        cells: ["read", "again", "again", "posix", "again", "ok", "again"],
    },
    Row {
        there: &[Directory, Other],
        standing: &STANDINGS,
        cells: ["kind", "kind", "posix", "posix", "posix", "posix", "posix"],
    },
];

/// The unseen file, written out: removing?, `--unseen allow`?, `--remove observed`?, foreign?, readable? -> allowed?
#[rustfmt::skip]
const UNSEEN: &[(bool, bool, bool, bool, bool, bool)] = &[
    // remove allow  observed foreign readable  allowed
    (false, false, false, false, true,  false), // the plain case: read it first
    (false, false, true,  false, true,  false),
    (false, true,  false, false, true,  true),  // --unseen allow
    (false, true,  true,  false, true,  true),
    (false, false, false, false, false, true),  // cannot be read, and nobody changed it
    (false, false, true,  false, false, true),
    (false, true,  false, false, false, true),
    (false, true,  true,  false, false, true),
    (true,  false, false, false, true,  true),  // baseline removal
    (true,  true,  false, false, true,  true),
    (true,  false, true,  false, true,  false), // --remove observed, whatever --unseen says
    (true,  true,  true,  false, true,  false),
    (true,  false, false, false, false, true),
    (true,  true,  false, false, false, true),
    (true,  false, true,  false, false, true),
    (true,  true,  true,  false, false, true),
];

fn unseen(case: &Case, policy: &Policy) -> bool {
    if case.foreign {
        return false;
    }
    let key = (
        case.intent == Remove,
        policy.unseen == UnseenRule::Allow,
        policy.remove == RemoveRule::Observed,
        case.foreign,
        case.readable,
    );
    let row = UNSEEN.iter().find(|row| (row.0, row.1, row.2, row.3, row.4) == key);
    row.expect("every combination has its line").5
}

fn expected(case: &Case, policy: &Policy) -> Decision {
    let rows: Vec<_> = TABLE
        .iter()
        .filter(|row| row.there.contains(&case.there) && row.standing.contains(&case.standing))
        .collect();
    assert_eq!(rows.len(), 1, "one row for {case:?}");
    let column = INTENTS.iter().position(|intent| *intent == case.intent).unwrap();
    let refuse = |code, step, why| {
        let step = match (step, case.there, case.readable) {
            (Step::ReadThenRetry | Step::ReadAgainThenRetry, Regular, false) => Step::MakeReadable,
            (step, ..) => step,
        };
        Decision::Refuse(Reason {
            code,
            step,
            why,
            intent: case.intent,
            there: case.there,
        })
    };
    match rows[0].cells[column] {
        "new" => Decision::CreateExclusively,
        "ok" => Decision::Allow(Keep::No),
        "posix" => Decision::Posix,
        "none" => refuse(Code::NotFound, Step::CreateInstead, Why::NothingThere),
        "kind" => refuse(Code::NotRegularFile, Step::ChooseAnotherName, Why::NotRegular),
        "again" if case.there == Nothing => refuse(Code::StaleVersion, Step::LookThenCreate, Why::GoneSince),
        "again" => refuse(Code::StaleVersion, Step::ReadAgainThenRetry, Why::ChangedSince),
        "unseen" | "unseen-" if unseen(case, policy) => Decision::Allow(Keep::Yes),
        "unseen" | "unseen-" => refuse(Code::NotObserved, Step::ReadThenRetry, Why::NeverRead),
        "read" => refuse(Code::NotObserved, Step::ReadThenRetry, Why::LostRace),
        cell => panic!("unknown cell {cell}"),
    }
}

fn policies() -> Vec<Policy> {
    let mut all = Vec::new();
    for mode in [Mode::Enforce, Mode::Observe] {
        for unseen in [UnseenRule::Refuse, UnseenRule::Allow] {
            for remove in [RemoveRule::Baseline, RemoveRule::Observed] {
                for view in [ViewRule::Process, ViewRule::Owner] {
                    for create in [CreateRule::Staged, CreateRule::Direct] {
                        for durability in [DurabilityRule::Caller, DurabilityRule::Publish] {
                            all.push(Policy {
                                mode,
                                unseen,
                                remove,
                                view,
                                create,
                                durability,
                                ..Policy::default()
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for intent in INTENTS {
        for there in THERE {
            for standing in STANDINGS {
                for foreign in [false, true] {
                    for readable in [false, true] {
                        all.push(Case {
                            intent,
                            there,
                            standing,
                            foreign,
                            readable,
                        });
                    }
                }
            }
        }
    }
    all
}

// semantics: D1 D2 D3 D4 D5 D6 D7 D8 D9 D10 D11 D12 D13 D15 D16
#[test]
fn the_table_is_as_written_for_every_case_and_every_policy() {
    let mut seen = 0;
    for policy in policies() {
        for case in cases() {
            assert_eq!(decide(&case, &policy), expected(&case, &policy), "{case:?} {policy:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, 7 * 4 * 4 * 2 * 2 * 64);
}

/// No decision licenses more than one with a better standing would: what is refused to the owner who has seen the
/// file is refused to all.
// semantics: D4
#[test]
fn a_current_view_is_never_worse_than_none() {
    for policy in policies() {
        for case in cases().into_iter().filter(|case| case.there == Regular) {
            let with = |standing| decide(&Case { standing, ..case }, &policy);
            if matches!(with(Current), Decision::Refuse(_)) {
                assert!(matches!(with(Unseen), Decision::Refuse(_)), "{case:?}");
                assert!(matches!(with(Stale), Decision::Refuse(_)), "{case:?}");
            }
        }
    }
}

/// Tenet 4: the step leads to a standing in which the same call is not refused for the same reason.
// semantics: E7
#[test]
fn every_step_clears_its_refusal() {
    for policy in policies() {
        for case in cases() {
            let Decision::Refuse(reason) = decide(&case, &policy) else {
                continue;
            };
            let after = match reason.step {
                // What is not there cannot be read.
                Step::ReadThenRetry | Step::ReadAgainThenRetry | Step::MakeReadable => {
                    assert_eq!(case.there, Regular, "{case:?}");
                    Case {
                        standing: Current,
                        foreign: false,
                        ..case
                    }
                }
                Step::LookThenCreate => {
                    assert_eq!(case.there, Nothing, "{case:?}");
                    Case {
                        standing: Absent,
                        foreign: false,
                        intent: if case.intent == Edit { Create } else { case.intent },
                        ..case
                    }
                }
                Step::CreateInstead => Case { intent: Create, ..case },
                Step::ChooseAnotherName => Case {
                    there: Nothing,
                    standing: Unseen,
                    ..case
                },
                Step::WaitThenRead => panic!("the table never sees who has the file open: {case:?}"),
                Step::ChangeOutside => panic!("the table never sees the file of rules: {case:?}"),
                Step::CheckBacking => panic!("the table never sees the backing filesystem: {case:?}"),
            };
            // A creation that lost its race is retried by its caller as a replacement.
            let after = if after.intent == Create && after.there == Regular {
                Case {
                    intent: Replace,
                    ..after
                }
            } else {
                after
            };
            let again = decide(&after, &policy);
            assert!(!matches!(again, Decision::Refuse(_)), "{case:?}: {again:?}");
        }
    }
}

// semantics: A1
#[test]
fn whatever_is_displaced_without_a_current_view_is_kept() {
    for policy in policies() {
        for case in cases() {
            if let Decision::Allow(keep) = decide(&case, &policy) {
                assert_eq!(case.there, Regular);
                let displaces = case.intent != Append && case.standing != Current;
                assert_eq!(keep == Keep::Yes, displaces, "{case:?}");
                assert!(
                    !(displaces && case.foreign),
                    "foreign content is never displaced unseen: {case:?}"
                );
            }
        }
    }
}

// semantics: L7
#[test]
fn at_keep_nothing_is_refused_and_whatever_would_have_been_is_kept() {
    let policies = [RemoveRule::Baseline, RemoveRule::Observed].map(|remove| Policy {
        remove,
        ..Policy::default()
    });
    for policy in policies {
        for case in every_case() {
            let guarded = decide(&case, &policy);
            let kept = decide_at(Level::Keep, &case, &policy);
            assert_eq!(decide_at(Level::Guard, &case, &policy), guarded);
            assert_eq!(decide_at(Level::Off, &case, &policy), Decision::Posix);
            let Decision::Refuse(_) = guarded else {
                assert_eq!(kept, guarded, "{case:?}");
                continue;
            };
            match (case.there, case.intent) {
                (Regular, Create) => assert_eq!(kept, guarded, "creating never replaces"),
                (Regular, _) => assert_eq!(kept, Decision::Allow(Keep::Yes), "{case:?}"),
                (Nothing, Edit) | (Directory | Other, _) => assert_eq!(kept, Decision::Posix, "{case:?}"),
                (Nothing, _) => assert_eq!(kept, Decision::CreateExclusively, "{case:?}"),
            }
        }
    }
}

fn every_case() -> Vec<Case> {
    let mut all = Vec::new();
    for intent in INTENTS {
        for there in THERE {
            for standing in STANDINGS {
                for foreign in [false, true] {
                    for readable in [false, true] {
                        all.push(Case {
                            intent,
                            there,
                            standing,
                            foreign,
                            readable,
                        });
                    }
                }
            }
        }
    }
    all
}
