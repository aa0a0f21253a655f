//! Many files, big directories, deep trees, long names and many links, under a small limit of descriptors.
//!
//! `UNCLOBBER_SCALE_FILES` says how many files; 200,000 is what the guard promises to serve.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod contained;

use std::fs::{self, File};

use common::tree::say;
use contained::{Place, Who, contained, nothing};

const DEFAULT_FILES: usize = 10_000;
/// What the daemon may take at the most, in KiB: a debug build, with every file known.
const MEMORY: u64 = 600 * 1024;

fn wanted() -> usize {
    let asked = std::env::var("UNCLOBBER_SCALE_FILES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_FILES)
}

/// Empty files in 200 directories, or content where the number is small enough to be read.
fn fill(place: &Place, files: usize) {
    let each = files.div_ceil(200);
    for dir in 0..200 {
        let path = place.at(&format!("d{dir}"));
        fs::create_dir(&path).expect("a directory");
        for file in 0..each {
            File::create(path.join(format!("f{file}"))).expect("a file");
        }
    }
    for dir in 0..200 {
        for file in 0..each.min(10) {
            fs::write(place.at(&format!("d{dir}/f{file}")), "content\n").expect("content");
        }
    }
}

/// A field of `/proc/PID/status` in KiB, of the only guard.
fn memory(place: &Place, field: &str) -> u64 {
    let guard = place.guards()[0];
    let status = fs::read_to_string(format!("/proc/{guard}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Mounts with a daemon of 1,024 descriptors; the mount point.
fn mount_with_few_descriptors(place: &Place) -> String {
    let point = place.point("m").display().to_string();
    place.sh_ok(&format!(
        "ulimit -n 1024; exec $U mount $W {point} --owner A --linger 60"
    ));
    point
}

fn whole_tree(place: &Place) {
    let files = wanted();
    fill(place, files);
    let total = 200 * files.div_ceil(200);
    let m = mount_with_few_descriptors(place);
    let script = format!(
        "cd {m} || exit 1; find . -type f | wc -l; find . -type f -exec stat -c %s {{}} + | sort | uniq -c | wc -l; \
         ls -R | grep -c ^f; cat d*/f[0-9] | wc -l; echo x > d0/f0; mv d1/f1 d2/moved; rm d3/f3; echo new > d4/new; cat d4/new"
    );
    let out = place.sh_ok(&script);
    let read = 200 * files.div_ceil(200).min(10);
    let lines: Vec<&str> = out.lines().collect();
    let expected = [
        total.to_string(),
        "2".into(),
        total.to_string(),
        read.to_string(),
        "new".into(),
    ];
    assert_eq!(lines, expected.iter().map(String::as_str).collect::<Vec<_>>());
    // Again, when everything is known; and by outsiders' eyes.
    let again = place.sh_ok(&format!(
        "cd {m}; find . -type f | wc -l; cat d*/f[0-9] | wc -l; find $W/d* -type f -name f\\* | wc -l"
    ));
    let numbers: Vec<usize> = again.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers, [total, read - 2, total - 2], "{again}");
    let (now, most) = (memory(place, "VmRSS:"), memory(place, "VmHWM:"));
    say(&format!(
        "MEASURED the guard of {total} files: {now} KiB, at most {most} KiB"
    ));
    assert!(most > 0 && most < MEMORY, "{most} KiB");
}

#[test]
fn many_files_with_few_descriptors_as_root() {
    contained("many_files_with_few_descriptors_as_root", Who::Root, nothing, |place| {
        whole_tree(place);
        let guard = place.guards()[0];
        let held = fs::read_dir(format!("/proc/{guard}/fd"))
            .expect("root sees them")
            .count();
        assert!(held < 1024, "{held} descriptors");
    });
}

#[test]
fn many_files_with_few_descriptors_as_an_ordinary_user() {
    let name = "many_files_with_few_descriptors_as_an_ordinary_user";
    contained(name, Who::User, nothing, |place| {
        if common::tree::tool_is_there("fusermount3") {
            whole_tree(place);
        }
    });
}

#[test]
fn a_directory_of_many_names() {
    contained("a_directory_of_many_names", Who::Root, nothing, |place| {
        fs::create_dir(place.at("big")).expect("a directory");
        for number in 0..20_000 {
            File::create(place.at(&format!("big/{number:05}"))).expect("a file");
        }
        let m = mount_with_few_descriptors(place);
        let out = place.sh_ok(&format!(
            "cd {m}/big; ls | sort -u | wc -l; ls | wc -l; ls -f | wc -l; echo x > new; rm new; rm 0[0-4]*; ls | wc -l; ls $W/big | wc -l"
        ));
        assert_eq!(
            out.split_whitespace().collect::<Vec<_>>(),
            ["20000", "20000", "20002", "15000", "15000"]
        );
    });
}

/// Goes down by relative names, and names what is there by the whole path nowhere.
const DEEP: &str = r#"
import os, sys
os.chdir(sys.argv[1])
name, depth = 'deep-directory', int(sys.argv[2])
for level in range(depth):
    os.mkdir(name); os.chdir(name)
with open('f', 'w') as f: f.write('bottom')
assert open('f').read() == 'bottom' and os.stat('f').st_size == 6
os.rename('f', 'g'); os.link('g', 'h'); os.symlink('g', 's'); assert open('s').read() == 'bottom'
os.chdir(sys.argv[1])
for level in range(depth): os.chdir(name)
assert sorted(os.listdir('.')) == ['g', 'h', 's']
with open('g', 'w') as f: f.write('again')
assert open('h').read() == 'again'
for n in 'ghs': os.unlink(n)
assert os.listdir('.') == []
for level in range(depth): os.chdir('..'); os.rmdir(name)
assert name not in os.listdir('.')
"#;

/// Without file handles a directory is found again by walking to it, which takes a step for each level.
fn deep(place: &Place, depth: u32) {
    fs::write(place.base().join("home/deep.py"), DEEP).expect("the program");
    let m = mount_with_few_descriptors(place);
    place.sh_ok(&format!("python3 $B/home/deep.py {m} {depth}"));
}

#[test]
fn deeper_than_a_path_can_say_as_root() {
    contained("deeper_than_a_path_can_say_as_root", Who::Root, nothing, |place| {
        deep(place, 2000)
    });
}

#[test]
fn deeper_than_a_path_can_say_as_an_ordinary_user() {
    contained(
        "deeper_than_a_path_can_say_as_an_ordinary_user",
        Who::User,
        nothing,
        |place| {
            if common::tree::tool_is_there("fusermount3") {
                deep(place, 600);
            }
        },
    );
}

// semantics: D5 D8
#[test]
fn long_names_and_many_links() {
    contained("long_names_and_many_links", Who::Root, nothing, |place| {
        let m = mount_with_few_descriptors(place);
        let script = format!(
            r#"cd {m} && n=$(printf '%0255d' 0) && echo one > $n && cat $n && mkdir d && mv $n d/ && cat d/$n && [ "$(ls d)" = $n ] || exit 1
            echo x > ${{n}}0 && exit 2
            echo shared > first; i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); echo l$i; done | xargs -n1 ln first || exit 3
            stat -c %h first l1000; cat l500; echo two > l7 && cat l900"#
        );
        let out = place.sh_ok(&script);
        assert_eq!(out, "one\none\n1001\n1001\nshared\ntwo\n");
        // Another owner has seen none of the names, and what it sees under one it has seen under all.
        let other = place.mount(&place.work(), "other", &["--owner", "B"]);
        let script = format!(
            "cd {}; echo x > l3 && exit 9; cat l4 && echo three > l5 && cat $W/l6",
            other.display()
        );
        assert_eq!(place.sh_ok(&script), "two\nthree\n");
    });
}

#[test]
fn many_processes_with_few_descriptors() {
    contained("many_processes_with_few_descriptors", Who::Root, nothing, |place| {
        fs::write(place.at("f"), "one\n").expect("a file");
        let point = place.point("m").display().to_string();
        place.sh_ok(&format!(
            "ulimit -n 256; exec $U mount $W {point} --owner-by session --linger 60"
        ));
        let out = place.sh_ok(&format!(
            "cd {point}; i=0; while [ $i -lt 600 ]; do i=$((i + 1)); /bin/cat f; done | sort | uniq -c; echo two > f; cat f"
        ));
        assert_eq!(out.split_whitespace().collect::<Vec<_>>(), ["600", "one", "two"]);
    });
}
