//! What filesystems in user space are known to get wrong: times behind mappings, access times, direct I/O beside mappings,
//! waiting locks, names that are not published yet, descriptors without a name, limits.

use std::path::Path;

use crate::Case;
use crate::transcript::shell;

macro_rules! script {
    ($name:literal, $needs:expr, $root:literal, $text:expr) => {
        Case {
            name: $name,
            needs: $needs,
            root: $root,
            run: |directory: &Path| shell(directory, $text),
        }
    };
}

pub(crate) const CASES: &[Case] = &[
    script!("times behind a mapping", &["python3"], false, MAPPED_TIMES),
    script!(
        "a mapped file and its attributes",
        &["python3"],
        true,
        MAPPED_ATTRIBUTES
    ),
    script!(
        "times of directories",
        &["python3", "tar", "cp"],
        false,
        DIRECTORY_TIMES
    ),
    script!("access times", &["python3"], false, ACCESS_TIMES),
    script!("direct beside a mapping", &["python3"], false, DIRECT_MAPPED),
    script!("mapping between processes", &["python3"], false, MAPPED_PROCESSES),
    script!("truncation under a mapping", &["python3"], false, MAPPED_TRUNCATED),
    script!("writing what runs", &["python3"], false, BUSY),
    script!("locks that wait", &["python3"], false, WAITING),
    script!("leases", &["python3"], false, LEASES),
    script!("names not published yet", &["python3"], false, STAGED),
    script!("descriptors without a name", &["python3"], false, NAMELESS),
    script!("a removed parent", &["python3"], false, ORPHANS),
    script!("temporary files", &["python3"], false, TEMPORARY),
    script!("killed in the middle", &["python3"], false, KILLED),
    script!("longest paths", &["python3"], false, LONGEST),
    script!("largest offsets", &["python3"], false, LARGEST),
    script!("creating to append", &["python3"], false, APPENDERS),
    script!("copying across directories", &["python3"], false, COPYING),
    script!("attribute limits", &["python3"], true, ATTRIBUTES),
    script!("attributes of the system", &["python3"], true, SYSTEM_ATTRIBUTES),
    script!("device numbers", &["python3"], true, DEVICES),
    script!("flags of files", &["python3"], true, FLAGS),
    script!("file handles", &["python3"], true, HANDLES),
    script!("file handles of what the kernel forgot", &["python3"], true, FORGOTTEN),
    script!("going back in a listing", &["python3"], false, SEEKING),
    script!("executing beside a reader", &["python3"], false, BESIDE),
    script!("ends of time", &["python3"], false, ENDS_OF_TIME),
    script!("set-id bits and who may keep them", &["python3"], true, SET_ID),
    script!(
        "access lists and set-group-id",
        &["python3", "setfacl"],
        true,
        ACL_SET_ID
    ),
    script!("fifos between processes", &["python3"], false, FIFOS),
    script!("inotify on what is open", &["python3"], false, INOTIFY),
];

const MAPPED_TIMES: &str = r#"python3 -c '
import mmap, os
old = (1000, 1000)
def moved(fd=None): s = os.stat("f") if fd is None else os.fstat(fd); return s.st_mtime != 1000, s.st_ctime > 2000
open("f", "wb").write(b"x" * 8192); os.utime("f", old); fd = os.open("f", os.O_RDWR)
m = mmap.mmap(fd, 0); print("mapped", moved(), moved(fd)); print(m[0]); print("loaded", moved())
m[0:1] = b"a"; m.flush(); print("msync", moved(), moved(fd))
os.utime("f", old); m[1:2] = b"b"; os.fsync(fd); print("fsync", moved(), moved(fd))
os.utime("f", old); m[2:3] = b"c"; m.close(); print("munmap", moved(fd)); os.close(fd); print("close", moved())
print(open("f", "rb").read(4)); os.utime("f", old); open("f", "r+b").write(b"again"); print("written after", moved())
fd = os.open("f", os.O_RDWR); m = mmap.mmap(fd, 0); os.close(fd); m[0:1] = b"z"; os.utime("f", old); m[8191:] = b"Z"; m.close()
print("after the close", moved()); os.truncate("f", 3); print(open("f").read())'"#;

const MAPPED_ATTRIBUTES: &str = r#"python3 -c '
import mmap, os
def again(what):
    try:
        with open("f", "r+b") as f: m = mmap.mmap(f.fileno(), 0); m[0:1] = b"q"; m.close()
        open("f", "wb").write(b"x" * 4096); print(what, "written")
    except OSError as e: print(what, e.errno)
for what in (lambda fd: os.utime("f", (1000, 1000)), lambda fd: os.chmod("f", 0o640), lambda fd: os.fchmod(fd, 0o600),
             lambda fd: os.chown("f", 12, 34), lambda fd: os.setxattr("f", "user.a", b"1"), lambda fd: os.removexattr("f", "user.a"),
             lambda fd: os.link("f", "g"), lambda fd: os.unlink("g"), lambda fd: os.rename("f", "g") or os.rename("g", "f"),
             lambda fd: os.ftruncate(fd, 4096), lambda fd: os.pwrite(fd, b"w", 9), lambda fd: open("f", "rb").read()):
    if not os.path.exists("f"): open("f", "wb").write(b"x" * 4096)
    fd = os.open("f", os.O_RDWR); m = mmap.mmap(fd, 0); m[0:1] = b"y"; m.flush(); what(fd); m[1:2] = b"z"; what and m.close(); os.close(fd)
    again("then"); print(oct(os.stat("f").st_mode), os.stat("f").st_uid, os.stat("f").st_size)'"#;

const DIRECTORY_TIMES: &str = r#"python3 -c '
import os
def times(p="d"): s = os.stat(p); return s.st_mtime if s.st_mtime < 2000 else "now"
os.mkdir("d"); open("d/f", "w").write("x"); print(times()); os.utime("d", (1000, 1000)); print("set", times())
g = os.open("d/g", os.O_WRONLY | os.O_CREAT); print("made", times()); os.utime("d", (1001, 1001)); print("set while open", times()); os.write(g, b"x"); print(times()); os.close(g); print("closed", times())
open("d/f", "w").write("again"); print("written", times()); open("d/h", "w").close(); os.utime("d", (1002, 1002)); print("set", times()); os.utime("d", ns=(5, 1003 * 10**9)); h = os.open("d/i", os.O_WRONLY | os.O_CREAT); os.close(h); print("empty", times());'
    mkdir -p t/u/v; echo x >t/u/f; echo y >t/u/v/g; touch -d @1000000000 t/u/v t/u t; mkdir x; tar -cf - t | tar -xf - -C x; cp -a t c; find t x/t c -printf '%p %T@\n' | grep -v '/[fg] ' | sort"#;

