//! An ordinary working day, in a tree that nobody has read before: nothing is refused, and all comes out as on a plain
//! directory.

#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::session::Session;
use common::snapshot::Snapshot;
use common::tree::{Tree, require_fuse, say, tool_is_there};
use common::wait::wait_until;

/// A build may take this long on a small machine.
const BUILD: Duration = Duration::from_secs(300);

/// Not compared: what holds times, absolute paths or hashes of them. The guard's own place is nobody's result.
const NOT_COMPARED: &[&str] = &[
    ".git",
    "target",
    "CMakeFiles",
    "CMakeCache.txt",
    "cmake_install.cmake",
    "build.ninja",
    "__pycache__",
    ".unclobber",
];

/// Lays a tree out natively, runs the day's work in it plain and guarded, and compares.
fn day(test: &str, needs: &[&str], lay_out: &str, work: &str) {
    if let Some(tool) = needs.iter().find(|tool| !tool_is_there(tool)) {
        say(&format!("SKIPPED {test}: {tool} is not installed"));
        return;
    }
    let surroundings = surroundings();
    let plain = Tree::new();
    let mut session = Session::plain(&plain, "plain");
    run(
        &mut session,
        test,
        "plain: laying out",
        &format!("{surroundings}\n{lay_out}"),
    );
    run(&mut session, test, "plain", &format!("{surroundings}\n{work}"));
    let expected = Snapshot::of(&plain.root(), NOT_COMPARED);
    drop(session);
    if !require_fuse(test) {
        return;
    }
    let tree = Tree::new();
    let mut session = Session::plain(&tree, "outsider");
    run(&mut session, test, "laying out", &format!("{surroundings}\n{lay_out}"));
    drop(session);
    let mut session = Session::guarded(&tree, "a", &[]);
    run(&mut session, test, "guarded", &format!("{surroundings}\n{work}"));
    let mut said = session.close();
    // What was removed unread is no refusal: `make clean`.
    said.retain(|line| !line.contains(" unread file"));
    assert!(said.is_empty(), "{test}: refused what must pass:\n{}", said.join("\n"));
    let same = wait_until(Duration::from_secs(3), || {
        Snapshot::of(&tree.root(), NOT_COMPARED) == expected
    });
    assert!(
        same,
        "{test}: plain and guarded differ:\n{}",
        expected.difference(&Snapshot::of(&tree.root(), NOT_COMPARED))
    );
}

/// Every step must succeed, so that a refusal in the middle cannot pass unseen.
fn run(session: &mut Session, test: &str, what: &str, text: &str) {
    let done = session.sh_for(&format!("( set -e\n{text}\n)"), BUILD);
    assert!(done.ok(), "{test}, {what}: {done:?}\n{}", session.said().join("\n"));
}

/// The real home's toolchain, seen from the test's home.
fn surroundings() -> String {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    let place = |variable: &str, below: &str| {
        std::env::var_os(variable)
            .map_or_else(|| home.join(below), PathBuf::from)
            .display()
            .to_string()
    };
    format!(
        "export RUSTUP_HOME='{}' CARGO_HOME='{}' CARGO_NET_OFFLINE=true CARGO_BUILD_JOBS=2 npm_config_offline=true\n\
         export PATH=\"$PATH:$CARGO_HOME/bin\" TERM=xterm SOURCE_DATE_EPOCH=1 npm_config_cache=\"$HOME/npm\"",
        place("RUSTUP_HOME", ".rustup"),
        place("CARGO_HOME", ".cargo")
    )
}

const REPOSITORY: &str = "git config --global gc.auto 0; git config --global advice.detachedHead false
    git init -q -b main origin; cd origin; mkdir dir
    for f in a b dir/c dir/d e; do seq 1 30 >$f; done
    git add .; git commit -q -m one; cd ..; git clone -q origin repo; rm -rf origin/.git/hooks";

