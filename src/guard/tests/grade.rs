//! The order of rules, by enumeration.

use std::ffi::OsStr;

use super::super::levels::{BUILT_IN, Kind, Level, matching};
use super::super::{By, Grade, Signs};

const LEVELS: [Level; 3] = [Level::Guard, Level::Keep, Level::Off];

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

fn grade(level: Level, by: By) -> Grade {
    Grade {
        level,
        by,
        ..Grade::default()
    }
}

fn every_grade() -> Vec<Grade> {
    let mut all = Vec::new();
    for level in LEVELS {
        for by in [By::Default, By::BuiltIn(0), By::Ignored, By::Rule(3)] {
            for floor in [None, Some(Level::Keep), Some(Level::Guard)] {
                for in_git in [false, true] {
                    all.push(Grade {
                        level,
                        by,
                        floor,
                        in_git,
                    });
                }
            }
        }
    }
    all
}

// semantics: L8
#[test]
fn the_later_of_two_rules_decides_wherever_it_stands() {
    for level in LEVELS {
        for above in LEVELS {
            let at = |index| grade(above, By::Rule(3)).below(name("x"), &rule(index, level));
            assert_eq!((at(4).level, at(4).by), (level, By::Rule(4)));
            assert_eq!((at(2).level, at(2).by), (above, By::Rule(3)));
        }
    }
}

fn rule(index: usize, level: Level) -> Signs {
    Signs {
        rule: Some((index, level)),
        ..Signs::default()
    }
}

// semantics: L1 L8
#[test]
fn a_rule_is_stronger_than_all_that_is_built_in() {
    let built_in = matching(name("a.o"), Kind::File);
    for above in [
        grade(Level::Off, By::BuiltIn(0)),
        grade(Level::Keep, By::Ignored),
        Grade::default(),
    ] {
        for level in LEVELS {
            let signs = Signs {
                built_in,
                ignored: true,
                rule: Some((0, level)),
            };
            assert_eq!(above.below(name("a.o"), &signs).level, level);
        }
    }
}

// semantics: L1 L4 L5 L9
#[test]
fn without_rules_off_comes_down_then_names_then_ignore_files() {
    let secret = matching(name(".env"), Kind::File);
    for ignored in [false, true] {
        let signs = |built_in| Signs {
            built_in,
            ignored,
            rule: None,
        };
        assert_eq!(
            grade(Level::Off, By::BuiltIn(0))
                .below(name(".env"), &signs(secret))
                .level,
            Level::Off
        );
        assert_eq!(
            grade(Level::Keep, By::Ignored)
                .below(name(".env"), &signs(secret))
                .level,
            Level::Guard
        );
        assert_eq!(Grade::default().below(name(".env"), &signs(secret)).level, Level::Guard);
        let plain = Grade::default().below(name("x"), &signs(None)).level;
        assert_eq!(plain, if ignored { Level::Keep } else { Level::Guard });
        assert_eq!(
            grade(Level::Keep, By::Ignored).below(name("x"), &signs(None)).level,
            Level::Keep
        );
    }
}

// semantics: L6
#[test]
fn nothing_loosens_below_a_floor_but_what_is_built_in() {
    for above in every_grade().into_iter().filter(|grade| grade.floor.is_some()) {
        for level in LEVELS {
            let signs = Signs {
                built_in: None,
                ignored: true,
                rule: Some((9, level)),
            };
            let below = above.below(name("x"), &signs);
            let floor = above.floor.unwrap_or_default();
            let kept_as_it_was = below.level == above.level && below.by == above.by;
            assert!(
                !below.level.is_looser_than(floor) || kept_as_it_was,
                "{above:?} {level:?}: {below:?}"
            );
            assert_eq!(below.floor, above.floor);
        }
    }
    let held = Grade::held(Level::Guard);
    assert_eq!(held.below(name("x"), &rule(1, Level::Off)).level, Level::Guard);
    let object = Signs {
        built_in: matching(name("a.o"), Kind::File),
        ..Signs::default()
    };
    assert_eq!(held.below(name("a.o"), &object).level, Level::Off);
}

// semantics: L2
#[test]
fn a_rule_for_a_directory_does_not_reach_into_git() {
    let git = matching(name(".git"), Kind::Directory);
    let signs = Signs {
        built_in: git,
        ..Signs::default()
    };
    for level in LEVELS {
        let below = grade(level, By::Rule(3)).below(name(".git"), &signs);
        assert!(below.in_git);
        assert_eq!(below.level, Level::Off, "{level:?}");
        let deeper = below.below(name("config"), &rule(4, Level::Keep));
        assert_eq!((deeper.level, deeper.in_git), (Level::Keep, true));
    }
    assert!(git.is_some_and(|index| BUILT_IN[index].pattern == ".git"));
}

#[test]
fn levels_have_names_and_an_order() {
    for level in LEVELS {
        assert_eq!(Level::named(level.as_str()), Some(level));
        assert!(!level.is_looser_than(level));
    }
    assert_eq!(Level::named("Guard"), None);
    assert!(Level::Off.is_looser_than(Level::Keep) && Level::Keep.is_looser_than(Level::Guard));
    assert!(Level::Off.is_looser_than(Level::Guard) && !Level::Guard.is_looser_than(Level::Off));
}
