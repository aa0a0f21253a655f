//! Names and their levels.

use std::ffi::OsStr;

use super::super::levels::{BUILT_IN, Kind, Level, Marker, Verdict, of_name};

fn level(name: &str, kind: Kind) -> Verdict {
    of_name(Level::Guard, OsStr::new(name), kind)
}

// semantics: L2 L3 L4
#[test]
fn files_by_name() {
    let off = [
        "a.o",
        "lib.a",
        ".o",
        "main.d",
        "A.class",
        "m.pyc",
        "m.pyo",
        "x.lo",
        "notes.txt~",
        ".notes.txt.swp",
        ".x.swo",
        ".x.swx",
        ".x.kate-swp",
        ".#notes",
        "#notes#",
        ".git",
        "data.sqlite3-wal",
        "app.db-shm",
        "app.db-journal",
    ];
    let guard = [
        "notes.txt",
        "o",
        "a.op",
        "a.c",
        "a.oa",
        "swp",
        "x.swp",
        "~x",
        "#notes",
        "build",
        "target",
        "node_modules",
        ".gitignore",
        ".github",
        ".env",
        ".env.local",
        ".env~",
        "server.pem",
        "id.key",
        "data.sqlite",
        "data.db",
        "mesh.obj",
        "4913",
        "é.txt",
    ];
    for name in off {
        assert_eq!(level(name, Kind::File), Verdict::Level(Level::Off), "{name}");
    }
    for name in guard {
        assert_eq!(level(name, Kind::File), Verdict::Level(Level::Guard), "{name}");
    }
}

// semantics: L2 L3
#[test]
fn directories_by_name() {
    let off = [
        ".git",
        "node_modules",
        "__pycache__",
        ".venv",
        ".pytest_cache",
        ".tox",
        ".next",
        "CMakeFiles",
        "p.egg-info",
    ];
    for name in off {
        assert_eq!(level(name, Kind::Directory), Verdict::Level(Level::Off), "{name}");
    }
    for name in [
        "src",
        "conf.d",
        "lib.a",
        "x~",
        ".env",
        "targets",
        "rebuild",
        ".gitmodules",
    ] {
        assert_eq!(level(name, Kind::Directory), Verdict::Level(Level::Guard), "{name}");
    }
}

// semantics: L3
#[test]
fn ambiguous_directories_need_evidence() {
    let wants = [
        ("target", Marker::Sibling("Cargo.toml")),
        ("target", Marker::Sibling("pom.xml")),
        ("target", Marker::Child("CACHEDIR.TAG")),
        ("build", Marker::Child("CMakeCache.txt")),
        ("build", Marker::Child("build.ninja")),
        ("build", Marker::Sibling("pyproject.toml")),
        ("dist", Marker::Sibling("package.json")),
        ("venv", Marker::Child("pyvenv.cfg")),
        (".gradle", Marker::Sibling("build.gradle")),
        ("cmake-build-debug", Marker::Child("CMakeCache.txt")),
        (".cache", Marker::Child("CACHEDIR.TAG")),
    ];
    for (name, marker) in wants {
        let Verdict::IfAny(markers) = level(name, Kind::Directory) else {
            panic!("{name} is settled by its name")
        };
        assert!(markers.contains(&marker), "{name} {marker:?}");
    }
}

// semantics: L1 L5
#[test]
fn off_is_inherited_and_keep_gives_way_to_secrets() {
    for (name, kind) in [
        ("notes.txt", Kind::File),
        (".env", Kind::File),
        ("src", Kind::Directory),
        ("target", Kind::Directory),
    ] {
        assert_eq!(
            of_name(Level::Off, OsStr::new(name), kind),
            Verdict::Level(Level::Off),
            "{name}"
        );
    }
    let keep = |name| of_name(Level::Keep, OsStr::new(name), Kind::File);
    assert_eq!(keep("notes.txt"), Verdict::Level(Level::Keep));
    assert_eq!(keep("a.o"), Verdict::Level(Level::Off));
    assert_eq!(keep(".env"), Verdict::Level(Level::Guard));
}

#[test]
fn every_rule_says_why_and_is_spelt_once() {
    for (index, rule) in BUILT_IN.iter().enumerate() {
        assert!(!rule.why.is_empty() && !rule.pattern.contains('/'), "{rule:?}");
        assert!(
            BUILT_IN[..index].iter().all(|earlier| earlier.pattern != rule.pattern),
            "{rule:?}"
        );
        assert!(
            rule.markers.is_empty() || rule.level == Level::Off,
            "a verdict of markers means off: {rule:?}"
        );
    }
}

/// Names are bytes, of any kind and length, and patterns with several stars must not take long.
#[test]
fn names_that_are_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let name = |bytes: &[u8]| of_name(Level::Guard, OsStr::from_bytes(bytes), Kind::File);
    assert_eq!(name(b"\xff\xfe.o"), Verdict::Level(Level::Off));
    assert_eq!(name(b"\xff\xfe"), Verdict::Level(Level::Guard));
    assert_eq!(name(b""), Verdict::Level(Level::Guard));
    assert_eq!(name(&[b'.'; 255]), Verdict::Level(Level::Guard));
}