const ACCESS_TIMES: &str = r#"python3 -c '
import mmap, os
open("f", "wb").write(b"x" * 9000); os.mkdir("d"); open("d/e", "w"); os.symlink("f", "l")
def check(what, path, call):
    os.utime(path, (1000, 2000), follow_symlinks=False); call(); print(what, os.lstat(path).st_atime != 1000)
def direct(flags, call=lambda fd: os.read(fd, 9)):
    fd = os.open("f", flags); call(fd); os.close(fd)
check("stat", "f", lambda: os.stat("f")); check("open", "f", lambda: direct(os.O_RDONLY, lambda fd: None))
check("read", "f", lambda: direct(os.O_RDONLY)); check("read and write", "f", lambda: direct(os.O_RDWR))
check("O_NOATIME", "f", lambda: direct(os.O_RDONLY | os.O_NOATIME)); check("write", "f", lambda: direct(os.O_WRONLY, lambda fd: os.write(fd, b"w")))
check("append", "f", lambda: direct(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"w"))); check("truncate", "f", lambda: os.truncate("f", 100))
check("mapping", "f", lambda: direct(os.O_RDONLY, lambda fd: mmap.mmap(fd, 0, prot=mmap.PROT_READ)[0]))
check("link", "f", lambda: os.link("f", "g")); check("rename", "f", lambda: os.rename("g", "f")); check("chmod", "f", lambda: os.chmod("f", 0o600))
check("xattr", "f", lambda: os.listxattr("f")); check("listing", "d", lambda: os.listdir("d")); check("look-up", "d", lambda: os.stat("d/e"))
check("readlink", "l", lambda: os.readlink("l")); check("rename over", "f", lambda: (open("n", "w").write("n"), os.rename("n", "g")))
fd = os.open("g", os.O_RDONLY); os.utime("g", (1000, 2000)); out = os.open("h", os.O_WRONLY | os.O_CREAT); os.copy_file_range(fd, out, 1)
os.utime("g", (1000, 2000)); open("g", "r+b").close(); os.unlink("h"); print(os.fstat(fd).st_atime != 1000)'"#;

const DIRECT_MAPPED: &str = r#"python3 -c '
import mmap, os
open("f", "wb").write(b"x" * 12288); fd = os.open("f", os.O_RDWR | os.O_DIRECT); b = mmap.mmap(-1, 4096)
def read(at): n = os.preadv(fd, [b], at); return n, bytes(b[:4])
m = mmap.mmap(fd, 0); m[0:4] = b"mmap"; m.flush(); print(read(0)); m[4096:4100] = b"more"; print(read(4096))
b[:4] = b"dio!"; print(os.pwritev(fd, [b], 0), m[0:4], open("f", "rb").read(4)); m[0:4] = b"back"; m.flush(); print(read(0))
os.ftruncate(fd, 5000); print(read(4096), len(m)); c = os.open("f", os.O_RDWR); os.pwrite(c, b"cache", 4096); print(read(4096), m[4096:4101])
print(os.fstat(fd).st_size); m.close(); os.fsync(fd); print(open("f", "rb").read().count(b"x"))'"#;

const MAPPED_PROCESSES: &str = r#"python3 -c '
import mmap, os
open("f", "wb").write(bytes(64 * 4096)); pids = []
for n in range(4):
    pid = os.fork()
    if pid == 0:
        fd = os.open("f", os.O_RDWR); m = mmap.mmap(fd, 0); os.close(fd)
        for i in range(n, 64 * 4096, 4): m[i] = n + 1
        os._exit(0)
    pids.append(pid)
print([os.waitpid(p, 0)[1] for p in pids]); data = open("f", "rb").read(); print([data.count(n) for n in range(6)], data[:8])
r, w = os.pipe(); s, t = os.pipe(); fd = os.open("f", os.O_RDWR)
if os.fork() == 0:
    m = mmap.mmap(os.open("f", os.O_RDWR), 0); os.read(r, 1); print(bytes(m[:4]), bytes(m[4:8]), flush=True); m[8:12] = b"thrd"; os.write(t, b"x"); os._exit(0)
m = mmap.mmap(fd, 0); m[:4] = b"frst"; os.pwrite(fd, b"scnd", 4); os.write(w, b"x"); os.read(s, 1); print(bytes(m[8:12]), os.pread(fd, 4, 8)); os.wait()'"#;

const MAPPED_TRUNCATED: &str = r#"python3 -c '
import mmap, os
open("f", "wb").write(b"x" * 16384); fd = os.open("f", os.O_RDWR); m = mmap.mmap(fd, 0)
print(m[9000]); os.ftruncate(fd, 5000); print(m[4999], m[5000]); m[5000] = 65; os.ftruncate(fd, 8192); print(m[5000], os.pread(fd, 2, 4999))
if os.fork() == 0: m[12000]; os._exit(0)
print("signal", os.wait()[1] & 127); os.truncate("f", 16384); print(m[12000]); m[12000] = 66; print(os.pread(fd, 1, 12000))
g = os.open("f", os.O_RDWR | os.O_TRUNC); print(os.fstat(fd).st_size)
if os.fork() == 0: m[0]; os._exit(0)
print("signal", os.wait()[1] & 127); os.write(g, b"y" * 100); print(m[0], m[100])'"#;

const BUSY: &str = r#"cp "$(command -v sleep)" z; python3 -c '
import os, subprocess
w = os.open("z", os.O_RDWR)
try: subprocess.Popen(["./z", "0"]).wait(); print("ran")
except OSError as e: print("exec while open for writing", e.errno)
os.close(w)
p = subprocess.Popen(["./z", "60"])
while os.readlink("/proc/%d/exe" % p.pid) != os.path.realpath("z"): pass
def call(what, f):
    try: f(); print(what, "done")
    except OSError as e: print(what, e.errno)
