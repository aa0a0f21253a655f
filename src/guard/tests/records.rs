//! Every method of the records, one at a time.

use super::*;

fn baseline() -> FileRecord {
    FileRecord::baseline(token(1), Generation(1))
}

// semantics: V7
#[test]
fn history_answers_for_every_owner() {
    let mut history = History::default();
    assert!(history.is_empty() && history.last().is_none() && history.last_foreign(A).is_none());
    let foreign = |history: &History, owner| history.last_foreign(owner).map(|change| change.generation.0);

    history.record(change(1, by(A)));
    assert_eq!((foreign(&history, A), foreign(&history, B)), (None, Some(1)));
    history.record(change(2, by(B)));
    history.record(change(3, by(B)));
    assert_eq!(
        (foreign(&history, A), foreign(&history, B), foreign(&history, C)),
        (Some(3), Some(1), Some(3))
    );
    history.record(change(4, by(A)));
    assert_eq!((foreign(&history, A), foreign(&history, B)), (Some(3), Some(4)));
    history.record(change(5, Author::Several));
    assert_eq!((foreign(&history, A), foreign(&history, B)), (Some(5), Some(5)));
    history.record(change(6, by(OwnerId::NOBODY)));
    assert_eq!(foreign(&history, OwnerId::NOBODY), Some(6));
    assert_eq!(history.last().map(|change| change.generation.0), Some(6));
    history.record(change(7, Author::Outsider));
    history.record(change(8, by(C)));
    assert_eq!((foreign(&history, C), foreign(&history, A)), (Some(7), Some(8)));
}

// semantics: O3
#[test]
fn reading_makes_the_version_current_for_that_owner_alone() {
    let mut file = baseline();
    assert_eq!((file.view(A), file.is_current(A)), (None, false));
    file.observe(A, Some(P));
    assert_eq!((file.view(A), file.is_current(A)), (Some(Generation(1)), true));
    assert_eq!((file.view(B), file.is_current(B)), (None, false));
}

// semantics: V8
#[test]
fn an_unchanged_token_is_no_change() {
    let mut file = baseline();
    file.observe(A, None);
    assert!(!file.refresh(token(1), change(2, Author::Outsider)));
    assert!(file.is_current(A) && file.history().is_empty());
}

// semantics: V8
#[test]
fn an_outsiders_change_makes_every_view_old() {
    let mut file = baseline();
    file.observe(A, Some(P));
    assert!(!file.is_foreign(A) && !file.is_foreign(B));
    assert!(file.refresh(token(2), change(2, Author::Outsider)));
    assert_eq!((file.token(), file.generation()), (token(2), Generation(2)));
    assert_eq!(file.view(A), Some(Generation(1)));
    assert!(file.is_foreign(A) && file.is_foreign(B) && file.process_is_old(A, P));
}

// semantics: O10
#[test]
fn changes_through_a_mapping_move_the_view_of_their_owner() {
    let mut file = baseline();
    file.observe(A, Some(P));
    file.observe(B, None);
    assert!(file.refresh(token(2), change(2, by(A))));
    assert!(file.is_current(A) && !file.is_current(B));
    assert!(!file.process_is_old(A, P) && !file.is_foreign(A) && file.is_foreign(B));
}

// semantics: O10
#[test]
fn several_writers_move_nobodys_view() {
    let mut file = baseline();
    file.observe(A, None);
    file.observe(B, None);
    assert!(file.refresh(token(2), change(2, Author::Several)));
    assert!(!file.is_current(A) && !file.is_current(B) && file.is_foreign(A) && file.is_foreign(B));
}

// semantics: O10
#[test]
fn an_owner_without_the_version_before_does_not_gain_one_through_a_mapping() {
    let mut file = baseline();
    assert!(file.refresh(token(2), change(2, by(A))));
    assert_eq!(file.view(A), None);
    file.observe(B, None);
    file.refresh(token(3), change(3, Author::Outsider));
    file.refresh(token(4), change(4, by(B)));
    assert_eq!(file.view(B), Some(Generation(2)));
}

