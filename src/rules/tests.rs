//! Forms of rules, and what matches.

use std::path::{Path, PathBuf};

use super::*;
use crate::guard::Level;

fn list(rules: &[(&str, Level)]) -> RuleList {
    let rules = rules.iter().map(|(pattern, level)| Rule {
        pattern: (*pattern).to_owned(),
        level: *level,
        command: None,
        source: Source::CommandLine,
    });
    RuleList::compile(rules.collect()).unwrap()
}

fn last(list: &RuleList, path: &str, is_dir: bool) -> Option<(usize, Level)> {
    list.last(None, Path::new(path), is_dir, false)
}

// semantics: L8
#[test]
fn patterns_are_those_of_gitignore_files_and_the_last_counts() {
    use Level::{Guard, Keep, Off};
    let all = list(&[
        ("*.txt", Keep),
        ("/top", Off),
        ("docs/", Keep),
        ("a/**/z", Off),
        ("docs/*.txt", Guard),
        ("\\!odd", Off),
    ]);
    for (path, is_dir, found) in [
        ("x.txt", false, Some((0, Keep))),
        ("deep/down/x.txt", false, Some((0, Keep))),
        ("top", false, Some((1, Off))),
        ("deep/top", false, None),
        ("docs", true, Some((2, Keep))),
        ("docs", false, None),
        ("deep/docs", true, Some((2, Keep))),
        ("a/z", false, Some((3, Off))),
        ("a/b/c/z", false, Some((3, Off))),
        ("docs/x.txt", false, Some((4, Guard))),
        ("!odd", false, Some((5, Off))),
        ("plain", false, None),
    ] {
        assert_eq!(last(&all, path, is_dir), found, "{path}");
    }
    assert!(RuleList::default().is_empty());
    assert_eq!(last(&RuleList::default(), "x", false), None);
}

// semantics: L2
#[test]
fn inside_git_only_patterns_that_name_it_count() {
    let all = list(&[("**", Level::Guard), ("sub/.git/config", Level::Keep)]);
    let inside = |path| all.last(None, Path::new(path), false, true);
    assert_eq!(inside(".git/config"), None);
    assert_eq!(inside("sub/.git/config"), Some((1, Level::Keep)));
}

// semantics: L14
#[test]
fn each_program_has_its_own_rules() {
    let rule = |pattern: &str, command: Option<&str>| Rule {
        pattern: pattern.to_owned(),
        level: Level::Keep,
        command: command.map(PathBuf::from),
        source: Source::File(1),
    };
    let all = RuleList::compile(vec![
        rule("a", Some("/bin/b")),
        rule("b", None),
        rule("*", Some("/bin/a")),
    ])
    .unwrap();
    let commands: Vec<_> = all.commands().collect();
    assert_eq!(commands, [Path::new("/bin/a"), Path::new("/bin/b")]);
    let of = |command, path| all.last(command, Path::new(path), false, false).map(|(index, _)| index);
    assert_eq!((of(None, "a"), of(None, "b")), (None, Some(1)));
    assert_eq!((of(Some(0), "a"), of(Some(1), "a")), (Some(2), Some(0)));
    assert_eq!(of(Some(9), "a"), None);
}

#[test]
fn rules_of_the_command_line() {
    let rule = parse_word("keep:docs/**").unwrap();
    assert_eq!((rule.level, rule.pattern.as_str()), (Level::Keep, "docs/**"));
    // The pattern may hold what separates.
    assert_eq!(parse_word("off:a:b").unwrap().pattern, "a:b");
    for wrong in [
        "",
        "keep",
        "docs",
        "kept:x",
        "keep:",
        "keep:!x",
        "keep:#x",
        "keep: ",
        "keep:[z-a]",
        "keep:a\nb",
    ] {
        assert!(parse_word(wrong).is_err(), "{wrong:?}");
    }
}

// semantics: L11
#[test]
fn the_file_is_read_whole_or_not_at_all() {
    let text = "# why\n\n[[rule]]\npattern = \"docs/**\"\nlevel = \"keep\"\n\n\
                [[rule]]\nlevel = \"off\"\ncommand = \"/usr/bin/no-such\"\npattern = \"x\"\n";
    let rules = parse(text, None).unwrap();
    let lines: Vec<_> = rules.iter().map(|rule| rule.source).collect();
    assert_eq!(lines, [Source::File(4), Source::File(10)]);
    assert_eq!(rules[1].command.as_deref(), Some(Path::new("/usr/bin/no-such")));
    assert_eq!(parse("", None).unwrap(), []);
    let wrong = [
        ("rule = 1", (1, 8)),
        ("[[rule]]\npattern = \"a\"\n", (1, 1)),
        ("[[rule]]\npattern = \"a\"\nlevel = \"off\"\nwhy = \"\"\n", (4, 1)),
        ("x = 1\n", (1, 1)),
        ("[[rule]]\n  pattern = \"\"\nlevel = \"off\"\n", (2, 13)),
        ("[[rule]]\npattern = \"a\"\nlevel = \"OFF\"\n", (3, 9)),
        (
            "[[rule]]\npattern = \"a\"\nlevel = \"off\"\ncommand = \"bin/x\"\n",
            (4, 11),
        ),
        (
            "[[rule]]\npattern = \"a\"\nlevel = \"off\"\ncommand = \"/w/x\"\n",
            (4, 11),
        ),
        ("# \u{e9}\u{e9} x\n\u{e9}", (2, 2)),
    ];
    for (text, at) in wrong {
        let error = parse(text, Some(Path::new("/w"))).unwrap_err();
        assert_eq!(error.at, Some(at), "{text:?}: {error}");
        assert!(!error.message.is_empty() && !error.message.contains('\n'), "{error}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_nothing_is_no_rules() {
    let dir = tempfile::tempdir().unwrap();
    let open = || crate::sys::open_path(dir.path(), crate::sys::consts::O_PATH).unwrap();
    let (rules, stat) = read(open(), None).unwrap();
    assert!(rules.is_empty() && stat.is_none());
    let path = dir.path().join(FILE_NAME);
    std::fs::write(&path, b"# fine\n# \xff\n").unwrap();
    assert_eq!(read(open(), None).unwrap_err().at, Some((2, 3)));
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(read(open(), None).unwrap_err().message.contains("1 MiB"));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(read(open(), None).unwrap_err().message.contains("no regular file"));
}

// semantics: L9
#[test]
fn an_ignore_file_is_read_as_git_reads_it() {
    let file = IgnoreFile::compile(b"\xef\xbb\xbf*.log\r\n# no\n!keep.log\n/top\n[z-a]\n\xff\ndir/\n");
    let verdict = |path: &str, is_dir| file.verdict(Path::new(path), is_dir);
    assert_eq!(verdict("a/x.log", false), Some((true, 1)));
    assert_eq!(verdict("keep.log", false), Some((false, 3)));
    assert_eq!(verdict("top", false), Some((true, 4)));
    assert_eq!(verdict("a/top", false), None);
    assert_eq!((verdict("dir", true), verdict("dir", false)), (Some((true, 7)), None));
}

#[test]
fn a_program_is_its_file_and_never_one_in_the_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let tool = root.join("tool");
    std::fs::write(&tool, "x").unwrap();
    let link = outside.path().join("link");
    std::os::unix::fs::symlink(&tool, &link).unwrap();
    assert!(find_executable(&link, None).is_some());
    assert_eq!(find_executable(&link, None), find_executable(&tool, None));
    assert_eq!(find_executable(&link, Some(&root)), None);
    assert_eq!(find_executable(&tool, Some(&root)), None);
    assert_eq!(find_executable(&root, None), None);
}