call("open", lambda: os.open("z", os.O_WRONLY)); call("append", lambda: os.open("z", os.O_WRONLY | os.O_APPEND)); call("truncate", lambda: os.truncate("z", 0))
call("O_TRUNC", lambda: os.open("z", os.O_WRONLY | os.O_TRUNC)); print(os.stat("z").st_size > 1000)
call("unlink", lambda: os.unlink("z")); call("another", lambda: open("z", "w").write("new")); p.kill(); print(p.wait())
w = open("z", "r+"); print(w.read(9))'"#;

const WAITING: &str = r#"python3 -c '
import errno, fcntl, os, signal, time
open("f", "w").write("0123456789")
def hold(kind):
    r, w = os.pipe(); pid = os.fork()
    if pid == 0:
        g = open("f", "r+"); kind(g, fcntl.LOCK_EX); os.write(w, b"x"); signal.pause()
    os.read(r, 1); return pid
class Alarm(Exception): pass
def ring(*a): raise Alarm
signal.signal(signal.SIGALRM, ring); signal.signal(signal.SIGINT, ring)
for name, kind in ("flock", fcntl.flock), ("lockf", fcntl.lockf):
    pid = hold(kind); f = open("f", "r+")
    try: kind(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print(name, "locked")
    except OSError as e: print(name, e.errno)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try: kind(f, fcntl.LOCK_EX); print(name, "locked")
    except Alarm: print(name, "timed out")
    waiter = os.fork()
    if waiter == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL); kind(open("f", "r+"), fcntl.LOCK_EX); os._exit(0)
    while "lock" not in open("/proc/%d/wchan" % waiter).read() and open("/proc/%d/stat" % waiter).read().split()[2] != "S": pass
    os.kill(waiter, signal.SIGINT); print(name, "waiter ended by", os.waitpid(waiter, 0)[1])
    waiter = os.fork()
    if waiter == 0: kind(open("f", "r+"), fcntl.LOCK_EX); os._exit(7)
    while open("/proc/%d/stat" % waiter).read().split()[2] != "S": pass
    os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0); print(name, "then got it", os.waitpid(waiter, 0)[1] >> 8)
    kind(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print(name, "mine"); f.close(); g = open("f", "r+"); kind(g, fcntl.LOCK_EX | fcntl.LOCK_NB); print(name, "free after close")
    g.close()'"#;

const LEASES: &str = r#"python3 -c '
import fcntl, os, signal
open("f", "w").write("x"); seen = []
signal.signal(signal.SIGIO, lambda *a: seen.append("broken"))
def call(what, fd, kind):
    try: print(what, fcntl.fcntl(fd, fcntl.F_SETLEASE, kind))
    except OSError as e: print(what, e.errno)
fd = os.open("f", os.O_RDONLY); call("read", fd, fcntl.F_RDLCK); print(fcntl.fcntl(fd, fcntl.F_GETLEASE)); call("none", fd, fcntl.F_UNLCK); call("write", fd, fcntl.F_WRLCK); call("none", fd, fcntl.F_UNLCK)
g = os.open("f", os.O_RDWR); call("read beside a writer", fd, fcntl.F_RDLCK); os.close(fd); call("write", g, fcntl.F_WRLCK); os.close(g)
fd = os.open("f", os.O_RDONLY); call("read again", fd, fcntl.F_RDLCK)
try: os.open("f", os.O_WRONLY | os.O_NONBLOCK); print("opened")
except OSError as e: print(e.errno)
print(seen); os.close(fd); os.close(os.open("f", os.O_WRONLY | os.O_NONBLOCK))'"#;

const STAGED: &str = r#"python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def rename(a, b, flags): return ctypes.get_errno() if libc.renameat2(-100, a.encode(), -100, b.encode(), flags) else 0
def new(n): return os.open(n, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
def call(what, f, *a):
    try: r = f(*a)
    except OSError as e: r = e.errno
    print(what, r if not isinstance(r, (list, os.stat_result)) else sorted(r) if isinstance(r, list) else (r.st_nlink, r.st_size, oct(r.st_mode)))
def texts(): return {n: open(n).read() for n in sorted(os.listdir(".")) if os.path.isfile(n)}
a = new("a"); call("rename before a byte", os.rename, "a", "b"); os.write(a, b"A"); call("stat", os.stat, "b"); print(texts())
c = new("c"); os.write(c, b"C"); call("over a published one", os.rename, "c", "b"); os.write(c, b"c"); os.write(a, b"lost"); print(texts(), os.fstat(a).st_nlink)
d = new("d"); e = new("e"); os.write(e, b"E"); call("over an empty one", os.rename, "e", "d"); os.write(d, b"D"); print(texts(), os.fstat(d).st_nlink)
f = new("f"); print("no replace", rename("d", "f", 1), rename("f", "g", 1)); h = new("h"); os.write(h, b"H"); print("exchange", rename("g", "h", 2), texts())
call("link", os.link, "g", "i"); i = new("j"); call("link of none", os.link, "j", "k"); os.write(i, b"J"); call("links", os.stat, "k"); print(texts())
l = new("l"); call("unlink", os.unlink, "l"); os.write(l, b"L"); call("gone", os.stat, "l"); call("its size", os.fstat, l); call("mkdir there", os.mkdir, "l")
m = new("l/m"); call("rmdir", os.rmdir, "l"); call("listing", os.listdir, "l"); call("rename of its directory", os.rename, "l", "n"); os.write(m, b"M"); print(open("n/m").read())
o = new("o"); os.chmod("o", 0o600); os.utime("o", (1, 2)); os.truncate("o", 5); call("o", os.stat, "o"); os.setxattr("o", "user.a", b"1"); print(os.listxattr("o")); os.symlink("o", "p"); print(open("p").read().encode())
os.mkdir("q"); q = new("q/r"); call("rename over its directory", os.rename, "n", "q"); os.unlink("q/r"); call("now", os.rename, "n", "q"); call("names", os.listdir, ".")
s = new("s"); t = os.open("s", os.O_RDONLY); u = os.open("s", os.O_RDWR); os.write(s, b"one"); os.pwrite(u, b"two", 3); print(os.read(t, 9), os.fstat(t).st_size)'"#;

const NAMELESS: &str = r#"python3 -c '
import os
def call(what, f):
    try: r = f()
    except OSError as e: r = e.errno
    print(what, r)
def proc(fd): return "/proc/self/fd/%d" % fd
open("f", "w").write("content"); p = os.open("f", os.O_PATH); call("fchmod of O_PATH", lambda: os.fchmod(p, 0o600)); call("read", lambda: os.read(p, 1))
call("chmod by /proc", lambda: os.chmod(proc(p), 0o640)); call("stat", lambda: oct(os.fstat(p).st_mode)); call("read by /proc", lambda: open(proc(p)).read())
r = os.open("f", os.O_RDWR); os.unlink("f"); call("read by /proc", lambda: open(proc(p)).read()); call("write by /proc", lambda: open(proc(r), "r+").write("CON"))
call("truncate by /proc", lambda: os.truncate(proc(r), 5)); call("append by /proc", lambda: open(proc(r), "a").write("end")); call("now", lambda: os.pread(r, 99, 0))
call("link of an unlinked file", lambda: os.link(proc(r), "g", follow_symlinks=True)); call("O_TRUNC by /proc", lambda: open(proc(r), "w").close()); call("size", lambda: os.fstat(r).st_size)
call("utime", lambda: os.utime(r, (5, 6))); call("chmod", lambda: os.fchmod(r, 0o400)); call("xattr", lambda: (os.setxattr(r, "user.x", b"y"), os.getxattr(r, "user.x"))); call("links", lambda: os.fstat(r).st_nlink)
d = os.open(".", os.O_RDONLY); call("create", lambda: os.close(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=d))); call("link of a name", lambda: os.link("new", "other", src_dir_fd=d, dst_dir_fd=d)); print(sorted(os.listdir(d)))
call("O_NOFOLLOW", lambda: os.open(proc(r), os.O_RDONLY | os.O_NOFOLLOW)); call("readlink", lambda: os.readlink(proc(r)).endswith("/f (deleted)"))'"#;

const ORPHANS: &str = r#"python3 -c '
import os
def call(what, f):
    try: r = f()
    except OSError as e: r = e.errno
    print(what, r)
os.mkdir("d"); os.mkdir("d/e"); f = os.open("d/e/f", os.O_RDWR | os.O_CREAT, 0o644); os.write(f, b"data"); e = os.open("d/e", os.O_RDONLY)
os.unlink("d/e/f"); os.rmdir("d/e"); os.rmdir("d"); call("fstat", lambda: (os.fstat(f).st_nlink, os.fstat(f).st_size)); call("write", lambda: os.write(f, b"more"))
call("fchmod", lambda: os.fchmod(f, 0o600)); call("ftruncate", lambda: os.ftruncate(f, 6)); call("read", lambda: os.pread(f, 99, 0)); call("fsync", lambda: os.fsync(f))
call("listing", lambda: os.listdir(e)); call("links", lambda: os.fstat(e).st_nlink); call("create", lambda: os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=e)); call("mkdir", lambda: os.mkdir("x", dir_fd=e))
call("up", lambda: os.stat("..", dir_fd=e).st_nlink); call("fsync", lambda: os.fsync(e)); call("fchmod", lambda: os.fchmod(e, 0o700)); call("rename into", lambda: (open("y", "w"), os.rename("y", "y", dst_dir_fd=e)))
os.mkdir("d"); os.mkdir("d/e"); call("the new one", lambda: os.listdir("d/e")); call("the old one still", lambda: os.listdir(e)); os.close(f); os.close(e); call("names", lambda: sorted(os.listdir(".")))'"#;