#[test]
fn git_on_one_branch() {
    day(
        "git on one branch",
        &["git"],
        REPOSITORY,
        "cd repo; git status; echo new >new; git add new; git commit -q -m new
         sed -i s/15/fifteen/ a; git diff; git add -p </dev/null || true; git add -A; git commit -q -m a
         echo more >>b; git commit -q -a --amend -m 'a and b'
         sed -i s/20/twenty/ dir/c; git stash -q; git stash list; git stash pop -q; git checkout -q -- dir/c
         echo rubbish >>dir/d; git reset -q --hard; echo x >untracked; git clean -q -f
         git mv e f; git rm -q dir/d; git commit -q -m moved; git tag t; git log --stat >/dev/null
         git revert --no-edit HEAD >/dev/null; git fsck; git gc -q; git status",
    );
}

#[test]
fn git_with_branches() {
    day(
        "git with branches",
        &["git"],
        REPOSITORY,
        "cd repo; git checkout -q -b topic; sed -i s/15/topic/ a; git commit -q -a -m topic
         git checkout -q main; sed -i s/5/main/ b; git commit -q -a -m main
         git merge -q --no-edit topic; git checkout -q topic; sed -i s/25/more/ dir/c; git commit -q -a -m more
         git rebase -q main; git switch -q main; git merge -q --ff-only topic
         git switch -q -c clash HEAD~1; sed -i s/10/clash/ a; git commit -q -a -m clash
         git switch -q main; sed -i s/10/other/ a; git commit -q -a -m other
         ! git merge -q clash; git checkout -q --ours a; git add a; git commit -q -m merged
         git switch -q -c side HEAD~1; echo p >p; git add p; git commit -q -m p; git switch -q main; git cherry-pick side >/dev/null
         git bisect start HEAD HEAD~2 >/dev/null; git bisect reset >/dev/null 2>&1
         git worktree add -q ../tree topic; cd ../tree; echo w >w; git add w; git commit -q -m w; cd ../repo
         git fetch -q; git pull -q --ff-only; git clone -q . ../second; cd ../second; git log --oneline",
    );
}

#[test]
fn git_in_a_new_repository() {
    day(
        "git in a new repository",
        &["git"],
        "mkdir p; seq 1 9 >p/old; git config --global gc.auto 0",
        "cd p; git init -q -b main; git add .; git commit -q -m one; echo x >x; git add x; git commit -q -m two
         git checkout -q -b b; git rm -q old; git commit -q -m gone; git checkout -q main; git checkout -q b; git checkout -q main",
    );
}

#[test]
fn cargo() {
    day(
        "cargo",
        &["cargo", "rustfmt"],
        "mkdir -p old/src; printf '[package]\\nname=\"old\"\\nversion=\"0.1.0\"\\nedition=\"2021\"\\n' >old/Cargo.toml
         printf 'fn  main ( ) {println!( \"old\" ) ; }\\n' >old/src/main.rs",
        "cargo new -q --vcs none new; cd new; cargo build -q; cargo run -q
         printf 'pub fn two ( ) -> u8 { 2 }\\n#[test] fn is_two() { assert_eq!(two(), 2) }\\n' >src/lib.rs
         cargo test -q >/dev/null; cargo fmt; cargo build -q; sed -i s/world/all/ src/main.rs; cargo build -q; cargo run -q
         cargo clean -q; cd ../old; cargo fmt; cargo build -q; cargo run -q; touch src/main.rs; cargo build -q",
    );
}

#[test]
fn npm() {
    day(
        "npm",
        &["npm", "node"],
        "mkdir -p dep app; printf '{\"name\":\"dep\",\"version\":\"1.0.0\",\"main\":\"i.js\"}\\n' >dep/package.json
         echo 'module.exports = 1' >dep/i.js; printf '{\"name\":\"app\",\"version\":\"1.0.0\"}\\n' >app/package.json",
        "cd dep; npm pack --silent >/dev/null; cd ../app; npm install --silent --no-audit --no-fund ../dep/dep-1.0.0.tgz
         node -e 'if (require(\"dep\") !== 1) process.exit(1)'; npm install --silent --no-audit --no-fund
         npm pkg set description=an-app; npm version --silent minor; npm uninstall --silent --no-audit --no-fund dep
         npm install --silent --no-audit --no-fund ../dep/dep-1.0.0.tgz; npm ci --silent --no-audit --no-fund; npm ls --silent",
    );
}

