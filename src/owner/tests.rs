//! Attribution of real processes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;

const BY_SESSION: Attribution = Attribution::By(OwnerBy::Session);
const BY_PROCESS: Attribution = Attribution::By(OwnerBy::Process);

/// A shell that runs a script, killed at the end with all it said it started.
struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    others: Vec<Process>,
}

impl Shell {
    fn new(script: &str) -> Self {
        Self::start(script, || Ok(sys::setsid()?))
    }

    fn in_our_session(script: &str) -> Self {
        Self::start(script, || Ok(()))
    }

    fn start(script: &str, setup: fn() -> std::io::Result<()>) -> Self {
        sys::set_child_subreaper(true).unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        sys::pre_exec(&mut command, setup);
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
            others: Vec::new(),
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// The next line, the number of a process it started.
    fn started(&mut self) -> u32 {
        let pid = self.line().parse().unwrap();
        self.others.push(process_of(pid).unwrap());
        pid
    }

    fn go_on(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn end(&mut self) {
        self.input = None;
        self.child.wait().unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for process in &self.others {
            if process_of(process.tgid) == Ok(*process) {
                drop(sys::kill(number(process.tgid), sys::SIGKILL));
            }
        }
        drop(self.child.kill());
        drop(self.child.wait());
        // Orphans have come to us: their numbers are free only when somebody has waited for them.
        for process in &self.others {
            drop(sys::wait(number(process.tgid), false, false));
        }
    }
}

fn number(pid: u32) -> i32 {
    i32::try_from(pid).unwrap()
}

/// Kills an orphan and waits until its number is free.
fn kill_orphan(pid: u32) {
    sys::kill(number(pid), sys::SIGKILL).unwrap();
    sys::wait(number(pid), false, false).unwrap();
}

fn owners() -> Owners<u32> {
    Owners::new(Limits::default())
}

fn owner(owners: &Owners<u32>, pid: u32, rule: Attribution) -> OwnerId {
    owners.owner_of(&owners.thread(pid).unwrap(), &rule, 0)
}

fn register(owners: &Owners<u32>, pid: u32, name: &str) -> OwnerId {
    let id = owners.named(name).unwrap();
    owners.register(process_of(pid).unwrap(), id).unwrap();
    id
}

#[test]
fn descendants_belong_to_the_registered_process() {
    let owners = owners();
    let mut shell = Shell::new("sh -c 'sh -c \"sleep 100 & echo \\$!; wait\"; :'; :");
    let below = shell.started();
    let a = register(&owners, shell.pid(), "a");
    let fixed = owners.named("the mount's").unwrap();
    assert_eq!(owner(&owners, below, Attribution::Fixed(fixed)), a);
    assert_eq!(owners.owner_of_process(below), Ok(Some(a)));
    assert_eq!(owners.owner_of_process(std::process::id()), Ok(None));
    assert_eq!(owner(&owners, std::process::id(), Attribution::Fixed(fixed)), fixed);
    assert_eq!(
        owners.list().iter().find(|info| info.id == a).unwrap().roots,
        [process_of(shell.pid()).unwrap()]
    );
}

#[test]
fn a_registration_counts_for_those_met_before() {
    let owners = owners();
    let mut shell = Shell::new("sleep 100 & echo $!; read x");
    let below = shell.started();
    let before = owner(&owners, below, BY_SESSION);
    *owners.thread(below).unwrap().notes.lock() = 7;
    let a = register(&owners, shell.pid(), "a");
    assert_ne!(before, a);
    assert_eq!(owner(&owners, below, BY_SESSION), a);
    assert_eq!(*owners.thread(below).unwrap().notes.lock(), 7, "the thread is the same");
}

#[test]
fn the_nearest_registration_counts_and_none_above_takes_over() {
    let owners = owners();
    let mut shell = Shell::new("sh -c 'echo $$; sleep 100 & echo $!; wait'; :");
    let (middle, below) = (shell.started(), shell.started());
    let inner = register(&owners, middle, "inner");
    assert_eq!(owner(&owners, below, BY_SESSION), inner);
    let outer = register(&owners, shell.pid(), "outer");
    assert_eq!(owner(&owners, below, BY_SESSION), inner);
    assert_eq!(owner(&owners, middle, BY_SESSION), inner);
    assert_eq!(owner(&owners, shell.pid(), BY_SESSION), outer);
}

#[test]
fn a_process_given_to_another_parent_stays_who_it_was() {
    let owners = owners();
    let mut shell = Shell::new("sh -c 'sleep 100 & echo $!; read x' ; exit");
    let below = shell.started();
    let a = register(&owners, shell.pid(), "a");
    assert_eq!(owner(&owners, below, BY_SESSION), a);
    let before = sys::read_proc_stat(below).unwrap().ppid;
    shell.end();
    assert_ne!(sys::read_proc_stat(below).unwrap().ppid, before);
    // A later registration elsewhere makes everything be looked at again.
    let other = Shell::new("read x");
    register(&owners, other.pid(), "b");
    assert_eq!(owner(&owners, below, BY_SESSION), a);
    assert_eq!(owners.owner_of_process(below), Ok(Some(a)));
}

#[test]
fn those_never_met_stay_when_their_root_is_unregistered() {
    let owners = owners();
    let mut shell = Shell::new("sh -c 'sleep 100 & echo $!; read x' ; exit");
    let below = shell.started();
    let root = process_of(shell.pid()).unwrap();
    let a = register(&owners, shell.pid(), "a");
    owners.unregister(root);
    assert_eq!(owners.owner_of_process(shell.pid()), Ok(None));
    shell.end();
    assert_eq!(owners.owner_of_process(below), Ok(Some(a)));
    assert_eq!(owner(&owners, below, BY_PROCESS), a);
}

#[test]
fn a_thread_that_is_not_the_first_belongs_to_its_process() {
    let owners = owners();
    let (say, heard) = std::sync::mpsc::channel();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        say.send(sys::gettid()).unwrap();
        stopped.recv().unwrap_err();
    });
    let tid = heard.recv().unwrap();
    assert_ne!(tid, std::process::id());
    let met = owners.thread(tid).unwrap();
    assert_eq!(met.process, process_of(std::process::id()).unwrap());
    assert!(Arc::ptr_eq(&met, &owners.thread(tid).unwrap()));
    let (one, all) = (
        owner(&owners, tid, BY_PROCESS),
        owner(&owners, std::process::id(), BY_PROCESS),
    );
    assert_eq!(one, all);
    drop(stop);
    thread.join().unwrap();
    // join returns when the thread has ended for us, an instant before the kernel has removed it.
    while std::path::Path::new(&format!("/proc/self/task/{tid}")).exists() {
        std::thread::yield_now();
    }
    assert!(owners.thread(tid).is_none());
    assert!(!met.alive());
}

