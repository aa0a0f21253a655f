//! Random histories of the records against a model that forgets nothing and computes every answer from the whole log.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const OWNERS: [OwnerId; 4] = [A, B, C, OwnerId::NOBODY];
const PROCESSES: [Process; 2] = [P, Q];

/// What happens to a file and to the name it is at.
#[derive(Debug, Clone)]
enum Event {
    /// Found changed by somebody.
    Found(Author),
    /// Looked at and found as it was.
    Same,
    /// Metadata.
    Retoken,
    /// Read, or for a name missed or read by what is bound.
    Observe(OwnerId, Option<Process>),
    /// Changed through the mount.
    Own(OwnerId, Option<Process>, Produced),
    /// Seen without reading.
    Stat(OwnerId),
    Refused(OwnerId, Option<Process>),
    ForgetOwner(OwnerId),
    ForgetProcess(Process),
}

fn produced() -> impl Strategy<Value = Produced> {
    prop_oneof![Just(Produced::Blind), Just(Produced::Part), Just(Produced::Whole)]
}

fn owner() -> impl Strategy<Value = OwnerId> {
    prop::sample::select(OWNERS.to_vec())
}

fn process() -> impl Strategy<Value = Option<Process>> {
    prop::option::of(prop::sample::select(PROCESSES.to_vec()))
}

fn author() -> impl Strategy<Value = Author> {
    prop_oneof![4 => owner().prop_map(Author::Owner), 2 => Just(Author::Outsider), 1 => Just(Author::Several)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => author().prop_map(Event::Found),
        1 => Just(Event::Same),
        1 => Just(Event::Retoken),
        6 => (owner(), process()).prop_map(|(owner, process)| Event::Observe(owner, process)),
        4 => (owner(), process(), produced()).prop_map(|(owner, process, produced)| Event::Own(owner, process, produced)),
        1 => owner().prop_map(Event::Stat),
        2 => (owner(), process()).prop_map(|(owner, process)| Event::Refused(owner, process)),
        1 => owner().prop_map(Event::ForgetOwner),
        1 => prop::sample::select(PROCESSES.to_vec()).prop_map(Event::ForgetProcess),
    ]
}

/// The naive model: all changes ever, and for every view the time it was taken.
#[derive(Default)]
struct Model {
    changes: Vec<(u64, Author)>,
    owners: BTreeMap<OwnerId, u64>,
    refused: BTreeSet<OwnerId>,
    processes: BTreeMap<(OwnerId, Process), (u64, bool)>,
}

impl Model {
    fn now(&self) -> u64 {
        self.changes.last().map_or(1, |(generation, _)| *generation)
    }

    fn last_foreign(&self, owner: OwnerId) -> Option<u64> {
        let foreign = |author: &Author| owner == OwnerId::NOBODY || *author != Author::Owner(owner);
        self.changes
            .iter()
            .rev()
            .find(|(_, author)| foreign(author))
            .map(|(generation, _)| *generation)
    }

    fn is_foreign(&self, owner: OwnerId) -> bool {
        self.last_foreign(owner)
            .is_some_and(|changed| self.owners.get(&owner).is_none_or(|seen| *seen < changed))
    }

    fn is_old(&self, owner: OwnerId, process: Process) -> bool {
        let Some((seen, _)) = self.processes.get(&(owner, process)) else {
            return false;
        };
        self.last_foreign(owner).is_some_and(|changed| *seen < changed)
    }

    fn observe(&mut self, owner: OwnerId, process: Option<Process>) {
        if owner == OwnerId::NOBODY {
            return;
        }
        let now = self.now();
        self.owners.insert(owner, now);
        self.refused.remove(&owner);
        for ((of, _), view) in &mut self.processes {
            if *of == owner && view.1 {
                *view = (now, false);
            }
        }
        if let Some(process) = process {
            self.processes.entry((owner, process)).or_insert((now, false)).0 = now;
        }
    }

    /// A change of its own never makes a view; `always` moves one that is old as well.
    fn advance(&mut self, owner: OwnerId, process: Option<Process>, always: bool) {
        let Some(process) = process else { return };
        let (now, old) = (self.now(), self.is_old(owner, process));
        if let Some(view) = self.processes.get_mut(&(owner, process)).filter(|_| always || !old) {
            *view = (now, false);
        }
    }