const TEMPORARY: &str = r#"python3 -c '
import os, shutil, tempfile
tempfile.tempdir = "."
with tempfile.TemporaryFile() as f: f.write(b"x" * 9000); f.flush(); f.seek(0); print(len(f.read()), os.fstat(f.fileno()).st_nlink, os.listdir("."))
with tempfile.NamedTemporaryFile() as f: f.write(b"abc"); f.flush(); print(open(f.name).read(), oct(os.stat(f.name).st_mode))
with tempfile.TemporaryDirectory() as d: open(d + "/x", "w").write("y"); shutil.copytree(d, d + "/z"); print(sorted(os.listdir(d)))
with tempfile.SpooledTemporaryFile(10) as f: f.write(b"y" * 100); f.seek(0); print(len(f.read()))
print(os.listdir("."))'
    T=$(mktemp ./t.XXXXXX); stat -c %a "$T"; echo x >"$T"; mv "$T" done; cat done; D=$(mktemp -d ./d.XXXXXX); stat -c %a "$D"; rmdir "$D"; seq 100000 | sort -S 100K -T . -n | tail -n 1; ls"#;

const KILLED: &str = r#"python3 -c '
import os, signal
for at, body in enumerate([
    lambda: os.open("a", os.O_WRONLY | os.O_CREAT), lambda: os.write(os.open("b", os.O_WRONLY | os.O_CREAT), b"half"),
    lambda: (os.open("c", os.O_WRONLY | os.O_CREAT | os.O_EXCL), os.mkdir("d")), lambda: os.write(os.open("e", os.O_RDWR | os.O_CREAT | os.O_APPEND), b"log\n"),
    lambda: (os.write(os.open("t", os.O_WRONLY | os.O_CREAT), b"temp"), os.rename("t", "f")), lambda: os.unlink(("g", os.open("g", os.O_RDWR | os.O_CREAT))[0]),
    lambda: os.open("e", os.O_WRONLY | os.O_TRUNC), lambda: os.truncate("b", 2)]):
    r, w = os.pipe(); pid = os.fork()
    if pid == 0: body(); os.write(w, b"x"); signal.pause()
    os.read(r, 1); os.kill(pid, signal.SIGKILL); print(at, os.waitpid(pid, 0)[1])
print({n: os.stat(n).st_size for n in sorted(os.listdir("."))})
for n in sorted(os.listdir(".")):
    if os.path.isdir(n): os.rmdir(n)
    else: open(n, "a").write("+"); os.rename(n, n + "2"); os.unlink(n + "2")
print(os.listdir(".")); open("a", "x").write("again"); print(open("a").read())'"#;