#[test]
fn nobody_has_number_zero_or_is_dead() {
    let owners = owners();
    assert!(owners.thread(0).is_none());
    let mut shell = Shell::new("read x; exit");
    let (pid, root) = (shell.pid(), process_of(shell.pid()).unwrap());
    let held = owners.thread(pid).unwrap();
    shell.go_on();
    // It has ended and nobody has waited for it: the number is not free for another test's process.
    while held.alive() {
        std::thread::yield_now();
    }
    assert!(owners.thread(pid).is_none());
    assert_eq!(owners.owner_of_process(pid), Err(Gone));
    assert_eq!(owners.register(root, owners.named("a").unwrap()), Err(Gone));
}

/// Starts a shell that gets the number `pid`; `None` when the machine does not let us choose, or is too busy.
///
/// Not beside other tests: processes and threads of theirs would get numbers that were used a moment ago.
/// `scripts/check.sh` runs these tests by themselves.
fn with_number(pid: u32, script: &str) -> Option<Shell> {
    std::env::var_os("UNCLOBBER_CHOOSE_PIDS")?;
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _held = ONE_AT_A_TIME.lock();
    for _ in 0..2000 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let shell = Shell::new(script);
        if shell.pid() == pid {
            return Some(shell);
        }
    }
    None
}