const SOURCES: &str = "mkdir -p c; cd c
    printf '#include \"g.h\"\\nint main(void) { return g() - 1; }\\n' >m.c; echo 'int g(void);' >g.h
    printf '#include \"g.h\"\\nint g(void) { return 1; }\\n' >g.c
    printf 'm: m.o g.o\\n\\t$(CC) -o $@ $^\\n%%.o: %%.c g.h\\n\\t$(CC) -MMD -c -o $@ $<\\n\
clean:\\n\\trm -f m *.o *.d\\nlibg.a: g.o\\n\\tar rcs $@ $^\\n' >Makefile";

#[test]
fn make() {
    day(
        "make",
        &["make", "gcc", "ar"],
        // Built before, by nobody here: what make replaces, it never read.
        &format!("{SOURCES}; make -s; touch -d 2001-01-01 m m.o g.o; touch -d 2002-01-01 *.c *.h"),
        "cd c; make -s; ./m; touch g.c; make -s; ./m; make -s libg.a; touch g.h; make -s libg.a m; ./m
         sed -i 's/return 1/return 2/' g.c; make -s; ! ./m; make -s clean; make -s; strip m; make -s clean; make -s -j2 m; make -s -j2 libg.a",
    );
}

#[test]
fn cmake_and_ninja() {
    day(
        "cmake and ninja",
        &["cmake", "ninja", "gcc"],
        &format!(
            "{SOURCES}; printf 'cmake_minimum_required(VERSION 3.13)\\nproject(p C)\\nadd_executable(m m.c g.c)\\n' >CMakeLists.txt"
        ),
        "cd c; cmake -G Ninja -B b . >/dev/null; ninja -C b >/dev/null; b/m; touch g.c; ninja -C b >/dev/null
         echo 'add_library(g STATIC g.c)' >>CMakeLists.txt; ninja -C b >/dev/null; cmake -B b . >/dev/null
         cmake --build b >/dev/null; cmake --build b --target clean >/dev/null; cmake --build b >/dev/null
         rm b/.ninja_deps b/.ninja_log b/libg.a b/m",
    );
}

/// Types into a program on a terminal of its own: text, and a wait for what it shows in between.
const TYPE: &str = r#"
import os, pty, select, sys
pid, terminal = pty.fork()
if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])
def show(until):
    seen = b""
    while until not in seen:
        if not select.select([terminal], [], [], 20)[0]: sys.exit("no %r in %r" % (until, seen))
        try: part = os.read(terminal, 4096)
        except OSError: return
        if not part: return
        seen += part
for line in os.environ["KEYS"].split("|"):
    until, keys = line.split("=", 1)
    show(until.encode())
    os.write(terminal, keys.encode().decode("unicode_escape").encode())
try:
    while os.read(terminal, 4096): pass
except OSError: pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[test]
fn editors() {
    day(
        "editors",
        &["vim", "nano", "ed", "python3"],
        "for f in a b c d e; do seq 1 5 >$f; done",
        &format!(
            "cat >\"$HOME/type.py\" <<'END'\n{TYPE}\nEND\n
             vim -u DEFAULTS -i NONE -es --cmd 'set bsk=' -c 's/5/five/' -c w -c 's/five/cinq/' -c wq a
             vim -u NONE -N -i \"$HOME/viminfo\" -es -c 'set backup bsk=' -c 's/5/five/' -c wq b
             printf '2s/2/two/\\nw\\nq\\n' | ed -s c; printf 'a\\nfresh\\n.\\nw fresh\\nq\\n' | ed -s
             KEYS='^X=new line\\r\\x0f|Write=\\r|Wrote=\\x18' python3 \"$HOME/type.py\" nano -I d
             KEYS='^X=another\\x0f|Write=\\r|Wrote=\\x18' python3 \"$HOME/type.py\" nano -I -B d
             KEYS='\"e\"=Goappended\\x1b:w\\r|written=:wq\\r' python3 \"$HOME/type.py\" vim -u NONE -N -i NONE --cmd 'set bsk=' e
             cat d e"
        ),
    );
}