// semantics: O9
#[test]
fn a_change_of_metadata_is_no_change_of_content() {
    let mut file = baseline();
    file.observe(A, Some(P));
    file.retoken(token(9));
    assert_eq!((file.token(), file.generation()), (token(9), Generation(1)));
    assert!(file.is_current(A) && file.history().is_empty());
    assert!(!file.refresh(token(9), change(2, Author::Outsider)));
}

// semantics: O4
#[test]
fn an_owner_knows_what_it_produced_and_nothing_else() {
    let mut file = baseline();
    file.own_change(A, None, token(2), change(2, by(A)), Produced::Part);
    assert!(file.is_current(A) && !file.is_foreign(A) && file.is_foreign(B));

    let mut appended = baseline();
    appended.own_change(A, None, token(2), change(2, by(A)), Produced::Blind);
    assert_eq!(appended.view(A), None);
    assert!(!appended.is_foreign(A) && appended.is_foreign(B));
}

// semantics: P3
#[test]
fn a_change_moves_a_process_view_and_never_makes_one() {
    let mut file = baseline();
    file.own_change(A, Some(P), token(2), change(2, by(A)), Produced::Part);
    file.refresh(token(3), change(3, Author::Outsider));
    assert!(!file.process_is_old(A, P), "it never read the file");

    let mut read = baseline();
    read.observe(A, Some(P));
    read.own_change(A, Some(P), token(2), change(2, by(A)), Produced::Part);
    assert!(!read.process_is_old(A, P));
    read.refresh(token(3), change(3, Author::Outsider));
    assert!(read.process_is_old(A, P));
}

/// Appending does not tell a process what it appended to.
// semantics: P3
#[test]
fn an_append_does_not_license_the_old_copy_saved_after_it() {
    let mut file = baseline();
    file.observe(A, Some(P));
    file.refresh(token(2), change(2, by(B)));
    file.observe(A, Some(Q));
    file.own_change(A, Some(P), token(3), change(3, by(A)), Produced::Part);
    assert!(file.is_current(A) && file.process_is_old(A, P));
    file.own_change(A, Some(P), token(4), change(4, by(A)), Produced::Whole);
    assert!(
        !file.process_is_old(A, P),
        "nothing is older than what it made as a whole"
    );
}

// semantics: P5
#[test]
fn a_refused_process_takes_the_owners_next_read_for_its_own() {
    let mut file = baseline();
    file.observe(A, Some(P));
    file.refresh(token(2), change(2, by(B)));
    file.observe(A, Some(Q));
    assert!(file.process_is_old(A, P), "it was not refused yet");
    file.refused_stale(A, Some(P));
    assert!(file.process_is_old(A, P), "a refusal is no read");
    file.observe(B, None);
    assert!(file.process_is_old(A, P), "another owner's read is not its own");
    file.observe(A, None);
    assert!(!file.process_is_old(A, P));
    file.refresh(token(3), change(3, by(B)));
    file.observe(A, Some(Q));
    assert!(file.process_is_old(A, P), "one refusal, one read");
}

// semantics: P5
#[test]
fn a_refusal_makes_no_process_view() {
    let mut file = baseline();
    file.refused_stale(A, Some(P));
    file.refused_stale(A, None);
    assert!(!file.process_is_old(A, P));
    assert!(!file.is_idle(), "that it was refused is remembered");
}

// semantics: D20
#[test]
fn a_refusal_is_remembered_until_the_owner_has_seen_the_file() {
    let mut file = baseline();
    assert!(!file.was_refused(A));
    file.refused_stale(A, Some(P));
    assert!(file.was_refused(A) && !file.was_refused(B));
    file.observe(B, Some(Q));
    assert!(file.was_refused(A), "what another sees does not count");
    file.observe(A, Some(Q));
    assert!(!file.was_refused(A));
    file.refused_stale(OwnerId::NOBODY, None);
    assert!(!file.was_refused(OwnerId::NOBODY));
}

