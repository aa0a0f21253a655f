//! What a kernel that remembers attributes may get wrong: it was told of them before, and they move without a request that
//! would tell it so.

use std::path::Path;

use crate::Case;
use crate::transcript::shell;

macro_rules! script {
    ($name:literal, $text:expr) => {
        script!($name, false, $text)
    };
    ($name:literal, $root:literal, $text:expr) => {
        Case {
            name: $name,
            needs: &["python3"],
            root: $root,
            run: |directory: &Path| shell(directory, $text),
        }
    };
}

pub(crate) const CASES: &[Case] = &[
    script!("times of a mapped file that were known before", MAPPED),
    script!("times of what was copied from", COPIED),
    script!("times of what others have open", OPEN_ELSEWHERE),
    script!("appending switched off and on", SETFL),
    script!("what was stored and unmapped", UNMAPPED),
    script!("times of what has flags", true, FLAGS),
    script!("numbers in a listing", LISTING),
    script!("emptying what runs", EMPTIED),
];

/// At every level: `f` is guarded, `f.o` is off. By another process each time, and looked at before, meanwhile and after.
const MAPPED: &str = r#"python3 -c '
import mmap, os
def child(what):
    pid = os.fork()
    if pid == 0:
        try: what(); os._exit(0)
        except OSError as e: os._exit(e.errno)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def moved(n): s = os.stat(n); return s.st_mtime != 1000, s.st_ctime_ns
for n in "f", "f.o":
    open(n, "wb").write(b"x" * 8192)
    def store(close_first=False):
        fd = os.open(n, os.O_RDWR); m = mmap.mmap(fd, 0)
        if close_first: os.close(fd)
        m[0:1] = b"y"; m.close()
    def look(what, call):
        os.utime(n, (1000, 1000)); before = moved(n); r = child(call); after = moved(n); print(n, what, r, before[0], after[0], after[1] > before[1])
    look("stored", store); look("closed first", lambda: store(True)); look("only mapped", lambda: mmap.mmap(os.open(n, os.O_RDWR), 0)[0])
    r, w = os.pipe(); s, t = os.pipe(); os.utime(n, (1000, 1000)); print("before", moved(n)[0])
    def wait():
        m = mmap.mmap(os.open(n, os.O_RDWR), 0); os.write(w, b"1"); os.read(s, 1); m[1:2] = b"z"; os.write(w, b"2"); os.read(s, 1); os._exit(0)
    pid = os.fork()
    if pid == 0: wait()
    os.read(r, 1); print("mapped", moved(n)[0]); os.write(t, b"1"); os.read(r, 1); print("stored", moved(n)[0]); os.utime(n, (1000, 1000)); os.write(t, b"2"); os.waitpid(pid, 0); print(open(n, "rb").read(3))'"#;

const COPIED: &str = r#"python3 -c '
import os
open("f", "w").write("x" * 100); os.utime("f", (1000, 1000)); print(os.stat("f").st_atime)
a = os.open("f", os.O_RDONLY); b = os.open("g", os.O_WRONLY | os.O_CREAT | os.O_EXCL); print(os.copy_file_range(a, b, 50), os.fstat(a).st_atime != 1000, os.stat("f").st_atime != 1000, os.stat("f").st_mtime)
os.utime("f", (1000, 1000)); print(os.stat("f").st_atime); print(os.sendfile(b, a, 0, 10), os.stat("f").st_atime != 1000)
os.utime("f", (1000, 1000)); print(os.stat("f").st_atime); r, w = os.pipe(); print(os.splice(a, w, 10, offset_src=0) if hasattr(os, "splice") else len(os.pread(a, 10, 0)), os.stat("f").st_atime != 1000)'"#;

const OPEN_ELSEWHERE: &str = r#"python3 -c '
import os
r, w = os.pipe(); s, t = os.pipe(); open("f", "w").write("x"); os.link("f", "g")
def look(): a = os.stat("f"); b = os.stat("g"); return a.st_size, b.st_size, a.st_mtime != 1000, b.st_mtime != 1000, a.st_mtime_ns == b.st_mtime_ns
pid = os.fork()
if pid == 0:
    for flags in os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_TRUNC:
        os.read(s, 1); fd = os.open("f", flags); os.write(w, b"o"); os.read(s, 1); os.pwrite(fd, b"abc", 7); os.write(w, b"w"); os.read(s, 1); os.close(fd); os.write(w, b"c")
    os._exit(0)
for n in range(4):
    os.utime("f", (1000, 1000)); print(look())
    for what in "open", "written", "closed": os.write(t, b"."); os.read(r, 1); print(what, look())
os.waitpid(pid, 0); print(open("f").read(3).encode())'"#;

const SETFL: &str = r#"python3 -c '
import fcntl, os
for flags in os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_APPEND, os.O_WRONLY, os.O_RDWR:
    for made in 0, os.O_CREAT | os.O_EXCL, os.O_CREAT:
        if os.path.exists("f"): os.unlink("f")
        if not made: open("f", "w").write("0123456789")
        fd = os.open("f", flags | made); d = os.dup(fd); get = lambda: fcntl.fcntl(d, fcntl.F_GETFL) & os.O_APPEND
        out = [os.write(fd, b"one"), get()]; fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) ^ os.O_APPEND)
        out += [get(), os.lseek(fd, 2, os.SEEK_SET), os.write(fd, b"two"), os.lseek(fd, 0, os.SEEK_CUR), os.pwrite(d, b"3", 1)]
        fcntl.fcntl(d, fcntl.F_SETFL, fcntl.fcntl(d, fcntl.F_GETFL) ^ os.O_APPEND); out += [os.lseek(fd, 1, os.SEEK_SET), os.write(fd, b"four"), os.lseek(fd, 0, os.SEEK_CUR)]
        os.close(fd); os.close(d); print(flags, made, out, open("f").read())'"#;