const LONGEST: &str = r#"python3 -c '
import os
top = os.open(".", os.O_RDONLY); here = len(os.getcwd()); n = 0; part = "d" * 200
while len(os.getcwd()) + 201 < 4000: os.mkdir(part); os.chdir(part); n += 1
os.fchdir(top); rel = "/".join([part] * n); room = 4095 - len(os.getcwd()) - 1 - len(rel) - 1
def call(what, f):
    try: r = f()
    except OSError as e: r = e.errno
    print(what, r)
full = os.getcwd() + "/" + rel + "/"
name = ("e" * 120 + "/") * 10
os.makedirs(rel + "/" + "e" * 60); call("a file", lambda: open(rel + "/f", "w").write("x")); call("255 bytes", lambda: open("n" * 255, "w").write("x")); call("256 bytes", lambda: open("n" * 256, "w"))
pad = "./" * 3000; call("4095 relative", lambda: open((pad[:4094 - len(rel)] + "/" + rel)[:0] + "./" * ((4095 - len(rel) - 2) // 2) + rel + "/f").read()); call("4096", lambda: open("./" * 2048 + "x"))
call("rename", lambda: os.rename(rel + "/f", rel + "/" + "g" * 255)); call("symlink", lambda: os.symlink(rel + "/" + "g" * 60, "l")); call("read", lambda: open("l").read())
call("utf-8", lambda: open("\u00e9" * 127, "w").write("x")); call("bytes", lambda: open(b"\xff\xfe\x01 \n", "w").write("x")); print(len(os.listdir(".")))'"#;

const LARGEST: &str = r#"python3 -c '
import os
fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
def call(what, f, *a):
    try: r = f(*a)
    except OSError as e: r = e.errno
    print(what, r)
for at in 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40 + 1, 2**43, 2**44 - 5000, 2**44, 2**62, 2**63 - 2:
    call("write at %d" % at, os.pwrite, fd, b"xy", at); call("read", os.pread, fd, 4, at); call("truncate", os.ftruncate, fd, at)
call("back", os.ftruncate, fd, 2**40); call("data", os.lseek, fd, 2**20, os.SEEK_DATA); call("hole", os.lseek, fd, 2**31 - 1, os.SEEK_HOLE); call("allocate", os.posix_fallocate, fd, 2**40, 10)
print(os.fstat(fd).st_size, os.fstat(fd).st_blocks < 200); os.truncate("f", 2**33 + 5); print(os.stat("f").st_size, os.pread(fd, 4, 2**33))'"#;

const APPENDERS: &str = r#"python3 -c '
import os
pids = []
for n in range(5):
    pid = os.fork()
    if pid == 0:
        for i in range(60):
            fd = os.open("f", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644); os.write(fd, b"%d-%02d\n" % (n, i)); os.close(fd)
        os._exit(0)
    pids.append(pid)
print([os.waitpid(p, 0)[1] for p in pids]); lines = open("f").read().split("\n"); print(len(lines), len(set(lines)))
print([x for x in lines if x.startswith("3-")] == ["3-%02d" % i for i in range(60)])
a = os.open("g", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644); os.write(a, b"one"); os.pwrite(a, b"two", 0); print(os.lseek(a, 0, 1), os.pread(a, 9, 0)); os.ftruncate(a, 1); os.write(a, b"three"); print(os.pread(a, 9, 0))'"#;

const COPYING: &str = r#"python3 -c '
import os, shutil
open("f", "wb").write(bytes(range(256)) * 1000); os.mkdir("d"); a = os.open("f", os.O_RDONLY); b = os.open("d/g", os.O_RDWR | os.O_CREAT)
n = 0
while True:
    k = os.copy_file_range(a, b, 1 << 20)
    if not k: break
    n += k
print(n, open("d/g", "rb").read() == open("f", "rb").read()); h = os.open("/dev/shm/unclobber-%d" % os.getpid(), os.O_RDWR | os.O_CREAT); os.unlink("/dev/shm/unclobber-%d" % os.getpid())
def call(what, f, *a):
    try: r = f(*a)
    except OSError as e: r = e.errno
    print(what, r)
call("to another filesystem", os.copy_file_range, a, h, 9, 0, 0); call("by sendfile", os.sendfile, h, a, 0, 4096); call("and back", os.sendfile, b, h, 0, 99); p, q = os.pipe()
call("splice out", os.splice, a, q, 100, 0); call("splice in", os.splice, p, b, 100, None, 4000); print(os.pread(b, 8, 4000)); shutil.copyfile("f", "e"); shutil.copy2("f", "i"); print(os.stat("i").st_mtime_ns == os.stat("f").st_mtime_ns)
call("into itself", os.copy_file_range, b, b, 100, 0, 500000); call("read-only target", os.copy_file_range, b, a, 1, 0, 0); print(os.fstat(b).st_size)'"#;

const ATTRIBUTES: &str = r#"python3 -c '
import os
open("f", "w").write("x"); os.mkdir("d"); os.symlink("f", "l"); os.mkfifo("p")
def call(what, *a, **k):
    try: r = getattr(os, what)(*a, **k)
    except OSError as e: r = e.errno
    print(what, [x if len(x) < 20 else len(x) for x in a if isinstance(x, (str, bytes))], sorted(r) if isinstance(r, list) else r if not isinstance(r, bytes) or len(r) < 20 else len(r))
for n in 1, 100, 1000, 2000, 3900, 4096, 65536, 65537: call("setxattr", "f", "user.a", b"v" * n); call("getxattr", "f", "user.a")
for n in 1, 100, 249, 250, 251, 300: call("setxattr", "d", "user." + "n" * n, b"")
for i in range(20): os.setxattr("d", "user.k%02d" % i, b"%d" % i)
print(len(os.listxattr("d")), os.getxattr("d", "user.k07")); call("setxattr", "l", "user.a", b"", follow_symlinks=False); call("setxattr", "p", "user.a", b""); call("setxattr", "l", "trusted.a", b"t", follow_symlinks=False)
call("listxattr", "l", follow_symlinks=False); call("listxattr", "f"); call("setxattr", "f", "user", b""); call("setxattr", "f", "system.nonsense", b""); call("getxattr", "f", "os2.a"); call("removexattr", "f", "trusted.none")'"#;

const SYSTEM_ATTRIBUTES: &str = r#"python3 -c '
import os, struct
def call(what, *a):
    try: r = getattr(os, what)(*a)
    except OSError as e: r = e.errno
    print(what, a[1], sorted(r) if isinstance(r, list) else r)
open("f", "w").write("x"); os.chmod("f", 0o755); cap = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
call("setxattr", "f", "security.other", b"s"); call("getxattr", "f", "security.other"); call("setxattr", "f", "security.capability", cap); call("getxattr", "f", "security.capability")
open("f", "a").write("y"); call("getxattr", "f", "security.capability"); call("setxattr", "f", "security.capability", cap); os.truncate("f", 1); call("getxattr", "f", "security.capability")
call("setxattr", "f", "security.capability", cap); os.chown("f", 5, 5); call("getxattr", "f", "security.capability"); call("setxattr", "f", "security.capability", b"short")
call("setxattr", "f", "system.posix_acl_access", b"nonsense"); call("getxattr", "f", "system.posix_acl_access"); acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in ((1, 6, 2**32 - 1), (2, 4, 1234), (4, 4, 2**32 - 1), (16, 6, 2**32 - 1), (32, 0, 2**32 - 1)))
call("setxattr", "f", "system.posix_acl_access", acl); print(oct(os.stat("f").st_mode)); call("getxattr", "f", "system.posix_acl_access"); os.chmod("f", 0o600); call("getxattr", "f", "system.posix_acl_access")
os.link("f", "g"); call("listxattr", "g") if 0 else print(sorted(os.listxattr("g"))); os.rename("g", "h"); print(sorted(os.listxattr("h")))'"#;

const DEVICES: &str = r#"python3 -c '
import os, stat
for major, minor in (1, 3), (8, 0), (259, 255), (259, 256), (4095, 1048575), (0, 0), (1, 5):
    for kind in stat.S_IFCHR, stat.S_IFBLK:
        n = "%d-%d-%o" % (major, minor, kind)
        try: os.mknod(n, kind | 0o640, os.makedev(major, minor)); s = os.lstat(n); print(n, os.major(s.st_rdev), os.minor(s.st_rdev), oct(s.st_mode), s.st_size)
        except OSError as e: print(n, e.errno)
print(open("1-5-20000", "rb").read(4)); os.rename("1-5-20000", "zero"); os.link("zero", "one"); print(os.stat("one").st_nlink, os.stat("one").st_rdev == os.makedev(1, 5)); os.chmod("one", 0o600); os.utime("one", (1, 2)); print(oct(os.stat("zero").st_mode), os.stat("zero").st_mtime)'"#;

const FLAGS: &str = r#"chmod 777 .; python3 -c '
import fcntl, os, struct
def flags(p, new=None):
    fd = os.open(p, os.O_RDONLY | os.O_NONBLOCK)
    try: r = struct.unpack_from("I", fcntl.ioctl(fd, 0x80086601 if new is None else 0x40086602, struct.pack("Q", new or 0)))[0]
    except OSError as e: r = e.errno
    os.close(fd); return r if new is None else r if r < 200 and r != new else "set"
def call(what, f):
    try: r = f()
    except OSError as e: r = e.errno
    print(what, r)
open("f", "w").write("x"); os.mkdir("d"); os.mkfifo("p"); base = {p: flags(p) for p in ("f", "d", "p")}; print(base)
for p in "f", "d":
    for bit in 0x40, 0x80, 0x8, 0x20, 0x10:
        print(p, hex(bit), flags(p, base[p] | bit), hex(flags(p)))
        call("write", lambda: open("f", "r+").write("yy")); call("append", lambda: open("f", "a").write("zzz")); call("both", lambda: os.write(os.open("f", os.O_RDWR | os.O_APPEND), b"zzzz")); call("truncate", lambda: os.truncate("f", 1)); call("chmod", lambda: os.chmod(p, 0o644 if p == "f" else 0o755))
        call("create", lambda: open("d/n", "w").close()); call("unlink", lambda: os.unlink("d/n")); call("rename", lambda: (os.rename("f", "g"), os.rename("g", "f"))[0]); call("link", lambda: (os.link("f", "g"), os.unlink("g"))[0]); flags(p, base[p])
    if p == "d" and os.path.exists("d/n"): os.unlink("d/n")
call("extended", lambda: fcntl.ioctl(os.open("f", os.O_RDONLY), 0x801c581f, bytes(28))[:4]); call("generation", lambda: len(fcntl.ioctl(os.open("f", os.O_RDONLY), 0x80087601, bytes(8)))); call("unknown", lambda: fcntl.ioctl(os.open("f", os.O_RDONLY), 0x80086699, bytes(8)))
g = os.open("new", os.O_RDWR | os.O_CREAT); call("of a new file", lambda: fcntl.ioctl(g, 0x80086601, bytes(8))[:4]); os.chown("f", 1234, 1234); os.setgroups([]); os.setgid(1234); os.setuid(1234)
for bit in 0x40, 0x10, 0x20, 0x4000, 0x80: print("user", hex(bit), flags("f", base["f"] | bit), flags("f", base["f"]))
print(flags("d", base["d"] | 0x40)); call("by another", lambda: flags("new", 0x40))'"#;

const HANDLES: &str = r#"python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure): _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_char * 128)]
def handle(p):
    h = Handle(128); m = ctypes.c_int(); r = libc.name_to_handle_at(-100, p, ctypes.byref(h), ctypes.byref(m), 0); return h if r == 0 else ctypes.get_errno()
d = os.open(".", os.O_RDONLY)
def opened(h, flags=os.O_RDONLY): fd = libc.open_by_handle_at(d, ctypes.byref(h), flags); return fd if fd >= 0 else -ctypes.get_errno()
open("f", "w").write("content"); os.link("f", "g"); os.mkdir("e"); open("e/h", "w").write("other"); h, e = handle(b"f"), handle(b"e/h")
fd = opened(h); print(os.read(fd, 99), os.fstat(fd).st_nlink, os.fstat(fd).st_ino == os.stat("g").st_ino); os.unlink("f"); print(os.read(opened(h), 99)); os.rename("g", "i"); w = opened(h, os.O_RDWR); os.write(w, b"CON"); print(open("i").read())
os.rename("e", "k"); print(os.read(opened(e), 99)); os.unlink("k/h"); k = opened(handle(b"k"), os.O_RDONLY | os.O_DIRECTORY); print(os.listdir(k)); same = handle(b"i"); print(bytes(same)[:same.size + 8] == bytes(h)[:h.size + 8])'"#;

const ENDS_OF_TIME: &str = r#"python3 -c '
import os
open("f", "w"); os.mkdir("d"); os.symlink("f", "l")
for sec in -2**40, -2**31 - 1, -2**31, -86400, -2, -1, 0, 1, 2**31 - 1, 2**31, 2**32, 2**33, 2**34 - 2**31 - 1, 2**34, 2**40:
    for ns in 0, 1, 999999999:
        for p in "f", "d", "l":
            try: os.utime(p, ns=(sec * 10**9 + ns, (sec + 1) * 10**9 - ns), follow_symlinks=False); s = os.lstat(p); print(sec, ns, p, s.st_atime_ns, s.st_mtime_ns)
            except OSError as e: print(sec, ns, p, e.errno)'"#;

const SET_ID: &str = r#"chmod 777 .; python3 -c '
import mmap, os
def as_user(uid, gid, groups, what):
    pid = os.fork()
    if pid == 0:
        os.setgroups(groups); os.setgid(gid); os.setuid(uid)
        try: what(); os._exit(0)
        except OSError as e: os._exit(e.errno)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def mapped():
    with open("f", "r+b") as f: m = mmap.mmap(f.fileno(), 0); m[0:1] = b"m"; m.close()
calls = {"write": lambda: open("f", "r+b").write(b"w"), "append": lambda: open("f", "ab").write(b"a"), "truncate": lambda: os.truncate("f", 1), "same size": lambda: os.truncate("f", os.stat("f").st_size),
    "O_TRUNC": lambda: open("f", "wb").close(), "mapping": mapped, "chmod": lambda: os.chmod("f", os.stat("f").st_mode & 0o7777), "chown": lambda: os.chown("f", -1, 77),
    "fallocate": lambda: os.posix_fallocate(os.open("f", os.O_RDWR), 0, 9000), "link": lambda: os.link("f", "g"), "rename": lambda: os.rename("f", "g"), "utime": lambda: os.utime("f"), "copy": lambda: os.copy_file_range(os.open("h", os.O_RDONLY), os.open("f", os.O_WRONLY), 3)}
open("h", "w").write("hhh"); os.chmod("h", 0o666)
for mode in 0o6777, 0o2767, 0o6755:
    for name, call in calls.items():
        for uid, gid, groups in (0, 0, []), (1234, 4321, [77]), (1234, 77, []), (99, 99, []):
            open("f", "w").write("abc"); os.chown("f", 1234, 77); os.chmod("f", mode); r = as_user(uid, gid, groups, call); n = "g" if os.path.exists("g") else "f"
            print(oct(mode), name, uid, gid, groups, r, oct(os.stat(n).st_mode)[-4:])
            for n in "f", "g":
                if os.path.exists(n): os.unlink(n)
for dmode in 0o777, 0o2777:
    os.mkdir("d"); os.chown("d", 0, 77); os.chmod("d", dmode)
    for uid, gid, groups in (1234, 4321, []), (1234, 4321, [77]), (1234, 77, []), (0, 0, []):
        def make():
            os.umask(0); os.close(os.open("d/f", os.O_CREAT | os.O_WRONLY, 0o6775)); os.close(os.open("d/x", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o2777)); os.mkdir("d/d", 0o6777); os.mknod("d/n", 0o102775)
        print(oct(dmode), uid, gid, groups, as_user(uid, gid, groups, make), [(n, oct(os.stat("d/" + n).st_mode), os.stat("d/" + n).st_uid, os.stat("d/" + n).st_gid) for n in sorted(os.listdir("d"))])
        for n in os.listdir("d"): (os.rmdir if n == "d" else os.unlink)("d/" + n)
    os.rmdir("d")'"#;

const ACL_SET_ID: &str = r#"for who in "1234 4321 --clear-groups" "1234 77 --clear-groups" "1234 4321 --groups=77" "0 0 --clear-groups"; do
    set -- $who; for m in 2755 6777 2767; do echo x >f; mkdir d; chown 1234:77 f d; chmod $m f d
    setpriv --reuid $1 --regid $2 $3 -- setfacl -m u:99:rwx f; setpriv --reuid $1 --regid $2 $3 -- setfacl -m u:99:rwx d
    setpriv --reuid $1 --regid $2 $3 -- setfacl -d -m u:99:rwx d; stat -c "$who $m %n %a" f d; rm f; rmdir d; done; done"#;

const FIFOS: &str = r#"python3 -c '
import os, select, signal, socket
os.mkfifo("p", 0o600)
if os.fork() == 0: w = os.open("p", os.O_WRONLY); os.write(w, b"through"); os._exit(0)
r = os.open("p", os.O_RDONLY); print(os.read(r, 99), os.read(r, 9)); os.wait(); os.close(r)
try: os.open("p", os.O_WRONLY | os.O_NONBLOCK)
except OSError as e: print(e.errno)
pid = os.fork()
if pid == 0: os.open("p", os.O_RDONLY); os._exit(0)
while open("/proc/%d/stat" % pid).read().split()[2] != "S": pass
os.kill(pid, signal.SIGINT); print(os.waitpid(pid, 0)[1] & 127)
a = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); a.bind("s"); b = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); b.sendto(b"gram", "s"); print(a.recv(9), oct(os.stat("s").st_mode))
os.chmod("s", 0o700); os.link("s", "t"); b.sendto(b"by link", "t"); print(a.recv(9), a.getsockname()); os.unlink("s"); b.sendto(b"still", "t"); print(a.recv(9)); os.unlink("t"); print(os.listdir("."))'"#;

