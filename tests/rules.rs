//! Single rules that the forms and the chains do not show: what is no observation, options, attribution, publication.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::fs;
use std::process::Command;

use common::mount::Mount;
use common::session::{Session, fine, refused};
use common::tree::{Tree, program, require_fuse, say, tool_is_there};
use common::wait::{PATIENCE, wait_until};
use common::{NOT_OBSERVED, STALE};

const STALE_TEXT: &str = "Stale file handle";
const EXISTS_TEXT: &str = "File exists";
const BUSY_TEXT: &str = "Device or resource busy";

/// A tree with one old file, and a shell of owner A with these flags.
fn guarded(test: &str, flags: &[&str]) -> Option<(Tree, Session)> {
    if !require_fuse(test) {
        return None;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    let a = Session::guarded(&tree, "a", flags);
    Some((tree, a))
}

fn becomes(tree: &Tree, name: &str, content: &str) {
    let seen = wait_until(PATIENCE, || tree.read(name).as_deref() == Some(content));
    assert!(seen, "{name} is {:?}, expected {content:?}", tree.read(name));
}

// semantics: O8
#[test]
fn a_miss_inside_a_creating_call_is_no_observation() {
    let Some((tree, mut a)) = guarded("a miss inside a creating call", &[]) else {
        return;
    };
    fine(&a.sh("cat f"));
    tree.remove("f");
    for _ in 0..3 {
        refused(&a.sh("echo mine >f"), STALE_TEXT);
    }
    assert_eq!(tree.read("f"), None);
    fine(&a.sh("ls f 2>/dev/null || echo mine >f"));
    becomes(&tree, "f", "mine\n");
}

// semantics: O6 O2
#[test]
fn a_look_that_fails_otherwise_is_no_observation() {
    let Some((tree, mut a)) = guarded("failing looks", &[]) else {
        return;
    };
    std::os::unix::fs::symlink("loop", tree.at("loop")).expect("a loop");
    fine(&a.sh("! cat f/x; ! cat loop; ! cat f/; ls -l f; test -r f; stat f; find . -size +0"));
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
    fine(&a.sh("cat f; ! cat f/x"));
    fine(&a.sh("echo mine >f"));
    becomes(&tree, "f", "mine\n");
}

// semantics: O7
#[test]
fn running_a_file_or_opening_it_for_writing_is_no_observation() {
    let Some((tree, mut a)) = guarded("no observation", &[]) else {
        return;
    };
    fs::copy("/bin/true", tree.at("p")).expect("a program");
    fine(&a.sh("./p"));
    refused(&a.sh("cp /bin/false p"), EXISTS_TEXT);
    fine(&a.sh("./p"));
    fine(&a.sh("python3 -c 'import os; os.open(\"f\", os.O_RDWR); os.open(\"f\", os.O_WRONLY)'; touch f"));
    refused(&a.sh("echo mine >f"), EXISTS_TEXT);
    assert_eq!(tree.read("f").as_deref(), Some("old\n"));
}

// semantics: O3
#[test]
fn a_part_counts_for_the_whole_and_an_empty_file_counts() {
    let Some((tree, mut a)) = guarded("a part counts", &[]) else {
        return;
    };
    tree.write("empty", "");
    fine(&a.sh("head -c 1 f; echo mine >f; cat empty; echo mine >empty"));
    becomes(&tree, "f", "mine\n");
    becomes(&tree, "empty", "mine\n");
    tree.write("g", "old\n");
    tree.write("h", "old\n");
    fine(&a.sh("cp g copy && echo mine >g"));
    fine(&a.sh("python3 -c 'import os; h = os.open(\"h\", os.O_RDWR); os.read(h, 1); os.pwrite(h, b\"new\", 0)'"));
    becomes(&tree, "h", "new\n");
}

// semantics: O5
#[test]
fn a_rename_carries_the_view() {
    let Some((tree, mut a)) = guarded("a rename carries the view", &[]) else {
        return;
    };
    fine(&a.sh("cat f; mv f g; echo mine >g; echo fresh >f"));
    becomes(&tree, "g", "mine\n");
    tree.write("x", "old\n");
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&b.sh("cat x; mv x y"));
    refused(&a.sh("echo mine >y"), EXISTS_TEXT);
    fine(&b.sh("echo theirs >y"));
    becomes(&tree, "y", "theirs\n");
}

