//! Where owners stand, for every combination of what they saw and what is there.

use super::*;

fn sight<'a>(entry: Option<&'a EntryRecord>, file: Option<&'a FileRecord>, there: Option<FileKey>) -> Sight<'a> {
    Sight {
        owner: A,
        process: Some(P),
        rule: ViewRule::Process,
        entry,
        file,
        there,
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    No,
    Old,
    Now,
}

/// A record of a file that the owner has not seen, seen at an older version, or seen as it is.
fn file_seen(seen: Seen) -> FileRecord {
    let mut file = FileRecord::baseline(token(1), Generation(1));
    if seen != Seen::No {
        file.observe(A, None);
    }
    if seen == Seen::Old {
        file.refresh(token(2), change(2, Author::Outsider));
    }
    file
}

fn entry_seen(bound: Option<FileKey>, view: Option<EntryView>) -> EntryRecord {
    let mut entry = EntryRecord::new(bound, Generation(1));
    match view {
        Some(EntryView::Absent) => entry.observe_absent(A, None),
        Some(EntryView::Present(file)) => entry.observe_present(A, None, file),
        None => {}
    }
    entry
}

// semantics: V1 V2 V3
#[test]
fn something_there() {
    use EntryView::{Absent, Present};
    let views = [None, Some(Absent), Some(Present(F)), Some(Present(G))];
    let expected = |seen, view| match (seen, view) {
        (Seen::Now, _) => Standing::Current,
        (Seen::Old, _) => Standing::Stale,
        (Seen::No, Some(Present(G))) => Standing::Stale,
        (Seen::No, _) => Standing::Unseen,
    };
    for seen in [Seen::No, Seen::Old, Seen::Now] {
        for view in views {
            let (file, entry) = (file_seen(seen), entry_seen(Some(F), view));
            let found = standing(&sight(Some(&entry), Some(&file), Some(F)));
            assert_eq!(found, expected(seen, view), "{seen:?} {view:?}");
        }
        assert_eq!(
            standing(&sight(None, Some(&file_seen(seen)), Some(F))),
            expected(seen, None)
        );
    }
    assert_eq!(standing(&sight(None, None, Some(F))), Standing::Unseen);
}

// semantics: V4
#[test]
fn nothing_there() {
    let cases = [
        (None, Standing::Unseen),
        (Some(EntryView::Absent), Standing::Absent),
        (Some(EntryView::Present(F)), Standing::Stale),
    ];
    for (view, expected) in cases {
        assert_eq!(
            standing(&sight(Some(&entry_seen(None, view)), None, None)),
            expected,
            "{view:?}"
        );
    }
    assert_eq!(standing(&sight(None, None, None)), Standing::Unseen);
}

// semantics: V5
#[test]
fn nobody_is_always_unseen() {
    let mut file = FileRecord::baseline(token(1), Generation(1));
    let mut entry = EntryRecord::new(Some(F), Generation(1));
    file.observe(OwnerId::NOBODY, Some(P));
    entry.observe_present(OwnerId::NOBODY, Some(P), F);
    file.own_change(
        OwnerId::NOBODY,
        Some(P),
        token(2),
        change(2, by(OwnerId::NOBODY)),
        Produced::Part,
    );
    entry.own_change(OwnerId::NOBODY, Some(P), Some(F), change(3, by(OwnerId::NOBODY)));
    assert_eq!((file.view(OwnerId::NOBODY), entry.view(OwnerId::NOBODY)), (None, None));
    let sight = Sight {
        owner: OwnerId::NOBODY,
        ..sight(Some(&entry), Some(&file), Some(F))
    };
    assert_eq!(standing(&sight), Standing::Unseen);
    assert!(foreign(&sight), "its own change is foreign to it");
}

/// The editor holds v1, another owner writes v2, a child of the editor greps, the editor saves.
// semantics: P1 P2
#[test]
fn a_stale_buffer_with_a_grep_by_a_child_in_between() {
    let mut file = FileRecord::baseline(token(1), Generation(1));
    file.observe(A, Some(P));
    file.own_change(B, None, token(2), change(2, by(B)), Produced::Part);
    file.observe(A, Some(Q));
    let editor = sight(None, Some(&file), Some(F));
    assert_eq!(standing(&editor), Standing::Stale);
    assert!(process_holds_old(&editor));
    assert_eq!(
        standing(&Sight {
            process: Some(Q),
            ..editor
        }),
        Standing::Current
    );
    assert_eq!(
        standing(&Sight {
            process: None,
            ..editor
        }),
        Standing::Current
    );
}

// semantics: P6
#[test]
fn view_owner_switches_process_views_off() {
    let mut file = FileRecord::baseline(token(1), Generation(1));
    file.observe(A, Some(P));
    file.own_change(B, None, token(2), change(2, by(B)), Produced::Part);
    file.observe(A, Some(Q));
    let editor = Sight {
        rule: ViewRule::Owner,
        ..sight(None, Some(&file), Some(F))
    };
    assert_eq!(standing(&editor), Standing::Current);
    assert!(!process_holds_old(&editor));
}

/// An editor that opened a new name must not save over what somebody else put there, nor re-create what they removed.
// semantics: P1 P2
#[test]
fn a_process_view_of_a_name_objects_too() {
    let mut entry = EntryRecord::new(None, Generation(1));
    entry.observe_absent(A, Some(P));
    entry.own_change(B, None, Some(F), change(2, by(B)));
    let mut file = FileRecord::changed(token(2), change(3, by(B)));
    assert_eq!(standing(&sight(Some(&entry), Some(&file), Some(F))), Standing::Unseen);

    file.observe(A, Some(Q));
    entry.observe_present(A, Some(Q), F);
    assert_eq!(standing(&sight(Some(&entry), Some(&file), Some(F))), Standing::Stale);

    // Nothing is there again, as the process was told.
    entry.own_change(B, None, None, change(4, by(B)));
    entry.observe_absent(A, Some(Q));
    assert_eq!(standing(&sight(Some(&entry), None, None)), Standing::Absent);

    // It has read what was there, and that has gone.
    entry.own_change(B, None, Some(F), change(5, by(B)));
    entry.observe_present(A, Some(P), F);
    entry.own_change(B, None, None, change(6, by(B)));
    entry.observe_absent(A, Some(Q));
    assert_eq!(standing(&sight(Some(&entry), None, None)), Standing::Stale);
    entry.refused_stale(A, Some(P));
    entry.observe_absent(A, Some(Q));
    assert_eq!(standing(&sight(Some(&entry), None, None)), Standing::Absent);
}

/// A shell tested for the name, was refused as unseen, and reads by a child: one step must be enough.
// semantics: P5
#[test]
fn the_step_of_not_observed_works_from_a_shell() {
    let mut entry = EntryRecord::new(None, Generation(1));
    entry.observe_absent(A, Some(P));
    entry.own_change(B, None, Some(F), change(2, by(B)));
    let mut file = FileRecord::changed(token(2), change(3, by(B)));
    assert_eq!(standing(&sight(Some(&entry), Some(&file), Some(F))), Standing::Unseen);
    entry.refused_stale(A, Some(P));
    file.refused_stale(A, Some(P));
    file.observe(A, Some(Q));
    entry.observe_present(A, Some(Q), F);
    assert_eq!(standing(&sight(Some(&entry), Some(&file), Some(F))), Standing::Current);
}

// semantics: P4
#[test]
fn ordinary_work_of_one_owner_never_objects() {
    let mut entry = EntryRecord::new(None, Generation(1));
    entry.observe_absent(A, Some(P));
    entry.own_change(A, Some(P), Some(F), change(2, by(A)));
    let mut file = FileRecord::changed(token(1), change(3, by(A)));
    file.own_change(A, Some(P), token(2), change(4, by(A)), Produced::Part);
    file.observe(A, Some(Q));
    // sed -i: another process of the owner renames its own file over the name.
    entry.own_change(A, Some(Q), Some(G), change(5, by(A)));
    let mut edited = FileRecord::changed(token(3), change(6, by(A)));
    edited.own_change(A, Some(Q), token(4), change(7, by(A)), Produced::Part);
    assert_eq!(
        standing(&sight(Some(&entry), Some(&edited), Some(G))),
        Standing::Current
    );
    // rm -f of what the other process made.
    entry.own_change(A, Some(Q), None, change(8, by(A)));
    assert_eq!(standing(&sight(Some(&entry), None, None)), Standing::Absent);
    assert!(!foreign(&sight(Some(&entry), None, None)));
}

/// Putting a file at the name is as much somebody else's doing as changing its content.
// semantics: V6
#[test]
fn a_foreign_binding_is_foreign() {
    let mut entry = EntryRecord::new(Some(F), Generation(1));
    let file = FileRecord::baseline(token(1), Generation(1));
    assert!(!foreign(&sight(Some(&entry), Some(&file), Some(F))));
    entry.refresh(Some(G), change(2, Author::Outsider));
    assert!(foreign(&sight(Some(&entry), Some(&file), Some(G))));
    entry.observe_present(A, None, G);
    assert!(!foreign(&sight(Some(&entry), Some(&file), Some(G))));
}