const INOTIFY: &str = r#"python3 -c '
import ctypes, mmap, os, struct
libc = ctypes.CDLL(None); fd = libc.inotify_init1(os.O_NONBLOCK); open("f", "w").write("x" * 100); os.mkdir("d"); os.mkdir("e")
for n in b"f", b"d", b"e": libc.inotify_add_watch(fd, n, 0xfff)
def seen(what):
    out = []
    try:
        data = os.read(fd, 9999)
        while data:
            w, mask, cookie, n = struct.unpack_from("iIII", data); out.append((w, hex(mask), data[16:16 + n].rstrip(b"\0").decode())); data = data[16 + n:]
    except BlockingIOError: pass
    print(what, out)
g = open("f"); g.read(); seen("read"); g.close(); seen("closed"); g = open("f", "r+"); g.write("y"); g.flush(); seen("written"); g.close(); seen("closed"); os.chmod("f", 0o600); seen("chmod"); os.truncate("f", 5); seen("truncate")
os.utime("f", (1, 2)); seen("utime"); os.link("f", "d/l"); seen("link"); os.rename("d/l", "e/m"); seen("across"); open("d/n", "w").write("n"); seen("created"); os.rename("d/n", "e/m"); seen("over"); os.unlink("e/m"); seen("unlink"); os.rmdir("d"); seen("rmdir")
os.unlink("f"); seen("last name"); open("e/x", "x").close(); os.setxattr("e/x", "user.a", b"1"); os.symlink("x", "e/y"); os.mkdir("e/z"); seen("others"); os.rename("e", "k"); seen("itself")'"#;