// semantics: P4 V7
#[test]
fn what_is_no_file_was_bound_by_who_made_it() {
    let Some((tree, mut a)) = guarded("a directory and a link of one's own", &[]) else {
        return;
    };
    // The shell itself misses the name; its children make something else there, and take it away.
    fine(&a.sh("[ -e d ] || [ -e nothing ] || mkdir d; rmdir d; echo mine >d"));
    becomes(&tree, "d", "mine\n");
    fine(&a.sh("[ -e l ] || [ -e nothing ] || ln -s f l; rm l; echo mine >l"));
    becomes(&tree, "l", "mine\n");
    fine(&a.sh("[ -e p ] || [ -e nothing ] || mkfifo p; rm p; echo mine >p"));
    becomes(&tree, "p", "mine\n");
}

// semantics: O9
#[test]
fn metadata_is_no_new_version() {
    let Some((tree, mut a)) = guarded("metadata", &[]) else {
        return;
    };
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&a.sh("cat f"));
    fine(&b.sh("chmod 600 f; touch -d 2001-01-01 f; ln f g; chmod 644 f; rm g; touch f"));
    fine(&a.sh("echo mine >f"));
    becomes(&tree, "f", "mine\n");
}

// semantics: D13
#[test]
fn unseen_allow_refuses_only_what_is_stale_or_foreign() {
    let Some((tree, mut a)) = guarded("--unseen allow", &["--unseen", "allow"]) else {
        return;
    };
    fine(&a.sh("echo mine >f"));
    becomes(&tree, "f", "mine\n");
    tree.write("f", "theirs\n");
    refused(&a.sh("echo again >f"), STALE_TEXT);
    tree.write("g", "theirs\n");
    refused(&a.sh("echo mine >g"), EXISTS_TEXT);
    assert_eq!(tree.read("g").as_deref(), Some("theirs\n"));
}

// semantics: D13
#[test]
fn remove_observed_takes_a_look_before_a_removal() {
    let Some((tree, mut a)) = guarded("--remove observed", &["--remove", "observed"]) else {
        return;
    };
    for command in [
        "rm f",
        "mv f g",
        "install /bin/true f",
        "cp -f /etc/hostname f",
        "unlink f",
    ] {
        let done = a.sh(command);
        assert!(!done.ok(), "{command}: {done:?}");
        assert_eq!(tree.read("f").as_deref(), Some("old\n"), "{command}");
    }
    refused(&a.sh("rm f"), BUSY_TEXT);
    fine(&a.sh("cat f; rm f"));
    assert_eq!(tree.read("f"), None);
}

// semantics: D14
#[test]
fn observe_mode_refuses_nothing() {
    let Some((tree, mut a)) = guarded("--mode observe", &["--mode", "observe"]) else {
        return;
    };
    tree.write("g", "old\n");
    fine(&a.sh("echo mine >f"));
    becomes(&tree, "f", "mine\n");
    tree.write("f", "theirs\n");
    fine(&a.sh("echo again >f; rm g; echo new >g; mv g f"));
    becomes(&tree, "f", "new\n");
    let said = a.close();
    assert!(
        said.iter().any(|line| line.contains(NOT_OBSERVED)),
        "what would be refused is not said: {said:?}"
    );
}