#[test]
fn a_reused_number_is_somebody_else() {
    let owners = owners();
    let mut old = Shell::new("read x");
    let pid = old.pid();
    let a = register(&owners, pid, "a");
    let held = owners.thread(pid).unwrap();
    *held.notes.lock() = 7;
    assert_eq!(owner(&owners, pid, BY_SESSION), a);
    old.end();
    let Some(new) = with_number(pid, "read x") else {
        eprintln!("SKIPPED: cannot choose the number of a process here");
        return;
    };
    assert_eq!(new.pid(), pid);
    let met = owners.thread(pid).unwrap();
    assert_eq!(*met.notes.lock(), 0);
    assert_ne!(owner(&owners, pid, BY_SESSION), a);
    assert_eq!(owners.owner_of_process(pid), Ok(None));
    assert_eq!(owners.owner_of(&met, &BY_PROCESS, 0), owner(&owners, pid, BY_PROCESS));
}

#[test]
fn a_session_is_one_owner_also_after_its_leader_died() {
    let owners = owners();
    let mut shell = Shell::new("sleep 100 & echo $!; sleep 100 & echo $!; sleep 100 & echo $!; read x");
    let number = shell.pid();
    let (first, second, third) = (shell.started(), shell.started(), shell.started());
    let session = owner(&owners, first, BY_SESSION);
    assert_eq!(owner(&owners, shell.pid(), BY_SESSION), session);
    shell.end();
    assert_eq!(owner(&owners, first, BY_SESSION), session);
    // Never met before; the first one proves that the session is still the same.
    assert_eq!(owner(&owners, second, BY_SESSION), session);
    // With no known member left, nobody can say that it is.
    for pid in [first, second] {
        kill_orphan(pid);
    }
    let without = owner(&owners, third, BY_SESSION);
    assert_ne!(without, session);
    assert_eq!(owner(&owners, third, BY_SESSION), without);
    drop(shell);
    if let Some(mut again) = with_number(number, "sleep 100 & echo $!; read x") {
        let member = again.started();
        let later = owner(&owners, member, BY_SESSION);
        assert!(later != session && later != without);
    } else {
        eprintln!("SKIPPED in part: cannot choose the number of a process here");
    }
}

#[test]
fn commands_of_one_shell_are_one_owner_in_a_session_without_a_leader() {
    let owners = owners();
    // A shell that asks for nothing itself, and commands of it that never run at the same time.
    let mut leader = Shell::new("(sleep 100 & echo $!; sleep 100 & echo $!; sleep 100) & read x");
    let (first, second) = (leader.started(), leader.started());
    leader.end();
    let shell = sys::read_proc_stat(first).unwrap().ppid;
    let session = owner(&owners, first, BY_SESSION);
    sys::kill(number(first), sys::SIGKILL).unwrap();
    while owners.thread(first).is_some() {
        std::thread::yield_now();
    }
    assert_eq!(owner(&owners, second, BY_SESSION), session);
    kill_orphan(shell);
}

#[test]
fn sessions_without_a_leader_are_never_joined() {
    let owners = owners();
    let mut shell = Shell::new("sleep 100 & echo $!; read x");
    let left = shell.started();
    let number = shell.pid();
    shell.end();
    let owner_of_left = owner(&owners, left, BY_SESSION);
    kill_orphan(left);
    let Some(mut again) = with_number(number, "sleep 100 & echo $!; read x") else {
        eprintln!("SKIPPED: cannot choose the number of a process here");
        return;
    };
    let left = again.started();
    again.end();
    assert_ne!(owner(&owners, left, BY_SESSION), owner_of_left);
}