/// What is opened by a handle is the file that had it, wherever it is by now, and never the next of its number.
const FORGOTTEN: &str = r#"python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True); d = os.open(".", os.O_RDONLY)
class Handle(ctypes.Structure): _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_char * 128)]
def handle(n):
    h = Handle(128); m = ctypes.c_int(); assert libc.name_to_handle_at(-100, n.encode(), ctypes.byref(h), ctypes.byref(m), 0) == 0; return h
def forget():
    os.sync()
    for _ in range(3): open("/proc/sys/vm/drop_caches", "w").write("2")
def opened(h, flags=os.O_RDONLY):
    fd = libc.open_by_handle_at(d, ctypes.byref(h), flags)
    return fd if fd >= 0 else -ctypes.get_errno()
def read(h):
    fd = opened(h)
    if fd < 0: return fd
    with open(fd) as f: return f.read()
def listed(h):
    fd = opened(h, os.O_RDONLY | os.O_DIRECTORY)
    return sorted(os.listdir(fd)) if fd >= 0 else fd
os.makedirs("a/b/c"); os.mkdir("z"); hs = {}
for n in "a/f", "a/linked", "a/moved", "a/gone", "a/b/deep", "a/b/c/deeper": open(n, "w").write("content of " + n); hs[n] = handle(n)
for n in "a", "a/b", "a/b/c": hs[n] = handle(n)
os.link("a/linked", "z/other"); os.unlink("a/linked"); os.rename("a/moved", "z/moved"); os.unlink("a/gone")
for n in range(20): open("a/new%d" % n, "w").write("new")
forget()
for n in sorted(hs): print(n, read(hs[n]) if n.count("/") and not n.endswith(("b", "c")) else listed(hs[n]))
os.rename("a/b", "z/b"); forget(); print("moved", read(hs["a/b/c/deeper"]), listed(hs["a/b/c"]), listed(hs["a/b"]))
forget(); fd = opened(hs["a/b/c"], os.O_RDONLY | os.O_DIRECTORY); os.fchdir(fd); print(os.getcwd().split("/")[-3:], os.listdir("../.."), open("deeper").read())
forget(); fd = opened(hs["a/f"], os.O_RDWR | os.O_APPEND); print(os.write(fd, b", and more"), os.fstat(fd).st_nlink); os.close(fd); print(read(hs["a/f"]))
os.chdir("../../.."); fd = os.open("z/moved", os.O_RDONLY); os.unlink("z/moved"); print("open", read(hs["a/moved"])); os.close(fd); forget(); print("closed", read(hs["a/moved"]))
hs["a"].bytes = b"nothing of any filesystem"; hs["a"].size = 12; print(opened(hs["a"]) < 0)'"#;