// semantics: E11
#[test]
fn a_refusal_comes_before_the_close() {
    let Some((tree, mut a)) = guarded("nothing at the close", &[]) else {
        return;
    };
    let done = a.sh("python3 -c '
import os
h = os.open(\"f\", os.O_WRONLY)
for call in (lambda: os.write(h, b\"new\"), lambda: os.ftruncate(h, 0), lambda: os.pwrite(h, b\"x\", 1), lambda: os.posix_fallocate(h, 0, 99)):
    try: call(); print(\"done\")
    except OSError as error: print(error.errno)
os.fsync(h); os.close(h); print(\"closed\")'");
    fine(&done);
    assert_eq!(done.stdout, "17\n17\n17\n17\nclosed\n");
    assert_eq!(tree.read("f").as_deref(), Some("old\n"));
}

// semantics: S2
#[test]
fn an_exclusive_creation_claims_the_name_at_once() {
    let Some((tree, mut a)) = guarded("exclusive creation", &[]) else {
        return;
    };
    fine(&a.sh("python3 -c 'import os; os.open(\"lock\", os.O_CREAT | os.O_EXCL | os.O_WRONLY); os.stat(\"lock\"); os.system(\"test -e lock\")'"));
    assert_eq!(tree.read("lock").as_deref(), Some(""));
    let done = a.sh("set -C; exec 6>held; set +C");
    fine(&done);
    assert_eq!(
        tree.read("held").as_deref(),
        Some(""),
        "an outsider does not see the claimed name"
    );
    fine(&a.sh("exec 6>&-"));
    drop(a);
    let mut direct = Session::guarded(&tree, "d", &["--create", "direct"]);
    fine(&direct.sh("exec 6>direct"));
    assert_eq!(
        tree.read("direct").as_deref(),
        Some(""),
        "an outsider does not see the claimed name"
    );
}

// semantics: S3 S4
#[test]
fn a_staged_file_is_there_for_all_in_the_mount_and_comes_whole_to_outsiders() {
    let Some((tree, mut a)) = guarded("staged creation", &[]) else {
        return;
    };
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&a.sh("exec 6>g"));
    fine(&b.sh("test -e g && test -f g && ls | grep -x g && ! mkdir g && ! ( set -C; : >g )"));
    fine(&a.sh("mkdir d && exec 7>d/h && ! rmdir d && mv d/h d/i && chmod 600 d/i && test -e d/i && ! test -e d/h"));
    fine(&a.sh("echo one >&6"));
    becomes(&tree, "g", "one\n");
    fine(&a.sh("echo two >&6; exec 6>&- 7>&-"));
    becomes(&tree, "g", "one\ntwo\n");
    becomes(&tree, "d/i", "");
    assert_eq!(
        fs::metadata(tree.at("d/i"))
            .map(|found| std::os::unix::fs::MetadataExt::mode(&found) & 0o777)
            .ok(),
        Some(0o600)
    );
}

// semantics: S7
#[test]
fn a_durable_publication_is_a_publication() {
    let Some((tree, mut a)) = guarded("--durability publish", &["--durability", "publish"]) else {
        return;
    };
    fine(&a.sh("echo new >g; cat f; echo mine >f; mv g h"));
    becomes(&tree, "h", "new\n");
    becomes(&tree, "f", "mine\n");
}

// semantics: A3
#[test]
fn the_attic_is_neither_listed_nor_reachable() {
    let Some((tree, mut a)) = guarded("the attic", &[]) else {
        return;
    };
    fine(&a.sh("rm f"));
    assert!(
        wait_until(PATIENCE, || common::snapshot::kept(&tree.root(), b"old\n")),
        "nothing is kept"
    );
    fine(
        &a.sh("test -z \"$(ls -A)\" && test -z \"$(find . -mindepth 1)\" && ! ls .unclobber/attic && ! cat .unclobber/kept.jsonl"),
    );
    let places: Vec<String> = fs::read_dir(tree.root())
        .expect("the backing tree")
        .map_while(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    for place in &places {
        fine(&a.sh(&format!(
            "! test -e '{place}'; ! cat '{place}'/*; ! rm -rf '{place}' || true; ! mkdir '{place}'; ! mv '{place}' away; ! ln -s x '{place}'"
        )));
    }
    assert!(
        common::snapshot::kept(&tree.root(), b"old\n"),
        "what was kept can be reached: {places:?}"
    );
}

// semantics: E5
#[test]
fn a_full_disk_says_so_and_loses_nothing() {
    let test = "a full disk";
    if !require_fuse(test) {
        return;
    }
    if !nix::unistd::geteuid().is_root() || !tool_is_there("mkfs.ext4") {
        say(&format!("SKIPPED {test}: it takes root and mkfs.ext4"));
        return;
    }
    let tree = Tree::new();
    let image = tree.scratch().join("image");
    let root = tree.root();
    let set_up = format!(
        "truncate -s 8M '{0}' && mkfs.ext4 -q -m 0 '{0}' && mount -o loop '{0}' '{1}' && rmdir '{1}/lost+found'",
        image.display(),
        root.display()
    );
    let made = Command::new("sh").args(["-c", &set_up]).output().expect("a shell");
    if !made.status.success() {
        say(&format!("SKIPPED {test}: no loop device can be mounted here: {made:?}"));
        return;
    }
    tree.write("f", "old\n");
    let mut a = Session::guarded(&tree, "a", &[]);
    refused(
        &a.sh("cat f; dd if=/dev/zero of=big bs=64k count=1000"),
        "No space left on device",
    );
    refused(&a.sh("cp /bin/bash big2"), "No space left on device");
    fine(&a.sh("cat f && rm -f big big2 && echo mine >f && echo new >g && cat f g"));
    becomes(&tree, "f", "mine\n");
    let said = a.close();
    // The guard ends by itself, some time after its last command.
    let gone = || {
        Command::new("umount")
            .arg(&root)
            .output()
            .expect("umount")
            .status
            .success()
    };
    assert!(wait_until(PATIENCE, gone), "the guard does not end");
    assert!(
        said.iter()
            .all(|line| !line.contains(NOT_OBSERVED) && !line.contains(STALE)),
        "{said:?}"
    );
}

// semantics: G4
#[test]
fn owners_are_told_apart_by_the_rule_of_the_mount() {
    let test = "--owner-by";
    if !require_fuse(test) {
        return;
    }
    for (rule, own, other) in [
        (
            "user",
            "cat f; sh -c 'echo mine >f'",
            "setpriv --reuid 1234 -- sh -c 'echo theirs >f'",
        ),
        (
            "process",
            "python3 -c 'open(\"f\").read(); open(\"f\", \"w\").write(\"mine\")'",
            "cat f; sh -c 'echo theirs >f'",
        ),
        (
            "session",
            "cat f; sh -c 'echo mine >f'",
            "cat f; setsid -w sh -c 'echo theirs >f'",
        ),
    ] {
        let tree = Tree::new();
        tree.write("f", "old\n");
        fs::set_permissions(tree.at("f"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("chmod");
        let mount = Mount::new(&tree, &["--owner-by", rule]);
        let mut shell = Session::plain(&tree, "plain");
        fine(&shell.at(&mount.path(), own));
        if rule == "user" && !nix::unistd::geteuid().is_root() {
            say(&format!("SKIPPED {test} user: it takes root"));
            continue;
        }
        let done = shell.at(&mount.path(), other);
        assert!(!done.ok(), "{rule}: {done:?}");
        drop(shell);
        let content = tree.read("f");
        assert!(
            content.as_deref().is_some_and(|text| text.starts_with("mine")),
            "{rule}: {content:?}"
        );
        drop(mount);
    }
}

// semantics: G6
#[test]
fn nobody_speaks_for_another_owner() {
    let Some((tree, mut a)) = guarded("another owner's name", &[]) else {
        return;
    };
    let mut b = Session::guarded(&tree, "b", &[]);
    fine(&b.sh("cat f"));
    let done = a.sh(&format!(
        "'{}' run --owner b -- sh -c 'echo mine >f'",
        program().display()
    ));
    assert!(!done.ok(), "an owner has written with another's observations: {done:?}");
    assert_eq!(tree.read("f").as_deref(), Some("old\n"));
    fine(&b.sh("echo theirs >f"));
    becomes(&tree, "f", "theirs\n");
}

// semantics: G3
#[test]
fn two_commands_of_one_owner_are_one_owner() {
    let test = "one owner, two commands";
    if !require_fuse(test) {
        return;
    }
    let tree = Tree::new();
    tree.write("f", "old\n");
    // Somebody who keeps the guard up, so that nothing lingers after the test.
    let keeper = Session::guarded(&tree, "keeper", &[]);
    let run = |owner: &str, text: &str| {
        let mut command = tree.unclobber();
        command
            .arg("run")
            .arg("--workspace")
            .arg(tree.root())
            .args(["--owner", owner, "--linger", "0", "--", "sh", "-c", text]);
        command.output().expect("unclobber run")
    };
    assert!(run("a", "cat f").status.success());
    let other = run("c", "echo theirs >f");
    assert!(!other.status.success(), "{other:?}");
    let done = run("a", "echo mine >f");
    assert!(done.status.success(), "{done:?}");
    becomes(&tree, "f", "mine\n");
    drop(keeper);
}