const FLAGS: &str = r#"python3 -c '
import fcntl, os, struct
GET, SET = 0x80086601, 0x40086602
os.mkdir("d"); open("f", "w").write("x"); 
for n in "f", "d":
    before = os.stat(n).st_ctime_ns; fd = os.open(n, os.O_RDONLY); flags = struct.unpack("l", fcntl.ioctl(fd, GET, bytes(8)))[0]
    for flag in 0x80, 0x40:
        fcntl.ioctl(fd, SET, struct.pack("l", flags | flag)); after = os.stat(n).st_ctime_ns; print(n, hex(flag), after > before, os.fstat(fd).st_ctime_ns == after); before = after
    fcntl.ioctl(fd, SET, struct.pack("l", flags)); print(os.stat(n).st_ctime_ns > before)'"#;

/// Of the directory itself, the one above, and what is in it, also when it is listed again from the middle.
const LISTING: &str = r#"python3 -c '
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True); os.makedirs("d/e/f"); b = ctypes.create_string_buffer(4096)
for n in range(3): open("d/e/n%d" % n, "w").write("x")
def entries(fd):
    while True:
        n = libc.syscall(217, fd, b, 4096); at = 0
        if n <= 0: return
        while at < n: ino, off, size = struct.unpack_from("QqH", b, at); yield b.raw[at + 19:at + size].split(b"\0")[0].decode(), ino, off; at += size
for look in False, True, "more":
    if look: [os.stat("d/e/" + n) for n in os.listdir("d/e")]
    if look == "more": [open("d/e/m%d" % n, "w").write("x") for n in range(300)]
    fd = os.open("d/e", os.O_RDONLY); all = list(entries(fd)); print(len(all), [n for n, ino, off in all if ino != os.stat("d/e/" + n).st_ino])
    wrong = []
    for (n, ino, off), following in zip(all, all[1:]): os.lseek(fd, off, 0); wrong += [n for found in [next(entries(fd))] if found[:2] != following[:2]]
    print(wrong, os.lseek(fd, 0, 0), [e[:2] for e in entries(fd)] == [e[:2] for e in all])'"#;

/// By one process: what it has stored through a mapping that is gone again is its own, whatever it does next. Python's own
/// mappings close a descriptor when they go, upon which it is settled whose stores they were.
const UNMAPPED: &str = r#"python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True); libc.mmap.restype = ctypes.c_void_p
def store(fd, at=0):
    m = libc.mmap(None, ctypes.c_long(4096), 3, 1, fd, ctypes.c_long(0)); assert m != ctypes.c_void_p(-1).value; ctypes.memset(m + at, 109, 1); libc.munmap(ctypes.c_void_p(m), ctypes.c_long(4096))
calls = {"write": lambda fd: os.pwrite(fd, b"w", 1), "longer": lambda fd: os.ftruncate(fd, 9000), "shorter": lambda fd: os.ftruncate(fd, 100), "empty": lambda fd: os.ftruncate(fd, 0),
    "allocate": lambda fd: os.posix_fallocate(fd, 0, 10000), "mapped again": lambda fd: store(fd, 5), "append": lambda fd: os.pwrite(fd, b"end", os.fstat(fd).st_size), "copy": lambda fd: os.copy_file_range(os.open("g", os.O_RDONLY), fd, 3)}
open("g", "w").write("ggg")
for how in os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR | os.O_TRUNC, os.O_RDWR:
    for name, call in calls.items():
        if how & os.O_CREAT and os.path.exists("f"): os.unlink("f")
        if not how & os.O_CREAT: open("f", "wb").write(b"x" * 8192)
        fd = os.open("f", how); os.ftruncate(fd, 8192)
        for again in 1, 2:
            store(fd)
            try: r = call(fd)
            except OSError as e: r = "refused %d" % e.errno
            print(how, name, again, r, os.fstat(fd).st_size); os.ftruncate(fd, 8192)
        store(fd, 9); os.close(fd); print(open("f", "rb").read(12))'"#;

/// The kernel looks whether it runs after the daemon has emptied it, where the file is opened for reading.
const EMPTIED: &str = r#"python3 -c '
import os, shutil, subprocess
shutil.copy(shutil.which("sleep"), "s"); os.chmod("s", 0o755); size = os.stat("s").st_size; p = subprocess.Popen(["./s", "60"])
for flags in os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_TRUNC, os.O_WRONLY, os.O_RDWR:
    try: os.close(os.open("s", flags)); print(flags, "opened")
    except OSError as e: print(flags, e.errno)
print(os.stat("s").st_size == size, p.poll()); p.kill(); p.wait()
while True:
    try: os.close(os.open("s", os.O_RDONLY | os.O_TRUNC)); break
    except OSError as e: assert e.errno == 26
print(os.stat("s").st_size)'"#;
