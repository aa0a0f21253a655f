//! What a refused caller reads.

use super::*;

const NOW: Timestamp = Timestamp {
    sec: 1_000_000,
    nsec: 0,
};

fn refusal() -> Refusal {
    Refusal {
        operation: "write",
        path: "notes.txt".to_owned(),
        code: Code::StaleVersion,
        errno_text: "Stale file handle".to_owned(),
        owner: "a".to_owned(),
        changed_by: Some("b".to_owned()),
        changed_at: Some(Timestamp {
            sec: NOW.sec - 3,
            nsec: 0,
        }),
        step: Step::ReadAgainThenRetry,
        why: Why::ChangedSince,
        writer: None,
        kept: None,
    }
}

// semantics: E8
#[test]
fn one_line_with_everything() {
    assert_eq!(
        refusal().line(NOW, false),
        "refused: write to notes.txt: FS_STALE_VERSION (Stale file handle): changed by owner \"b\" 3 s ago since \
         \"a\" read it; read the file again, then retry"
    );
    assert_eq!(
        refusal().to_string(),
        "refused: write to notes.txt: FS_STALE_VERSION (Stale file handle): changed by owner \"b\" since \"a\" read \
         it; read the file again, then retry"
    );
    let never = Refusal {
        operation: "open",
        code: Code::NotObserved,
        errno_text: "File exists".to_owned(),
        changed_by: None,
        changed_at: None,
        step: Step::ReadThenRetry,
        why: Why::NeverRead,
        ..refusal()
    };
    assert_eq!(
        never.line(NOW, false),
        "refused: open notes.txt: FS_NOT_OBSERVED (File exists): \"a\" has not read it; read the file, then retry"
    );
}

// semantics: E8 E9
#[test]
fn every_code_has_its_name_and_every_line_ends_with_its_step() {
    use Code::{IoError, NotFound, NotObserved, NotRegularFile, RulesFixed, StaleVersion};
    let names = [
        (NotObserved, "FS_NOT_OBSERVED"),
        (StaleVersion, "FS_STALE_VERSION"),
        (NotFound, "FS_NOT_FOUND"),
        (NotRegularFile, "FS_NOT_REGULAR_FILE"),
        (RulesFixed, "FS_RULES_FIXED"),
        (IoError, "FS_IO_ERROR"),
    ];
    for (code, name) in names {
        assert_eq!((code.as_str(), code.to_string().as_str()), (name, name));
    }
    let steps = [
        (Step::ReadThenRetry, "read the file, then retry"),
        (Step::ReadAgainThenRetry, "read the file again, then retry"),
        (
            Step::LookThenCreate,
            "look at the path again (`ls PATH` itself, not its directory) to see that it is gone, then create it",
        ),
        (
            Step::WaitThenRead,
            "wait until the writer has closed it, read the file again, then retry",
        ),
        (Step::CreateInstead, "create it instead of editing it"),
        (Step::ChooseAnotherName, "choose another name"),
        (
            Step::MakeReadable,
            "have it allowed with `unclobber allow`, or make the file readable and read it, then retry",
        ),
        (
            Step::ChangeOutside,
            "change .unclobber.toml outside the mount, or use --rules-writable",
        ),
        (Step::CheckBacking, "check the underlying filesystem, then retry"),
    ];
    let whys = [
        Why::NeverRead,
        Why::ChangedSince,
        Why::GoneSince,
        Why::ProcessHoldsOld,
        Why::LostRace,
        Why::NotRegular,
        Why::NothingThere,
        Why::DirectoryGone,
        Why::RulesFixed,
        Why::BeingWritten,
        Why::TakenAway,
    ];
    for (step, text) in steps {
        for why in whys {
            for changed_by in [None, Some("b"), Some(OUTSIDE), Some(SEVERAL)] {
                let line = Refusal {
                    step,
                    why,
                    changed_by: changed_by.map(str::to_owned),
                    ..refusal()
                }
                .line(NOW, false);
                assert!(line.ends_with(&format!("; {text}")), "{line}");
                assert_eq!(line.lines().count(), 1, "{line}");
                assert!(!line.contains("  "), "{line}");
            }
        }
    }
}

// semantics: E8
#[test]
fn who_and_when() {
    let cases = [
        (Some("b"), Some(0), "changed by owner \"b\" just now since"),
        (Some("b"), Some(-50), "changed by owner \"b\" just now since"),
        (Some(OUTSIDE), Some(119), "changed outside the mount 119 s ago since"),
        (
            Some(SEVERAL),
            Some(120),
            "changed by one of several owners 2 min ago since",
        ),
        (None, Some(7200), "changed by somebody else 2 h ago since"),
        (None, Some(200_000), "changed by somebody else 2 days ago since"),
        (Some("b"), None, "changed by owner \"b\" since"),
    ];
    for (changed_by, ago, text) in cases {
        let changed_at = ago.map(|seconds: i64| Timestamp {
            sec: NOW.sec - seconds,
            nsec: 0,
        });
        let line = Refusal {
            changed_by: changed_by.map(str::to_owned),
            changed_at,
            ..refusal()
        }
        .line(NOW, false);
        assert!(line.contains(text), "{line}");
    }
    let extreme = Refusal {
        changed_at: Some(Timestamp { sec: i64::MIN, nsec: 0 }),
        ..refusal()
    };
    assert!(extreme.line(NOW, false).contains("days ago"));
}

/// A file name is whatever its maker wanted it to be.
// semantics: E8
#[test]
fn names_cannot_break_the_line_or_hide_in_it() {
    let hostile = Refusal {
        path: "a\nrefused: x\t\u{1b}[2J\u{202e}".to_owned(),
        owner: "me\"\n; all is well".to_owned(),
        changed_by: Some("\r\"b".to_owned()),
        ..refusal()
    };
    let line = hostile.line(NOW, false);
    assert!(
        !line
            .chars()
            .any(|character| character.is_control() || character == '\u{202e}'),
        "{line}"
    );
    assert!(line.contains(r"a\nrefused: x\t\u{1b}[2J\u{202e}"), "{line}");
    assert!(line.contains(r#""me\"\n; all is well""#), "{line}");
}