// semantics: O11
#[test]
fn what_is_forgotten_is_unseen() {
    let mut file = baseline();
    file.observe(A, Some(P));
    file.observe(B, Some(Q));
    assert!(!file.is_idle());
    file.forget_owner(A);
    assert_eq!((file.view(A), file.is_current(B)), (None, true));
    file.refresh(token(2), change(2, Author::Outsider));
    assert!(file.process_is_old(B, Q) && !file.process_is_old(A, P));
    file.forget_process(Q);
    assert!(!file.process_is_old(B, Q));
    file.forget_owner(B);
    assert!(!file.is_idle(), "its change is still known");

    let mut unchanged = baseline();
    unchanged.observe(A, Some(P));
    unchanged.retain_processes(|process| process != P);
    unchanged.forget_owner(A);
    assert!(unchanged.is_idle());
}

// semantics: V9
#[test]
fn a_file_first_met_changed_is_foreign_to_all_but_its_author() {
    let file = FileRecord::changed(token(1), change(5, Author::Outsider));
    assert_eq!(file.generation(), Generation(5));
    assert!(file.is_foreign(A) && file.is_foreign(OwnerId::NOBODY));
    let own = FileRecord::changed(token(1), change(5, by(A)));
    assert!(!own.is_foreign(A) && own.is_foreign(B));
}

/// A counter that ran backwards must not make an old view look current.
// semantics: O11
#[test]
fn a_number_out_of_order_forgets_every_view() {
    let mut file = FileRecord::baseline(token(1), Generation(5));
    file.observe(A, Some(P));
    assert!(file.refresh(token(2), change(5, Author::Outsider)));
    assert_eq!((file.view(A), file.generation()), (None, Generation(5)));

    let mut entry = EntryRecord::new(Some(F), Generation(5));
    entry.observe_present(A, None, F);
    assert!(entry.refresh(None, change(4, Author::Outsider)));
    assert_eq!((entry.view(A), entry.generation()), (None, Generation(5)));
}

// semantics: O1 O2
#[test]
fn a_miss_is_absent_until_something_is_seen() {
    let mut entry = EntryRecord::new(None, Generation(1));
    entry.observe_absent(A, Some(P));
    entry.observe_absent(B, None);
    assert_eq!(entry.view(A), Some(EntryView::Absent));
    entry.saw_something(A);
    assert_eq!((entry.view(A), entry.view(B)), (None, Some(EntryView::Absent)));
}

// semantics: O2
#[test]
fn seeing_something_does_not_undo_a_read() {
    let mut entry = EntryRecord::new(Some(F), Generation(1));
    entry.observe_present(A, Some(P), F);
    entry.saw_something(A);
    assert_eq!(entry.view(A), Some(EntryView::Present(F)));
}

// semantics: O5
#[test]
fn an_owners_own_removal_leaves_it_with_absent_and_a_rename_with_the_file() {
    let mut old = EntryRecord::new(Some(F), Generation(1));
    let mut new = EntryRecord::new(None, Generation(1));
    old.observe_present(A, Some(P), F);
    old.own_change(A, Some(P), None, change(2, by(A)));
    new.own_change(A, Some(P), Some(F), change(3, by(A)));
    assert_eq!(
        (old.view(A), new.view(A)),
        (Some(EntryView::Absent), Some(EntryView::Present(F)))
    );
    assert_eq!((old.bound(), new.bound()), (None, Some(F)));
    assert!(!old.is_foreign(A) && old.is_foreign(B) && !old.process_is_old(A, P, None));
}