#[test]
fn formatters_and_stream_editors() {
    day(
        "formatters and stream editors",
        &["rustfmt", "black", "perl", "gawk", "patch", "diff"],
        "printf 'fn  main ( ) { }\\n' >m.rs; printf 'x = { 1 :2 }\\n' >m.py; for f in a b c d; do seq 1 9 >$f; done
         seq 1 9 | sed s/5/five/ >new; diff -u --label d --label d d new >p || true; cp m.rs n.rs",
        "rustfmt m.rs n.rs; black -q m.py; black -q --check m.py; sed -i s/3/three/ a; sed -i.bak s/3/three/ b
         perl -i -pe 's/4/four/' a b; gawk -i inplace '{ print $1 \"!\" }' c; patch -s d p; patch -s -R d p; sort -r -o c c
         sed -i s/7/seven/ a b c d; for f in a b; do sort $f >$f.new; mv $f.new $f; done; touch a; chmod 600 b",
    );
}

#[test]
fn sqlite() {
    day(
        "sqlite",
        &["sqlite3"],
        "sqlite3 old.db 'create table t(a); insert into t values(1)'; sqlite3 wal.db 'pragma journal_mode=wal; create table t(a)'",
        "for i in 1 2 3; do for db in old.db wal.db; do sqlite3 $db \"insert into t values($i); update t set a = a + 1\"; done; done
         sqlite3 old.db 'begin; delete from t; rollback; vacuum; select * from t' >old.txt
         sqlite3 wal.db 'pragma wal_checkpoint(truncate); select * from t' >wal.txt
         sqlite3 new.db 'pragma journal_mode=wal; create table n(a); insert into n values(7)'
         sqlite3 new.db 'pragma journal_mode=truncate; insert into n values(8); pragma journal_mode=delete; select * from n' >new.txt
         cat old.txt wal.txt new.txt; rm old.db wal.db new.db",
    );
}

#[test]
fn archives_and_copies() {
    day(
        "archives and copies",
        &["tar", "rsync", "zip", "unzip", "gzip", "cpio"],
        "mkdir -p src/deep/er; for f in src/a src/b src/deep/c src/deep/er/d; do seq 1 99 >$f; done; chmod 600 src/b; ln -s a src/l",
        "tar cf t.tar src; mkdir x; tar xf t.tar -C x; tar xf t.tar -C x; tar czf t.tgz src; tar xzf t.tgz -C x; rm t.tgz
         rsync -a src/ copy/; sed -i s/5/five/ src/a; rsync -a src/ copy/; rsync -a --delete --inplace src/ copy/
         rm src/b; rsync -a --delete src/ copy/; cp -a src second; cp -a src/. second/; cp -r --reflink=auto src third
         zip -q -r t.zip src; unzip -q -o t.zip -d y; unzip -q -o t.zip -d y; rm t.zip; gzip -n -k src/a; gunzip -c src/a.gz | cmp - src/a
         tar xf t.tar; rm t.tar; find src | cpio -o --quiet | ( mkdir z; cd z; cpio -idu --quiet ); mv src moved; rm -rf x/src/deep",
    );
}

#[test]
fn python() {
    day(
        "python",
        &["python3"],
        "mkdir pkg; echo 'x = 1' >pkg/__init__.py; echo 'import pkg; print(pkg.x)' >main.py; echo '{\"a\": 1}' >conf.json",
        "unset PYTHONDONTWRITEBYTECODE; python3 main.py; sed -i s/1/2/ pkg/__init__.py; python3 main.py; python3 -m compileall -q .
         python3 -c 'import json; c = json.load(open(\"conf.json\")); c[\"b\"] = 2; json.dump(c, open(\"conf.json\", \"w\"))'
         python3 -c 'import logging; logging.basicConfig(filename=\"log\"); logging.error(\"one\")'
         python3 -c 'import shelve; s = shelve.open(\"shelf\"); s[\"a\"] = 1; s.close(); s = shelve.open(\"shelf\"); s[\"b\"] = 2; s.close()'
         rm shelf*; cat conf.json log",
    );
}