    fn common(&mut self, event: &Event) {
        match event {
            Event::Observe(owner, process) => self.observe(*owner, *process),
            Event::Refused(owner, process) => {
                if *owner != OwnerId::NOBODY {
                    self.refused.insert(*owner);
                }
                if let Some(view) = process.and_then(|process| self.processes.get_mut(&(*owner, process))) {
                    view.1 = true;
                }
            }
            Event::ForgetOwner(owner) => {
                self.owners.remove(owner);
                self.refused.remove(owner);
                self.processes.retain(|(of, _), _| of != owner);
            }
            Event::ForgetProcess(process) => self.processes.retain(|(_, of), _| of != process),
            Event::Found(_) | Event::Same | Event::Retoken | Event::Own(..) | Event::Stat(_) => {}
        }
    }

    fn is_idle(&self) -> bool {
        self.changes.is_empty() && self.owners.is_empty() && self.processes.is_empty()
    }
}

fn play_file(file: &mut FileRecord, model: &mut Model, event: &Event, next: u64) {
    model.common(event);
    match event {
        Event::Found(author) => {
            let follows = OWNERS
                .into_iter()
                .find(|owner| *author == Author::Owner(*owner) && model.owners.get(owner) == Some(&model.now()));
            model.changes.push((next, *author));
            if let Some(owner) = follows {
                model.owners.insert(owner, next);
                model.refused.remove(&owner);
            }
            assert!(file.refresh(token(next), change(next, *author)));
        }
        Event::Same => assert!(!file.refresh(file.token(), change(next, Author::Outsider))),
        Event::Retoken => file.retoken(token(next)),
        Event::Observe(owner, process) => file.observe(*owner, *process),
        Event::Own(owner, process, produced) => {
            model.changes.push((next, by(*owner)));
            if *produced != Produced::Blind && *owner != OwnerId::NOBODY {
                model.owners.insert(*owner, next);
                model.refused.remove(owner);
                model.advance(*owner, *process, *produced == Produced::Whole);
            }
            file.own_change(*owner, *process, token(next), change(next, by(*owner)), *produced);
        }
        Event::Stat(_) => {}
        Event::Refused(owner, process) => file.refused_stale(*owner, *process),
        Event::ForgetOwner(owner) => file.forget_owner(*owner),
        Event::ForgetProcess(process) => file.forget_process(*process),
    }
}

/// What owners saw at the name is kept beside the common model.
type Saw = BTreeMap<OwnerId, EntryView>;

fn play_entry(entry: &mut EntryRecord, model: &mut Model, saw: &mut Saw, event: &Event, next: u64) {
    model.common(event);
    let elsewhere = if entry.bound() == Some(F) { None } else { Some(F) };
    match event {
        Event::Found(author) => {
            model.changes.push((next, *author));
            assert!(entry.refresh(elsewhere, change(next, *author)));
        }
        Event::Same => assert!(!entry.refresh(entry.bound(), change(next, Author::Outsider))),
        Event::Retoken => {}
        Event::Observe(owner, process) => {
            match entry.bound() {
                Some(file) => entry.observe_present(*owner, *process, file),
                None => entry.observe_absent(*owner, *process),
            }
            if *owner != OwnerId::NOBODY {
                saw.insert(*owner, entry.bound().map_or(EntryView::Absent, EntryView::Present));
            }
        }
        Event::Own(owner, process, _) => {
            model.changes.push((next, by(*owner)));
            if *owner != OwnerId::NOBODY {
                model.owners.insert(*owner, next);
                model.refused.remove(owner);
                model.advance(*owner, *process, true);
                saw.insert(*owner, elsewhere.map_or(EntryView::Absent, EntryView::Present));
            }
            entry.own_change(*owner, *process, elsewhere, change(next, by(*owner)));
        }
        Event::Stat(owner) => {
            entry.saw_something(*owner);
            if saw.get(owner) == Some(&EntryView::Absent) {
                saw.remove(owner);
                model.owners.remove(owner);
            }
        }
        Event::Refused(owner, process) => entry.refused_stale(*owner, *process),
        Event::ForgetOwner(owner) => {
            entry.forget_owner(*owner);
            saw.remove(owner);
        }
        Event::ForgetProcess(process) => entry.forget_process(*process),
    }
}