#[test]
fn a_process_keeps_its_session_owner_when_it_starts_another_session() {
    let owners = owners();
    let mut shell = Shell::in_our_session("read x; exec setsid sh -c 'echo done; read x'");
    let pid = shell.pid();
    let ours = owner(&owners, std::process::id(), BY_SESSION);
    assert_eq!(owner(&owners, pid, BY_SESSION), ours);
    shell.go_on();
    assert_eq!(shell.line(), "done");
    assert_eq!(sys::read_proc_stat(pid).unwrap().session, pid);
    assert_eq!(owner(&owners, pid, BY_SESSION), ours);
}

#[test]
fn the_rules_tell_apart_what_they_say() {
    let owners = owners();
    let (one, two) = (Shell::new("read x"), Shell::new("read x"));
    let by = |rule, pid, uid| {
        let thread = owners.thread(pid).unwrap();
        owners.owner_of(&thread, &Attribution::By(rule), uid)
    };
    assert_ne!(by(OwnerBy::Session, one.pid(), 0), by(OwnerBy::Session, two.pid(), 0));
    assert_ne!(by(OwnerBy::Process, one.pid(), 0), by(OwnerBy::Process, two.pid(), 0));
    assert_eq!(by(OwnerBy::User, one.pid(), 7), by(OwnerBy::User, two.pid(), 7));
    assert_ne!(by(OwnerBy::User, one.pid(), 7), by(OwnerBy::User, one.pid(), 8));
    if owners.kind(by(OwnerBy::Cgroup, one.pid(), 0)) == Some(OwnerKind::Cgroup) {
        assert_eq!(by(OwnerBy::Cgroup, one.pid(), 0), by(OwnerBy::Cgroup, two.pid(), 0));
    } else {
        eprintln!("SKIPPED in part: no cgroup to be seen here");
    }
}

#[test]
fn a_guarded_process_starts_sub_owners_and_joins_nobody() {
    let owners = owners();
    let a = owners.join(None, "a").unwrap();
    let b = owners.join(None, "b").unwrap();
    assert_eq!(owners.join(None, "a"), Ok(a));
    let sub = owners.join(Some(a), "b").unwrap();
    assert_eq!(&*owners.name(sub), "a/b");
    assert!(sub != b && sub != a);
    assert_eq!(owners.join(Some(a), "b"), Ok(sub));
    assert_eq!(owners.join(Some(a), "../b"), Err(NameError::BadCharacter));
    assert_eq!(owners.join(None, "a/b"), Err(NameError::BadCharacter));
    let fresh = owners.join_fresh(Some(sub), "vim-1").unwrap();
    assert_eq!(&*owners.name(fresh), "a/b/vim-1");
    assert_eq!(owners.join_fresh(Some(OwnerId(99)), "x"), Err(NameError::NoParent));
}

#[test]
fn names_are_checked_and_unique() {
    let owners = owners();
    assert_eq!(owners.named(""), Err(NameError::Empty));
    assert_eq!(owners.named("a\nb"), Err(NameError::BadCharacter));
    assert_eq!(owners.named(&"ä".repeat(129)), Err(NameError::TooLong));
    owners.named(&"ä".repeat(128)).unwrap();
    let (one, two) = (owners.fresh("vim/4121\n").unwrap(), owners.fresh("vim/4121\n").unwrap());
    assert_eq!(&*owners.name(one), "vim_4121_");
    assert_ne!(owners.name(one), owners.name(two));
    assert_eq!(&*owners.name(OwnerId::NOBODY), "nobody");
}

