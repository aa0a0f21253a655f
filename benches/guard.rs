//! The steps of which a request is made, one by one: the decision, the ledger, who is asking, and a look-up.

#![expect(missing_docs, reason = "the function that criterion's macro makes")]

use std::ffi::OsStr;
use std::hint::black_box;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use unclobber::fs::probe::LedgerProbe;
use unclobber::fs::{Caller, Guard, GuardOptions, MountOptions};
use unclobber::guard::{Case, FileKey, Intent, OwnerId, Policy, Process, Standing, There, Timestamp, Token, decide};
use unclobber::owner::{Attribution, Limits, OwnerBy, Owners};
use unclobber::store::ROOT_ID;
use unclobber::sys;

const OWNER: OwnerId = OwnerId(7);
const PROCESS: Process = Process { tgid: 42, start: 1 };
const DIR: FileKey = key(u64::MAX);

const fn key(ino: u64) -> FileKey {
    FileKey {
        dev: 1,
        ino,
        generation: 1,
    }
}

fn token() -> Token {
    Token {
        size: 4096,
        mtime: Timestamp { sec: 1, nsec: 0 },
        ctime: Timestamp { sec: 1, nsec: 0 },
    }
}

fn decision(bench: &mut Criterion) {
    let intents = [
        Intent::Create,
        Intent::Replace,
        Intent::RenameOver,
        Intent::Edit,
        Intent::Append,
        Intent::Remove,
    ];
    let cases: Vec<Case> = intents
        .into_iter()
        .flat_map(|intent| {
            [Standing::Unseen, Standing::Absent, Standing::Current, Standing::Stale].map(|standing| Case {
                intent,
                there: There::Regular,
                standing,
                foreign: false,
                readable: true,
            })
        })
        .collect();
    let policy = Policy::default();
    bench.bench_function("decision, 24 cases", |bencher| {
        bencher.iter(|| {
            for case in &cases {
                black_box(decide(black_box(case), &policy));
            }
        });
    });
}

fn ledger(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("ledger");
    for records in [1, 1_000, 1_000_000_u64] {
        let ledger = LedgerProbe::new(4 << 20);
        for ino in 0..records {
            ledger.observe(OWNER, Some(PROCESS), key(ino), token());
            ledger.observe_name(OWNER, Some(PROCESS), DIR, OsStr::new(&format!("file-{ino}")), key(ino));
        }
        let mut at = 0;
        // Steps over all records in an order that no cache foresees.
        let mut next = move || {
            at = (at + 611_953) % records;
            at
        };
        group.bench_function(BenchmarkId::new("observe", records), |bencher| {
            bencher.iter(|| ledger.observe(OWNER, Some(PROCESS), key(next()), token()));
        });
        let names: Vec<String> = (0..records).map(|ino| format!("file-{ino}")).collect();
        group.bench_function(BenchmarkId::new("standing", records), |bencher| {
            bencher.iter(|| {
                let ino = next();
                let name = names.get(usize::try_from(ino).unwrap_or(0)).map_or("", String::as_str);
                ledger.standing(OWNER, Some(PROCESS), (DIR, OsStr::new(name)), (key(ino), token()))
            });
        });
    }
    group.finish();
}

fn caller() -> Caller {
    Caller {
        tid: std::process::id(),
        uid: sys::getuid(),
        gid: sys::getgid(),
    }
}

fn owner(bench: &mut Criterion) {
    let owners: Owners<()> = Owners::new(Limits::default());
    let caller = caller();
    for (name, rule) in [
        ("owner, thread known, by session", Attribution::By(OwnerBy::Session)),
        ("owner, thread known, one for all", Attribution::Fixed(OWNER)),
    ] {
        bench.bench_function(name, |bencher| {
            bencher.iter(|| {
                let thread = owners.thread(black_box(caller.tid));
                thread.map(|thread| owners.owner_of(&thread, &rule, caller.uid))
            });
        });
    }
}

fn lookup(bench: &mut Criterion) {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    if std::fs::write(dir.path().join("file"), "content").is_err() {
        return;
    }
    let Some(guard) = guard_of(dir.path()) else { return };
    let mount = guard.add_mount(MountOptions {
        policy: Policy::default(),
        attribution: Attribution::Fixed(OWNER),
        label: "bench".to_owned(),
        multi_user: false,
        read_only: false,
        access_times: None,
        only_ids: None,
        pids_visible: true,
        rules: unclobber::fs::RuleOptions::default(),
    });
    let caller = caller();
    let name = OsStr::new("file");
    bench.bench_function("look-up of a known name", |bencher| {
        bencher.iter(|| mount.lookup(&caller, ROOT_ID, black_box(name)).is_ok());
    });
    bench.bench_function("look-up of a missing name", |bencher| {
        bencher.iter(|| mount.lookup(&caller, ROOT_ID, OsStr::new("missing")).is_ok());
    });
    if let Ok(entry) = mount.lookup(&caller, ROOT_ID, name) {
        bench.bench_function("attributes of a known file", |bencher| {
            bencher.iter(|| mount.getattr(&caller, black_box(entry.attr.ino), None).is_ok());
        });
        bench.bench_function("open for reading and release", |bencher| {
            bencher.iter(|| {
                if let Ok(opened) = mount.open(&caller, entry.attr.ino, 0) {
                    mount.release(opened.handle);
                }
            });
        });
    }
    mount.end();
    guard.shutdown();
}

fn guard_of(dir: &Path) -> Option<std::sync::Arc<Guard>> {
    let root = sys::open_path(dir, sys::consts::O_PATH | sys::consts::O_DIRECTORY).ok()?;
    Guard::open(root, GuardOptions::default()).ok()
}

criterion_group!(benches, decision, ledger, owner, lookup);
criterion_main!(benches);