proptest! {
    // semantics: O3 O4 O9 O10 O11 O12 P1 P3 P5 V7 V8
    #[test]
    fn a_file_record_answers_as_the_whole_log_does(events in prop::collection::vec(event(), 0..40)) {
        let mut file = FileRecord::baseline(token(0), Generation(1));
        let mut model = Model::default();
        for (event, next) in events.iter().zip(2..) {
            play_file(&mut file, &mut model, event, next);
            prop_assert_eq!(file.generation(), Generation(model.now()));
            prop_assert_eq!(file.is_idle(), model.is_idle() && model.refused.is_empty());
            for owner in OWNERS {
                let seen = model.owners.get(&owner).copied();
                prop_assert_eq!(file.view(owner), seen.map(Generation));
                prop_assert_eq!(file.is_current(owner), seen == Some(model.now()));
                prop_assert_eq!(file.is_foreign(owner), model.is_foreign(owner));
                for process in PROCESSES {
                    prop_assert_eq!(file.process_is_old(owner, process), model.is_old(owner, process));
                }
            }
        }
    }

    // semantics: O1 O2 O5 O11 O12 P1 P3 P5 V7 V8
    #[test]
    fn an_entry_record_answers_as_the_whole_log_does(events in prop::collection::vec(event(), 0..40)) {
        let mut entry = EntryRecord::new(None, Generation(1));
        let (mut model, mut saw) = (Model::default(), Saw::new());
        let mut misses = BTreeMap::new();
        for (event, next) in events.iter().zip(2..) {
            let views = model.processes.clone();
            play_entry(&mut entry, &mut model, &mut saw, event, next);
            prop_assert_eq!(entry.generation(), Generation(model.now()));
            prop_assert_eq!(entry.is_idle(), model.is_idle());
            for owner in OWNERS {
                prop_assert_eq!(entry.view(owner), saw.get(&owner).copied());
                prop_assert_eq!(entry.is_foreign(owner), model.is_foreign(owner));
                for process in PROCESSES {
                    let view = model.processes.get(&(owner, process));
                    if view.is_some() && view != views.get(&(owner, process)) && !matches!(event, Event::Refused(..)) {
                        misses.insert((owner, process), entry.bound().is_none());
                    }
                    let (old, miss) = (model.is_old(owner, process), misses.get(&(owner, process)) == Some(&true));
                    prop_assert_eq!(entry.process_is_old(owner, process, Some(F)), old);
                    prop_assert_eq!(entry.process_is_old(owner, process, None), old && !miss);
                }
            }
        }
    }

    /// The one promise above all: content that is replaced, changed or removed without being kept was the last
    /// thing its destroyer saw of the file.
    // semantics: D4 D5 D6 D8
    #[test]
    fn nothing_is_destroyed_that_its_destroyer_has_not_seen(
        events in prop::collection::vec(event(), 0..40),
        owner in owner(),
        process in process(),
        intent in prop::sample::select(vec![Intent::Replace, Intent::RenameOver, Intent::Edit, Intent::Remove]),
    ) {
        let mut file = FileRecord::baseline(token(0), Generation(1));
        let mut entry = EntryRecord::new(Some(F), Generation(1));
        let mut model = Model::default();
        for (event, next) in events.iter().zip(2..) {
            play_file(&mut file, &mut model, event, next);
            if let Event::Observe(owner, process) = event {
                entry.observe_present(*owner, *process, F);
            }
        }
        let sight = Sight {
            owner, process, rule: ViewRule::Process, entry: Some(&entry), file: Some(&file), there: Some(F),
        };
        let case = Case {
            intent, there: There::Regular, standing: standing(&sight), foreign: foreign(&sight), readable: true,
        };
        let seen = model.owners.get(&owner) == Some(&model.now());
        let old = process.is_some_and(|process| model.is_old(owner, process));
        match decide(&case, &Policy::default()) {
            Decision::Allow(Keep::No) => prop_assert!(seen && !old),
            Decision::Allow(Keep::Yes) => prop_assert!(intent == Intent::Remove && !model.is_foreign(owner)),
            Decision::Refuse(reason) => {
                prop_assert!(!seen || old);
                let known = model.owners.contains_key(&owner);
                prop_assert_eq!(reason.code, if known { Code::StaleVersion } else { Code::NotObserved });
            }
            Decision::CreateExclusively | Decision::Posix => prop_assert!(false, "{case:?}"),
        }
    }
}