// semantics: G6
#[test]
fn an_owner_that_nobody_named_keeps_its_name_to_itself() {
    let owners = owners();
    let session = owner(&owners, std::process::id(), BY_SESSION);
    let process = owner(&owners, std::process::id(), BY_PROCESS);
    let a = owners.named("a").unwrap();
    let (run, below) = (
        owners.fresh("run-7").unwrap(),
        owners.join_fresh(Some(a), "run-7").unwrap(),
    );
    for id in [session, process, run, below] {
        let name = owners.name(id);
        assert!(is_automatic_name(&name), "{name}");
        let above = (id == below).then_some(a);
        let own = name.rsplit('/').next().unwrap();
        assert_eq!(owners.join(above, own), Err(NameError::Automatic), "{name}");
        assert_eq!(owners.name(id), name);
    }
    // The other way round: what was named keeps its name, too.
    let named = owners.named("run-8").unwrap();
    let later = owners.fresh("run-8").unwrap();
    assert_eq!(&*owners.name(named), "run-8");
    assert!(is_automatic_name(&owners.name(later)) && owners.name(later) != owners.name(named));
    assert_eq!(owners.named("run-8"), Ok(named));
    for name in ["a", "run", "run-", "run-a", "agent-7", "a.7", "rerun-7", "session-x.7"] {
        assert!(!is_automatic_name(name), "{name}");
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let limits = Limits {
        threads: 16,
        processes: 16,
        asked_for: 16,
        by_rule: 16,
    };
    let owners: Owners<u32> = Owners::new(limits);
    let shells: Vec<_> = (0..40).map(|_| Shell::new("read x")).collect();
    let ids: Vec<_> = shells
        .iter()
        .map(|shell| owner(&owners, shell.pid(), BY_SESSION))
        .collect();
    assert!(owners.threads.len() <= 17 && owners.tree.records.len() <= 34);
    assert!(owners.list().len() <= 17);
    let again = owner(&owners, shells[0].pid(), BY_SESSION);
    assert!(!ids.contains(&again), "a forgotten owner comes back as another");
    for n in 0..40 {
        owners.fresh(&format!("run-{n}")).unwrap();
    }
    assert_eq!(
        owners
            .list()
            .iter()
            .filter(|info| info.kind == OwnerKind::Fresh)
            .count(),
        8
    );
    let named = (0..40)
        .map(|n| owners.named(&format!("name-{n}")))
        .filter(Result::is_ok)
        .count();
    assert_eq!(named, 8);
    assert_eq!(owners.named("name-40"), Err(NameError::TooMany));
}

#[test]
fn a_long_line_of_descent_is_followed() {
    let owners = owners();
    let mut shell =
        Shell::new("f() { if [ $1 -gt 0 ]; then (f $(($1 - 1)); :); else sh -c 'echo $$; read x'; fi; }; f 60; :");
    let last = shell.started();
    let a = register(&owners, shell.pid(), "a");
    assert_eq!(owner(&owners, last, BY_PROCESS), a);
}

#[test]
#[ignore = "a measurement, not a test"]
fn cost() {
    let owners = owners();
    let mut shell = Shell::new("sleep 100 & echo $!; read x");
    let pid = shell.started();
    register(&owners, shell.pid(), "a");
    let time = |what: &str, rounds: u32, f: &mut dyn FnMut()| {
        let best = (0..20).map(|_| {
            let start = std::time::Instant::now();
            (0..rounds).for_each(|_| f());
            start.elapsed() / rounds
        });
        eprintln!("{what}: {:?}", best.min().unwrap());
    };
    time("thread, cached", 10_000, &mut || drop(owners.thread(pid)));
    let thread = owners.thread(pid).unwrap();
    time("owner_of, cached", 10_000, &mut || {
        std::hint::black_box(owners.owner_of(&thread, &BY_SESSION, 0));
    });
    let few: Owners<u32> = Owners::new(Limits {
        threads: 16,
        ..Limits::default()
    });
    let shells: Vec<_> = (0..64).map(|_| Shell::new("read x")).collect();
    let mut next = shells.iter().cycle();
    time("thread, its process known", 1000, &mut || {
        drop(few.thread(next.next().unwrap().pid()))
    });
    time("thread and owner of a new guard", 200, &mut || {
        let fresh: Owners<u32> = Owners::new(Limits::default());
        std::hint::black_box(owner(&fresh, pid, BY_SESSION));
    });
    time("owner_of after a registration", 50, &mut || {
        let id = owners.fresh("x").unwrap();
        owners.register(process_of(shell.pid()).unwrap(), id).unwrap();
        std::hint::black_box(owners.owner_of(&thread, &BY_SESSION, 0));
    });
}