// semantics: V8
#[test]
fn a_name_bound_elsewhere_leaves_views_as_they_were() {
    let mut entry = EntryRecord::new(Some(F), Generation(1));
    entry.observe_present(A, Some(P), F);
    assert!(!entry.refresh(Some(F), change(2, Author::Outsider)));
    assert!(entry.refresh(Some(G), change(2, Author::Outsider)));
    assert_eq!(
        (entry.view(A), entry.generation()),
        (Some(EntryView::Present(F)), Generation(2))
    );
    assert_eq!(
        entry.history().last().map(|change| change.author),
        Some(Author::Outsider)
    );
    assert!(entry.process_is_old(A, P, Some(G)) && entry.process_is_old(A, P, None) && entry.is_foreign(A));
    entry.refused_stale(A, Some(P));
    entry.observe_present(A, Some(Q), G);
    assert!(!entry.process_is_old(A, P, Some(G)) && !entry.is_foreign(A));
}

// semantics: P2
#[test]
fn a_miss_that_is_true_again_does_not_object() {
    let mut entry = EntryRecord::new(None, Generation(1));
    entry.observe_absent(A, Some(P));
    entry.refresh(Some(F), change(2, Author::Owner(B)));
    assert!(entry.process_is_old(A, P, Some(F)), "something is there");
    entry.refresh(None, change(3, Author::Owner(B)));
    assert!(!entry.process_is_old(A, P, None), "it was told so, and holds no copy");
    entry.refresh(Some(G), change(4, Author::Owner(B)));
    entry.observe_present(A, Some(P), G);
    entry.refresh(None, change(5, Author::Owner(B)));
    assert!(entry.process_is_old(A, P, None), "it has read what was there");
}

// semantics: V2 V4
#[test]
fn what_was_read_at_a_name_that_led_elsewhere_by_then_is_known_there() {
    let mut entry = EntryRecord::new(Some(F), Generation(1));
    entry.refresh(Some(G), change(2, Author::Owner(B)));
    entry.observe_former(A, F);
    assert_eq!(entry.view(A), Some(EntryView::Present(F)));
    assert!(entry.is_foreign(A));
    entry.observe_present(A, None, G);
    entry.observe_former(A, F);
    assert_eq!(
        entry.view(A),
        Some(EntryView::Present(G)),
        "what is known already is later"
    );
    entry.observe_former(OwnerId::NOBODY, F);
    assert_eq!(entry.view(OwnerId::NOBODY), None);
}

// semantics: O11
#[test]
fn a_name_forgets() {
    let mut entry = EntryRecord::new(None, Generation(1));
    entry.observe_absent(A, Some(P));
    entry.forget_process(P);
    entry.forget_owner(A);
    assert!(entry.view(A).is_none() && entry.is_idle());
    entry.observe_absent(A, Some(P));
    entry.retain_processes(|_| false);
    entry.forget_owner(A);
    assert!(entry.is_idle());
}

#[test]
fn the_version_an_owner_saw_is_known_as_long_as_it_is_its_last() {
    let mut file = baseline();
    assert_eq!(file.seen_version(A), None);
    file.observe(A, None);
    assert_eq!(file.seen_version(A), Some(token(1).into()));
    for number in 2..1000 {
        file.own_change(B, None, token(number), change(number, by(B)), Produced::Whole);
    }
    assert_eq!(file.seen_version(A), Some(token(1).into()));
    assert_eq!(file.seen_version(B), Some(token(999).into()));
    file.observe(A, None);
    assert_eq!(file.seen_version(A), Some(token(999).into()));
    file.refresh(token(1000), change(1000, Author::Outsider));
    assert_eq!(file.seen_version(A), Some(token(999).into()));
    file.forget_owner(A);
    file.forget_owner(B);
    assert_eq!(file.seen_version(A), None);
}

#[test]
fn processes_with_an_old_copy_are_known() {
    let mut file = baseline();
    file.observe(A, Some(P));
    assert!(file.old_processes(A).is_empty());
    file.refresh(token(2), change(2, Author::Outsider));
    assert_eq!((file.old_processes(A), file.old_processes(B)), (vec![P], Vec::new()));
    file.observe(A, Some(P));
    assert!(file.old_processes(A).is_empty());
}