/// The reader was opened while the file was being written: what it has open keeps nobody from executing the file.
const BESIDE: &str = r##"python3 -c '
import os, subprocess
def run():
    try: return subprocess.run(["./f"], capture_output=True, text=True).stdout
    except OSError as e: return e.errno
w = os.open("f", os.O_WRONLY | os.O_CREAT, 0o755); os.write(w, b"#!/bin/sh\necho ran\n"); print("writing", run())
r = os.open("f", os.O_RDONLY); print(os.read(r, 9)); os.close(w); print("beside", run())
w = os.open("f", os.O_RDWR); print("writing again", run()); os.close(w); print(run()); os.close(r); print(run())'"##;

/// A directory of several kinds of names, of which some are not published yet, and many: read, gone back in, and read again
/// after half of the names went.
const SEEKING: &str = r#"python3 -c '
import ctypes, os, random
libc = ctypes.CDLL(None, use_errno=True); libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p; libc.telldir.restype = ctypes.c_long
def name(d):
    e = libc.readdir(ctypes.c_void_p(d)); return e and ctypes.string_at(e + 19)
def tell(d): return libc.telldir(ctypes.c_void_p(d))
def seek(d, to): libc.seekdir(ctypes.c_void_p(d), ctypes.c_long(to))
def all_from(d): return list(iter(lambda: name(d), None))
for count in 0, 3, 5000:
    os.mkdir("d"); open_files = [open("d/staged%d" % n, "w") for n in range(3)]
    for n in range(count): os.mknod("d/%s%d" % ("x" * (n % 60), n))
    d = libc.opendir(b"d"); at = []
    while True:
        where = tell(d); n = name(d)
        if n is None: break
        at.append((where, n))
    end = tell(d); names = [n for _, n in at]; print(len(names), len(set(names)), name(d), sorted(n for n in names if b"staged" in n))
    random.seed(1); tries = [random.randrange(len(at)) for _ in range(20)] + [0, len(at) - 1]
    wrong = 0
    for t in tries: seek(d, at[t][0]); wrong += name(d) != names[t]
    seek(d, at[len(at) // 2][0]); rest = all_from(d); print("wrong", wrong, rest == names[len(at) // 2:]); seek(d, end); print("end", name(d))
    gone = set(names[1::2]) - {b".", b".."}
    for n in gone: os.unlink(b"d/" + n)
    for t in 0, len(at) // 3, len(at) - 2:
        seek(d, at[t][0]); print("after", all_from(d) == [n for n in names[t:] if n not in gone])
    libc.rewinddir(ctypes.c_void_p(d)); print(len(all_from(d))); libc.closedir(ctypes.c_void_p(d))
    for f in open_files: f.close()
    for n in os.listdir("d"): os.unlink("d/" + n)
    os.rmdir("d")'"#;
